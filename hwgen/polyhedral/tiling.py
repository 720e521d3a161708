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

TOGETHER = 2
"""Parts of a tile's work up to which a host that issues in order puts what begins the next sums
behind the stores of those before, after the first part; of more, it comes after the second."""


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over the tiles of one loop: `tile` blocks each, the last one `last` blocks."""

    loop: str
    tile: int
    count: int
    last: int


@dataclass(frozen=True)
class Tiling:
    """`order`: spatial loops outermost first; `depths`: tile loops around each storage's load;
    `slots`: copies of each storage that are alive at once."""

    match: Match
    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depths: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]

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

    def extents(self, depth: int) -> dict[str, int]:
        """Blocks of each loop that lie inside the outermost `depth` tile loops."""
        result = dict(self.match.count)
        for loop in self.loops[:depth]:
            result[loop.loop] = loop.tile
        return result

    def box(self, storage: str) -> tuple[int, ...]:
        """Extents of the coordinates that one slot of a storage holds."""
        return footprint(self.match.coordinate[storage], self.extents(self.depth[storage]))

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
