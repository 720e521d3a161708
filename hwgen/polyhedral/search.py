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
from hwgen.polyhedral.estimate import Cache, Grid, Shape, box_entries, estimate, unit_work
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.selection import Operation
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec

SHORT_REDUCTION = 8
"""Reduction loops without lanes that are this short are cut only where nothing else fits."""

MAX_OPTIONS = 20
"""Tile sizes considered for one loop."""

MAX_ORDERED = 5
"""Spatial loops of which every order is considered; further ones stay innermost."""

SHRINK = 0.7
"""The grid is rebuilt when this part of it or less can still be among the best."""

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

    def __str__(self) -> str:
        space = "all of the space" if self.exhausted else "tile sizes of long loops thinned"
        return f"search: {self.points:,} points, {space}"


def search(
    hardware: HardwareSpec, matches: Sequence[Match], keep: int = 8, slots: int = 2
) -> SearchResult:
    """Rank the schedules of all matches, with at most `slots` copies of a buffer alive at once.

    Raises:
        HwgenError: H405 where not even single-block tiles fit the memories and micro-kernels.
    """
    found: list[Candidate] = []
    points, exhausted = 0, True
    for match in matches:
        for all_reductions in (False, True):
            grid, complete = _grid(hardware, match, all_reductions)
            if match.count and not len(next(iter(grid.values()))):
                continue
            before = len(found)
            for candidate, evaluated in _evaluate(hardware, match, grid, keep, slots):
                points += evaluated
                found += candidate
            exhausted &= complete and len(_dimensions(match)[0]) <= MAX_ORDERED
            if len(found) > before:
                break
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
        result &= entries <= match.selection.usable_entries(hardware, memory)
    return result


def _evaluate(
    hardware: HardwareSpec, match: Match, grid: Grid, keep: int, slots: int
) -> Iterator[tuple[list[Candidate], int]]:
    """The best of each order and placement; points that cannot reach them any more are dropped."""
    spatial, reduction = _dimensions(match)
    limit = np.inf
    floor = unit_work(match, grid)
    cache = Cache({}, {}, {})
    for front in permutations(spatial[:MAX_ORDERED]):
        order = (*front, *spatial[MAX_ORDERED:])
        loops = (*order, *reduction)
        for placement in _placements(match, loops, len(order)):
            alive = floor <= limit
            if alive.mean() < SHRINK:
                grid = {n: v[alive] if len(v) > 1 else v for n, v in grid.items()}
                floor, cache = floor[alive], Cache({}, {}, {})
            shape = Shape(hardware, match, grid, loops, len(order), placement, cache, slots)
            cycles, copies = estimate(shape)
            best = np.argsort(cycles, kind="stable")[:keep]
            best = best[cycles[best] <= limit]
            if len(best) == keep:
                limit = min(limit, float(cycles[best[-1]]))
            candidates = [
                Candidate(_tiling(shape, copies, int(i)), float(cycles[i]))
                for i in best
                if np.isfinite(cycles[i])
            ]
            yield candidates, len(cycles)


def _placements(match: Match, loops: tuple[str, ...], spatial: int) -> Iterator[dict[str, int]]:
    """Depths at which each load may stand: right inside a loop that its box depends on."""
    fixed: dict[str, int] = {}
    options: dict[str, list[int]] = {}
    for storage in match.selection.storages:
        users = [o for o in match.selection.operations if storage.name in o.storages]
        loaded = any(o.kind == "load" for o in users)
        rewritten = any(o.kind != "load" and _writes(o, storage.name) for o in users)
        inside = [o for o in users if match.selection.inner(o)]
        if not loaded or rewritten:
            prepared = any(o.kind == "map" for o in inside)
            fixed[storage.name] = len(loops) if prepared else spatial
            continue
        deepest = len(loops) if inside else spatial
        moving = {n for c in match.coordinate[storage.name] for n in c.names}
        depths = [0] + [p + 1 for p in range(deepest) if loops[p] in moving]
        if deepest == spatial:
            # Read once per output tile: either resident, or as small as it gets.
            depths = [depths[0], depths[-1]] if len(depths) > 1 else depths
        options[storage.name] = depths
    for chosen in product(*options.values()):
        yield fixed | dict(zip(options, chosen, strict=True))


def _writes(operation: Operation, storage: str) -> bool:
    target = operation.intrinsic.semantics[0].target.tensor
    names = [o.name for o in operation.intrinsic.operands]
    return operation.storages[names.index(target)] == storage


def _tiling(shape: Shape, slots: dict[str, NDArray[np.int64]], i: int) -> Tiling:
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
        usable = match.selection.usable_entries(hardware, name)
        if sum(e for _, e in parts) > usable:
            total = sum(e for _, e in parts)
            named = ", ".join(f"{operand} {entries}" for operand, entries in parts)
            return HwgenError(
                "H405",
                f"no tiling fits memory {name}",
                location=memory.location,
                field=f"memories.{name}",
                found=f"the smallest tiles take {total} entries, {total * memory.entry_bytes} "
                f"bytes: {named}",
                allowed=f"{usable} entries, {usable * memory.entry_bytes} bytes",
                repair="a larger memory, or a smaller window of the operand",
            )
    return HwgenError(
        "H405",
        f"no tiling stays within the micro-kernels of {hardware.name}",
        location=hardware.location,
        field="micro_kernels",
        found="every tiling that fits the memories needs more variants: "
        + ", ".join(_limits(match)),
        allowed="at least one tiling within max_variants",
        repair="a chip with more variants or larger memories, or a smaller workload",
    )


def _limits(match: Match) -> list[str]:
    kernels = {
        o.intrinsic.micro_kernel.name: o.intrinsic.micro_kernel
        for o in match.selection.operations
        if o.intrinsic.micro_kernel is not None
    }
    return [f"{name} allows {kernel.max_variants}" for name, kernel in sorted(kernels.items())]
