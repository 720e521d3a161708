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
    """A memory that hardware fills by itself; only the cost model reads it."""

    size: IntExpr
    """Capacity, as `32 KiB` or a number of bytes."""
    bytes_per_cycle: RateExpr
    """Bytes that one worker reads from it per cycle."""
    shared_by: SharedBy = "thread"
    """Who shares one: one worker's `thread`, a `block`, or the whole `kernel`."""
    usable_share: RateExpr = 0.6
    """Part of it that a tile may fill and stay there beside what else passes through; at most 1;
    the default is assumed."""


class CodeCostsSchema(Model):
    """What code costs on a processor, for the search of schedules alone. Every default is assumed,
    as of a desktop core, or, where only threads and blocks have it, of a GPU."""

    registers: RateExpr = 16
    """Vector registers, or, without vectors, any: the sums of one tile, and what they are made of,
    stay in them."""
    loads_per_cycle: RateExpr = 2
    """Loads of one worker per cycle."""
    sum_cycles: RateExpr = 4
    """Cycles until what an operation adds to a sum can go into the next one."""
    gather_cycles: RateExpr = 2
    """Cycles of each element that is read or written by itself, as its neighbours lie apart."""
    reach_bytes: RateExpr = 1024
    """Steps through memory from which on no prefetcher of the hardware helps."""
    far_cycles: RateExpr = 1
    """Cycles that each load adds whose steps are that far, and each row that is copied from that
    far past the one before."""
    step_cycles: RateExpr = 0.5
    """Cycles that each step of a sum adds to those of a tile: its loop, and addresses."""
    uneven_factor: RateExpr = 4
    """How many times as long a tile takes whose size is known only when it runs."""
    serial_share: RateExpr = 0.1
    """Part of what keeps one resource busy (arithmetic, a cache, memory) that does not pass beside
    what keeps the busiest one; at most 1."""
    barrier_cycles: RateExpr = 40
    """Cycles of a barrier of the threads of a block."""
    hiding_threads: RateExpr = 4
    """Threads of a block for each operation per cycle at which their latencies are hidden."""
    apart_factor: RateExpr = 8
    """How many times as long elements take that threads touch apart from each other, as those of 4
    bytes where memory moves 32 at least."""


class InstructionsSchema(Model):
    """Instructions that scalar code retires, as a compiler makes it of the emitted C. Every default
    but `call` is counted, for RV64GC: gcc 12.2 at -O2 -ffp-contract=off, run in an emulator."""

    memory: RateExpr = 1
    """To load or to store an element."""
    operation: RateExpr = 1
    """Of a sum, a product, a shift, a comparison, a conversion between integers and floats."""
    address: RateExpr = 1
    """Of an array's address, in each iteration of a loop that moves it and where it begins."""
    branch: RateExpr = 1
    """Of an iteration of a loop, beside addresses; a loop that moves none counts its iterations."""
    choice: RateExpr = 2
    """Of the smaller or larger of two integers, of `select` and `abs`."""
    float_choice: RateExpr = 4
    """Of the smaller or larger of two floats: comparisons, and what NaN takes."""
    narrowing: RateExpr = 2
    """To extend the sign of a value again that is cut to 8 or 16 bits and not stored."""
    division: RateExpr = 7
    """Of `//` or `%`, with what rounds down; one operation where a power of two divides what is
    known not to be negative."""
    call: RateExpr = 40
    """Of a function of the mathematical library that `functions` does not name."""
    functions: dict[Name, RateExpr] = Field(
        default={"sqrt": 3, "rsqrt": 4, "round": 6, "exp": 45, "floor": 12, "ceil": 12}
    )
    """Of each such function, with its call."""
    block: RateExpr = 10
    """Of a statement's loops, once: constants, addresses, a function's beginning and end."""
    block_call: RateExpr = 60
    """Of `memcpy` or `memset`, which a loop becomes that copies elements in a row or sets them to
    zero, beside its bytes."""
    copied_byte: RateExpr = 0.44
    """Of each byte that `memcpy` copies."""
    filled_byte: RateExpr = 0.16
    """Of each byte that `memset` sets."""
    ends: RateExpr = 40
    """More of either, where the bytes are no whole words of 8."""


class ParallelLoopSchema(Model):
    """A loop whose iterations run on workers that the loop starts."""

    kind: Literal["parallel"]
    """Started by the loop."""
    level: Literal["block", "thread"] = "thread"
    """What one iteration is."""
    extent: IntExpr = "1..2147483647"
    """Range of its extent."""
    emit: Template
    """The line before the loop; names `extent` and `variable`."""
    start_cycles: IntExpr = 8000
    """Cycles to start the workers and to wait for all of them at the end; the default is assumed:
    two microseconds at 4 GHz."""


class BoundLoopSchema(Model):
    """A loop that is a coordinate of a grid of blocks, or of a block's threads."""

    kind: Literal["bind"]
    """There is no loop in the code: each block or thread has its coordinate."""
    level: Literal["block", "thread"]
    """Whose coordinate it is."""
    index: Template
    """The coordinate in code, as `threadIdx.x`."""
    extent: IntExpr
    """Range of its extent."""
    reduces: bool = False
    """Threads may each hold a part of a reduction, combined through memory that a block shares."""


class MarkedLoopSchema(Model):
    """A loop that the compiler of the generated code vectorizes or unrolls."""

    kind: Literal["vectorize", "unroll"]
    """What becomes of it."""
    extent: IntExpr = "1..2147483647"
    """Range of its extent."""
    emit: Template
    """The line before the loop; names `extent` and `variable`."""
    sum: Template = ""
    """Of `vectorize`: the line before a loop whose lanes all add to one variable, `sum`, of which
    the compiler then makes one number; left out: no lanes share a sum. Names `extent` and
    `variable` too."""


class PragmaSchema(Model):
    """A pragma that the compiler of the generated code heeds and that changes how fast a loop is,
    never what it computes."""

    values: IntExpr | None = None
    """Range of its number; left out: it takes none."""
    emit: Template = ""
    """The line before the loop; names `value`, the number; needed with `values`."""
    alone: Template = ""
    """The line before the loop where a schedule gives no number; left out: it needs one."""


class ProcessorSchema(Model):
    """A machine that runs any statement as code."""

    default_memory: Name
    """The workspace of intermediate results that no schedule places."""
    workers: IntExpr = 1
    """Iterations of parallel loops, or blocks of bound ones, that run at once."""
    vector_bytes: IntExpr = 0
    """Bytes of a vector register; 0: no vectors."""
    operations_per_cycle: RateExpr = 1
    """Operations of one worker per cycle, of one vector lane."""
    memory_bytes_per_cycle: RateExpr = 16
    """Bytes of the caller's arrays that all workers together move per cycle."""
    iteration_cycles: RateExpr = 0.25
    """Cycles that each iteration of a loop adds, where it is neither unrolled nor run in lanes."""
    units_shared_by: Literal["kernel", "thread"] = "kernel"
    """Who shares the units beside it: the whole `kernel` has one of each, or each `thread`, as a
    worker of a parallel loop is, has its own, with their buses."""
    handover_cycles: IntExpr = 0
    """Beside units: cycles from their last result to the start of the processor's code, and from
    its end until they run again, together."""
    line_bytes: IntExpr = 64
    """Bytes that one prefetch brings."""
    costs: CodeCostsSchema | None = None
    """What else the search of schedules weighs; left out: the defaults of its fields."""
    instructions: InstructionsSchema | None = None
    """What scalar code retires, with loops and addresses; `operations_per_cycle` is then the rate
    of these, and `iteration_cycles` is not read. Left out: operations alone count."""
    threads: IntExpr = 1
    """Threads of one block at most."""
    warp: IntExpr = 1
    """Threads that run in step."""
    caches: dict[Name, CacheSchema] = Field(default={})
    """Caches, the smallest first."""
    loops: dict[LoopName, Annotated[
        ParallelLoopSchema | BoundLoopSchema | MarkedLoopSchema, Field(discriminator="kind")
    ]] = Field(default={})  # fmt: skip
    """Ways to run a loop, besides one iteration after the other."""
    barrier: Template = ""
    """Code by which the threads of a block wait for each other."""
    prefetch: Template = ""
    """Code that brings the line at `address` near; left out: `prefetch` is refused."""
    pragmas: dict[PragmaName, PragmaSchema] = Field(default={})
    """What a schedule may ask of the compiler about a loop, by the name that it uses."""
    language: Literal["c", "c++"] = "c"
    """Language of the generated file."""
    suffix: str = ".c"
    """Suffix of the generated file."""
    function: Template = ""
    """Head of a function that blocks run; names `name` and `parameters`, and `threads` as `launch`
    does."""
    function_prologue: Template = ""
    """At the start of that function, or of the kernel where there are no blocks."""
    launch: Template = ""
    """Starts the blocks; names `name`, `arguments`, `blocks` and `threads` (lists with the extent
    of every bound loop of that level, as they stand in `loops`; 1 where a kernel has none)."""
