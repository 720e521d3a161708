"""One order of loops and one placement of loads, over all tile sizes, as estimates read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.resident import kept_entries
from hwgen.polyhedral.search.tiling import in_place, inner_name, outer_name
from hwgen.spec.affine import Affine
from hwgen.spec.hardware import HardwareSpec

T = TypeVar("T")

Grid = dict[str, NDArray[np.int64]]
"""Tile size of each loop, one array element per point."""


def box_entries(coordinates: Sequence[Affine], extents: Grid) -> NDArray[np.int64]:
    """Entries of the box that the coordinates span, for arrays of extents."""
    total = np.ones(1, dtype=np.int64)
    for extent in box_extents(coordinates, extents):
        total = total * extent
    return total


def storage_entries(match: Match, storage: str, extents: Grid) -> NDArray[np.int64]:
    """Entries of one slot of a storage; of all of its tensor where that stays whole."""
    held = match.selection.storage(storage)
    if held.shape:
        return np.full(1, kept_entries(match, held), np.int64)
    return box_entries(match.coordinate[storage], extents) * match.span(storage)


def box_extents(coordinates: Sequence[Affine], extents: Grid) -> list[NDArray[np.int64]]:
    """Extent of each coordinate, for arrays of loop extents."""
    result: list[NDArray[np.int64]] = []
    for coordinate in coordinates:
        extent = np.ones(1, dtype=np.int64)
        for name, coefficient in coordinate.terms:
            extent = extent + abs(coefficient) * (extents[name] - 1)
        result.append(extent)
    return result


Cycles, Counts = NDArray[np.float64], NDArray[np.int64]
"""Of each point."""

Outer = frozenset[str]
"""A set of loops around something."""

Ends = tuple[tuple[str, Cycles], ...]
"""Loops, and how full a tile of the last iteration of each is."""


class Cache:
    """What depends on the set of outer loops only, not on their order, for one grid."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}

    def once(self, key: tuple[object, ...], made: Callable[[], T]) -> T:
        """What is made of something inside of some loops, worked out once; `key`: what, of what,
        and inside of which."""
        if key not in self._known:
            self._known[key] = made()
        return cast(T, self._known[key])


Storages = frozenset[str]
"""Some storages of a match."""


class Around(NamedTuple):
    """Loops around a load: `before` the first one that does not move what is loaded, the `still`
    ones, and those that move it further in, whose tiles are `parts`. `loading`: those in whose
    every iteration it happens."""

    before: Outer
    still: Outer
    parts: Outer
    loading: Outer


@dataclass(frozen=True)
class Shape:
    """One order of loops and one placement of loads, over all tile sizes."""

    hardware: HardwareSpec
    match: Match
    grid: Grid
    loops: tuple[str, ...]
    spatial: int
    placement: dict[str, int]
    cache: Cache
    slots: int
    parts: Storages = frozenset()
    """Storages whose tiles come in parts, which stay for the loops that do not move them."""
    added: bool = False
    """Whether parts of sums are added up where they are stored."""

    @property
    def own_slots(self) -> int:
        """Slots of a buffer: one where a call that writes waits for no reader."""
        board = self.hardware.scoreboard
        return 1 if board is not None and board.renames else self.slots

    def in_place(self, storage: str) -> bool:
        """Whether calls read what a storage would hold where it lies off chip."""
        return self.placement.get(storage) == in_place(self.loops)

    def around(self, storage: str) -> Around:
        """The loops around a storage's load."""
        around = self.loops[: self.placement[storage]]
        moving = self.match.moving(storage)
        first = next((i for i, n in enumerate(around) if n not in moving), len(around))
        before, parts = (
            frozenset(moving.intersection(x)) for x in (around[:first], around[first:])
        )
        loading = before | parts if storage in self.parts else frozenset(around)
        return Around(before, frozenset(around) - moving, parts, loading)

    @property
    def alike(self) -> object:
        """What shapes have in common that cost the same, but for caches: loops that nothing stands
        between, in whatever order, and those around parts."""
        placement = tuple(sorted(self.placement.items()))
        if any(o.intrinsic.micro_kernel for o in self.match.selection.operations):
            return self.loops, placement, self.parts
        cuts = sorted({0, self.spatial, *self.placement.values(), len(self.loops)})
        groups = tuple(frozenset(self.loops[a:b]) for a, b in pairwise(cuts))
        parts = tuple((n, self.around(n), self.passes(n)) for n in sorted(self.parts))
        return groups, placement, parts

    def passes(self, storage: str) -> Outer:
        """The loops around the innermost of those that a load in parts stays for, and that one."""
        depth, around = self.placement[storage], self.around(storage)
        return frozenset(
            self.loops[: max(i for i in range(depth) if self.loops[i] in around.still) + 1]
        )

    def entries(self, storage: str) -> NDArray[np.int64]:
        """Entries of one slot of a storage; of parts that overlap, their share of all together."""
        if storage in self.parts:
            around = self.around(storage)
            whole = storage_entries(self.match, storage, self._inside(around.before))
            return -(-whole // self.trips(around.parts))
        depth = self.placement[storage]
        return self.cache.once(
            ("entries", storage, frozenset(self.loops[:depth])),
            lambda: storage_entries(self.match, storage, self.extents(depth)),
        )

    def box(self, storage: str, depth: int) -> NDArray[np.int64]:
        """Blocks of a storage that lie inside the outermost `depth` loops."""
        return self.cache.once(
            ("box", storage, frozenset(self.loops[:depth])),
            lambda: box_entries(self.match.coordinate[storage], self.extents(depth)),
        )

    def counts(self, depth: int) -> NDArray[np.int64]:
        """Iterations of the outermost `depth` loops."""
        return self.trips(frozenset(self.loops[:depth]))

    def tiles(self, operation: Operation, depth: int) -> NDArray[np.int64]:
        """Tiles that an operation's iterations are cut into by the outermost `depth` loops; the
        others of these do all of them again."""
        around = self.loops[:depth]
        return self.trips(frozenset(n for n in around if inner_name(n) in operation.loops))

    def trips(self, loops: Outer) -> NDArray[np.int64]:
        """Iterations of some tile loops."""

        def made() -> Counts:
            total = np.ones(1, dtype=np.int64)
            for name in sorted(loops):
                total = total * self._trips(name)
            return total

        return self.cache.once(("trips", loops), made)

    def _trips(self, key: str) -> NDArray[np.int64]:
        """Iterations of one; of one inside of larger tiles, the mean of them all, rounded up."""
        name = inner_name(key)
        every = -(-self.match.count[name] // self.grid[key])
        large = self.grid.get(outer_name(name)) if key == name else None
        if large is None:
            return every
        return -(-every // -(-self.match.count[name] // large))

    def filled(self, moving: Iterable[str], depth: int) -> NDArray[np.float64]:
        """Of the tiles that the outermost `depth` loops cut, how full they are on average: the last
        one of a loop may be shorter. `moving`: the loops that cut them."""
        cut = frozenset(moving)
        loops = frozenset(n for n in self.loops[:depth] if inner_name(n) in cut)

        def made() -> Cycles:
            part = np.ones(1)
            for name in sorted({inner_name(n) for n in loops}):
                levels = frozenset(n for n in loops if inner_name(n) == name)
                tile = self.grid[name if name in levels else outer_name(name)]
                part = part * (self.match.count[name] / (tile * self.trips(levels)))
            return part

        return self.cache.once(("filled", loops), made)

    def boxes(self, storage: str, depth: int) -> Cycles:
        """How full boxes of a storage count that the outermost `depth` loops cut (`mean`): those of
        windows are not as short as what loops are cut into."""
        if not self.levels:
            return np.ones(1)
        coordinates, extents = self.match.coordinate[storage], self.extents(depth)

        def made() -> Cycles:
            part = {n: self.filled((n,), depth) for n in self.match.moving(storage)}
            total = np.ones(1)
            for c, whole in zip(coordinates, box_extents(coordinates, extents), strict=True):
                lacks = (abs(k) * extents[n] * (1 - part[n]) for n, k in c.terms)
                total = total * (1 - sum(lacks, np.zeros(1)) / whole)
            return total

        return self.cache.once(("boxes", storage, frozenset(self.loops[:depth])), made)

    def ends(
        self, moving: Iterable[str], extents: Grid, depth: int, cycles: Callable[[Grid], Cycles]
    ) -> Ends:
        """The part of its cycles that something takes in the last iteration of each of the
        outermost `depth` loops that moves it; `extents`: how much of each loop it has in others."""
        whole, found = cycles(extents), list[tuple[str, Cycles]]()
        cut = () if self.averaged else moving
        for n in sorted({*self.loops[:depth]}.intersection(cut)):
            left = self.match.count[n] - self.grid[n] * (self.trips(frozenset((n,))) - 1)
            short = cycles({**extents, n: np.minimum(extents[n], left)})
            found.append((n, np.where(whole > 0, short / np.maximum(whole, 1), 1)))
        return tuple(found)

    def mean(self, part: Cycles) -> Cycles:
        """How full tiles are on average, where it is not told how short each loop's last ones are
        (`ends`)."""
        return part if self.levels else np.ones(1)

    @property
    def averaged(self) -> bool:
        """Whether all tiles count as equally long: where loops are tiled twice, and where a host
        issues in order, for which units wait in a short tile as long as they work less."""
        return self.levels or self.hardware.pipelined

    @property
    def levels(self) -> bool:
        """Whether any loop is tiled twice."""
        return any(n not in self.match.count for n in self.loops)

    def tails(self) -> NDArray[np.float64]:
        """How many loops have a tail, and how many are there because others are tiled twice."""

        def made() -> Cycles:
            total = np.zeros(1)
            for name in self.loops:
                total = total + (self.match.count[inner_name(name)] % self.grid[name] != 0)
                total = total + (name not in self.match.count)
            return total

        return self.cache.once(("tails", frozenset(self.loops)), made)

    def fresh(self, storage: str) -> Cycles:
        """Of the parts of a load in parts, what no part before has brought: neighbours may overlap
        along a dimension."""
        around, coordinates = self.around(storage), self.match.coordinate[storage]

        def made() -> Cycles:
            trips = {n: self.trips(frozenset((n,))) for n in around.parts}
            inside = self._inside(around.before | around.parts)
            full = inside | {n: inside[n] * trips[n] for n in trips}
            boxes, together = (box_extents(coordinates, x) for x in (inside, full))
            part = np.ones(1)
            for c, box, whole in zip(coordinates, boxes, together, strict=True):
                part = part * np.minimum(1, whole / (box * self.trips(around.parts & {*c.names})))
            return part

        # What moves a part along two dimensions is loaded as it is.
        if any(sum(n in c.names for c in coordinates) > 1 for n in around.parts):
            return np.ones(1)
        return self.cache.once(("fresh", storage, around), made)

    def extents(self, depth: int) -> Grid:
        return self._inside(frozenset(self.loops[:depth]))

    def _inside(self, outer: Outer) -> Grid:
        """Blocks of each loop that lie inside some tile loops."""
        large = {n: self.grid[outer_name(n)] for n in self.match.count if outer_name(n) in outer}
        return {
            n: self.grid[n] if n in outer else large.get(n, np.full(1, blocks, np.int64))
            for n, blocks in self.match.count.items()
        }


def held_runs(shape: Shape, o: Operation) -> NDArray[np.float64]:
    """How often the operand that a unit holds is brought in, in all tiles together."""
    assert o.intrinsic.stationary is not None
    names = [p.name for p in o.intrinsic.operands]
    storage = o.storages[names.index(o.intrinsic.stationary.operand)]
    moving = shape.match.moving(storage)
    runs = np.ones(1)
    for n in o.loops:
        around = frozenset(k for k in shape.loops if inner_name(k) == n)
        runs = runs * (shape.match.count[n] if n in moving else shape.trips(around))
    return runs
