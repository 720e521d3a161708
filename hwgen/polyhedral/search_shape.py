"""One order of loops and one placement of loads, for arrays of tile sizes: what its boxes hold, how
often they are filled and how full, each worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.resident import kept_entries
from hwgen.polyhedral.traffic import Rates, Transfer, transfer_cycles
from hwgen.spec.hardware import HardwareSpec

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


@dataclass(frozen=True, slots=True)
class Work:
    """What an operation takes in one of its `tiles`: cycles, and those of them in which the host
    issues it."""

    cycles: NDArray[np.float64]
    issuing: NDArray[np.float64]
    tiles: NDArray[np.int64]


Cycles = NDArray[np.float64]
"""Of each point."""

Outer = frozenset[str]
"""A set of loops around something."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What depends on the set of outer loops only, not on their order, for one grid."""

    entries: dict[tuple[str, Outer], NDArray[np.int64]] = field(
        default_factory=dict[tuple[str, Outer], NDArray[np.int64]]
    )
    transfers: dict[tuple[str, Outer], Transfer] = field(
        default_factory=dict[tuple[str, Outer], Transfer]
    )
    counts: dict[Outer, NDArray[np.int64]] = field(default_factory=dict[Outer, NDArray[np.int64]])
    tails: dict[Outer, NDArray[np.float64]] = field(
        default_factory=dict[Outer, NDArray[np.float64]]
    )
    filled: dict[Outer, NDArray[np.float64]] = field(
        default_factory=dict[Outer, NDArray[np.float64]]
    )
    rates: dict[str, Rates] = field(default_factory=dict[str, Rates])
    work: dict[str, Work] = field(default_factory=dict[str, Work])

    def rate(self, operation: Operation) -> Rates:
        """An operation's rates, worked out once."""
        if operation.name not in self.rates:
            self.rates[operation.name] = Rates.of(operation.intrinsic)
        return self.rates[operation.name]


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

    def around(self, storage: str) -> Around:
        """The loops around a storage's load."""
        around = self.loops[: self.placement[storage]]
        moving = {n for c in self.match.coordinate[storage] for n in c.names}
        first = next((i for i, n in enumerate(around) if n not in moving), len(around))
        before, parts = (
            frozenset(moving.intersection(x)) for x in (around[:first], around[first:])
        )
        loading = before | parts if storage in self.parts else frozenset(around)
        return Around(before, frozenset(around) - moving, parts, loading)

    def transfer(self, operation: Operation, storage: str) -> Transfer:
        """What moving one box takes; depends only on which loops lie outside."""
        depth = self.placement[storage]
        key = (operation.name, frozenset(self.loops[:depth]))
        if key not in self.cache.transfers:
            self.cache.transfers[key] = transfer_cycles(
                self.hardware,
                operation,
                self.match,
                self.extents(depth),
                storage,
            )
        return self.cache.transfers[key]

    def entries(self, storage: str) -> NDArray[np.int64]:
        """Entries of one slot of a storage."""
        depth = self.placement[storage]
        key = (storage, frozenset(self.loops[:depth]))
        if key not in self.cache.entries:
            self.cache.entries[key] = storage_entries(self.match, storage, self.extents(depth))
        return self.cache.entries[key]

    def counts(self, depth: int) -> NDArray[np.int64]:
        """Iterations of the outermost `depth` loops."""
        return self.trips(frozenset(self.loops[:depth]))

    def tiles(self, operation: Operation, depth: int) -> NDArray[np.int64]:
        """Tiles that an operation's iterations are cut into by the outermost `depth` loops; the
        others of these do all of them again."""
        return self.trips(frozenset(n for n in self.loops[:depth] if n in operation.loops))

    def trips(self, loops: Outer) -> NDArray[np.int64]:
        """Iterations of some tile loops."""
        if loops not in self.cache.counts:
            total = np.ones(1, dtype=np.int64)
            for name in sorted(loops):
                total = total * -(-self.match.count[name] // self.grid[name])
            self.cache.counts[loops] = total
        return self.cache.counts[loops]

    def filled(self, moving: Iterable[str], depth: int) -> NDArray[np.float64]:
        """Of the tiles that the outermost `depth` loops cut, how full they are on average: the last
        one of a loop may be shorter. `moving`: the loops that cut them."""
        loops = frozenset(self.loops[:depth]).intersection(moving)
        if loops not in self.cache.filled:
            part = np.ones(1)
            for name in sorted(loops):
                count = self.match.count[name]
                part = part * (count / (self.grid[name] * self.trips(frozenset((name,)))))
            self.cache.filled[loops] = part
        return self.cache.filled[loops]

    def tails(self) -> NDArray[np.float64]:
        """How many loops have a tail."""
        loops = frozenset(self.loops)
        if loops not in self.cache.tails:
            total = np.zeros(1)
            for name in loops:
                total = total + (self.match.count[name] % self.grid[name] != 0)
            self.cache.tails[loops] = total
        return self.cache.tails[loops]

    def extents(self, depth: int) -> Grid:
        outer = set(self.loops[:depth])
        return {
            n: self.grid[n] if n in outer else np.full(1, blocks, np.int64)
            for n, blocks in self.match.count.items()
        }


def held_runs(shape: Shape, o: Operation) -> NDArray[np.float64]:
    """How often the operand that a unit holds is brought in, in all tiles together."""
    assert o.intrinsic.stationary is not None
    names = [p.name for p in o.intrinsic.operands]
    storage = o.storages[names.index(o.intrinsic.stationary.operand)]
    moving = {n for c in shape.match.coordinate[storage] for n in c.names}
    runs = np.ones(1)
    for n in o.loops:
        runs = runs * (shape.match.count[n] if n in moving else shape.trips(frozenset((n,))))
    return runs
