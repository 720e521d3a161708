"""Where one tensor lives, as steps of its coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.storages import Image
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.affine import Affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply, names, substitute

NO_TURN = Affine(())

Places = Mapping[tuple[str, int], "Place"]
"""By block and number of its call's operand."""


@dataclass(frozen=True)
class Place:
    """A buffer or an image. `origins`: the index where its box begins; `sizes`: lanes that cut each
    dimension, of which `rows` (dimension, extent, step) are entries of their own; `counts` and
    `strides`, in entries, of the coordinates. `turn`: over loops, the number of the tile in use,
    whose remainder by `slots` is its slot. `image`: where it is one. `dimensions`: of a layout by
    hand, over the distances `d0, d1, ...` from the origin in blocks of lanes, of which then
    `counts` and `strides` are. `aligns`: of a coordinate, what its stride is modulo what, in
    entries. `rolled`: over these distances, what the slot in use is the remainder of, where a
    layout by hand repeats."""

    name: str
    tensor: str
    memory: str
    origins: tuple[Expr, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    rows: tuple[tuple[int | None, int, int], ...] = ()
    home: tuple[str, ...] = ()
    slots: int = 1
    turn: Affine = NO_TURN
    granule: int = 1
    reach: range = range(0)
    image: Image | None = None
    dimensions: tuple[Expr, ...] = ()
    aligns: tuple[tuple[int, int, int], ...] = ()
    rolled: Expr | None = None

    def turned(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> Expr | None:
        """What the slot of an element is the remainder of, where a layout by hand says it."""
        if self.rolled is None:
            return None
        table = {f"d{d}": e for d, e in enumerate(self._blocks(self._distances(indices)))}
        return simplify(substitute(self.rolled, table), extents)

    def block(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> Expr:
        """The first entry of an element's block of lanes, from the first of its slot."""
        result: Expr = Const(0)
        distances = self._distances(indices)
        if self.dimensions:
            table = {f"d{d}": e for d, e in enumerate(self._blocks(distances))}
            for dimension, stride in zip(self.dimensions, self.strides, strict=True):
                result = add(result, multiply(substitute(dimension, table), Const(stride)))
            return simplify(result, extents)
        for value, stride in zip(self._blocks(distances), self.strides, strict=True):
            result = add(result, multiply(value, Const(stride)))
        return simplify(result, extents)

    def row(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> Expr:
        """An element's entry, from the first of its block."""
        result: Expr = Const(0)
        for value, (_, _, step) in zip(self._rows(indices), self.rows, strict=True):
            result = add(result, multiply(value, Const(step)))
        return simplify(result, extents)

    def coordinates(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> list[Expr]:
        """The number of an element's block of lanes along each dimension."""
        return [simplify(value, extents) for value in self._blocks(self._distances(indices))]

    def row_coordinates(self, indices: Sequence[Expr], extents: Mapping[str, int]) -> list[Expr]:
        """Its number in the block along each dimension that has rows."""
        return [simplify(value, extents) for value in self._rows(indices)]

    def _blocks(self, distances: Sequence[Expr]) -> list[Expr]:
        pairs = zip(distances, self.sizes, strict=True)
        return [Binary("//", d, Const(size)) if size > 1 else d for d, size in pairs]

    def _rows(self, indices: Sequence[Expr]) -> list[Expr]:
        distances = self._distances(indices)
        return [
            Const(0) if d is None or extent == 1 else Binary("%", distances[d], Const(extent))
            for d, extent, _ in self.rows
        ]

    def _distances(self, indices: Sequence[Expr]) -> list[Expr]:
        return [Binary("-", index, at) for index, at in zip(indices, self.origins, strict=True)]

    @property
    def span(self) -> int:
        """Entries of a block of lanes."""
        return prod(extent for _, extent, _ in self.rows)

    def arranged(self, order: Sequence[int], padded: int | None = None) -> tuple[int, ...]:
        """Strides of the coordinates in an order, the last one inside; dense where no align says
        otherwise. All but the innermost `padded` coordinates move by multiples of what addresses
        are counted in; left out: none need to."""
        wanted = {axis: (factor, offset) for axis, factor, offset in self.aligns}
        strides = [0] * len(self.counts)
        inside = self.span
        for n, d in enumerate(reversed(order)):
            factor, offset = wanted.get(d, (1, 0))
            strides[d] = inside + (offset - inside) % factor
            if padded is not None and n >= padded:
                strides[d] = -(-strides[d] // self.granule) * self.granule
            inside = strides[d] * self.counts[d]
        return tuple(strides)

    @property
    def slot_entries(self) -> int:
        """Entries from the first of a slot to the next slot, padding included."""
        reach = sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True))
        return -(-(reach + self.span) // self.granule) * self.granule

    @property
    def layout(self) -> BufferLayout:
        """What the allocation asks of it."""
        return BufferLayout(
            self.name, self.memory, self.slots, self.slot_entries, self.counts, self.strides,
            self._text(), tuple(extent for _, extent, _ in self.rows), self.granule,
        )  # fmt: skip

    def _text(self) -> str:
        """isl text of the map from the tensor's index to slot and entry."""
        index = [f"i{d}" for d in range(len(self.origins))]
        terms: list[str] = []
        if self.dimensions:
            outside = {n for o in self.origins for n in names(o)}
            extents = dict.fromkeys([*index, *outside], 1 << 30)
            entry = self.block([Name(n) for n in index], extents)
            terms.append(str(entry))
        for name, origin, size, stride in (
            ()
            if self.dimensions
            else zip(index, self.origins, self.sizes, self.strides, strict=True)
        ):
            distance = name if origin == Const(0) else f"{name} - ({origin})"
            distance = f"floor(({distance})/{size})" if size > 1 else distance
            terms.append(f"{stride}*({distance})" if stride != 1 else f"{distance}")
        terms += [f"{k}*({index[d]} mod {n})" for d, n, k in self.rows if d is not None and n > 1]
        number = self.turned([Name(n) for n in index], dict.fromkeys(index, 1 << 30)) or self.turn
        slot = f"({number}) mod {self.slots}" if self.slots > 1 else "0"
        parameters = sorted({n for o in self.origins for n in names(o)} | {*self.turn.names})
        head = f"[{', '.join(parameters)}] -> " if parameters else ""
        entry = " + ".join(terms) or "0"
        body = f"{self.tensor}[{', '.join(index)}] -> {self.memory}[{slot}, {entry}]"
        return f"{head}{{ {body} }}"
