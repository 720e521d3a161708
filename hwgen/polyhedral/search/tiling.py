"""Tile sizes, loop order, placement of copies and buffer counts: one point of the search space.

All quantities count blocks (lanes already removed). Tile loops run spatial loops first, then the
reduction's; a loop with a single tile is no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from hwgen.polyhedral.match.matching import Match
from hwgen.spec.affine import Affine

TOGETHER = 2
"""Parts of a tile's work up to which a host that issues in order puts what begins the next sums
behind the stores of those before, after the first part; of more, it comes after the second."""


MOST_SLOTS = 3
"""Slots of a buffer whose tiles take turns, at most."""

PART_TURNS = 2
"""Slots in turn of parts that stay: the first ones of the next tile come beside the last pass. If
the next tile's are the same parts, one will do: each takes the place of one that the last pass has
used, which of more parts than a buffer has slots otherwise is long before its turn."""


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over the tiles of one loop: `tile` blocks each, the last one `last` blocks; those of an
    `outer` one are tiled again."""

    loop: str
    tile: int
    count: int
    last: int
    outer: bool = False

    @property
    def key(self) -> str:
        """A name that tells the levels apart."""
        return outer_name(self.loop) if self.outer else self.loop


def outer_name(loop: str) -> str:
    """The key of the outer tile loop of a loop."""
    return f"{loop}'"


def in_place(loops: Sequence[object]) -> int:
    """The depth of what is read where it lies, past all loops."""
    return len(loops) + 1


def inner_name(key: str) -> str:
    """The loop of a key."""
    return key.removesuffix("'")


@dataclass(frozen=True)
class Tiling:
    """`order`: spatial loops outermost first; `depths`: tile loops around each storage's load;
    one more than there are where nothing is loaded, as calls read it where it lies;
    `slots`: copies of each storage that are alive at once. `outer`: loops that are tiled twice, and
    their larger tiles, outermost first: outside of all others, but for the reduction's where its
    sums are not stored in `parts`."""

    match: Match
    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depths: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]
    outer: tuple[tuple[str, int], ...] = ()
    parts: bool = False

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
        large = dict(self.outer)
        result: list[TileLoop] = []
        for key in self.keys:
            name, outer = inner_name(key), key in self._outer_keys
            blocks, tile = self.match.count[name], large[name] if outer else self.tile[name]
            if not outer:
                blocks = min(blocks, large.get(name, blocks))
            count = -(-blocks // tile)
            if count > 1:
                result.append(TileLoop(name, tile, count, blocks - tile * (count - 1), outer))
        return tuple(result)

    @property
    def _outer_keys(self) -> tuple[str, ...]:
        return tuple(outer_name(n) for n, _ in self.outer)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all tile loops, those of a single tile included, outermost first."""
        reduction = self.match.selection.reduction
        apart = [k for k in self._outer_keys if inner_name(k) in reduction and not self.parts]
        first = [k for k in self._outer_keys if k not in apart]
        return (*first, *self.order, *apart, *reduction)

    @cached_property
    def spatial_depth(self) -> int:
        """How many tile loops lie outside the reduction's."""
        reduction = self.match.selection.reduction
        stored = [x for x in self.loops if x.outer and self.parts]
        return sum(x.loop not in reduction or x in stored for x in self.loops)

    def in_place(self, storage: str) -> bool:
        """Whether calls read what a storage would hold where it lies off chip."""
        return self.depth[storage] == in_place(self.loops)

    def kept(self, storage: str) -> bool:
        """Whether tiles of a loaded storage stay for all passes of the loops around that do not
        move it: every tile has a slot of its own, or each of the parts, tiles inside of these
        loops, has so many slots in turn."""
        return self._turns(storage) > 0

    def turns(self, storage: str) -> int:
        """Slots that a storage's buffer has in turn, of all tiles that stay together."""
        return self._turns(storage) or self.slot[storage]

    def _turns(self, storage: str) -> int:
        """The same of one that is kept; else 0."""
        moving = self._moving(storage)
        if not moving or len(moving) == self.depth[storage]:
            return 0
        writers = {o.kind for o in self.match.selection.operations if o.written == storage}
        if writers != {"load"}:
            return 0
        if prod(x.count for x in moving) == self.slot[storage]:
            return 1
        parts = self.parts_of(storage)
        count, apart = prod(x.count for x in parts), self._apart(storage, parts)
        if count > 1 and apart and count == self.slot[storage]:
            return 1
        several = count <= MOST_SLOTS or not apart
        return PART_TURNS if several and PART_TURNS * count == self.slot[storage] else 0

    def _apart(self, storage: str, parts: Sequence[TileLoop]) -> bool:
        """Whether no coordinate is moved by loops over parts and by those before them too."""
        inside = {x.loop for x in parts}
        before = {x.loop for x in self._moving(storage) if x not in parts}
        return not any(
            before.intersection(c.names) and inside.intersection(c.names)
            for c in self.match.coordinate[storage]
        )

    def home(self, storage: str) -> int:
        """How many tile loops are around the place of all tiles of a storage that stay together:
        those before the first that does not move it."""
        around, moving = self.loops[: self.depth[storage]], self._moving(storage)
        return next((n for n, x in enumerate(around) if x not in moving), len(around))

    def parts_of(self, storage: str) -> tuple[TileLoop, ...]:
        """The loops whose tiles of a storage are parts of what stays together."""
        return tuple(x for x in self._moving(storage) if x in self.loops[self.home(storage) :])

    def _moving(self, storage: str) -> tuple[TileLoop, ...]:
        """Tile loops around a storage's load that move what it holds."""
        names = self.match.moving(storage)
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

    def taken(self, storage: str) -> int:
        """Entries of a storage's buffer: of all slots, or of what stays together, in turn."""
        if not self.kept(storage):
            return self.slot[storage] * self.entries(storage)
        whole = footprint(self.match.coordinate[storage], self.extents(self.home(storage)))
        return self.turns(storage) * prod(whole) * self.match.span(storage)

    def __str__(self) -> str:
        lines = [
            f"for {x.loop}_{'block' if x.outer else 'tile'} in 0..<{x.count}: {x.tile} blocks"
            + (f" (last {x.last})" if x.last != x.tile else "")
            for x in self.loops
        ]
        lines += [
            f"{name}: {self.slot[name]} x {self.entries(name)} entries {list(self.room(name))}"
            f" at depth {depth}{', kept' if self.kept(name) else ''}"
            for name, depth in self.depths
        ]
        return "\n".join(lines)


def footprint(coordinates: tuple[Affine, ...], extents: dict[str, int]) -> tuple[int, ...]:
    """Number of values that each coordinate takes over a box of loops."""
    result: list[int] = []
    for coordinate in coordinates:
        low, high = coordinate.interval(extents)
        result.append(high - low + 1)
    return tuple(result)
