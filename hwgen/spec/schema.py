"""What a user may write in a chip's file. `resolve.py` turns it into `hardware.py`'s types."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from hwgen.spec.fields import (
    IntExpr,
    Lines,
    Model,
    Name,
    RangeExpr,
    RateExpr,
    ReservedName,
    kind_of,
)
from hwgen.spec.nan import NanRule
from hwgen.spec.schema_processor import ProcessorSchema, SharedBy, Template
from hwgen.spec.schema_synchronization import AnySynchronization

Dtype = Literal[
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


class ParameterSchema(Model):
    """A number that users may set from outside."""

    value: IntExpr
    """The default; an expression may use the parameters above it."""
    range: IntExpr | None = None
    """Values that may be set, as `low..high`; left out: any."""
    description: str = ""
    """What the number means."""


Parameter = Annotated[
    Annotated[IntExpr, Tag("<short>")] | Annotated[ParameterSchema, Tag("<fields>")],
    Discriminator(kind_of),
]


class PortsSchema(Model):
    """How many calls use one bank at once."""

    read: IntExpr
    """Calls that read it."""
    write: IntExpr
    """Calls that write it."""


class BanksSchema(Model):
    """Physical parts of a memory that serve calls, accesses of a call, or threads, side by side."""

    count: IntExpr
    """How many; each is a contiguous, equal part of the addresses, unless they are interleaved."""
    ports: Annotated[
        Annotated[IntExpr, Tag("<short>")] | Annotated[PortsSchema, Tag("<fields>")],
        Discriminator(kind_of),
    ] | None = None  # fmt: skip
    """Of each bank: calls that use it at once, whether they read or write, or `{read, write}`;
    scratchpads only, which need it."""
    interleave: IntExpr = 0
    """So many consecutive entries lie in one bank, the next ones in the next bank, and so on in
    turn; 0: each bank is contiguous. Scratchpads only."""
    bytes: IntExpr | None = None
    """Bytes next to each other in one bank; the next bytes are in the next bank; workspaces only,
    which need it."""


class EnergySchema(Model):
    """What calls' accesses of a memory take."""

    read: RateExpr
    """Picojoules for each byte that is read."""
    write: RateExpr
    """Picojoules for each byte that is written."""


class MemorySchema(Model):
    """One address space."""

    kind: Literal["offchip", "scratchpad", "workspace"]
    """`offchip`: holds the kernel's arguments. `scratchpad`: addressed by the program. `workspace`:
    where a processor's code keeps buffers."""
    dtype: Dtype | None = None
    """Data type of an element; scratchpads only."""
    entry: list[IntExpr] = Field(default=[], examples=[[1, 16]])
    """Extents of the dense array that one address selects; left out: single elements; scratchpads
    only."""
    size: IntExpr | None = None
    """Capacity, as `32 KiB` or a number of bytes; left out: a workspace without a limit; not off
    chip."""
    shared: bool = False
    """The host's own off-chip memory: calls take its pointers, plain tensors are used in place."""
    addressing: Literal["entries", "elements"] = "entries"
    """What one step of an off-chip address is: all that an operand covers at once, or one element;
    off-chip memory only."""
    bus: Name | None = None
    """The bus that leads to this memory; off-chip memory only."""
    constants_only: bool = False
    """Holds constant inputs alone, such as weights; off-chip memory besides that for the rest."""
    identifiers: dict[Name, str | int] = Field(default={})
    """Values that templates may name, as `{{ operand.memory.NAME }}`; not of workspaces."""
    banks: BanksSchema | None = None
    """Banks and their ports; not off chip. Left out: any number of calls at once."""
    energy: EnergySchema | None = None
    """What accesses by calls take; not of workspaces. Left out: nothing."""
    addresses: Literal["computed", "literal"] = "computed"
    """`literal`: a register file; every address of it is a number in the C code, so the loops that
    would compute one are written out. Scratchpads only."""
    declare: Template = ""
    """C text where calls that use it begin, at the start of the kernel or of a parallel loop's body
    (`parallel`): an array, or, with `addresses: literal`, a variable for each of the `entries` that
    they use, a list of numbers; scratchpads only."""
    shared_by: SharedBy = "kernel"
    """Who sees one buffer of a workspace: the whole `kernel`, the threads of one `block`, or one
    `thread`. Who shares a scratchpad: all of the `kernel`, or the units of one `thread`, as each
    worker of the processor's parallel loops has a copy of its own."""
    align: IntExpr | None = None
    """Every buffer, or off-chip image, starts at a multiple of so many bytes, a power of two; left
    out: 64 in a workspace, and off chip what `malloc` and the operands' `address` need; not of
    scratchpads."""
    allocate: Template = ""
    """Code of a buffer; names `type`, `name`, `elements`, `bytes` and, with `pool`,
    `address_bytes`; workspaces only, which need it."""
    free: Template = ""
    """Gives a buffer back; names the same; workspaces only."""
    pool: Template = ""
    """Code of one array of `bytes` that holds every buffer at a fixed address; left out: each
    buffer is allocated by itself; workspaces only."""


class BurstSchema(Model):
    """How transfers are cut."""

    beats: IntExpr
    """Beats of one burst at most."""
    boundary_bytes: IntExpr
    """A burst never crosses a multiple of this address."""


class ChannelSchema(Model):
    """One direction of a bus."""

    latency_cycles: IntExpr
    """Read: from a request to its first beat. Write: from the last beat to the response."""
    in_flight_bursts: IntExpr
    """Bursts outstanding at once."""
    request_cycles: IntExpr = 1
    """From one request of a reader, or of a writer, to its next at least; requests of others may
    lie between."""
    cycles_per_entry: IntExpr = 0
    """Cycles that each entry takes at least, however few its beats."""


class ReadChannelSchema(ChannelSchema):
    """The direction of a bus that is read."""

    last_beat_blocks_request: bool = False
    """No request is made in a cycle in which the last beat of a burst arrives, of any reader."""


class WriteChannelSchema(ChannelSchema):
    """The direction of a bus that is written."""

    posted_bursts: IntExpr = 0
    """Bursts that wait in a buffer until they are on their way: a call ends when the buffer has its
    last one, and what reads the tensor then waits for it to be written; 0: a call ends with the
    last response."""


class BusSchema(Model):
    """A shared path to off-chip memory."""

    beat_bytes: IntExpr
    """Bytes moved per cycle."""
    burst: BurstSchema
    """How transfers are cut into bursts."""
    read: ReadChannelSchema
    """Towards the chip."""
    write: WriteChannelSchema
    """Away from the chip."""
    priority: list[Name] = Field(default=[])
    """Who is served first: intrinsics and micro-kernel loads that read, and `fetch`; left out:
    fetch, then micro-kernel loads, then intrinsics as they stand in this file."""


class UnitSchema(Model):
    """An engine that runs its calls in order."""

    queue_entries: IntExpr = 0
    """Calls that wait in front of it at most; 0: no limit."""
    identifiers: dict[Name, str | int] = Field(default={})
    """Values that templates may name, as `{{ unit.NAME }}`."""


class FetchSchema(Model):
    """How calls reach the units."""

    bus: Name
    """The bus that calls are read over."""
    first_cycles: IntExpr
    """Until the first group of calls has arrived."""
    group_calls: IntExpr
    """Calls that arrive together."""
    group_cycles: IntExpr
    """Between one group and the next."""
    call_bytes: IntExpr
    """Bytes of one call."""


class UnrollSchema(Model):
    """Loops around calls that the compiler of the emitted C unrolls: the innermost of a run. What a
    call needs is then a constant there, or the same in all iterations of the loops around."""

    extent: IntExpr
    """Range of iterations."""
    emit: Template
    """The line before the loop; names `extent`, its iterations."""


class IssueSchema(Model):
    """A host core that issues instructions one by one; it waits where a unit's queue is full."""

    cycles: IntExpr
    """From one instruction to the next."""
    operand_cycles: IntExpr = 0
    """To compute what an instruction is given for one operand, each time that it is another one."""
    loop_cycles: IntExpr = 0
    """Of an iteration of a loop around calls that is not unrolled."""
    unroll: UnrollSchema | None = None
    """Which loops are unrolled; left out: none."""


class MicroKernelLoadSchema(Model):
    """What it costs to bring a micro-kernel into the chip, when it is first called."""

    name: Name
    """Name in timelines and in the bus's priority."""
    cycles: IntExpr
    """Duration; may use `operations`, `transfer`, `bursts` and `beats`."""


class MicroKernelSchema(Model):
    """A memory of micro-operations that intrinsics are programs of."""

    capacity_operations: IntExpr
    """Micro-operations of all micro-kernels of one kernel together."""
    rewrite_distance: IntExpr = 1
    """A micro-operation writes another address than the `rewrite_distance - 1` before it."""
    max_variants: IntExpr = 1
    """Base addresses that one micro-kernel may be built with."""
    operation_bytes: IntExpr
    """Bytes of one micro-operation."""
    bus: Name
    """The bus that micro-operations are read over."""
    load: MicroKernelLoadSchema
    """What bringing it into the chip costs."""
    define: Template
    """C text of the definition; names `name`, `loops`, `sequence`, `bases`, `values`' entries
    and immediates."""


class OperandSchema(Model):
    """Where an operand of an intrinsic lives; its shape and access follow from the semantics."""

    memory: Name
    """The memory it is in, or `any`: wherever the processor reaches it by a pointer."""
    strides: list[IntExpr] | None = Field(default=None, examples=[["any", 1]])
    """With `memory: any`: elements from one index to the next in each dimension: a number, a
    range, or `any`; left out: dense, row-major."""
    dtype: Dtype | None = None
    """Data type; needed off chip and with `memory: any`, the memory's own on chip."""
    address: RangeExpr | None = None
    """Range of its base address, in entries, as its field holds it, such as `0..2032 step 16` for
    multiples of 16; an operand of several entries covers those behind its base too, at the last
    address as at any other. It may reach past the memory, of which nothing more is used then. Left
    out: all of the memory."""
    written_by: list[Name] = Field(default=[])
    """The last writer of what it reads must be one of these intrinsics; left out: any."""
    same_as: Name | None = None
    """The written operand, where this one has fields of its own that must hold the same: every call
    gives both one address and the same strides; left out: it may be anywhere."""


class LoopSchema(Model):
    """A loop that the intrinsic runs by itself."""

    extent: RangeExpr
    """Range of its extent, as `1..16383`, or a list of extents."""
    strides: dict[Name, RangeExpr] = Field(
        default={}, examples=[{"dst": "dense", "src": "0..1023"}]
    )
    """Entries that each operand moves per step: a number, a range, a list, powers as `2**(0..7)`,
    or `dense` (the next inner loop's stride times its extent). An operand not named does not
    move."""
    lanes: Literal["any", "all"] = "any"
    """`all`: it runs more than once only in calls in which all lanes take part."""


class ImmediateSchema(Model):
    """A constant inside a call."""

    dtype: Dtype
    """Data type in the semantics."""
    range: RangeExpr | None = None
    """Values that its field holds, as a range or a list. Left out: every value of the type, for
    floats every finite one."""


class MicroKernelUseSchema(Model):
    """The intrinsic is a micro-kernel."""

    kind: Name
    """Which entry of `micro_kernels`."""
    values: dict[Name, str | int] = Field(default={})
    """Values that the definition's template may name."""


class ConfigurationSchema(Model):
    """State of a unit that its calls depend on. It is written as rarely as possible."""

    unit: Name
    """The unit that writes it, in order with its calls."""
    registers: list[dict[Name, str | int]] = Field(default=[{}])
    """Copies that may hold different values, each with values that templates may name."""
    fields: list[Name]
    """What one register holds."""
    emit: Template
    """C text that writes one register; names the fields and `register`."""
    cycles: IntExpr = 1
    """What writing one takes."""


class StationarySchema(Model):
    """An operand that the unit holds while calls with the same address of it follow each other."""

    operand: Name
    """The operand; it does not move in hardware loops."""
    cycles: IntExpr
    """What bringing another one in takes."""
    overlaps: bool = True
    """It is brought in beside the call before; `false`: the unit does nothing else meanwhile, and
    the first call that uses it takes that much longer."""


class IntrinsicSchema(Model):
    """One thing the hardware does: compute, transfer, fill, configure."""

    unit: Name | None = None
    """The unit it runs on; left out: the processor."""
    iterators: dict[Name, IntExpr] = Field(default={}, examples=[{"i": 16, "j": "1..16"}])
    """The lanes of the semantics and their extents; as `1..16`, a call may let fewer take part."""
    semantics: Lines
    """Statements over the iterators, as `dst[b, o] += src[b, i] * wgt[o, i]`."""
    operands: dict[Name, OperandSchema] = Field(
        examples=[{"dst": {"memory": "acc"}, "src": {"memory": "inp"}}]
    )
    """Where each operand of the semantics lives."""
    nan: NanRule = "propagate"
    """What `max(a, b)` and `min(a, b)` of floats give where an operand is NaN; `c max= x` is
    `c = max(c, x)`. `propagate`: NaN, as the language has it. `second`: b, whichever is NaN.
    `number`: the other one. `any`: nothing is said of it. See "NaN" in docs/spec.md."""
    temporaries: dict[Name, Dtype] = Field(default={}, examples=[{"t": "int32"}])
    """Values that statements hand to later ones and that are stored nowhere, with their types."""
    loops: dict[Name, LoopSchema] = Field(default={})
    """Hardware loops around the semantics, outermost first."""
    software_loops: IntExpr = 0
    """C loops that may be written around the call, with constant steps; what they repeat counts as
    one call, of `cycles` per iteration."""
    instructions: IntExpr = 1
    """Instructions that the host issues for one call."""
    stationary: StationarySchema | None = None
    """An operand that is brought in once for consecutive iterations of software loops; left out:
    none."""
    immediates: dict[Name, ImmediateSchema] = Field(default={})
    """Constants inside a call."""
    configuration: dict[Name, dict[Name, Template]] = Field(default={})
    """By configuration, what each field must hold when the call is issued: C text over extents and
    strides of loops, immediates and parameters."""
    micro_kernel: MicroKernelUseSchema | None = None
    """The program of micro-operations that the intrinsic is; left out: it is none."""
    iterations_per_cycle: IntExpr = 0
    """Iterations whose accesses interleaved banks serve at once, as `bank_cycles` counts them; 0:
    the call's own accesses never wait for each other."""
    result_latency_iterations: IntExpr = 0
    """An iteration that touches what an earlier one wrote comes at least this many after it."""
    cycles: IntExpr
    """Duration, a fraction rounded up; may use `iterations`, loops' names, `transfer`, `bursts`,
    `beats` and, with `iterations_per_cycle`, `bank_cycles`: the cycles that banks take to serve its
    accesses."""
    energy: RateExpr | None = None
    """Picojoules of a call beside its accesses of memories, of each where C loops repeat it; may
    use `iterations` and loops' names; on units only. Left out: nothing."""
    emit: Template
    """C text of a call; names operands, loops, immediates, `unit`, `kernel`, parameters."""


class CodeSchema(Model):
    """C text around the calls."""

    includes: list[str] = Field(default=[])
    """Headers, with their brackets or quotes."""
    definitions: Template = ""
    """At file scope, before the kernel: functions and types; for processors."""
    reserved: list[ReservedName] = Field(default=[])
    """Names of the headers that no variable or function of a kernel may have, such as macros; with
    a final `*`, all names that begin so."""
    handle_type: str = "void *"
    """Type of an off-chip buffer's handle; `const` stands before it where an input is in place."""
    prologue: Template = ""
    """At the start of the kernel."""
    epilogue: Template = ""
    """At the end of the kernel: waits until all calls are done; needed where calls write the host's
    own (`shared`) memory by pointers."""
    allocate: Template | None = None
    """Gets an off-chip buffer; names `buffer`, `bytes` and `memory`. This and the next three are
    needed with units; a processor without them uses the caller's arrays in place."""
    free: Template | None = None
    """Gives it back; names `buffer` and `memory`; needed with units."""
    to_device: Template | None = None
    """Copies to it; names `buffer`, `host`, `bytes` and `memory`; needed with units."""
    from_device: Template | None = None
    """Copies from it; names `buffer`, `host`, `bytes` and `memory`; needed with units."""


class HardwareSchema(Model):
    """A chip."""

    hwgen: Literal[1]
    """Version of this format."""
    name: Name
    """The chip's name."""
    description: str = ""
    """What it is, and where its numbers come from."""
    parameters: dict[Name, Parameter] = Field(default={})
    """Numbers that expressions may use and users may set."""
    memories: dict[Name, MemorySchema]
    """Address spaces; with units one at least is off chip, without `constants_only`."""
    buses: dict[Name, BusSchema] = Field(default={})
    """Paths to off-chip memory."""
    units: dict[Name, UnitSchema] = Field(default={})
    """Engines."""
    fetch: FetchSchema | None = None
    """How calls reach the units; left out: at once."""
    issue: IssueSchema | None = None
    """A host core that issues calls, in place of `fetch`."""
    synchronization: AnySynchronization | None = None
    """How calls on different units are ordered; needed with units."""
    micro_kernels: dict[Name, MicroKernelSchema] = Field(default={})
    """Memories of micro-operations."""
    intrinsics: dict[Name, IntrinsicSchema] = Field(default={})
    """Everything the units do, and what the processor has special code for."""
    configurations: dict[Name, ConfigurationSchema] = Field(default={})
    """State that calls depend on."""
    processor: ProcessorSchema | None = None
    """A machine that runs any statement as code; left out: units alone."""
    code: CodeSchema | None = None
    """C text around the calls; needed with units."""
