"""Points of the search with tiles of two levels: what registers hold, inside of what caches hold.

Where units read registers, and arrays that lie in caches, the smaller tiles are those that fill
registers: of these, the ones whose calls read caches least. Around them stand larger tiles of any
loops in any order, and the loads of what is no register at any depth. Parts of sums may be stored
one by one where a call adds to what is in memory: then a loop of the reduction stands outside too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numpy as np

from hwgen.constants import CACHE_TILES
from hwgen.polyhedral.caches import in_caches, through_caches
from hwgen.polyhedral.match.wide_calls import adding_store, reading_in_place
from hwgen.polyhedral.search.estimate_caches import operand_reads
from hwgen.polyhedral.search.estimate_shape import Cache, Grid, Shape, storage_entries
from hwgen.polyhedral.search.resident import fitting
from hwgen.polyhedral.search.space import MAX_ORDERED, MAX_SHAPES, Space, length, tile_options
from hwgen.polyhedral.search.tiling import Tiling, in_place, inner_name, outer_name


@dataclass(frozen=True, slots=True)
class Levels:
    """Tile loops outermost first, `spatial` of them outside the reduction's; the depth of each
    storage's load; tile sizes of both levels, some of which fit the memories; whether sums are
    stored in parts. Those of the same grid share what does not depend on orders."""

    loops: tuple[str, ...]
    spatial: int
    placement: dict[str, int]
    grid: Grid
    cache: Cache
    parts: bool


def has_levels(space: Space) -> bool:
    """Whether calls of a match take some operands from registers and others from caches. Where
    they take none from caches, a load into registers may stand at any depth."""
    hardware, selection = space.hardware, space.match.selection
    held = [in_caches(hardware, s.memory) for s in selection.storages]
    cached = any(held) or any(_read_in_place(space, s.name) for s in selection.storages)
    whole = any(s.shape for s in selection.storages)
    some = not all(held) and cached and bool(space.reduction)
    return through_caches(hardware) and some and not whole


def contains_levels(space: Space, tiling: Tiling) -> bool:
    """Whether a tiling is of the form that has levels; its sizes may be any."""
    count, outer = space.match.count, [n for n, _ in tiling.outer]
    names = {s.name for s in space.match.selection.storages}
    if not has_levels(space) or set(tiling.tile) != set(count) or len(set(outer)) < len(outer):
        return False
    if set(tiling.order) != set(space.spatial) or not {*outer} <= {
        *space.spatial,
        *space.reduction,
    }:
        return False
    sizes = [*tiling.tiles, *tiling.outer]
    if not all(1 <= size <= count[n] for n, size in sizes):
        return False
    reduced = [n for n in outer if n in space.reduction]
    fits = set(tiling.depth) == set(tiling.slot) == names
    innermost = len(tiling.loops)
    deep = all(
        0 <= d <= innermost or (tiling.in_place(n) and _read_in_place(space, n))
        for n, d in tiling.depths
    )
    added = not tiling.parts or (len(reduced) == 1 and _added(space))
    return fits and deep and added and all(n == 1 for _, n in tiling.slots)


def levels(space: Space) -> Iterator[Levels]:
    """Every order and placement, each with the same tile sizes; none where no tile fits."""
    small = _small(space)
    if not length(small):
        return
    grids: dict[tuple[frozenset[str], bool], tuple[Grid, Cache]] = {}
    seen = 0
    for outer, parts in _outer(space):
        key = (frozenset(outer), parts)
        if key not in grids:
            grids[key] = (_large(space, small, outer), Cache())
        grid, cache = grids[key]
        if not length(grid):
            continue
        apart = [n for n in outer if n in space.reduction and not parts]
        first = tuple(outer_name(n) for n in outer if n not in apart)
        inside = (*(outer_name(n) for n in apart), *space.reduction)
        for order in dict.fromkeys((space.spatial, space.spatial[::-1])):
            loops = (*first, *order, *inside)
            spatial = len(first) + len(order)
            for placement in _placements(space, loops, spatial):
                shape = Shape(
                    space.hardware, space.match, grid, loops, spatial, placement, cache, 1
                )
                if not fitting(space.hardware, space.match, shape.entries).any():
                    continue
                yield Levels(loops, spatial, placement, grid, cache, parts)
                seen += 1
                if seen == MAX_SHAPES:
                    return


def _small(space: Space) -> Grid:
    """The tile that registers hold whose calls read caches least; none where no tile fits."""
    match, hardware = space.match, space.hardware
    registers = [s for s in match.selection.storages if not in_caches(hardware, s.memory)]
    room = min(match.selection.usable_entries(hardware, s.memory) for s in registers)
    grid: Grid = {n: np.ones(1, np.int64) for n in match.count}
    for name in space.spatial:
        options = np.arange(1, min(match.count[name], room) + 1)
        size = length(grid)
        grid = {n: np.repeat(v, len(options)) for n, v in grid.items()}
        grid[name] = np.tile(options, size)
        used = [storage_entries(match, s.name, grid) for s in registers]
        fits = sum(used, np.zeros(1, np.int64)) <= room
        grid = {n: v[fits] for n, v in grid.items()}
    inner = [o for o in match.selection.operations if match.selection.inner(o)]
    reads = sum((operand_reads(hardware, match, o, grid) for o in inner), np.zeros(length(grid)))
    best = np.argsort(reads, kind="stable")[:1]
    return {n: v[best] for n, v in grid.items()}


def _outer(space: Space) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Loops that have larger tiles too, in each order, and whether sums are stored in parts."""
    spatial, added = space.spatial[:MAX_ORDERED], _added(space)
    reduction = [n for n in space.reduction if not space.short(n)]
    for count in range(len(spatial) + 1):
        for chosen in combinations(spatial, count):
            yield from ((order, False) for order in permutations(chosen))
            for name in reduction:
                yield from (((*order, name), False) for order in permutations(chosen))
                if added:
                    yield from ((order, True) for order in permutations((*chosen, name)))


def _read_in_place(space: Space, storage: str) -> bool:
    """Whether calls may read what a storage would hold where it lies off chip."""
    return reading_in_place(space.hardware, space.match.selection, storage) is not None


def _added(space: Space) -> bool:
    """Whether calls may add parts of sums to what is in memory."""
    selection = space.match.selection
    stores = [o for o in selection.operations if o.kind == "store"]
    updates = [o for o in selection.operations if o.kind == "update"]
    if len(stores) != 1 or len(updates) != 1 or selection.ordered or selection.start:
        return False
    only = stores[0].statement == f"{updates[0].statement}_out"
    adds = updates[0].intrinsic.semantics[0].op == "+="
    return only and adds and adding_store(space.hardware, stores[0]) is not None


def _large(space: Space, small: Grid, outer: tuple[str, ...]) -> Grid:
    """Larger tiles around the small one: of it, whole numbers."""
    most = max(2, int(CACHE_TILES ** (1 / max(1, len(outer)))))
    tile = {n: int(v[0]) for n, v in small.items()}
    steps = [-(-space.match.count[n] // tile[n]) for n in outer]
    options = [[k for k in tile_options(s, most) if 1 < k < s] for s in steps]
    axes = np.meshgrid(*(np.array(o, np.int64) for o in options), indexing="ij")
    size = math.prod(map(len, options))
    found: Grid = {n: np.full(size, v, np.int64) for n, v in tile.items()}
    for n, axis in zip(outer, axes, strict=True):
        found[outer_name(n)] = axis.ravel() * tile[n]
    return found


def _placements(space: Space, loops: tuple[str, ...], spatial: int) -> Iterator[dict[str, int]]:
    """Depths of all loads: what registers hold as close as can be; past all loops what no load
    brings, as calls read it where it lies."""
    match = space.match
    options: dict[str, tuple[int, ...]] = {}
    for storage in match.selection.storages:
        name = storage.name
        moving = match.moving(name)
        if not in_caches(space.hardware, storage.memory):
            inner = any(
                match.selection.inner(o) and o.kind == "map" and name in o.storages
                for o in match.selection.operations
            )
            options[name] = (len(loops) if inner else spatial,)
            continue
        places = [p + 1 for p, key in enumerate(loops[:-1]) if inner_name(key) in moving]
        past = (in_place(loops),) if _read_in_place(space, name) else ()
        options[name] = (0, *places, *past)
    for chosen in product(*options.values()):
        yield dict(zip(options, chosen, strict=True))
