"""What a user may write about a processor; the rest of a chip's file is in `schema.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from hwgen.spec.fields import LOOP_NAME_PATTERN, PRAGMA_NAME_PATTERN, IntExpr, Model, Name, RateExpr

Template = Annotated[str, Field(max_length=20_000)]
SharedBy = Literal["kernel", "block", "thread"]
LoopName = Annotated[str, StringConstraints(pattern=LOOP_NAME_PATTERN)]
PragmaName = Annotated[str, StringConstraints(pattern=PRAGMA_NAME_PATTERN)]


class CacheSchema(Model):
    """A memory that hardware fills by itself. Only the cost model uses it."""

    size: IntExpr
    """Capacity, as `32 KiB` or a number of bytes."""
    bytes_per_cycle: RateExpr
    """Bytes that one worker reads from it per cycle."""
    shared_by: SharedBy = "thread"
    """Who shares one: one worker's `thread`, a `block`, or the whole `kernel`."""
    usable_share: RateExpr = 0.6
    """Share of it that a tile can fill and keep while other data passes through, at most 1. The
    default is an assumption."""


class CodeCostsSchema(Model):
    """Costs of code on a processor, for the search of schedules only. Every default is an
    assumption: for a desktop core or, in fields about threads and blocks, for a GPU."""

    registers: RateExpr = 16
    """Vector registers, or any registers if there are no vectors. The sums of one tile and their
    operands stay in them."""
    loads_per_cycle: RateExpr = 2
    """Loads of one worker per cycle."""
    sum_cycles: RateExpr = 4
    """Latency of an addition to a sum, until the next one can use the result."""
    gather_cycles: RateExpr = 2
    """Cycles of each element that is read or written by itself, because its neighbours are not
    adjacent in memory."""
    reach_bytes: RateExpr = 1024
    """Smallest stride in bytes at which no hardware prefetcher helps."""
    far_cycles: RateExpr = 1
    """Cycles added to each load with at least that stride, and to each copied row that begins that
    far from the last."""
    step_cycles: RateExpr = 0.5
    """Cycles that each step of a sum adds to those of a tile, for its loop and addresses."""
    uneven_factor: RateExpr = 4
    """Slowdown of a tile whose size is known only at run time."""
    narrow_factor: RateExpr = 1
    """Slowdown of vector lanes that multiply integers narrower than their sums, as the C compiler
    widens each factor."""
    serial_share: RateExpr = 0.1
    """Share of the time of a less busy resource (arithmetic, a cache, memory) that does not overlap
    the busiest one, at most 1."""
    barrier_cycles: RateExpr = 40
    """Cycles of a barrier of the threads of a block."""
    hiding_threads: RateExpr = 4
    """Threads of a block for each operation per cycle that are enough to hide latencies."""
    apart_factor: RateExpr = 8
    """Slowdown of accesses that threads make to elements apart from each other, for example of 4
    bytes where memory moves at least 32."""


class InstructionsSchema(Model):
    """Instructions that scalar code retires, as a compiler translates the emitted C. Every default
    but `call` was counted on RV64GC: gcc 12.2 at -O2 -ffp-contract=off, run in an emulator."""

    memory: RateExpr = 1
    """A load or a store of an element."""
    operation: RateExpr = 1
    """A sum, a product, a shift, a comparison, or a conversion between integers and floats."""
    address: RateExpr = 1
    """An array's address: at its start, and in each iteration of a loop that moves it."""
    branch: RateExpr = 1
    """An iteration of a loop, without addresses. A loop that moves no address counts its
    iterations."""
    choice: RateExpr = 2
    """The minimum or maximum of two integers, `select` or `abs`."""
    float_choice: RateExpr = 4
    """The minimum or maximum of two floats: comparisons, and the treatment of NaN."""
    narrowing: RateExpr = 2
    """A sign extension after a cast to 8 or 16 bits that is not stored."""
    division: RateExpr = 7
    """`//` or `%`, with rounding down. A power of two that divides a number known not to be
    negative counts as one operation."""
    call: RateExpr = 40
    """A function of the mathematical library that `functions` does not name."""
    functions: dict[Name, RateExpr] = Field(
        default={"sqrt": 3, "rsqrt": 4, "round": 6, "exp": 45, "floor": 12, "ceil": 12}
    )
    """Each such function, with its call."""
    block: RateExpr = 10
    """The loops of a statement, once: constants, addresses, a function's beginning and end."""
    block_call: RateExpr = 60
    """A call of `memcpy` or `memset`, in addition to its bytes. Loops that copy consecutive
    elements or set them to zero become such a call."""
    copied_byte: RateExpr = 0.44
    """Each byte that `memcpy` copies."""
    filled_byte: RateExpr = 0.16
    """Each byte that `memset` sets."""
    ends: RateExpr = 40
    """Addition to either, if the bytes are not whole words of 8."""


class ParallelLoopSchema(Model):
    """A loop whose iterations run on workers that the loop starts."""

    kind: Literal["parallel"]
    """Started by the loop."""
    level: Literal["block", "thread"] = "thread"
    """What one iteration is: a block or a thread."""
    extent: IntExpr = "1..2147483647"
    """Range of its extent."""
    emit: Template
    """The line before the loop. It names `extent` and `variable`."""
    start_cycles: IntExpr = 8000
    """Cycles to start the workers and to wait for all of them at the end. The default is an
    assumption: two microseconds at 4 GHz."""


class BoundLoopSchema(Model):
    """A loop that is a coordinate of a grid of blocks, or of a block's threads."""

    kind: Literal["bind"]
    """The code has no loop. Each block or thread has its coordinate."""
    level: Literal["block", "thread"]
    """Whose coordinate it is."""
    index: Template
    """The coordinate in code, as `threadIdx.x`."""
    extent: IntExpr
    """Range of its extent."""
    reduces: bool = False
    """Each thread may hold a part of a reduction. The parts are combined through memory that a
    block shares."""


class MarkedLoopSchema(Model):
    """A loop that the compiler of the generated code vectorizes or unrolls."""

    kind: Literal["vectorize", "unroll"]
    """What the compiler does with it."""
    extent: IntExpr = "1..2147483647"
    """Range of its extent."""
    emit: Template
    """The line before the loop. It names `extent` and `variable`."""
    sum: Template = ""
    """With `vectorize`: the line before a loop whose lanes all add to one variable, `sum`. It also
    names `extent` and `variable`. Left out: lanes cannot share a sum."""


class PragmaSchema(Model):
    """A pragma that the C compiler heeds. It changes a loop's speed, never its result."""

    values: IntExpr | None = None
    """Range of its number; left out: it takes none."""
    emit: Template = ""
    """The line before the loop. It names `value`, the number. Needed with `values`."""
    alone: Template = ""
    """The line before the loop if a schedule gives no number; left out: a number is needed."""


class ProcessorSchema(Model):
    """A machine that runs any statement as code."""

    default_memory: Name
    """The workspace of intermediate results that no schedule places."""
    workers: IntExpr = 1
    """Iterations of parallel loops, or blocks of bound ones, that run at once."""
    vector_bytes: IntExpr = 0
    """Bytes of a vector register; 0: no vectors."""
    dot_bytes: IntExpr = 0
    """Widest integers, in bytes, whose products the C compiler adds up in vectors by itself where
    both factors are adjacent in memory; 0: none."""
    operations_per_cycle: RateExpr = 1
    """Operations of one worker per cycle, in one vector lane."""
    memory_bytes_per_cycle: RateExpr = 16
    """Bytes of the caller's arrays that all workers together move per cycle."""
    iteration_cycles: RateExpr = 0.25
    """Cycles that each iteration of a loop adds, if the loop is neither unrolled nor vectorized."""
    units_shared_by: Literal["kernel", "thread"] = "kernel"
    """Who shares the chip's units: the whole `kernel` has one of each, or each `thread`, a worker
    of a parallel loop, has its own units and buses."""
    handover_cycles: IntExpr = 0
    """Cycles from the units' last result to the start of the processor's code, plus those from its
    end until units run again."""
    line_bytes: IntExpr = 64
    """Bytes that one prefetch brings."""
    costs: CodeCostsSchema | None = None
    """Further costs for the search of schedules; left out: the defaults of its fields."""
    instructions: InstructionsSchema | None = None
    """Instructions of scalar code, with loops and addresses. `operations_per_cycle` is then their
    rate, and `iteration_cycles` is not used. Left out: only operations count."""
    threads: IntExpr = 1
    """Most threads of one block."""
    warp: IntExpr = 1
    """Threads that run in lockstep."""
    caches: dict[Name, CacheSchema] = Field(default={})
    """Caches, the smallest first."""
    loops: dict[LoopName, Annotated[
        ParallelLoopSchema | BoundLoopSchema | MarkedLoopSchema, Field(discriminator="kind")
    ]] = Field(default={})  # fmt: skip
    """Ways to run a loop other than one iteration after the other."""
    barrier: Template = ""
    """Code that makes the threads of a block wait for each other."""
    prefetch: Template = ""
    """Code that prefetches the line at `address`; left out: schedules with `prefetch` are
    refused."""
    pragmas: dict[PragmaName, PragmaSchema] = Field(default={})
    """Pragmas that a schedule may use for a loop, by the names in the schedule."""
    language: Literal["c", "c++"] = "c"
    """Language of the generated file."""
    suffix: str = ".c"
    """Suffix of the generated file."""
    function: Template = ""
    """Head of a function that blocks run. It names `name` and `parameters`, and `threads` as in
    `launch`."""
    function_prologue: Template = ""
    """C text at the start of that function, or of the kernel if there are no blocks."""
    launch: Template = ""
    """Starts the blocks. It names `name`, `arguments`, `blocks` and `threads`. The last two are
    lists of the extents of all bound loops of that level, in the order of `loops`, 1 for a loop
    that the kernel does not have."""
