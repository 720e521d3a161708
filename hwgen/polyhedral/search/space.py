"""The space that the search covers: tile sizes, loop orders and placements of one match.

A point is a tile size per loop, an order of the spatial loops and a depth for every load. All of
them are considered where they are few; where they are many, what promises least is left out step
by step (`Restriction`), and the search says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.constants import (
    LEAST_OPTIONS,
    MAX_OPTIONS,
    MAX_ORDERED,
    MAX_POINTS,
    MAX_SHAPES,
    SHORT_REDUCTION,
    WHOLE_SPACE,
)
from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.search.estimate_shape import Grid, Storages, storage_entries
from hwgen.polyhedral.search.resident import fitting
from hwgen.polyhedral.search.tiling import Tiling, inner_name, outer_name
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Restriction:
    """What is left out of a space.

    `ends`: loads outside the reduction stand at the outermost or innermost place. `whole`: short
    reduction loops are not cut. `options`: tile sizes per loop, at most. `ordered`: spatial loops
    of which every order is considered.
    """

    ends: bool = False
    whole: bool = False
    options: int | None = None
    ordered: int = MAX_ORDERED


RESTRICTIONS = (
    Restriction(),
    Restriction(ends=True),
    Restriction(ends=True, whole=True),
    Restriction(ends=True, whole=True, options=MAX_OPTIONS),
)
"""Tried in turn until a space is small enough; the last one is taken in any case, with fewer sizes
and orders where these are too many (`smaller`)."""

LAST_RESORT = Restriction(ends=True, options=MAX_OPTIONS)
"""Where nothing fits the memories unless short reduction loops are cut."""


class Placed(NamedTuple):
    """Tile loops in an order, outermost first, the depths of all loads, and the storages whose
    tiles come in parts."""

    loops: tuple[str, ...]
    placement: dict[str, int]
    parts: Storages


@dataclass(frozen=True)
class Space:
    """One match's points under a restriction; `fixed`: tile sizes that are given."""

    hardware: HardwareSpec
    match: Match
    restriction: Restriction
    fixed: tuple[tuple[str, int], ...] = ()

    @cached_property
    def spatial(self) -> tuple[str, ...]:
        """Spatial loops of more than one block."""
        return tuple(n for n in self.match.selection.spatial if self.match.count.get(n, 1) > 1)

    @cached_property
    def reduction(self) -> tuple[str, ...]:
        """Reduction loops of more than one block."""
        return tuple(n for n in self.match.selection.reduction if self.match.count.get(n, 1) > 1)

    def sizes(self, loop: str) -> list[int]:
        """Tile sizes considered for a loop."""
        blocks = self.match.count[loop]
        given = dict(self.fixed).get(loop)
        if given is not None:
            return [min(given, blocks)]
        if self.restriction.whole and self.short(loop):
            return [blocks]
        return tile_options(blocks, self.restriction.options or blocks)

    def short(self, loop: str) -> bool:
        """Whether a loop is one of the reduction's that are the first not to be cut."""
        single = self.match.block.get(loop, 1) == 1
        return loop in self.reduction and self.match.count[loop] <= SHORT_REDUCTION and single

    @cached_property
    def cut(self) -> frozenset[str]:
        """Loops that have several tiles in some points."""
        blocks = self.match.count
        return frozenset(
            n for n in (*self.spatial, *self.reduction) if self.sizes(n) != [blocks[n]]
        )

    @cached_property
    def read(self) -> frozenset[str]:
        """Storages that only loads write and that the accumulation reads."""
        operations = self.match.selection.operations
        inner = (o for o in operations if self.match.selection.inner(o))
        written = {o.written for o in operations if o.kind != "load"}
        return frozenset(n for o in inner for n in o.storages) - written

    @cached_property
    def tiles(self) -> int:
        """Combinations of tile sizes, before any is found not to fit."""
        return math.prod(len(self.sizes(n)) for n in (*self.spatial, *self.reduction))

    def every(self) -> Iterator[Placed]:
        """Orders and placements."""
        for order in self.orders():
            loops = (*order, *self.reduction)
            for placement, parts in self.placements(loops, len(order)):
                yield Placed(loops, placement, parts)

    @cached_property
    def shapes(self) -> int:
        """How many of them there are."""
        return sum(1 for _ in self.every())

    @cached_property
    def choices(self) -> int:
        """The same, without tiles that come in parts."""
        return sum(
            math.prod(len(d) for d in self.depths((*order, *self.reduction), len(order)).values())
            for order in self.orders()
        )

    def orders(self) -> Iterator[tuple[str, ...]]:
        """Orders of the spatial loops, outermost first."""
        ordered = self.restriction.ordered
        for front in permutations(self.spatial[:ordered]):
            yield (*front, *self.spatial[ordered:])

    def depths(self, loops: tuple[str, ...], spatial: int) -> dict[str, tuple[int, ...]]:
        """Depths at which each storage's load may stand: right inside a loop that moves its box.

        Anywhere else the same box would only be loaded more often. A storage that is not only
        loaded has one depth.
        """
        result: dict[str, tuple[int, ...]] = {}
        for storage in self.match.selection.storages:
            if storage.shape:  # kept for other phases
                result[storage.name] = (0,)
                continue
            users = [o for o in self.match.selection.operations if storage.name in o.storages]
            loaded = any(o.kind == "load" for o in users)
            rewritten = any(o.kind != "load" and o.written == storage.name for o in users)
            inside = [o for o in users if self.match.selection.inner(o)]
            if not loaded or rewritten:
                prepared = any(o.kind == "map" for o in inside)
                result[storage.name] = (len(loops) if prepared else spatial,)
                if self._collects(storage.name) and not self.restriction.ends:
                    result[storage.name] = (*self._collecting(storage.name, loops, spatial),)
                continue
            deepest = len(loops) if inside else spatial
            moving = self.match.moving(storage.name).intersection(self.cut)
            depths = [0] + [p + 1 for p in range(deepest) if loops[p] in moving]
            if deepest == spatial and self.restriction.ends and len(depths) > 2:
                depths = [depths[0], depths[-1]]
            result[storage.name] = tuple(depths)
        return result

    def _collects(self, storage: str) -> bool:
        """Whether a storage is where one call leaves results for the only store."""
        users = [o for o in self.match.selection.operations if storage in o.storages]
        stores = [o for o in self.match.selection.operations if o.kind == "store"]
        return (
            [o.kind for o in users] == ["map", "store"]
            and len(stores) == 1
            and not self.match.selection.inner(users[0])
            and users[0].storages.count(storage) == 1
            and users[0].written == storage
        )

    def _collecting(self, storage: str, loops: tuple[str, ...], spatial: int) -> Iterator[int]:
        """Depths at which the results of a tile, or those of all tiles of loops that move what they
        are, are stored together."""
        moving = self.match.moving(storage)
        yield spatial
        for depth in reversed(range(spatial)):
            if loops[depth] not in moving:
                return
            yield depth

    def placements(
        self, loops: tuple[str, ...], spatial: int
    ) -> Iterator[tuple[dict[str, int], Storages]]:
        """Every choice of depths; each also with a storage whose tiles come in parts that stay, and
        with all of them, where no cache does the same."""
        options = self.depths(loops, spatial)
        for chosen in product(*options.values()):
            placement = dict(zip(options, chosen, strict=True))
            yield placement, frozenset()
            if not through_caches(self.hardware):
                found = [
                    n
                    for n, depth in placement.items()
                    if n in self.read and self._in_parts(n, loops[:depth])
                ]
                yield from ((placement, frozenset((n,))) for n in found)
                if len(found) > 1:
                    yield placement, frozenset(found)

    def _in_parts(self, storage: str, around: tuple[str, ...]) -> bool:
        """Whether a loop around a load moves it inside of one that does not."""
        moving = self.match.moving(storage)
        moved = [n in moving for n in around if n in self.cut]
        return False in moved and moved[-1]

    def _in_order(self, grid: Grid, loop: str) -> NDArray[np.bool_]:
        """Where the tiles of a reduction's loop keep the order of an accumulation that has one: all
        of the loop, or of one iteration of those outside it."""
        if not self.match.selection.ordered or loop not in self.reduction:
            return np.ones(length(grid), dtype=np.bool_)
        outside = self.reduction[: self.reduction.index(loop)]
        result = np.ones(length(grid), dtype=np.bool_)
        for name in outside:
            result &= (grid[name] == 1) | (grid[loop] >= self.match.count[loop])
        return result

    def grid(self) -> tuple[Grid, int]:
        """Tile sizes whose smallest buffers fit, and that keep an accumulation's order, one array
        per loop; how many combinations did not."""
        grid: Grid = {n: np.ones(1, dtype=np.int64) for n in self.match.count}
        left = self.tiles
        too_large = 0
        for name in (*self.spatial, *self.reduction):
            options = np.array(self.sizes(name), dtype=np.int64)
            left //= len(options)
            size = length(grid)
            grid = {n: np.repeat(v, len(options)) for n, v in grid.items()}
            grid[name] = np.tile(options, size)
            smallest = partial(storage_entries, self.match, extents=grid)
            fits = fitting(self.hardware, self.match, smallest) & self._in_order(grid, name)
            too_large += int(np.count_nonzero(~fits)) * left
            grid = {n: v[fits] for n, v in grid.items()}
        return grid, too_large

    def contains(self, tiling: Tiling) -> bool:
        """Whether a tiling is of the form that the search builds; its sizes may be any."""
        count = self.match.count
        if (
            tiling.outer
            or tiling.parts
            or set(tiling.tile) != set(count)
            or set(tiling.order) != set(self.spatial)
        ):
            return False
        if not all(1 <= tiling.tile[n] <= blocks for n, blocks in count.items()):
            return False
        loops = (*tiling.order, *self.reduction)
        most = 3 if self.hardware.pipelined else 2
        slots = [n for s, n in tiling.slots if not tiling.kept(s)]
        if len(loops) != len(set(loops)) or not all(1 <= n <= most for n in slots):
            return False
        options = self.depths(loops, len(tiling.order))
        if set(tiling.depth) != set(options) or set(tiling.slot) != set(options):
            return False
        return all(
            tiling.depth[n] in {active_depth(self.match, tiling.tile, loops, d) for d in depths}
            for n, depths in options.items()
        )


def choose_space(
    hardware: HardwareSpec, match: Match, fixed: tuple[tuple[str, int], ...] = ()
) -> tuple[Space, Space]:
    """The whole space, and the part of it that is small enough to be searched."""
    spaces = [Space(hardware, match, r, fixed) for r in RESTRICTIONS]
    small = (s for s in spaces if s.tiles * s.choices <= WHOLE_SPACE)
    return spaces[0], next(small, None) or smaller(spaces[-1])


def smaller(space: Space) -> Space:
    """A space with fewer orders and tile sizes, where those of it are too many."""
    while space.choices > MAX_SHAPES and space.restriction.ordered > 1:
        ordered = min(space.restriction.ordered, len(space.spatial)) - 1
        space = replace(space, restriction=replace(space.restriction, ordered=ordered))
    while space.tiles > MAX_POINTS and (options := space.restriction.options or 0) > LEAST_OPTIONS:
        space = replace(space, restriction=replace(space.restriction, options=options - 1))
    return space


def coarser(space: Space, shapes: int) -> Space:
    """A space with so few tile sizes that all of its points are few, in so many shapes."""
    options = MAX_OPTIONS
    while space.tiles * shapes > WHOLE_SPACE and options > LEAST_OPTIONS:
        options -= 1
        space = replace(space, restriction=replace(space.restriction, options=options))
    return space


def length(grid: Grid) -> int:
    """Points of a grid; one where a match has no loops."""
    return len(next(iter(grid.values()), np.ones(1)))


def active_depth(match: Match, tiles: Mapping[str, int], loops: tuple[str, ...], depth: int) -> int:
    """Tile loops among the outermost `depth` loops: those of more than one tile."""
    around = {n: tiles.get(outer_name(n), blocks) for n, blocks in match.count.items()}
    extents = [match.count[inner_name(n)] if n not in around else around[n] for n in loops[:depth]]
    return sum(e > tiles[n] for n, e in zip(loops, extents, strict=False))


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
