"""Search: tile sizes, orders, placements and buffer counts, ranked by a closed-form cost.

For every order of the spatial loops and every useful placement of each operand's load, the cost of
all tile sizes is one NumPy expression. Tile sizes are all `ceil(blocks / n)`: for a given number
of tiles, the smallest that covers the loop. Points that exceed a memory are dropped while the grid
grows, so large problems cost no more than small ones.
"""

from __future__ import annotations

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
    found.sort(key=lambda c: (c.cycles, str(c.tiling.tiles), str(c.tiling.order), str(c.tiling)))
    return SearchResult(tuple(found[:keep]), points, exhausted)


def tile_options(blocks: int) -> list[int]:
    """Every tile size that is the smallest for its number of tiles, ascending."""
    sizes: set[int] = set()
    number = 1
    while number <= blocks:
        size = -(-blocks // number)
        sizes.add(size)
        # The next number of tiles that gives a smaller size.
        number = -(-blocks // (size - 1)) if size > 1 else blocks + 1
    return sorted(sizes)


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
        options = np.array([blocks] if whole else tile_options(blocks), dtype=np.int64)
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
    for order in permutations(spatial):
        loops = (*order, *reduction)
        for placement in _placements(match, loops, len(order)):
            shape = _Shape(hardware, match, grid, loops, len(order), placement)
            cycles, slots = _cost(shape)
            best = np.argsort(cycles, kind="stable")[:keep]
            yield (
                [
                    Candidate(_tiling(shape, slots, int(i)), float(cycles[i]))
                    for i in best
                    if np.isfinite(cycles[i])
                ],
                size,
            )


def _placements(
    match: Match, loops: tuple[str, ...], spatial: int
) -> Iterator[dict[str, int]]:
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
    busy: dict[str, NDArray[np.float64]] = {}
    ramp = np.zeros(size)
    drain = np.zeros(size)
    exposed = np.zeros(size)
    bus = np.zeros(size)
    first_tile = np.zeros(size)
    for o in match.selection.operations:
        rates = Rates.of(o.intrinsic)
        unit = o.intrinsic.unit
        if o.kind in ("load", "store"):
            storage = next(s for s in o.storages if s in shape.placement)
            depth = shape.placement[storage]
            each, beats = transfer_cycles(
                hardware, o, match, shape.extents(depth), match.coordinate[storage], storage
            )
            number = shape.counts(depth)
            cost = each * number
            bus = bus + (beats * number if o.kind == "load" else 0)
            single = (slots[storage] == 1) & (number > 1)
            exposed = exposed + np.where(single, each * (number - 1), 0)
            if o.kind == "store":
                drain = drain + each
            else:
                ramp = ramp + each
        else:
            depth = len(shape.loops) if o.kind == "update" else shape.spatial
            iterations = np.ones(1)
            for n in o.loops:
                iterations = iterations * match.count[n]
            number = shape.counts(depth)
            cost = number * (rates.fixed + 1) + rates.per_iteration * iterations
            first_tile = first_tile + cost / number
        busy[unit] = busy.get(unit, np.zeros(size)) + cost
    anchor = next(
        (o.intrinsic.unit for o in match.selection.operations if o.kind in ("update", "map")),
        match.selection.operations[-1].intrinsic.unit,
    )
    total = np.zeros(size)
    for unit, cost in busy.items():
        total = np.maximum(total, cost + (ramp if unit == anchor else first_tile))
    total = np.maximum(total, bus + first_tile) + drain + exposed
    return np.where(fits, total, np.inf), slots


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
