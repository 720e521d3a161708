"""How long a host that issues calls in order waits for room in one unit's queue, beyond what the
unit that computes has in its own, and what is issued in parts for that reason."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.estimate_shape import Grid, storage_entries
from hwgen.polyhedral.search.traffic import Rates, transfer_cycles
from hwgen.spec.hardware import HardwareSpec

Cycles = NDArray[np.float64]


def anchor_unit(match: Match) -> str:
    """The unit that the others work beside: that of the accumulation, where there is one."""
    operations = match.selection.operations
    kinds = ("update", "map", "store")
    return next(o.intrinsic.unit for kind in kinds for o in operations if o.kind == kind)


def queued_cycles(hardware: HardwareSpec, match: Match) -> float:
    """Cycles of the anchor's calls that its queue holds."""
    unit = anchor_unit(match)
    update = next(o for o in match.selection.operations if o.intrinsic.unit == unit)
    own = [x for x in update.intrinsic.loops if not x.software]
    each = Rates.of(update.intrinsic).per_iteration * prod(x.extent.maximum for x in own)
    return hardware.unit[unit].queue_entries * each / update.intrinsic.instructions


def waiting(
    hardware: HardwareSpec, unit: str, cycles: Cycles, instructions: Cycles, queued: float
) -> Cycles:
    """Cycles for which the anchor's unit has no calls, as those of another unit fill its queue."""
    if hardware.issue is None:
        return np.zeros(1)
    room = hardware.unit[unit].queue_entries or inf
    waits = cycles * np.maximum(0, 1 - room / np.maximum(instructions, 1))
    return np.maximum(0, waits - queued)


def stored_in_parts(hardware: HardwareSpec, match: Match) -> Operation | None:
    """The store that may come in parts, one with each part of the next tile's work: the only one,
    of another unit, where nothing begins sums that would have to wait for all of them."""
    operations = match.selection.operations
    stores = [o for o in operations if o.kind == "store"]
    apart = hardware.pipelined and hardware.issue is not None and len(stores) == 1
    if not apart or stores[0].intrinsic.unit == anchor_unit(match):
        return None
    begun = any(o.kind == "init" and o.intrinsic.unit != anchor_unit(match) for o in operations)
    summed = any(o.kind == "update" for o in operations)
    return stores[0] if summed and not begun else None


def part_of_store(
    hardware: HardwareSpec, match: Match, store: Operation, tile: Mapping[str, int], most: int
) -> tuple[str, int] | None:
    """The loop of a tile that is cut for its store to come in parts, at most so many, and blocks of
    it in one: for which the anchor's unit waits least, in the fewest instructions. None where it
    does not wait as things are."""
    storage = next(s for s in store.storages if s in match.coordinate)
    queued = queued_cycles(hardware, match)
    whole = {n: np.full(1, blocks, np.int64) for n, blocks in tile.items()}
    best: tuple[float, float, int, str, int] | None = None
    for loop, blocks in sorted(tile.items()):
        if loop not in match.moving(storage):
            continue
        sizes = np.arange(max(1, -(-blocks // most)), blocks + 1, dtype=np.int64)
        parts = -(-blocks // sizes)
        extents = {**whole, loop: sizes}
        each = transfer_cycles(hardware, store, match, extents, storage)
        instructions = np.maximum(each.instructions, _calls(match, store, storage, extents))
        unit = store.intrinsic.unit
        waits = parts * waiting(hardware, unit, each.cycles, instructions, queued)
        calls = parts * np.broadcast_to(instructions, parts.shape)
        first = int(np.lexsort((parts, calls, np.broadcast_to(waits, parts.shape)))[0])
        found = float(waits[first]), float(calls[first]), int(parts[first]), loop, int(sizes[first])
        best = found if best is None else min(best, found)
    return None if best is None or best[2] == 1 else best[3:]


def _calls(match: Match, store: Operation, storage: str, extents: Grid) -> Cycles:
    """Calls of a store whose hardware loops run over rows, along which there are no lanes."""
    rows = np.ones(1)
    single = [n for n in store.loops if match.block.get(n, 1) == 1]
    for x in store.intrinsic.loops[store.intrinsic.software_loops :]:
        most = [extents[n] / np.ceil(extents[n] / x.extent.maximum) for n in single]
        if most and not any(x.stride(o.name).range.minimum > 1 for o in store.intrinsic.operands):
            rows = rows * np.max(np.broadcast_arrays(*most), axis=0)
    return storage_entries(match, storage, extents) / rows
