"""Search: tile sizes, orders, placements and buffer counts, ranked by a closed-form cost.

For every order of the spatial loops and every useful placement of each operand's load, the cost of
all tile sizes is one NumPy expression. Tile sizes are all `ceil(blocks / n)`: for a given number
of tiles, the smallest that covers the loop. Points that exceed a memory are dropped while the grid
grows, so large problems cost no more than small ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from hwgen.errors import HwgenError
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.selection import Operation
from hwgen.polyhedral.tiling import Tiling
from hwgen.polyhedral.traffic import Rates, transfer_cycles
from hwgen.spec.hardware import HardwareSpec

Grid = dict[str, NDArray[np.int64]]

SHORT_REDUCTION = 8
"""Reduction loops without lanes that are this short are cut only where nothing else fits."""

MAX_OPTIONS = 20
"""Tile sizes considered for one loop."""

TAIL_PENALTY = 1e-3
"""Relative cost of a loop with a tail: a program without is shorter, at equal speed better."""

MAX_POINTS = 1 << 20
"""Grid points considered for one match; a larger space is thinned, and the result says so."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with its estimated cycles."""

    tiling: Tiling
    cycles: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best candidates, cheapest first; `points` evaluated, `exhausted` unless thinned."""

    candidates: tuple[Candidate, ...]
    points: int
    exhausted: bool


def search(hardware: HardwareSpec, matches: Sequence[Match], keep: int = 8) -> SearchResult:
    """Rank the schedules of all matches.

    Raises:
        HwgenError: H405 where not even single-block tiles fit the memories.
    """
    found: list[Candidate] = []
    points, exhausted = 0, True
    for match in matches:
        for all_reductions in (False, True):
            grid, complete = _grid(hardware, match, all_reductions)
            if len(next(iter(grid.values()), np.zeros(1))) or not match.count:
                break
        else:
            continue
        exhausted &= complete
        for candidate, evaluated in _evaluate(hardware, match, grid, keep):
            points += evaluated
            found += candidate
    if not found:
        raise _nothing_fits(hardware, matches[0])
    distinct = {str(c.tiling.match) + str(c.tiling): c for c in reversed(found)}
    ranked = sorted(distinct.items(), key=lambda item: (item[1].cycles, item[0]))
    return SearchResult(tuple(c for _, c in ranked[:keep]), points, exhausted)


def tile_options(blocks: int, limit: int = MAX_OPTIONS) -> list[int]:
    """Tile sizes that are the smallest for their number of tiles, ascending.

    More than `limit` of them are thinned to a geometric progression; a size that divides the loop
    is then preferred to its neighbours.
    """
    sizes: set[int] = set()
    number = 1
    while number <= blocks:
        size = -(-blocks // number)
        sizes.add(size)
        # The next number of tiles that gives a smaller size.
        number = -(-blocks // (size - 1)) if size > 1 else blocks + 1
    if len(sizes) <= limit:
        return sorted(sizes)
    ratio = blocks ** (1 / limit)
    buckets: dict[int, int] = {}
    for size in sorted(sizes):
        bucket = round(math.log(size, ratio))
        if bucket not in buckets or blocks % size == 0 or blocks % buckets[bucket]:
            buckets[bucket] = size
    return sorted(buckets.values())


def _dimensions(match: Match) -> tuple[tuple[str, ...], tuple[str, ...]]:
    spatial = tuple(n for n in match.selection.spatial if match.count.get(n, 1) > 1)
    reduction = tuple(n for n in match.selection.reduction if match.count.get(n, 1) > 1)
    return spatial, reduction


def _grid(hardware: HardwareSpec, match: Match, all_reductions: bool) -> tuple[Grid, bool]:
    """Tile sizes of every loop whose smallest buffers fit, one array per loop."""
    spatial, reduction = _dimensions(match)
    grid: Grid = {n: np.ones(1, dtype=np.int64) for n in match.count}
    complete = True
    for name in (*spatial, *reduction):
        blocks = match.count[name]
        whole = (
            name in reduction
            and not all_reductions
            and blocks <= SHORT_REDUCTION
            and match.block.get(name, 1) == 1
        )
        sizes = [blocks] if whole else tile_options(blocks)
        complete &= whole or len(sizes) == len(tile_options(blocks, blocks))
        options = np.array(sizes, dtype=np.int64)
        size = len(next(iter(grid.values()), np.ones(1)))
        grid = {n: np.repeat(v, len(options)) for n, v in grid.items()}
        grid[name] = np.tile(options, size)
        fits = _fits(hardware, match, grid)
        grid = {n: v[fits] for n, v in grid.items()}
        if len(grid[name]) > MAX_POINTS:
            step = -(-len(grid[name]) // MAX_POINTS)
            grid = {n: v[::step] for n, v in grid.items()}
            complete = False
    return grid, complete


def _fits(hardware: HardwareSpec, match: Match, grid: Grid) -> NDArray[np.bool_]:
    used: dict[str, NDArray[np.int64]] = {}
    for storage in match.selection.storages:
        entries = box_entries(match.coordinate[storage.name], grid)
        used[storage.memory] = used.get(storage.memory, np.zeros(1, np.int64)) + entries
    size = len(next(iter(grid.values()), np.ones(1)))
    result = np.ones(size, dtype=np.bool_)
    for memory, entries in used.items():
        result &= entries <= hardware.memory[memory].capacity_entries
    return result


def box_entries(coordinates: Sequence[Affine], extents: Grid) -> NDArray[np.int64]:
    """Entries of the box that the coordinates span, for arrays of extents."""
    total = np.ones(1, dtype=np.int64)
    for extent in box_extents(coordinates, extents):
        total = total * extent
    return total


def box_extents(coordinates: Sequence[Affine], extents: Grid) -> list[NDArray[np.int64]]:
    """Extent of each coordinate, for arrays of loop extents."""
    result: list[NDArray[np.int64]] = []
    for coordinate in coordinates:
        extent = np.ones(1, dtype=np.int64)
        for name, coefficient in coordinate.terms:
            extent = extent + abs(coefficient) * (extents[name] - 1)
        result.append(extent)
    return result


@dataclass(frozen=True)
class _Shape:
    """One order of loops and one placement of loads, over all tile sizes."""

    hardware: HardwareSpec
    match: Match
    grid: Grid
    loops: tuple[str, ...]
    spatial: int
    placement: dict[str, int]
    cache: dict[tuple[str, frozenset[str]], tuple[NDArray[np.float64], NDArray[np.float64]]]

    def transfer(
        self, operation: Operation, storage: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cycles and bus beats of moving one box; depends only on which loops lie outside."""
        depth = self.placement[storage]
        key = (operation.name, frozenset(self.loops[:depth]))
        if key not in self.cache:
            self.cache[key] = transfer_cycles(
                self.hardware,
                operation,
                self.match,
                self.extents(depth),
                self.match.coordinate[storage],
            )
        return self.cache[key]

    def counts(self, depth: int) -> NDArray[np.int64]:
        """Iterations of the outermost `depth` loops."""
        total = np.ones(1, dtype=np.int64)
        for name in self.loops[:depth]:
            total = total * -(-self.match.count[name] // self.grid[name])
        return total

    def extents(self, depth: int) -> Grid:
        outer = set(self.loops[:depth])
        return {
            n: self.grid[n] if n in outer else np.full(1, blocks, np.int64)
            for n, blocks in self.match.count.items()
        }


def _evaluate(
    hardware: HardwareSpec, match: Match, grid: Grid, keep: int
) -> Iterator[tuple[list[Candidate], int]]:
    spatial, reduction = _dimensions(match)
    size = len(next(iter(grid.values()), np.ones(1)))
    limit = np.inf
    cache: dict[tuple[str, frozenset[str]], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for order in permutations(spatial):
        loops = (*order, *reduction)
        for placement in _placements(match, loops, len(order)):
            shape = _Shape(hardware, match, grid, loops, len(order), placement, cache)
            cycles, slots = _cost(shape)
            best = np.argsort(cycles, kind="stable")[:keep]
            best = best[cycles[best] <= limit]
            if len(best) == keep:
                limit = min(limit, float(cycles[best[-1]]))
            yield (
                [
                    Candidate(_tiling(shape, slots, int(i)), float(cycles[i]))
                    for i in best
                    if np.isfinite(cycles[i])
                ],
                size,
            )


def _placements(match: Match, loops: tuple[str, ...], spatial: int) -> Iterator[dict[str, int]]:
    """Depths at which each load may stand: right inside a loop that its box depends on."""
    fixed: dict[str, int] = {}
    options: dict[str, list[int]] = {}
    for storage in match.selection.storages:
        users = [o for o in match.selection.operations if storage.name in o.storages]
        loaded = any(o.kind == "load" for o in users)
        rewritten = any(o.kind != "load" and _writes(o, storage.name) for o in users)
        if not loaded or rewritten:
            fixed[storage.name] = spatial
            continue
        deepest = len(loops) if any(o.kind == "update" for o in users) else spatial
        moving = {n for c in match.coordinate[storage.name] for n in c.names}
        depths = [0] + [p + 1 for p in range(deepest) if loops[p] in moving]
        options[storage.name] = depths
    for chosen in product(*options.values()):
        yield fixed | dict(zip(options, chosen, strict=True))


def _writes(operation: Operation, storage: str) -> bool:
    target = operation.intrinsic.semantics[0].target.tensor
    names = [o.name for o in operation.intrinsic.operands]
    return operation.storages[names.index(target)] == storage


def _cost(shape: _Shape) -> tuple[NDArray[np.float64], dict[str, NDArray[np.int64]]]:
    """Estimated cycles, infinite where the buffers do not fit, and the slots of each storage."""
    match, hardware = shape.match, shape.hardware
    size = len(next(iter(shape.grid.values()), np.ones(1)))
    entries = {
        s.name: box_entries(match.coordinate[s.name], shape.extents(shape.placement[s.name]))
        for s in match.selection.storages
    }
    slots = {n: np.minimum(2, shape.counts(d)) for n, d in shape.placement.items()}
    fits = np.ones(size, dtype=np.bool_)
    for memory in hardware.memories:
        mine = [s.name for s in match.selection.storages if s.memory == memory.name]
        if not mine:
            continue
        double = sum((slots[n] * entries[n] for n in mine), np.zeros(1, np.int64))
        tight = double > memory.capacity_entries
        for n in mine:
            slots[n] = np.where(tight, 1, slots[n])
        fits &= sum((slots[n] * entries[n] for n in mine), np.zeros(1, np.int64)) <= (
            memory.capacity_entries
        )
    return np.where(fits, _Levels(shape, slots).cycles(), np.inf), slots


def bus_rank(hardware: HardwareSpec, operation: Operation) -> int:
    """Place of a load in its bus's order of service, the first served first."""
    offchip = next(
        o for o in operation.intrinsic.operands if hardware.memory[o.memory].kind == "offchip"
    )
    priority = hardware.bus[hardware.memory[offchip.memory].bus].priority
    name = operation.intrinsic.name
    return priority.index(name) if name in priority else len(priority)


class _Levels:
    """Cycles level by level: inside each tile loop, loads overlap compute unless single-buffered.

    Per iteration at a depth, the anchor's unit is busy for its own work and the inner loops; the
    loads of the iteration run beside it, one generation ahead where there are two slots.
    """

    def __init__(self, shape: _Shape, slots: dict[str, NDArray[np.int64]]) -> None:
        size = len(next(iter(shape.grid.values()), np.ones(1)))
        depths = len(shape.loops) + 1
        self.shape = shape
        self.overlapped = [np.zeros(size) for _ in range(depths)]
        self.serial = [np.zeros(size) for _ in range(depths)]
        self.anchored = [np.zeros(size) for _ in range(depths)]
        self.store = np.zeros(size)
        self.store_serial = np.zeros(size, dtype=np.bool_)
        self.bus = np.zeros(size)
        self.anchor = next(
            o.intrinsic.unit
            for kind in ("update", "map", "store")
            for o in shape.match.selection.operations
            if o.kind == kind
        )
        self.loads: list[tuple[int, int, bool, NDArray[np.float64]]] = []
        for operation in shape.match.selection.operations:
            self._add(operation, slots)
        self._add_bus_waits()
        self.infeasible = np.zeros(size, dtype=np.bool_)
        self._add_micro_kernels(slots)

    def _add(self, o: Operation, slots: dict[str, NDArray[np.int64]]) -> None:
        shape, match = self.shape, self.shape.match
        rates = Rates.of(o.intrinsic)
        if o.kind in ("load", "store"):
            storage = next(s for s in o.storages if s in shape.placement)
            depth = shape.placement[storage]
            each, beats = shape.transfer(o, storage)
            if o.kind == "store":
                self.store = self.store + each
                self.store_serial = self.store_serial | (slots[storage] == 1)
                return
            self.bus = self.bus + beats * shape.counts(depth)
            anchored = o.intrinsic.unit == self.anchor
            self.loads.append((depth, bus_rank(shape.hardware, o), anchored, each))
            if anchored:
                self.anchored[depth] = self.anchored[depth] + each
                return
            single = slots[storage] == 1
            self.serial[depth] = self.serial[depth] + np.where(single, each, 0)
            self.overlapped[depth] = self.overlapped[depth] + np.where(single, 0, each)
            return
        depth = len(shape.loops) if o.kind == "update" else shape.spatial
        iterations = np.ones(1)
        for n in o.loops:
            iterations = iterations * match.count[n]
        each = rates.fixed + 1 + rates.per_iteration * iterations / shape.counts(depth)
        self.anchored[depth] = self.anchored[depth] + each

    def _add_bus_waits(self) -> None:
        """A load on the anchor's unit waits for the loads that are served before it.

        Outside the loops it shares its wait with the first tile's loads, which all must wait for.
        """
        for depth, rank, anchored, _ in self.loads:
            if not anchored or depth == 0:
                continue
            for other, before, beside, each in self.loads:
                if other == depth and before < rank and not beside:
                    self.anchored[depth] = self.anchored[depth] + each

    def _add_micro_kernels(self, slots: dict[str, NDArray[np.int64]]) -> None:
        """Loading a micro-kernel costs once per combination of base addresses."""
        shape, match = self.shape, self.shape.match
        for o in match.selection.operations:
            micro = o.intrinsic.micro_kernel
            if micro is None:
                continue
            depth = len(shape.loops) if o.kind == "update" else shape.spatial
            variants = np.ones(1)
            inner = depth
            for storage in dict.fromkeys(o.storages):
                if storage in shape.placement:
                    variants = variants * slots[storage]
                    moving = {n for c in match.coordinate[storage] for n in c.names}
                    inside = [
                        p
                        for p in range(shape.placement[storage], depth)
                        if shape.loops[p] in moving
                    ]
                    inner = min([inner, *inside])
            for p in range(inner, depth):
                variants = variants * -(-match.count[shape.loops[p]] // shape.grid[shape.loops[p]])
            self.infeasible = self.infeasible | (variants > micro.max_variants)
            bus = shape.hardware.bus[micro.bus]
            self.anchored[0] = self.anchored[0] + variants * (bus.read.latency_cycles + 8)

    def cycles(self) -> NDArray[np.float64]:
        """Modelled cycles, infinite where the hardware's limits are exceeded."""
        shape = self.shape
        iteration = np.zeros(1)
        loading = np.zeros(1)
        ramp = np.zeros(1)
        ahead = np.full(1, np.inf)
        for depth in reversed(range(len(shape.loops) + 1)):
            busy = self.anchored[depth]
            loads = self.overlapped[depth] + self.serial[depth]
            if depth < len(shape.loops):
                name = shape.loops[depth]
                count = -(-shape.match.count[name] // shape.grid[name])
                busy = busy + count * iteration
                if depth:
                    # In order behind the inner loads: only what these run ahead hides it.
                    busy = busy + np.maximum(0, self.overlapped[depth] - ahead)
                loads = loads + count * loading
            loading = loads
            iteration = np.maximum(busy, loads - self.serial[depth]) + self.serial[depth]
            ramp = ramp + np.minimum(self.overlapped[depth], busy)
            ahead = np.where(self.overlapped[depth] > 0, 2 * iteration, ahead)
            if depth == shape.spatial:
                overlapped = np.maximum(iteration, self.store)
                iteration = np.where(self.store_serial, iteration + self.store, overlapped)
        total = np.maximum(iteration, self.bus) + ramp + self.store
        tails = np.zeros(1)
        for name in shape.loops:
            tails = tails + (shape.match.count[name] % shape.grid[name] != 0)
        return np.where(self.infeasible, np.inf, total * (1 + TAIL_PENALTY * tails))


def _tiling(shape: _Shape, slots: dict[str, NDArray[np.int64]], i: int) -> Tiling:
    def at(values: NDArray[np.int64]) -> int:
        return int(values[i] if len(values) > 1 else values[0])

    tiles = {n: at(v) for n, v in shape.grid.items()}
    active = [-(-shape.match.count[n] // tiles[n]) > 1 for n in shape.loops]
    return Tiling(
        shape.match,
        tuple(sorted(tiles.items())),
        shape.loops[: shape.spatial],
        tuple((n, sum(active[:d])) for n, d in shape.placement.items()),
        tuple((n, at(v)) for n, v in slots.items()),
    )


def _nothing_fits(hardware: HardwareSpec, match: Match) -> HwgenError:
    ones = {n: np.ones(1, np.int64) for n in match.count}
    used: dict[str, list[tuple[str, int]]] = {}
    for s in match.selection.storages:
        entries = int(box_entries(match.coordinate[s.name], ones)[0])
        used.setdefault(s.memory, []).append((s.name, entries))
    for name, parts in used.items():
        memory = hardware.memory[name]
        if sum(e for _, e in parts) > memory.capacity_entries:
            worst, entries = max(parts, key=lambda p: p[1])
            return HwgenError(
                "H405",
                f"no tiling fits memory {name}",
                location=memory.location,
                field=f"memories.{name}",
                found=f"operand {worst} needs {entries} entries, "
                f"{entries * memory.entry_bytes} bytes, in its smallest tile",
                allowed=f"{memory.capacity_entries} entries, "
                f"{memory.capacity_entries * memory.entry_bytes} bytes",
                repair="a larger memory, or a smaller window of the operand",
            )
    raise AssertionError("single-block tiles fit every memory, yet no candidate was found")
