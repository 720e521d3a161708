"""A chip as resolved data: parameters substituted, ranges known, expressions parsed.

`schema.py` holds what a user may write; this is what every later stage reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from math import isfinite, prod

from hwgen.errors import Location
from hwgen.spec.expression import Assign, Expr
from hwgen.spec.memory import Access, Level, Memory, MemoryKind
from hwgen.spec.nan import NanRule
from hwgen.spec.processor import Processor
from hwgen.spec.ranges import Range
from hwgen.spec.shown import Brief, chip_brief, chip_html
from hwgen.spec.sync_barriers import Barriers
from hwgen.spec.sync_events import Events
from hwgen.spec.sync_scoreboard import Scoreboard
from hwgen.spec.sync_tokens import Tokens


@dataclass(frozen=True, slots=True)
class Unit:
    """An in-order engine. `queue_entries` calls wait in front of it at most. `area`: square
    millimetres; it changes no kernel."""

    name: str
    location: Location = field(compare=False)
    queue_entries: int = 0
    identifiers: tuple[tuple[str, int | str], ...] = ()
    area: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Channel:
    """One direction of a bus.

    `latency_cycles`: from a request to its first beat (read), or from the last beat to the
    response (write). `in_flight_bursts`: bursts outstanding at once; one means that a burst
    waits for the response of the one before. `request_cycles`: from one request of an access to
    its next at least. `last_beat_blocks_request`: of reads, no request is made in a cycle in which
    the last beat of a burst arrives. `posted_bursts`: of writes, bursts of a unit that wait in a
    buffer while it goes on; 0: it waits for the last response.
    """

    latency_cycles: int
    in_flight_bursts: int
    cycles_per_entry: int = 0
    request_cycles: int = 1
    posted_bursts: int = 0
    last_beat_blocks_request: bool = False


@dataclass(frozen=True, slots=True)
class Bus:
    """A shared path to off-chip memory. Bursts cover one row of one access, never cross a
    `burst_boundary_bytes` boundary and have at most `burst_beats` beats of `beat_bytes`.

    `priority` names intrinsics, and `fetch`, from the first served to the last.
    """

    name: str
    beat_bytes: int
    burst_beats: int
    burst_boundary_bytes: int
    read: Channel
    write: Channel
    priority: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """How calls reach the units: the first group after `first_cycles`, then one group of
    `group_calls` per `group_cycles`; `call_bytes` each over the bus."""

    bus: str
    first_cycles: int
    group_calls: int
    group_cycles: int
    call_bytes: int


@dataclass(frozen=True, slots=True)
class Unroll:
    """Which loops around calls the compiler of the emitted C unrolls; `emit`: the line before."""

    extent: Range
    emit: str


@dataclass(frozen=True, slots=True)
class Issue:
    """A host core that issues one instruction per `cycles` into the units' queues, in order: it
    waits where a queue is full. It computes what an operand needs in `operand_cycles`, and goes on
    to the next iteration of a loop in `loop_cycles`."""

    cycles: int
    operand_cycles: int = 0
    loop_cycles: int = 0
    unroll: Unroll | None = None

    def each(self, intrinsic: Intrinsic) -> float:
        """Cycles per instruction of a long run of calls that move every operand but a stationary
        one, in unrolled loops."""
        moved = len(intrinsic.operands) - (intrinsic.stationary is not None)
        return self.cycles + self.operand_cycles * moved / intrinsic.instructions


@dataclass(frozen=True, slots=True)
class Operand:
    """What an intrinsic reads or writes: an array whose trailing dimensions are one memory entry.

    `shape`: extents of its dimensions, as indexed in the semantics by `indices`; the first `rows`
    of them are consecutive entries, the others one entry. Each index is an iterator, or "" for a
    number, plus up to `beyond`, which is () where nothing is added. `address`: the range of the
    first entry; the call's field holds it less `offset`. `written_by`: when not empty, the last
    writer of the entries read must be one of these intrinsics. `same_as`: when not empty, the
    written operand, whose address and strides the fields of this one repeat.

    `memory` is "" where the operand lives wherever a processor can address: it is reached by a
    pointer and the `strides` of its dimensions, in elements, within these ranges.
    """

    name: str
    memory: str
    dtype: str
    access: Access
    shape: tuple[int, ...]
    address: Range
    written_by: tuple[str, ...] = ()
    strides: tuple[Range, ...] = ()
    indices: tuple[str, ...] = ()
    rows: int = 0
    same_as: str = ""
    beyond: tuple[int, ...] = ()
    offset: int = 0

    @property
    def plain(self) -> bool:
        """Whether each dimension is indexed by an iterator alone."""
        return not any(self.beyond) and "" not in self.indices

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return self.shape[self.rows :]

    @property
    def entry_elements(self) -> int:
        """Elements of one address step."""
        return prod(self.entry_shape)

    @property
    def span(self) -> int:
        """Consecutive entries that it covers at once."""
        return prod(self.shape[: self.rows])

    def span_of(self, iterators: Iterable[tuple[str, int]]) -> int:
        """The same where the iterators have these extents."""
        extents = {"": 1, **dict(iterators)}
        more = self.beyond or (0,) * self.rows
        own = self.indices[: self.rows]
        return prod(extents[i] + n for i, n in zip(own, more, strict=False))


@dataclass(frozen=True, slots=True)
class StrideRule:
    """Allowed address steps of one operand in one hardware loop, in entries.

    `dense_after` names an inner loop: the step must equal its step times its extent.
    """

    range: Range
    dense_after: str = ""


_UNMOVED = StrideRule(Range(0, 0))


@dataclass(frozen=True, slots=True)
class HardwareLoop:
    """A loop that the intrinsic runs by itself, outermost first in `Intrinsic.loops`.

    `software`: it is written in C around the call instead; what it repeats counts as one call.
    `whole_lanes`: it runs more than once only where all lanes take part.
    """

    name: str
    extent: Range
    strides: tuple[tuple[str, StrideRule], ...]
    software: bool = False
    whole_lanes: bool = False

    def stride(self, operand: str) -> StrideRule:
        """The rule of an operand; an operand not named does not move."""
        return next((rule for name, rule in self.strides if name == operand), _UNMOVED)


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """The intrinsic is a program of micro-operations, kept in a memory of the chip.

    Inside the hardware loops runs a sequence of micro-operations with constant addresses, each
    one application of the semantics. All micro-kernels that a kernel uses must fit
    `capacity_operations` together. `rewrite_distance`: a micro-operation's written address
    differs from those of the `rewrite_distance - 1` operations before it in the sequence.
    `max_variants`: how many base addresses one micro-kernel may be instantiated with.
    `operation_bytes` each are loaded by intrinsic-like `load_cycles` (over `operations`,
    `transfer`) on the same unit when a variant is first called; `define` is the C text of its
    definition, a template over `values` among others.
    """

    name: str
    capacity_operations: int
    rewrite_distance: int
    max_variants: int
    operation_bytes: int
    bus: str
    load_name: str
    load_cycles: Expr
    define: str
    values: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant inside a call. `range`: its closed bounds; None where a float may have any.

    `exact`: the semantics computes in a wider float type, so that only constants which `dtype`
    holds exactly mean the same in both.
    """

    name: str
    dtype: str
    range: Range | None
    exact: bool = False

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype

    def admits(self, value: int | float) -> bool:
        """Whether the field may hold a number of its type: in its range; a float, finite."""
        inside = self.range is None or value in self.range
        return inside and (isfinite(value) if self.is_float else isinstance(value, int))

    @property
    def allowed(self) -> str:
        """What `admits` holds of, in words."""
        return f"any finite {self.dtype}" if self.range is None else str(self.range)


@dataclass(frozen=True, slots=True)
class Configuration:
    """State that calls depend on: registers of `fields` each, written by a call of `unit`.

    `registers`: values that templates may name, per register. `emit`: C template over `fields` and
    `register`.
    """

    name: str
    unit: str
    registers: tuple[tuple[tuple[str, int | str], ...], ...]
    fields: tuple[str, ...]
    emit: str
    cycles: int


@dataclass(frozen=True, slots=True)
class Stationary:
    """An operand that the unit holds while calls with the same address of it follow each other.

    `cycles`: what it takes to bring another one in: where it `overlaps` the call before, the first
    of the calls that use it takes at least so long, else so much longer.
    """

    operand: str
    cycles: int
    overlaps: bool = True

    def first(self, call: float) -> float:
        """Cycles of the first call that uses it, of `call` cycles by itself."""
        return max(self.cycles, call) if self.overlaps else self.cycles + call


class _Hashed:
    """Room for a hash, which is no field: another process, or a copy, makes its own."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Intrinsic(_Hashed):
    """One thing the hardware does. `iterators` are the lanes of the semantics with their extents;
    a call may let fewer of the `partial` ones take part. `loops` are hardware loops around it with
    run-time extents.

    `cycles` may name `iterations` (product of loop extents and sequence length), each loop's
    extent, `transfer`, `bursts`, `beats` (what the bus says of an off-chip operand) and
    `bank_cycles` (what interleaved banks take to serve `iterations_per_cycle` at a time). `energy`:
    picojoules of a call beside its accesses, over `iterations` and loops' extents; None: nothing.
    `configuration`: by configuration, a template of each field that a call needs it to hold.
    `instructions`: that the host issues for one call.
    `software_loops` of `loops` stand first: C loops around the call, with `cycles` for each of
    their iterations, in which `iterations` and `loops` are those of the hardware.
    `result_latency_iterations`: an iteration that touches what an earlier iteration of the same
    call wrote must come at least this many iterations after it (0: hardware forwards).
    `unit` is "" where a processor runs it; then every operand's `memory` is "" too.
    `semantics` are executed as they are written, NaN included; `nan`: how the file says that of
    `max` and `min`, where with `any` nothing is said.
    """

    name: str
    unit: str
    iterators: tuple[tuple[str, int], ...]
    semantics: tuple[Assign, ...]
    operands: tuple[Operand, ...]
    loops: tuple[HardwareLoop, ...]
    immediates: tuple[Immediate, ...]
    cycles: Expr
    emit: str
    location: Location = field(compare=False)
    micro_kernel: MicroKernel | None = None
    result_latency_iterations: int = 0
    stationary: Stationary | None = None
    instructions: int = 1
    configuration: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    iterations_per_cycle: int = 0
    partial: tuple[str, ...] = ()
    energy: Expr | None = None
    nan: NanRule = "propagate"

    def __hash__(self) -> int:
        """Of all that is compared, once: a key of many caches. Variants of a chip share names, and
        of equal hashes a look-up compares everything."""
        try:
            return self._hash
        except AttributeError:
            compared = tuple(getattr(self, f.name) for f in fields(self) if f.compare)
            object.__setattr__(self, "_hash", hash(compared))
            return self._hash

    def narrowed(self, lanes: tuple[int, ...]) -> Intrinsic:
        """What it does where so many lanes take part, by iterator; () where all do."""
        if not lanes or lanes == tuple(extent for _, extent in self.iterators):
            return self
        return _narrowed(self, lanes, self.location)

    @property
    def software_loops(self) -> int:
        return sum(loop.software for loop in self.loops)

    def operand(self, name: str) -> Operand:
        return next(o for o in self.operands if o.name == name)

    def stop(self, operand: Operand) -> int:
        """The entry before which an operand's blocks end: the last of them begins at the greatest
        address, and may be as small as partial lanes make it."""
        least = ((n, 1 if n in self.partial else e) for n, e in self.iterators)
        return operand.address.maximum + operand.span_of(least)

    @property
    def written(self) -> Operand:
        """The operand that it writes: of several, the one that it writes first."""
        return self.operand(self.semantics[0].target.tensor)


@lru_cache(maxsize=4096)
def _narrowed(intrinsic: Intrinsic, lanes: tuple[int, ...], location: Location) -> Intrinsic:
    """The same object each time: as a key of caches, it is found without looking into it."""
    iterators = tuple((n, e) for (n, _), e in zip(intrinsic.iterators, lanes, strict=True))
    once = Range(1, 1)
    loops = (replace(x, extent=once) if x.whole_lanes else x for x in intrinsic.loops)
    return replace(intrinsic, iterators=iterators, loops=tuple(loops), location=location)


Synchronization = Tokens | Barriers | Events | Scoreboard


@dataclass(frozen=True, slots=True)
class Completion:
    """How a kernel ends: `wait_units` push to `unit`, which pops all and runs a last call of
    `cycles`; the kernel takes `extra_cycles` more."""

    unit: str
    wait_units: tuple[str, ...]
    cycles: int
    extra_cycles: int


@dataclass(frozen=True, slots=True)
class CodeTemplates:
    """C text around the calls: sandboxed templates. `docs/spec-reference.md` has their names."""

    includes: tuple[str, ...]
    prologue: str
    epilogue: str
    allocate: str
    free: str
    to_device: str
    from_device: str
    handle_type: str
    definitions: str = ""
    reserved: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    @property
    def handles_are_pointers(self) -> bool:
        """Whether a pointer of the host's can stand where calls want an image."""
        return self.handle_type.rstrip().endswith("*")


@dataclass(frozen=True, repr=False)
class HardwareSpec(Brief):
    """A validated chip: units with intrinsics, a processor, or both.

    A chip that is a processor alone has workspaces, and no other memories, no buses, units or
    synchronization; its intrinsics, if any, run on the processor and take pointers.
    `synchronization` is None where nothing needs it: one in-order unit at most.
    `set_parameters`: those that were set to another number than the file has. `clock_hz`: cycles
    per second; None where the file has no clock.
    """

    name: str
    description: str
    parameters: tuple[tuple[str, int], ...]
    memories: tuple[Memory, ...]
    buses: tuple[Bus, ...]
    units: tuple[Unit, ...]
    intrinsics: tuple[Intrinsic, ...]
    synchronization: Synchronization | None
    fetch: Fetch | None
    completion: Completion | None
    code: CodeTemplates
    location: Location = field(compare=False)
    processor: Processor | None = None
    configurations: tuple[Configuration, ...] = ()
    issue: Issue | None = None
    set_parameters: tuple[tuple[str, int], ...] = ()
    clock_hz: float | None = None
    trusted: bool = field(default=False, compare=False)
    """The file comes with hwgen, or its user said that C with its text may run here."""

    brief = chip_brief
    _repr_html_ = chip_html

    @property
    def foreign(self) -> str:
        """The file of a chip that is not trusted; "" of one that is."""
        return "" if self.trusted else self.location.file

    @property
    def tokens(self) -> Tokens | None:
        return self.synchronization if isinstance(self.synchronization, Tokens) else None

    @property
    def barriers(self) -> Barriers | None:
        return self.synchronization if isinstance(self.synchronization, Barriers) else None

    @property
    def events(self) -> Events | None:
        return self.synchronization if isinstance(self.synchronization, Events) else None

    @property
    def scoreboard(self) -> Scoreboard | None:
        return self.synchronization if isinstance(self.synchronization, Scoreboard) else None

    @cached_property
    def memory(self) -> dict[str, Memory]:
        return {m.name: m for m in self.memories}

    def of_kind(self, kind: MemoryKind) -> tuple[Memory, ...]:
        """The memories of a kind, in the order of the file."""
        return tuple(m for m in self.memories if m.kind == kind)

    def workspace_of(self, level: Level) -> Memory | None:
        """The first workspace whose buffers so many see."""
        return next((m for m in self.of_kind("workspace") if m.shared_by == level), None)

    @property
    def machine(self) -> Processor:
        """The processor of a chip that has one."""
        assert self.processor is not None, "what needs a processor is refused without one"
        return self.processor

    @cached_property
    def has_energy(self) -> bool:
        """Whether any access or call is said to take energy."""
        accesses = any(m.read_energy or m.write_energy for m in self.memories)
        return accesses or any(i.energy is not None for i in self.intrinsics)

    @property
    def area(self) -> float:
        """Square millimetres of its memories and units, as far as the file says."""
        return sum(part.area for part in (*self.memories, *self.units))

    @property
    def pipelined(self) -> bool:
        """Whether the order of calls in the program decides what overlaps: a host issues them into
        short queues, and the hardware itself keeps conflicting ones in order."""
        return self.issue is not None and self.scoreboard is not None

    @cached_property
    def configuration(self) -> dict[str, Configuration]:
        return {c.name: c for c in self.configurations}

    @cached_property
    def unit(self) -> dict[str, Unit]:
        return {u.name: u for u in self.units}

    @cached_property
    def bus(self) -> dict[str, Bus]:
        return {b.name: b for b in self.buses}

    @cached_property
    def intrinsic(self) -> dict[str, Intrinsic]:
        return {i.name: i for i in self.intrinsics}

    @cached_property
    def changing(self) -> tuple[Memory, ...]:
        """The off-chip memories that hold what is not constant, in the order of the file."""
        return tuple(m for m in self.of_kind("offchip") if not m.constants_only)

    @property
    def offchip(self) -> Memory:
        """The first of them."""
        return self.changing[0]

    def off_chip(self, name: str) -> Memory:
        """The off-chip memory of an image: the one of a name, or the first."""
        return self.memory[name or self.offchip.name]

    def is_offchip(self, memory: str) -> bool:
        return self.memory[memory].kind == "offchip"

    def offchip_operand(self, intrinsic: Intrinsic) -> Operand | None:
        """The operand of an intrinsic that is off chip, if any."""
        return next((o for o in intrinsic.operands if self.is_offchip(o.memory)), None)

    def bus_of(self, operand: Operand) -> Bus:
        """The bus over which an off-chip operand moves."""
        return self.bus[self.memory[operand.memory].bus]

    def reaches(self, name: str) -> bool:
        """Whether calls take pointers of the host's to an off-chip memory, as `off_chip` names it:
        what the host has there needs no buffer of the chip's."""
        return self.off_chip(name).shared and self.code.handles_are_pointers
