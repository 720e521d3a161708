"""A lower bound on the cycles of every schedule of a match, for pruning.

Counted per unit: every iteration at its marginal cost, and a call's fixed cost once per tile, or
as often as hardware loops of their largest extents need it; of its transfers, the data of each
entry once. Counted per bus: the beats of each entry read, once.
Latencies, waits and repeated transfers are left out, so no schedule can be faster.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.match.partial_lanes import Lanes
from hwgen.polyhedral.search.estimate_shape import Grid
from hwgen.polyhedral.search.traffic import Rates, loose_rows, moved_block
from hwgen.spec.affine import Affine
from hwgen.spec.hardware import HardwareSpec


def work_bound(hardware: HardwareSpec, match: Match, grid: Grid) -> NDArray[np.float64]:
    """Cycles that all orders and placements need at least, for arrays of tile sizes."""
    spatial = set(match.selection.spatial)
    busy: dict[str, NDArray[np.float64]] = {}

    def add(resource: str, cycles: NDArray[np.float64] | float) -> None:
        busy[resource] = busy.get(resource, np.zeros(1)) + cycles

    for o in match.selection.operations:
        rates = Rates.of(o.intrinsic)
        if hardware.offchip_operand(o.intrinsic) is not None:
            work = transfer_work(hardware, match, o)
            add(f"unit {o.intrinsic.unit}", max(0.0, rates.per_transfer) * work.unit)
            if o.kind != "store":
                add(f"bus {work.bus}", work.beats)
            else:
                add(f"bus {work.bus} write of {o.intrinsic.unit}", work.posted)
            continue
        calls, iterations = np.ones(1), 1
        for n, blocks in match.count.items():
            # An operation runs in the tile loops around it, whether its operands move or not.
            if match.selection.inner(o) or n in spatial:
                calls = calls * -(-blocks // grid[n])
        for n in o.loops:
            iterations *= match.count[n]
        calls = np.maximum(calls, iterations / prod(x.extent.maximum for x in o.intrinsic.loops))
        add(
            f"unit {o.intrinsic.unit}",
            calls * max(0.0, rates.fixed) + rates.per_iteration * iterations,
        )
    total = np.zeros(len(next(iter(grid.values()), np.ones(1))))
    for work in busy.values():
        total = np.maximum(total, work)
    return total


def least_work(hardware: HardwareSpec, match: Match) -> float:
    """The bound of a match, whatever its tiles: that of a single one."""
    grid = {n: np.full(1, blocks, dtype=np.int64) for n, blocks in match.count.items()}
    return float(work_bound(hardware, match, grid)[0])


class TransferWork(NamedTuple):
    """What moving each entry of an operand once takes: cycles of its unit, those of the write
    channel after which posted writes are done, bus beats, and the bus."""

    unit: float
    posted: float
    beats: float
    bus: str


def transfer_work(hardware: HardwareSpec, match: Match, o: Operation) -> TransferWork:
    """The work of a load or a store, each entry moved once."""
    offchip = next(p for p in o.intrinsic.operands if hardware.memory[p.memory].kind == "offchip")
    bus = hardware.bus[hardware.memory[offchip.memory].bus]
    block = moved_block(match, o, offchip)
    storage = next(s for s in o.storages if s in match.coordinate)
    blocks = distinct_entries(match, match.coordinate[storage]) * prod(
        n for _, n in loose_rows(match, o, storage)
    )
    # The last block of a loop that ends inside one is counted as what it is.
    whole = blocks * real_part(match, match.storage_lane[storage])
    beats = whole * block.bytes / bus.beat_bytes
    channel = bus.write if o.kind == "store" else bus.read
    data = beats
    if channel.cycles_per_entry:
        data = whole * block.entries * channel.cycles_per_entry
    handed = min(data, beats)
    if channel.in_flight_bursts == 1:
        burst_bytes = min(bus.burst_beats * bus.beat_bytes, bus.burst_boundary_bytes)
        data += whole * block.bytes / burst_bytes * channel.latency_cycles
    if channel.posted_bursts:
        return TransferWork(handed, data, beats, bus.name)
    return TransferWork(data, 0.0, beats, bus.name)


def real_part(match: Match, lanes: Lanes) -> float:
    """Of all lanes of the blocks along loops that end inside one, those that take part."""
    part = 1.0
    for loop, last in match.tails:
        if loop in lanes:
            whole = match.count[loop] * match.block[loop]
            part *= (whole - match.block[loop] + last) / whole
    return part


def distinct_entries(match: Match, coordinates: tuple[Affine, ...]) -> int:
    """Entries that the coordinates reach at least: some loop moves each of them and no other."""
    total = 1
    for position, coordinate in enumerate(coordinates):
        others = {n for p, c in enumerate(coordinates) if p != position for n in c.names}
        own = [match.count[n] for n in coordinate.names if n not in others]
        total *= max(own, default=1)
    return total
