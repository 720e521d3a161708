"""Closed-form off-chip bytes and energy of schedules: arrays over tile sizes, for one loop order
and placement. Unlike that of cycles, they take the last tile of a loop as short as it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.bound import real_part
from hwgen.polyhedral.search.estimate_shape import Cache, Outer, Shape, held_runs
from hwgen.polyhedral.search.objective import Objective
from hwgen.polyhedral.search.traffic import loose_rows
from hwgen.spec.affine import Affine
from hwgen.spec.expression import DTYPES, evaluate
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.memory import WAYS


def moved_cost(shape: Shape, objective: Objective) -> NDArray[np.float64]:
    """Off-chip bytes of a shape's points, or their picojoules."""
    total = np.zeros(1)
    for o in shape.match.selection.operations:
        total = total + _cost(shape, o, objective)
    return total


def least_moved(hardware: HardwareSpec, match: Match, objective: Objective) -> float:
    """The same of a match whose tensors all stay on the chip: no schedule of it takes less."""
    grid = {n: np.full(1, blocks, np.int64) for n, blocks in match.count.items()}
    placement = {s.name: 0 for s in match.selection.storages}
    spatial, reduction = match.selection.spatial, match.selection.reduction
    loops = (*spatial, *reduction)
    shape = Shape(hardware, match, grid, loops, len(spatial), placement, Cache(), 1)
    return float(moved_cost(shape, objective)[0])


def _cost(shape: Shape, o: Operation, objective: Objective) -> NDArray[np.float64]:
    """What an operation moves, or takes."""
    hardware, match = shape.hardware, shape.match
    along = dict(match.lane[o.name])
    again = np.ones(1)
    if o.kind in ("load", "store"):
        storage = next(s for s in o.storages if s in shape.placement)
        outer = shape.around(storage).loading
        times = _volume(shape, match.coordinate[storage], outer)
        if storage in shape.parts:
            times = times * shape.fresh(storage)
        times = times * prod(n for _, n in loose_rows(match, o, storage))
    else:
        depth = len(shape.loops) if match.selection.inner(o) else shape.spatial
        again = shape.counts(depth) / shape.tiles(o, depth)
        times = again * prod(match.count[n] for n in o.loops)
    # The last block of a loop that ends inside one is counted as what it is.
    part = real_part(match, tuple(along.values()))
    each = {p.name: _bytes(match, o, p) * part for p in o.intrinsic.operands}
    if objective == "traffic":
        outside = [p for p in o.intrinsic.operands if hardware.is_offchip(p.memory)]
        return times * sum(each[p.name] * len(WAYS[p.access]) for p in outside)
    held = o.intrinsic.stationary
    total = times * _per_iteration(o.intrinsic)
    for p in o.intrinsic.operands:
        brought = held is not None and held.operand == p.name
        moves = o.kind in ("load", "store")
        runs = held_runs(shape, o) * again if brought and not moves else times
        total = total + runs * each[p.name] * hardware.memory[p.memory].access_energy(p.access)
    return total


def _volume(shape: Shape, coordinates: Sequence[Affine], outer: Outer) -> NDArray[np.float64]:
    """Entries of all boxes that the coordinates span inside the `outer` loops; where two
    coordinates have a loop in common, as if every tile were full."""
    count = shape.match.count
    names = [n for c in coordinates for n in c.names]
    full = len({*names}) < len(names)
    total = np.ones(1) * shape.trips(outer - {*names})
    for coordinate in coordinates:
        trips = shape.trips(outer & {*coordinate.names})
        extent = np.ones(1) * trips
        for name, coefficient in coordinate.terms:
            own = shape.trips(outer & {name})
            steps = own * shape.grid[name] if full and name in outer else count[name]
            extent = extent + abs(coefficient) * (trips / own * steps - trips)
        total = total * extent
    return total


def _bytes(match: Match, o: Operation, operand: Operand) -> int:
    """Bytes of an operand that one application touches, all lanes that a loop runs along taking
    part."""
    along = dict(match.lane[o.name])
    extents = {
        n: 1 if match.single and along[n] is None else extent for n, extent in o.intrinsic.iterators
    }
    elements = operand.span_of(extents.items()) * operand.entry_elements
    return elements * DTYPES[operand.dtype]


def _per_iteration(intrinsic: Intrinsic) -> float:
    """Picojoules of an iteration in the largest calls."""
    if intrinsic.energy is None:
        return 0.0
    largest = {x.name: x.extent.maximum for x in intrinsic.loops if not x.software}
    count = prod(largest.values())
    return evaluate(intrinsic.energy, largest | {"iterations": count}) / count
