"""A processor: a machine that runs any statement as code, with loops that mean something to it.

It stands beside the intrinsics of `hardware.py`: a chip has units with intrinsics, a processor, or
both. What the generated code looks like is said by templates, as for intrinsics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from hwgen.errors import Location
from hwgen.spec.memory import Level
from hwgen.spec.ranges import Range

WORD_BYTES = 8
"""What the C library copies and sets at once."""

ANY_EXTENT = Range(1, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class LoopKind:
    """A way to run a loop.

    `kind`: "parallel" (iterations run on workers that the loop starts), "bind" (the loop is one
    coordinate of a grid of blocks or of a block's threads), "vectorize" (lanes of one instruction),
    or "unroll". `level`: what each iteration of a parallel or bound loop is: a block or a thread.
    `extent`: allowed extents. `emit`: template of a line before the loop (`extent`, `variable`);
    for "bind" `index` is the expression of the coordinate. `sum`: of "vectorize", the line before a
    loop whose lanes add up the scalar `sum` ("": none may). `reduces`: a bound loop may carry a
    reduction, combined through the block's shared memory. `start_cycles`: of a parallel loop, to
    start its workers and to wait for all of them.
    """

    name: str
    kind: Literal["parallel", "bind", "vectorize", "unroll"]
    location: Location = field(compare=False)
    level: Level = "thread"
    extent: Range = ANY_EXTENT
    emit: str = ""
    index: str = ""
    reduces: bool = False
    start_cycles: int = 0
    sum: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """A level of memory that hardware manages, for the cost model only; smallest first."""

    name: str
    capacity_bytes: int
    bytes_per_cycle: float
    shared_by: Level
    usable_share: float

    @property
    def usable_bytes(self) -> float:
        """What a tile may fill of it."""
        return self.usable_share * self.capacity_bytes


@dataclass(frozen=True, slots=True)
class CodeCosts:
    """What code costs, for the search of schedules; fields as in `CodeCostsSchema`, in cycles,
    bytes, or as their names say."""

    registers: float
    loads_per_cycle: float
    sum_cycles: float
    gather_cycles: float
    reach_bytes: float
    far_cycles: float
    step_cycles: float
    uneven_factor: float
    narrow_factor: float
    serial_share: float
    barrier_cycles: float
    hiding_threads: float
    apart_factor: float


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions that scalar code retires; fields as in `InstructionsSchema`."""

    memory: float
    operation: float
    address: float
    branch: float
    choice: float
    float_choice: float
    narrowing: float
    division: float
    call: float
    functions: tuple[tuple[str, float], ...]
    block: float
    block_call: float
    copied_byte: float
    filled_byte: float
    ends: float

    def rows(self, size_bytes: float, each_byte: float) -> float:
        """Of a call that copies or sets bytes in a row; of few the compiler makes stores."""
        if size_bytes <= WORD_BYTES:
            return size_bytes * self.memory
        ends = self.ends if size_bytes % WORD_BYTES else 0.0
        return self.block_call + ends + size_bytes * each_byte

    def of(self, function: str) -> float:
        """Those of a function of the mathematical library."""
        return dict(self.functions).get(function, self.call)


@dataclass(frozen=True, slots=True)
class Pragma:
    """What a schedule may ask of the compiler about a loop; it never changes what that computes.

    `emit`: the line before the loop, over `value`, a number of `values`; None: it takes no number.
    `alone`: the line where there is no number; "": it needs one.
    """

    name: str
    emit: str = ""
    values: Range | None = None
    alone: str = ""


@dataclass(frozen=True)
class Processor:
    """A machine that runs any statement as code. Every template may also name parameters.

    `default_memory`: the workspace where intermediates live that no schedule places; the whole
    kernel shares it.
    `workers`: iterations of parallel loops (or blocks of bound ones) that run at once.
    `operations_per_cycle`: of one worker on one lane; `lanes_bytes`: width of a vector (0: none).
    `dot_bytes`: of integers whose products the C compiler adds up in lanes by itself, at most.
    `memory_bytes_per_cycle`: of the caller's arrays. `line_bytes`: what one prefetch fetches.
    `iteration_cycles`: of every iteration of a serial loop. `handover_cycles`: from units beside it
    to its code and back. `units_shared_by`: "thread" where each worker has such units of its own.
    `costs`: what else the search of schedules weighs. `instructions`: what scalar code retires, so
    many `operations_per_cycle`; None: only operations count. `threads`: a block's threads at most;
    `warp`: how many of them run in step.

    `barrier`: template that makes a block's threads wait for each other. `prefetch`: template
    over `address` ("" where there is none: refuse the primitive). `pragmas`: what a schedule may
    ask of the compiler of the generated code.
    `function`, `launch`: templates of the head of the function that blocks run (`name`,
    `parameters`, `threads`) and of its start (`name`, `arguments`, `blocks`, `threads`); both are
    "" where no loop is bound. `blocks` and `threads` are lists of integers: the extents of all
    bound loops of that level, as `coordinates` orders them, 1 for those that the kernel does not
    use.
    `function_prologue`: at the start of that function, or of the kernel where there is none.
    """

    location: Location = field(compare=False)
    default_memory: str
    loops: tuple[LoopKind, ...]
    caches: tuple[Cache, ...]
    workers: int
    lanes_bytes: int
    dot_bytes: int
    operations_per_cycle: float
    memory_bytes_per_cycle: float
    iteration_cycles: float
    handover_cycles: int
    units_shared_by: Literal["kernel", "thread"]
    line_bytes: int
    threads: int
    warp: int
    costs: CodeCosts
    instructions: Instructions | None = None
    barrier: str = ""
    prefetch: str = ""
    pragmas: tuple[Pragma, ...] = ()
    language: Literal["c", "c++"] = "c"
    suffix: str = ".c"
    function: str = ""
    launch: str = ""
    function_prologue: str = ""

    @property
    def start_cycles(self) -> int:
        """To start the workers of a parallel loop, and to wait for them; 0 where none has any."""
        return next((x.start_cycles for x in self.loops if x.kind == "parallel"), 0)

    @property
    def sums_in_lanes(self) -> bool:
        """Whether lanes of vectors may share a sum."""
        return any(x.sum for x in self.loops)

    @property
    def teams(self) -> int:
        """How many of the units beside it there are of each: one, or one for each worker."""
        return self.workers if self.units_shared_by == "thread" else 1

    @cached_property
    def loop(self) -> dict[str, LoopKind]:
        return {x.name: x for x in self.loops}

    def runs(self, kind: str) -> str:
        """How the iterations of loops of a name run, as a `LoopKind` says; "": in order."""
        found = self.loop.get(kind)
        return "" if found is None else found.kind

    @cached_property
    def pragma(self) -> dict[str, Pragma]:
        return {p.name: p for p in self.pragmas}

    def coordinates(self, level: Level) -> tuple[LoopKind, ...]:
        """Bound loops of a level, in the order of `launch`'s `blocks` and `threads`."""
        return tuple(x for x in self.loops if x.kind == "bind" and x.level == level)
