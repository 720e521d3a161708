"""Tile sizes, loop order, placement of copies and buffer counts: one point of the search space.

All quantities count blocks (lanes already removed). Tile loops run spatial loops first, then the
reduction's; a loop with a single tile is no loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.operations import Operation


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over the tiles of one loop: `tile` blocks each, the last one `last` blocks."""

    loop: str
    tile: int
    count: int
    last: int


@dataclass(frozen=True, order=True, slots=True)
class Align:
    """The step between neighbours along a dimension of a storage's buffer is `offset` modulo
    `factor` entries: the least such step that has room for what lies between them."""

    storage: str
    dimension: int
    factor: int
    offset: int

    def step(self, entries: int) -> int:
        """That step, where so many entries lie between two neighbours."""
        return entries + (self.offset - entries) % self.factor


@dataclass(frozen=True)
class Tiling:
    """`order`: spatial loops outermost first; `depths`: tile loops around each storage's load;
    `slots`: copies of each storage that are alive at once; `aligns`: padding in buffers."""

    match: Match
    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depths: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]
    aligns: tuple[Align, ...] = ()

    @cached_property
    def align(self) -> dict[tuple[str, int], Align]:
        return {(a.storage, a.dimension): a for a in self.aligns}

    @cached_property
    def tile(self) -> dict[str, int]:
        return dict(self.tiles)

    @cached_property
    def depth(self) -> dict[str, int]:
        return dict(self.depths)

    @cached_property
    def slot(self) -> dict[str, int]:
        return dict(self.slots)

    @cached_property
    def loops(self) -> tuple[TileLoop, ...]:
        """Tile loops, outermost first."""
        result: list[TileLoop] = []
        for name in (*self.order, *self.match.selection.reduction):
            blocks, tile = self.match.count[name], self.tile[name]
            count = -(-blocks // tile)
            if count > 1:
                result.append(TileLoop(name, tile, count, blocks - tile * (count - 1)))
        return tuple(result)

    @cached_property
    def spatial_depth(self) -> int:
        """How many tile loops lie outside the reduction's."""
        return sum(loop.loop in self.order for loop in self.loops)

    def operation_depth(self, operation: Operation) -> int:
        """How many tile loops lie around an operation."""
        if operation.kind == "load":
            name = next(s for s in operation.storages if s in self.depth)
            return self.depth[name]
        inner = self.match.selection.inner(operation)
        return len(self.loops) if inner else self.spatial_depth

    def kept(self, storage: str) -> bool:
        """Whether every tile of a loaded storage has a slot of its own: it is then loaded in the
        first pass of the loops around that do not move it, and stays."""
        around = self.loops[: self.depth[storage]]
        moving = self._moving(storage)
        if not moving or len(moving) == len(around):
            return False
        writers = {
            o.kind for o in self.match.selection.operations if o.storages[_written(o)] == storage
        }
        return writers == {"load"} and prod(x.count for x in moving) == self.slot[storage]

    def _moving(self, storage: str) -> tuple[TileLoop, ...]:
        """Tile loops around a storage's load that move what it holds."""
        names = {n for c in self.match.coordinate[storage] for n in c.names}
        return tuple(x for x in self.loops[: self.depth[storage]] if x.loop in names)

    def turning(self, storage: str) -> tuple[TileLoop, ...]:
        """Tile loops around a storage's load whose iterations take its slots in turn."""
        return self._moving(storage) if self.kept(storage) else self.loops[: self.depth[storage]]

    def once(self, operation: Operation) -> frozenset[str]:
        """Tile loops around an operation in whose first iteration alone it runs: those around a
        load of what stays that do not move it."""
        if operation.kind != "load":
            return frozenset()
        storage = next(s for s in operation.storages if s in self.depth)
        turning = {loop.loop for loop in self.turning(storage)}
        return frozenset(x.loop for x in self.loops[: self.depth[storage]]) - turning

    def extents(self, depth: int, last: frozenset[str] = frozenset()) -> dict[str, int]:
        """Blocks of each loop that lie inside the outermost `depth` tile loops; loops in `last`
        are at their last tile."""
        result = dict(self.match.count)
        for loop in self.loops[:depth]:
            result[loop.loop] = loop.last if loop.loop in last else loop.tile
        return result

    def box(self, storage: str, last: frozenset[str] = frozenset()) -> tuple[int, ...]:
        """Extents of the coordinates that one slot of a storage holds."""
        return footprint(self.match.coordinate[storage], self.extents(self.depth[storage], last))

    def room(self, storage: str) -> tuple[int, ...]:
        """Extents of a storage's buffer: its box, or the whole tensor where it is shared."""
        held = self.match.selection.storage(storage)
        if not held.shape:
            return self.box(storage)
        return tuple(
            -(-extent // self.match.cut(held, d)[1]) for d, extent in enumerate(held.shape)
        )

    def entries(self, storage: str) -> int:
        """Entries of one slot."""
        return prod(self.room(storage)) * self.match.span(storage)

    def __str__(self) -> str:
        lines = [
            f"for {x.loop}_tile in 0..<{x.count}: {x.tile} blocks"
            + (f" (last {x.last})" if x.last != x.tile else "")
            for x in self.loops
        ]
        lines += [
            f"{name}: {self.slot[name]} x {self.entries(name)} entries {list(self.room(name))}"
            f" at depth {depth}{', kept' if self.kept(name) else ''}"
            for name, depth in self.depths
        ]
        lines += [
            f"{a.storage}: dimension {a.dimension} in steps of {a.factor}*n + {a.offset} entries"
            for a in self.aligns
        ]
        return "\n".join(lines)


def _written(operation: Operation) -> int:
    names = [o.name for o in operation.intrinsic.operands]
    return names.index(operation.intrinsic.semantics[0].target.tensor)


def footprint(coordinates: tuple[Affine, ...], extents: dict[str, int]) -> tuple[int, ...]:
    """Number of values that each coordinate takes over a box of loops."""
    result: list[int] = []
    for coordinate in coordinates:
        low, high = coordinate.interval(extents)
        result.append(high - low + 1)
    return tuple(result)
