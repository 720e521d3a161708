"""What a user may write in a chip's file. `resolve.py` turns it into `hardware.py`'s types."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from hwgen.spec.fields import (
    Frequency,
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
    """The default. An expression may use the parameters above it."""
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
    """Physical parts of a memory that serve calls, accesses of one call, or threads, in
    parallel."""

    count: IntExpr
    """Number of banks. Each is a contiguous, equal part of the addresses, unless they are
    interleaved."""
    ports: Annotated[
        Annotated[IntExpr, Tag("<short>")] | Annotated[PortsSchema, Tag("<fields>")],
        Discriminator(kind_of),
    ] | None = None  # fmt: skip
    """Ports of each bank: how many calls use it at once, whether they read or write, or `{read,
    write}` for separate ports. Scratchpads only, which need it."""
    interleave: IntExpr = 0
    """Number of consecutive entries in one bank, before the next bank follows; 0: each bank is
    contiguous. Scratchpads only."""
    bytes: IntExpr | None = None
    """Number of consecutive bytes in one bank, before the next bank follows. Workspaces only, which
    need it."""


class EnergySchema(Model):
    """Energy of the accesses that calls make to a memory."""

    read: RateExpr
    """Picojoules for each byte read."""
    write: RateExpr
    """Picojoules for each byte written."""


class MemorySchema(Model):
    """One address space."""

    kind: Literal["offchip", "scratchpad", "workspace"]
    """`offchip`: holds the kernel's arguments. `scratchpad`: on chip, addressed by the program.
    `workspace`: where a processor's code keeps its buffers."""
    dtype: Dtype | None = None
    """Data type of an element. Scratchpads only."""
    entry: list[IntExpr] = Field(default=[], examples=[[1, 16]])
    """Extents of the dense array that one address selects; left out: single elements. Scratchpads
    only."""
    size: IntExpr | None = None
    """Capacity, as `32 KiB` or a number of bytes; left out: a workspace without a limit. Not for
    off-chip memory."""
    shared: bool = False
    """True for the host's own memory: calls take its pointers, and tensors in plain layout are used
    in place. Off-chip memory only."""
    addressing: Literal["entries", "elements"] = "entries"
    """Step of an off-chip address: everything that the operand covers at once (`entries`), or one
    element (`elements`). Off-chip memory only."""
    bus: Name | None = None
    """The bus that leads to this memory. Off-chip memory only."""
    constants_only: bool = False
    """True if it holds only constant inputs, such as weights. Another off-chip memory must hold the
    rest."""
    identifiers: dict[Name, str | int] = Field(default={})
    """Values that templates may name, as `{{ operand.memory.NAME }}`. Not for workspaces."""
    banks: BanksSchema | None = None
    """Banks and their ports; left out: any number of calls at once. Not for off-chip memory."""
    energy: EnergySchema | None = None
    """Energy of accesses by calls; left out: zero. Not for workspaces."""
    area: RateExpr | None = None
    """Square millimetres; it may name `bytes`, the memory's size. Left out: zero. Scratchpads
    only."""
    addresses: Literal["computed", "literal"] = "computed"
    """`literal`: a register file. Every address is a number in the C code, so loops that would
    compute one are unrolled. Scratchpads only."""
    declare: Template = ""
    """C text at the start of the kernel, or of a parallel loop's body (`parallel`), if calls there
    use the memory. It declares an array or, with `addresses: literal`, a variable for each number
    in the list `entries`. Scratchpads only."""
    shared_by: SharedBy = "kernel"
    """Who sees one buffer of a workspace: the whole `kernel`, the threads of one `block`, or one
    `thread`. A scratchpad is shared by the whole `kernel`, or by the units of one `thread`: then
    each worker of the processor's parallel loops has its own copy."""
    align: IntExpr | None = None
    """Every buffer or off-chip image begins at a multiple of this number of bytes, a power of two.
    Left out: 64 in a workspace; off chip, as far as `malloc` and the operands' `address` imply. Not
    for scratchpads."""
    allocate: Template = ""
    """C text that declares or allocates a buffer. It names `type`, `name`, `elements`, `bytes` and,
    with `pool`, `address_bytes`. Workspaces only, which need it."""
    free: Template = ""
    """C text that frees a buffer, with the same names. Workspaces only."""
    pool: Template = ""
    """C text of one array of `bytes` that holds every buffer at a fixed address; left out: each
    buffer is allocated by itself. Workspaces only."""


class BurstSchema(Model):
    """How transfers are divided."""

    beats: IntExpr
    """Most beats of one burst."""
    boundary_bytes: IntExpr
    """A burst never crosses a multiple of this address."""


class ChannelSchema(Model):
    """One direction of a bus."""

    latency_cycles: IntExpr
    """Read: cycles from a request to its first beat. Write: cycles from the last beat to the
    response."""
    in_flight_bursts: IntExpr
    """Most bursts outstanding at once."""
    request_cycles: IntExpr = 1
    """Fewest cycles between two requests of the same reader or writer. Requests of others may lie
    between."""
    cycles_per_entry: IntExpr = 0
    """Fewest cycles for each entry, however few its beats."""


class ReadChannelSchema(ChannelSchema):
    """The read direction of a bus."""

    last_beat_blocks_request: bool = False
    """No reader makes a request in a cycle in which the last beat of any burst arrives."""


class WriteChannelSchema(ChannelSchema):
    """The write direction of a bus."""

    posted_bursts: IntExpr = 0
    """Bursts that a write buffer holds. A call ends when its last burst is in the buffer, and a
    later reader of the tensor waits until it is written. 0: no buffer, so a call ends with the last
    response."""


class BusSchema(Model):
    """A shared path to off-chip memory."""

    beat_bytes: IntExpr
    """Bytes moved per cycle."""
    burst: BurstSchema
    """How transfers are cut into bursts."""
    read: ReadChannelSchema
    """Transfers to the chip."""
    write: WriteChannelSchema
    """Transfers from the chip."""
    priority: list[Name] = Field(default=[])
    """Readers, the first served first: intrinsics and micro-kernel loads that read, and `fetch`.
    Left out: fetch, then micro-kernel loads, then intrinsics in the order of this file."""


class UnitSchema(Model):
    """An engine that runs its calls in order."""

    queue_entries: IntExpr = 0
    """Most calls in its queue, the running one included; 0: no limit."""
    identifiers: dict[Name, str | int] = Field(default={})
    """Values that templates may name, as `{{ unit.NAME }}`."""
    area: RateExpr | None = None
    """Square millimetres; left out: zero."""


class FetchSchema(Model):
    """How calls reach the units."""

    bus: Name
    """The bus that calls are read over."""
    first_cycles: IntExpr
    """Cycles until the first group of calls has arrived."""
    group_calls: IntExpr
    """Calls that arrive together."""
    group_cycles: IntExpr
    """Cycles between one group and the next."""
    call_bytes: IntExpr
    """Bytes of one call."""


class UnrollSchema(Model):
    """Loops around calls that the C compiler unrolls: the innermost of a run. Operands of calls are
    then constants, or the same in all iterations of the loops around."""

    extent: IntExpr
    """Range of iterations."""
    emit: Template
    """The line before the loop. It names `extent`, the number of iterations."""


class IssueSchema(Model):
    """A host core that issues instructions one by one, and waits if a unit's queue is full."""

    cycles: IntExpr
    """Cycles from one instruction to the next."""
    operand_cycles: IntExpr = 0
    """Cycles to compute the address of one operand, each time that it changes."""
    loop_cycles: IntExpr = 0
    """Cycles of each iteration of a loop around calls that is not unrolled."""
    unroll: UnrollSchema | None = None
    """Which loops are unrolled; left out: none."""


class MicroKernelLoadSchema(Model):
    """Cost of loading a micro-kernel into the chip, when it is first called."""

    name: Name
    """Name in timelines and in the bus's priority."""
    cycles: IntExpr
    """Duration. It may name `operations`, `transfer`, `bursts` and `beats`."""


class MicroKernelSchema(Model):
    """A memory of micro-operations. Some intrinsics are programs of these."""

    capacity_operations: IntExpr
    """Most micro-operations of all micro-kernels of one kernel together."""
    rewrite_distance: IntExpr = 1
    """A micro-operation must not write the address that any of the `rewrite_distance - 1` before it
    writes."""
    max_variants: IntExpr = 1
    """Most base addresses with which one micro-kernel is built."""
    operation_bytes: IntExpr
    """Bytes of one micro-operation."""
    bus: Name
    """The bus that micro-operations are read over."""
    load: MicroKernelLoadSchema
    """Cost of loading one into the chip."""
    define: Template
    """C text of the definition. It names `name`, `loops`, `sequence`, `bases`, `values`' entries
    and immediates."""


class OperandSchema(Model):
    """Where an operand of an intrinsic is. Its shape and access follow from the semantics."""

    memory: Name
    """Its memory, or `any`: wherever the processor reaches it by a pointer."""
    strides: list[IntExpr] | None = Field(default=None, examples=[["any", 1]])
    """With `memory: any`: the elements from one index to the next in each dimension, as a number, a
    range or `any`; left out: dense, row-major."""
    dtype: Dtype | None = None
    """Data type. It is needed off chip and with `memory: any`; on chip it is the memory's own."""
    address: RangeExpr | None = None
    """Range of its base address in entries, as the instruction's field holds it; `0..2032 step 16`
    holds multiples of 16. An operand of several entries covers those after its base too, at the
    last address as at any other. The range may exceed the memory, and the excess is not used. Left
    out: all of the memory."""
    written_by: list[Name] = Field(default=[])
    """One of these intrinsics must be the last writer of every entry that it reads; left out:
    any."""
    same_as: Name | None = None
    """The written operand that this one must equal: every call gives both the same address and
    strides. For operands in place that have fields of their own. Left out: no condition."""


class LoopSchema(Model):
    """A loop that the intrinsic runs by itself."""

    extent: RangeExpr
    """Range of its extent, as `1..16383`, or a list of extents."""
    strides: dict[Name, RangeExpr] = Field(
        default={}, examples=[{"dst": "dense", "src": "0..1023"}]
    )
    """Entries by which each step moves an operand: a number, a range, a list, powers as
    `2**(0..7)`, or `dense`, the next inner loop's stride times its extent. An operand not named
    does not move."""
    lanes: Literal["any", "all"] = "any"
    """`all`: it repeats only in calls in which all lanes take part."""


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
    """The entry of `micro_kernels`."""
    values: dict[Name, str | int] = Field(default={})
    """Values that the definition's template may name."""


class ConfigurationSchema(Model):
    """State of a unit that its calls depend on. It is written as rarely as possible."""

    unit: Name
    """The unit that writes it, in order with its calls."""
    registers: list[dict[Name, str | int]] = Field(default=[{}])
    """Copies that can hold different values. Each may have values that templates name."""
    fields: list[Name]
    """Fields of each register."""
    emit: Template
    """C text that writes one register. It names the fields and `register`."""
    cycles: IntExpr = 1
    """Duration of writing one register."""


class StationarySchema(Model):
    """An operand that the unit holds while consecutive calls have the same address for it."""

    operand: Name
    """The operand. It does not move in hardware loops."""
    cycles: IntExpr
    """Cycles to bring another one in."""
    overlaps: bool = True
    """It is brought in during the call before; `false`: the unit does nothing else meanwhile, and
    the first call that uses it takes that much longer."""


class IntrinsicSchema(Model):
    """One thing the hardware does: compute, transfer, fill, configure."""

    unit: Name | None = None
    """The unit it runs on; left out: the processor."""
    iterators: dict[Name, IntExpr] = Field(default={}, examples=[{"i": 16, "j": "1..16"}])
    """The lanes of the semantics and their extents. With a range such as `1..16`, a call may use
    fewer lanes."""
    semantics: Lines
    """Statements over the iterators, as `dst[b, o] += src[b, i] * wgt[o, i]`."""
    operands: dict[Name, OperandSchema] = Field(
        examples=[{"dst": {"memory": "acc"}, "src": {"memory": "inp"}}]
    )
    """Where each operand of the semantics is."""
    nan: NanRule = "propagate"
    """Result of `max(a, b)` and `min(a, b)` of floats if an operand is NaN; `c max= x` is `c =
    max(c, x)`. `propagate`: NaN, as in the language. `second`: b, whichever is NaN. `number`: the
    other one. `any`: not specified."""
    temporaries: dict[Name, Dtype] = Field(default={}, examples=[{"t": "int32"}])
    """Values that statements pass to later ones and store nowhere, with their types."""
    loops: dict[Name, LoopSchema] = Field(default={})
    """Hardware loops around the semantics, outermost first."""
    software_loops: IntExpr = 0
    """Most C loops around a call, with constant strides. The call with its loops counts as one
    call, with `cycles` for each iteration."""
    instructions: IntExpr = 1
    """Instructions that the host issues for one call."""
    stationary: StationarySchema | None = None
    """An operand that the unit holds through consecutive iterations of C loops; left out: none."""
    immediates: dict[Name, ImmediateSchema] = Field(default={})
    """Constants inside a call."""
    configuration: dict[Name, dict[Name, Template]] = Field(default={})
    """For each configuration, the value that each field must have when the call is issued: C text
    over extents and strides of loops, immediates and parameters."""
    micro_kernel: MicroKernelUseSchema | None = None
    """The program of micro-operations that implements the intrinsic; left out: none."""
    iterations_per_cycle: IntExpr = 0
    """Most iterations whose accesses interleaved banks serve in one cycle, for `bank_cycles`; 0: a
    call's own accesses never wait for each other."""
    result_latency_iterations: IntExpr = 0
    """An iteration may touch a value that an earlier one wrote only this many iterations later."""
    cycles: IntExpr
    """Duration; a fraction is rounded up. It may name `iterations`, loops, `transfer`, `bursts`,
    `beats` and, with `iterations_per_cycle`, `bank_cycles`: the cycles in which banks serve its
    accesses."""
    energy: RateExpr | None = None
    """Picojoules of a call in addition to its accesses of memories, for each call if C loops repeat
    it; left out: zero. It may name `iterations` and loops. On units only."""
    emit: Template
    """C text of a call. It names operands, loops, immediates, `unit`, `kernel` and parameters."""


class CodeSchema(Model):
    """C text around the calls."""

    includes: list[str] = Field(default=[])
    """Headers, with their brackets or quotes. Those in brackets and in no folder come with the
    compiler; those in quotes or in a folder are the vendor's."""
    definitions: Template = ""
    """Functions and types at file scope, before the kernel. For a chip with a processor."""
    requires: list[ReservedName] = Field(default=[])
    """Macros that a C compiler defines for machines with the chip's instructions. Where all are
    defined for this machine, kernels called from Python run on it instead of on the C model."""
    reserved: list[ReservedName] = Field(default=[])
    """Names in the headers, such as macros, that no variable or function of a kernel may have. A
    final `*` reserves all names with this beginning."""
    handle_type: str = "void *"
    """Type of an off-chip buffer's handle. `const` comes before it if an input is in place."""
    prologue: Template = ""
    """C text at the start of the kernel."""
    epilogue: Template = ""
    """C text at the end of the kernel, which waits until all calls are done. Needed if calls write
    the host's own (`shared`) memory by pointers."""
    allocate: Template | None = None
    """Allocates an off-chip buffer. It names `buffer`, `bytes`, `align` and `memory`. This field
    and the next three are needed with units; a processor without them uses the caller's arrays in
    place."""
    free: Template | None = None
    """Frees the buffer. It names `buffer` and `memory`. Needed with units."""
    to_device: Template | None = None
    """Copies to the buffer. It names `buffer`, `host`, `bytes` and `memory`. Needed with units."""
    from_device: Template | None = None
    """Copies from the buffer. It names `buffer`, `host`, `bytes` and `memory`. Needed with
    units."""


class HardwareSchema(Model):
    """A chip."""

    hwgen: Literal[1]
    """Version of this format."""
    name: Name
    """The chip's name."""
    description: str = ""
    """What the chip is, and where its numbers come from."""
    clock: Frequency | None = Field(default=None, examples=["1 GHz"])
    """Cycles per second, in `Hz`, `kHz`, `MHz` or `GHz`. Reports then add seconds and operations
    per second; left out: cycles only. It changes no kernel."""
    parameters: dict[Name, Parameter] = Field(default={})
    """Numbers that expressions may use and users may set."""
    memories: dict[Name, MemorySchema]
    """Address spaces. With units, at least one is off chip and without `constants_only`."""
    buses: dict[Name, BusSchema] = Field(default={})
    """Paths to off-chip memory."""
    units: dict[Name, UnitSchema] = Field(default={})
    """Engines."""
    fetch: FetchSchema | None = None
    """How calls reach the units; left out: they are there at once."""
    issue: IssueSchema | None = None
    """A host core that issues calls, in place of `fetch`."""
    synchronization: AnySynchronization | None = None
    """How calls on different units are ordered. Needed with units."""
    micro_kernels: dict[Name, MicroKernelSchema] = Field(default={})
    """Memories of micro-operations."""
    intrinsics: dict[Name, IntrinsicSchema] = Field(default={})
    """Everything that the units do, and functions that the processor has for particular
    computations."""
    configurations: dict[Name, ConfigurationSchema] = Field(default={})
    """State that calls depend on."""
    processor: ProcessorSchema | None = None
    """A machine that runs any statement as code; left out: units only."""
    code: CodeSchema | None = None
    """C text around the calls. Needed with units."""
