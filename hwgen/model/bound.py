"""A lower bound on a kernel's cycles: work that no intrinsics can avoid, by resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, prod

from hwgen.codegen.program import Program
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.search.bound import transfer_work
from hwgen.polyhedral.search.traffic import Rates
from hwgen.polyhedral.semantics import copies
from hwgen.spec.call_cycles import best_rate
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import Bus, HardwareSpec, Intrinsic, Operand

from .columns import intrinsic_iterations
from .costs import call_span, entry_bytes
from .touched import Access, nested_calls, touched_entries


@dataclass(frozen=True, slots=True)
class Bound:
    """Cycles that each resource needs at least; `cycles` is the largest, that of `resource`."""

    per_resource: tuple[tuple[str, int], ...]
    cycles: int
    resource: str


def lower_bound(program: Program, hardware: HardwareSpec) -> Bound:
    """The cycles below which no schedule of the program's calls can get.

    Counted, per unit:
    - every iteration of its on-chip calls, at the best rate of any call of that intrinsic, whose
      overhead is in it: `best_rate`;
    - every iteration of calls that compute with what they read off chip, with one beat of it each;
    - every off-chip entry of inputs and outputs that its other calls touch, once: reads at one beat
      per cycle, writes in the longest bursts that the bus allows, updates both ways.

    Counted, per bus: every byte that is read from an input's image, once, at one beat per cycle.
    Writes have a channel of their own and are on the unit that writes; of posted ones, only what
    handing them over takes is, and the channel is counted by itself.

    Not counted: latencies, time between requests, repeated transfers, bursts that boundaries or
    rows cut short, tensors that one phase stores for another, micro-kernel loads, instruction
    fetch, synchronisation, start and completion.
    """
    need: Counter[str] = Counter()
    need.update(_compute(program, hardware))
    need["processor"] += sum(code.bound for code in program.codes)
    images: dict[tuple[str, str, str], list[Access]] = {}
    for unit, buffer, operand, access in offchip_accesses(program, hardware):
        counted = _computes_off_chip(hardware, hardware.intrinsic[access.nested.call.intrinsic])
        for own in ("",) if counted else (unit, ""):
            images.setdefault((own, buffer, operand.access), []).append(access)
    touched: dict[tuple[str | int, ...], int] = {}
    for (unit, buffer, kind), accesses in images.items():
        intrinsic = hardware.intrinsic[accesses[0].nested.call.intrinsic]
        operand = intrinsic.operand(accesses[0].operand.name)
        bus, size = hardware.bus_of(operand), entry_bytes(operand)
        sites = (buffer, kind, *sorted(a.nested.call.site for a in accesses))
        if sites not in touched:
            touched[sites] = touched_entries(accesses, program.image[buffer].entries)
        entries = touched[sites]
        if kind != "read" and unit:
            written = write_bound(bus, size, entries)
            posted = bus.write.posted_bursts > 0
            need[f"unit {unit}"] += posted_bound(bus, size, entries) if posted else written
            if posted:
                need[f"bus {bus.name} write of {unit}"] += written
        if kind != "write":
            beats = -(-entries * size // bus.beat_bytes)
            need[f"unit {unit}" if unit else f"bus {bus.name} read"] += beats
    return _largest(need, hardware)


def offchip_accesses(
    program: Program, hardware: HardwareSpec
) -> Iterator[tuple[str, str, Operand, Access]]:
    """What calls touch of the images of inputs and outputs: the unit, the image, the operand."""
    for nested in nested_calls(program.body):
        intrinsic = hardware.intrinsic[nested.call.intrinsic]
        operand = hardware.offchip_operand(intrinsic)
        if operand is None:
            continue
        given = next(o for o in nested.call.operands if o.name == operand.name)
        if program.image[given.buffer].role != "temporary":
            span = call_span(intrinsic, operand, nested.call)
            yield intrinsic.unit, given.buffer, operand, Access(nested, given, span)


def cover_bound(match: Match, hardware: HardwareSpec) -> Bound:
    """The cycles below which no schedule of a match can get: counted as in `lower_bound`, of the
    match's own operations, each entry moved once."""
    need: Counter[str] = Counter()
    for o in match.selection.operations:
        unit = f"unit {o.intrinsic.unit}"
        moves = hardware.offchip_operand(o.intrinsic) is not None
        if o.kind in ("load", "store") or (o.kind == "init" and moves):
            work = transfer_work(hardware, match, o)
            need[unit] += int(max(0.0, Rates.of(o.intrinsic).per_transfer) * work.unit)
            if o.kind != "store":
                need[f"bus {work.bus} read"] += ceil(round(work.beats, 6))
            elif work.posted:
                need[f"bus {work.bus} write of {o.intrinsic.unit}"] += int(work.posted)
            continue
        rate = min(best_rate(i) for i in (o.intrinsic, o.first) if i is not None)
        need[unit] += int(rate * prod(match.count[n] for n in o.loops))
    return _largest(need, hardware)


def least_bound(program: Program, hardware: HardwareSpec, covers: Iterable[Match]) -> Bound:
    """The cycles below which no kernel can get that computes what a program does: the least of the
    program's bound and those of all `covers`, the ways to do it with the chip's intrinsics."""
    bounds = [lower_bound(program, hardware), *(cover_bound(m, hardware) for m in covers)]
    return min(bounds, key=lambda b: b.cycles)


def _largest(need: Counter[str], hardware: HardwareSpec) -> Bound:
    """Where each worker has units and buses of its own, they share the work."""
    teams = hardware.processor.teams if hardware.processor is not None else 1
    shared = {n: c if n == "processor" else ceil(c / teams) for n, c in need.items()}
    ordered = tuple(sorted((name, cycles) for name, cycles in shared.items() if cycles))
    resource, cycles = max(ordered, key=lambda item: item[1], default=("", 0))
    return Bound(ordered, cycles, resource)


def _compute(program: Program, hardware: HardwareSpec) -> Counter[str]:
    work: Counter[str] = Counter()
    for name, count in intrinsic_iterations(program, hardware).items():
        intrinsic = hardware.intrinsic[name]
        each = best_rate(intrinsic)
        if hardware.offchip_operand(intrinsic) is not None:
            if not _computes_off_chip(hardware, intrinsic):
                continue
            each = evaluate(intrinsic.cycles, {"transfer": 1, "bursts": 1, "beats": 1})
        work[f"unit {intrinsic.unit}"] += int(each * count)
    return work


def _computes_off_chip(hardware: HardwareSpec, intrinsic: Intrinsic) -> bool:
    """Whether calls of single iterations read an operand off chip and do more than copy it, so that
    none of these reads can be saved."""
    operand = hardware.offchip_operand(intrinsic)
    reads = operand is not None and operand.access == "read"
    single = not intrinsic.loops and intrinsic.micro_kernel is None
    return bool(intrinsic.unit) and reads and single and not copies(intrinsic)


def write_bound(bus: Bus, size: int, entries: int) -> int:
    """Cycles below which no accesses write so many different entries of `size` bytes.

    Bursts hold at most as many bytes as the bus allows, and may span entries or end inside one.
    """
    longest = min(bus.burst_beats * bus.beat_bytes, bus.burst_boundary_bytes)
    bursts = -(-entries * size // longest)
    beats = max(bursts, -(-entries * size // bus.beat_bytes))
    per_entry = bus.write.cycles_per_entry
    data = per_entry * max(entries, bursts) if per_entry else beats
    one_at_a_time = bus.write.in_flight_bursts <= 1
    return data + (bus.write.latency_cycles * bursts if one_at_a_time else 0)


def posted_bound(bus: Bus, size: int, entries: int) -> int:
    """Cycles below which no accesses hand so many different entries of `size` bytes over to the
    write buffer."""
    beats = -(-entries * size // bus.beat_bytes)
    per_entry = bus.write.cycles_per_entry
    return min(beats, per_entry * entries) if per_entry else beats
