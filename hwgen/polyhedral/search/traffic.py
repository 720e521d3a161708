"""Closed-form cycles of intrinsics and transfers, for the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.semantics import operand_iterators
from hwgen.spec.call_cycles import best_rate, unhindered
from hwgen.spec.expression import DTYPES, evaluate
from hwgen.spec.hardware import Bus, HardwareLoop, HardwareSpec, Intrinsic, Operand


@dataclass(frozen=True, slots=True)
class Rates:
    """An intrinsic's cycles as `fixed + per_iteration * iterations + per_transfer * transfer`."""

    fixed: float
    per_iteration: float
    per_transfer: float

    @staticmethod
    def of(intrinsic: Intrinsic) -> Rates:
        """The rates around a large call; formulas of other shape are linearised there. Where C
        loops repeat calls, those of the calls that take least per iteration."""
        if intrinsic.software_loops:
            most = {x.name: x.extent.maximum for x in intrinsic.loops if not x.software}
            names = most | {"iterations": prod(most.values()), "bursts": 1, "beats": 1}
            idle, one = (evaluate(intrinsic.cycles, names | {"transfer": n}) for n in (0, 1))
            return Rates(0.0, float(best_rate(intrinsic)), one - idle)
        free = {"bursts": 1, "beats": 1} | {loop.name: 1 for loop in intrinsic.loops}

        def cycles(iterations: int, transfer: int) -> float:
            names = free | unhindered(intrinsic, iterations)
            return evaluate(
                intrinsic.cycles, names | {"iterations": iterations, "transfer": transfer}
            )

        # The step divides by every small number: the slope of a rounded quotient is then exact.
        at, step = cycles(1000, 1000), 840
        per_iteration = (cycles(1000 + step, 1000) - at) / step
        per_transfer = (cycles(1000, 1000 + step) - at) / step
        fixed = at - 1000 * per_iteration - 1000 * per_transfer
        return Rates(fixed, per_iteration, per_transfer)


class Transfer(NamedTuple):
    """Cycles of moving one box, the bus beats that it takes, the instructions that it is, and the
    cycles until all of it is written, where it is posted; else those of moving it."""

    cycles: NDArray[np.float64]
    beats: NDArray[np.float64]
    instructions: NDArray[np.float64]
    written: NDArray[np.float64]


class Block(NamedTuple):
    """What one application of a move moves off chip, all lanes that a loop runs along taking
    part."""

    entries: int
    bytes: int


class Dimension(NamedTuple):
    """Of an image: how far a box goes along it, how long it is, and whether it is of the rows that
    a block has."""

    extent: NDArray[np.int64]
    whole: int
    rows: bool = False


def moved_block(match: Match, operation: Operation, offchip: Operand) -> Block:
    """Of an operand off chip: its entries and bytes."""
    along = dict(match.lane[operation.name])
    extents = dict(operation.intrinsic.iterators)
    lanes = {
        name: 1 if match.single and along[name] is None else extent
        for name, extent in extents.items()
    }
    elements = prod(lanes[name] for name in offchip.indices)
    return Block(offchip.span_of(lanes.items()), elements * DTYPES[offchip.dtype])


def transfer_cycles(
    hardware: HardwareSpec,
    operation: Operation,
    match: Match,
    extents: Mapping[str, NDArray[np.int64]],
    storage: str,
) -> Transfer:
    """What moving one box of a storage takes."""
    intrinsic = operation.intrinsic
    offchip = hardware.offchip_operand(intrinsic)
    assert offchip is not None
    bus = hardware.bus_of(offchip)
    block = moved_block(match, operation, offchip)
    run, total, within = np.ones(1), np.ones(1), np.ones(1)
    contiguous = np.ones(1, dtype=np.bool_)
    second = np.zeros(1, dtype=np.bool_)
    pitch = np.ones(1, dtype=np.int64)
    stored = _stored(hardware, operation, match, extents, storage)
    for extent, whole, _ in reversed(stored):
        total = total * extent
        run = np.where(contiguous, run * extent, run)
        pitch = np.where(contiguous, pitch * whole, pitch)
        # The first loop that does not continue the run is the transfer's second dimension.
        takes = ~contiguous & ~second & (extent > 1)
        within = np.where(contiguous, run, np.where(takes, within * extent, within))
        second = second | takes
        contiguous = contiguous & (extent == whole)
    calls = total / within
    rates = Rates.of(intrinsic)
    # A call asks for each of its rows, though one follows the other.
    rows = next((d.rows for d in reversed(stored) if d.whole > 1), False)
    row = _row_blocks(intrinsic, offchip.name, block, rows=rows)
    run = run / np.ceil(run / row)
    store = operation.kind == "store"
    cycles, beats, handed = _bus_cycles(bus, store, total / run, run, pitch, block)
    own, issued = calls * rates.fixed, calls
    if intrinsic.software_loops:
        own = total * rates.per_iteration
        issued = _instructions(intrinsic, offchip.name, stored, run, total)
    own, written = own + rates.per_transfer * handed, own + rates.per_transfer * cycles
    return Transfer(own, beats, issued, written)


def _stored(
    hardware: HardwareSpec,
    operation: Operation,
    match: Match,
    extents: Mapping[str, NDArray[np.int64]],
    storage: str,
) -> list[Dimension]:
    """The dimensions of a box's image, the innermost last: the tensor's own order, but where
    elements are stored one by one that along which lanes run is the innermost."""
    rows = loose_rows(match, operation, storage)
    offchip = hardware.offchip_operand(operation.intrinsic)
    assert offchip is not None
    along = dict(match.lane[operation.name])
    own = operand_iterators(operation.intrinsic, offchip.name)
    lanes = {n for i in own if (n := along[i]) is not None}
    found: list[tuple[bool, list[Dimension]]] = []
    indices = match.selection.storage(storage).indices
    for c, index in zip(match.coordinate[storage], indices, strict=True):
        extent = np.ones(1, dtype=np.int64)
        for name, coefficient in c.terms:
            extent = extent + abs(coefficient) * (extents[name] - 1)
        refined = [r for r in rows if r[0] in index.names]
        rows = [r for r in rows if r not in refined]
        boxes = [Dimension(extent, c.interval(match.count)[1] + 1), *_whole(refined)]
        found.append((any(match.block.get(n, 1) > 1 for n in lanes & {*index.names}), boxes))
    if hardware.memory[offchip.memory].by_element and sum(inner for inner, _ in found) == 1:
        found.sort(key=lambda x: x[0])
    return [*_whole(rows), *(x for _, boxes in found for x in boxes)]


def _whole(rows: Sequence[tuple[str | None, int]]) -> list[Dimension]:
    return [Dimension(np.full(1, extent, np.int64), extent, rows=True) for _, extent in rows]


def _row_blocks(intrinsic: Intrinsic, offchip: str, block: Block, *, rows: bool) -> int:
    """Blocks of a row of one call at most: the innermost loop's where they follow each other;
    `rows`: they are those of larger blocks, which lie next to each other on the chip, too."""
    if not intrinsic.loops:
        return 1
    inner = intrinsic.loops[-1]
    along = inner.stride(offchip).range
    onchip = [inner.stride(o.name).range for o in intrinsic.operands if o.name != offchip]
    if rows and any(s.minimum != 1 for s in onchip):
        return 1
    return inner.extent.maximum if along.minimum <= block.entries <= along.maximum else 1


def _instructions(
    intrinsic: Intrinsic,
    offchip: str,
    stored: Sequence[Dimension],
    run: NDArray[np.float64],
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Calls that a transfer of `total` entries, `run` of them in a row, is issued as: each of a
    call's loops runs along one dimension of the image, or along a row."""
    own = intrinsic.loops[intrinsic.software_loops :]
    block = intrinsic.operand(offchip).span
    # Blocks at a distance on chip that few layouts have are moved one by one.
    free = [x for x in own if not _apart_on_chip(intrinsic, offchip, x)]
    dense = [x for x in free if x.stride(offchip).range.maximum == block]
    each = np.ones(1)
    for loop in dense:
        each = each * _at_once(run, loop)
    left = [d.extent for d in stored[: -1 if dense else None]]
    for loop in (x for x in free if x not in dense):
        rows = [_at_once(extent, loop) for extent in left]
        each = each * np.max(np.broadcast_arrays(np.ones(1), *rows), axis=0)
    return np.ceil(total / np.minimum(each, total)) * intrinsic.instructions


def _apart_on_chip(intrinsic: Intrinsic, offchip: str, loop: HardwareLoop) -> bool:
    """Whether iterations of a loop lie more than an entry apart on chip."""
    onchip = (o for o in intrinsic.operands if o.name != offchip)
    return any(loop.stride(o.name).range.minimum > 1 for o in onchip)


def _at_once(extent: NDArray[Any], loop: HardwareLoop) -> NDArray[np.float64]:
    """How much of an extent one call takes, of as few calls as can be."""
    return extent / np.ceil(extent / loop.extent.maximum)


def start_beats(hardware: HardwareSpec, operation: Operation) -> float:
    """Bus beats of one entry that sums start from, where it comes from off chip."""
    operand = hardware.offchip_operand(operation.intrinsic)
    if operand is None:
        return 0
    return -(-prod(operand.shape) * DTYPES[operand.dtype] // hardware.bus_of(operand).beat_bytes)


def loose_rows(match: Match, o: Operation, storage: str) -> tuple[tuple[str | None, int], ...]:
    """Rows of a storage's blocks that an operation is applied to one by one."""
    named = zip(o.intrinsic.operands, o.storages, strict=True)
    return match.loose_rows(o, next(p.name for p, s in named if s == storage), storage)


def _bus_cycles(
    bus: Bus,
    write: bool,
    rows: NDArray[np.float64],
    run: NDArray[np.float64],
    pitch: NDArray[np.int64],
    block: Block,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Cycles of a transfer, its beats, and the cycles after which the unit goes on.

    `pitch`: entries from one row to the next; rows begin at multiples of what it and a run have in
    common."""
    channel = bus.write if write else bus.read
    burst_bytes = min(bus.burst_beats * bus.beat_bytes, bus.burst_boundary_bytes)
    row_bytes = run * block.bytes
    aligned = np.gcd(run.astype(np.int64), pitch) * block.bytes

    def cut(size: int) -> NDArray[np.float64]:
        # What rows touch of pieces of so many bytes, over all places where they may begin.
        return np.ceil(rows * ((row_bytes - np.gcd(aligned, size)) / size + 1))

    bursts, beats = cut(burst_bytes), cut(bus.beat_bytes)
    entries = rows * run * block.entries
    data = entries * channel.cycles_per_entry if channel.cycles_per_entry else beats
    # A last beat keeps one request back: at most one goes out in two cycles.
    apart = max(channel.request_cycles, 1 + channel.last_beat_blocks_request)
    requests = bursts * apart
    if channel.in_flight_bursts == 1:
        cycles = np.maximum(data + bursts * channel.latency_cycles, requests)
    else:
        window = bursts * channel.latency_cycles / channel.in_flight_bursts
        cycles = np.maximum(np.maximum(data, requests), window) + channel.latency_cycles
    if not channel.posted_bursts:
        return cycles, beats, cycles
    # What the buffer does not hold goes at the channel's rate.
    waiting = cycles * np.maximum(0, 1 - channel.posted_bursts / bursts)
    return cycles, beats, np.maximum(np.minimum(data, beats), waiting)
