"""Layouts of on-chip buffers: where each tensor element lies.

A buffer slot holds the box of coordinates that one tile touches, in the order that suits the
intrinsics' fields, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwgen.codegen.image_layout import ImageLayout
from hwgen.codegen.layout_order import dense, orders
from hwgen.codegen.walks import Steps
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.operations import Storage
from hwgen.polyhedral.tiling import Tiling


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A storage's slots: `box` extents and `strides` of the coordinates, `rows`: extents of the
    consecutive entries of a block, `granule`: entries of which every slot has a multiple, and the
    isl map from tensor index to (slot, entry, lanes), parametric in the tile counters."""

    storage: str
    memory: str
    slots: int
    box: tuple[int, ...]
    strides: tuple[int, ...]
    text: str
    rows: tuple[int, ...] = ()
    granule: int = 1

    def steps(self, coordinates: tuple[Affine, ...]) -> Steps:
        """The steps of the coordinates that address it."""
        return Steps(coordinates, self.strides, dense(self.rows))

    @property
    def slot_entries(self) -> int:
        """Entries from the first of a slot to the next slot, padding included."""
        reach = sum((b - 1) * s for b, s in zip(self.box, self.strides, strict=True))
        return -(-(reach + prod(self.rows)) // self.granule) * self.granule

    @property
    def padding(self) -> int:
        """Entries of a slot that hold nothing."""
        return self.slot_entries - prod(self.box) * prod(self.rows)

    def __str__(self) -> str:
        size = f"{self.slots} x {self.slot_entries} entries of {self.memory}"
        size += f", {self.padding} of padding" if self.padding else ""
        return f"{self.storage}: {size}\n  {self.text}"


def buffer_layouts(tiling: Tiling, images: Mapping[str, ImageLayout]) -> dict[str, BufferLayout]:
    """The layout of every storage; checked to be injective within a slot.

    Raises:
        HwgenError: H501, only by a defect of the layout itself.
    """
    result: dict[str, BufferLayout] = {}
    order = orders(tiling, {name: image.steps for name, image in images.items()})
    for storage in tiling.match.selection.storages:
        box, strides = tiling.room(storage.name), order[storage.name].strides
        rows = tuple(extent for _, extent in tiling.match.rows(storage.name))
        text = _layout_text(tiling, storage, box, strides)
        result[storage.name] = BufferLayout(
            storage.name, storage.memory, tiling.slot[storage.name], box, strides, text, rows,
            tiling.match.selection.granule(storage.name),
        )  # fmt: skip
        _check_injective(storage.name, (*box, *rows), (*strides, *dense(rows)))
    return result


def counter(tiling: Tiling, storage: str) -> Affine:
    """The number of the tile of a storage that is in use, from zero: its slots take turns."""
    terms: list[tuple[str, int]] = []
    radix = 1
    for loop in reversed(tiling.turning(storage)):
        terms.append((f"{loop.loop}_tile", radix))
        radix *= loop.count
    return Affine(tuple(sorted(terms)))


def tile_origin(tiling: Tiling, coordinate: Affine, depth: int) -> Affine:
    """A coordinate at the first iteration inside the outermost `depth` tile loops."""
    terms = [
        (f"{loop.loop}_tile", coordinate.coefficient(loop.loop) * loop.tile)
        for loop in tiling.loops[:depth]
        if coordinate.coefficient(loop.loop)
    ]
    return Affine(tuple(sorted(terms)), coordinate.constant)


def tile_base(
    tiling: Tiling, coordinate: Affine, depth: int, last: frozenset[str] = frozenset()
) -> Affine:
    """Least value of a coordinate inside the outermost `depth` tile loops, over tile counters."""
    low, _ = Affine(coordinate.terms).interval(tiling.extents(depth, last))
    origin = tile_origin(tiling, coordinate, depth)
    return Affine(origin.terms, origin.constant + low)


def storage_base(tiling: Tiling, storage: Storage, coordinate: Affine) -> Affine:
    """The coordinate at which a storage's buffer starts, over tile counters."""
    if storage.shape:
        return Affine(())
    return tile_base(tiling, coordinate, tiling.depth[storage.name])


def _layout_text(
    tiling: Tiling, storage: Storage, box: tuple[int, ...], strides: tuple[int, ...]
) -> str:
    depth = tiling.depth[storage.name]
    counters = [f"{loop.loop}_tile" for loop in tiling.loops]
    parameters = counters[:depth]
    rows = [loop for loop, _ in tiling.match.rows(storage.name)]
    steps = dense([extent for _, extent in tiling.match.rows(storage.name)])
    lanes = tiling.match.storage_lane[storage.name][len(rows) :]
    names = [f"i{d}" for d in range(len(storage.indices))]
    entry: list[str] = []
    lane_text = ["0"] * len(lanes)
    bounds: list[str] = []
    for d, coordinate in enumerate(tiling.match.coordinate[storage.name]):
        cut, size = tiling.match.cut(storage, d)
        quotient = f"floor({names[d]}/{size})" if size > 1 else names[d]
        base = storage_base(tiling, storage, coordinate).along(counters)
        offset = f"{quotient} - ({base})" if base.terms or base.constant else quotient
        if box[d] > 1:
            entry.append(f"{strides[d]}*({offset})" if strides[d] > 1 else offset)
        bounds.append(f"0 <= {offset} < {box[d]}")
        if cut in rows:
            step = steps[rows.index(cut)]
            entry.append(
                f"{step}*({names[d]} mod {size})" if step > 1 else f"{names[d]} mod {size}"
            )
        elif cut:
            lane_text[lanes.index(cut)] = f"{names[d]} mod {size}"
    slots = tiling.slot[storage.name]
    turn = counter(tiling, storage.name).along(counters)
    slot = "0"
    if slots > 1:
        slot = str(turn) if tiling.kept(storage.name) else f"({turn}) mod {slots}"
    target = ", ".join([slot, (" + ".join(entry) or "0"), *lane_text])
    where = f" : {' and '.join(bounds)}" if bounds else ""
    head = f"[{', '.join(parameters)}] -> " if parameters else ""
    return f"{head}{{ {storage.tensor}[{', '.join(names)}] -> {storage.memory}[{target}]{where} }}"


def _check_injective(name: str, box: tuple[int, ...], strides: tuple[int, ...]) -> None:
    loops = [(f"c{i}", extent) for i, extent in enumerate(box)]
    offset = " + ".join(f"{s}*c{i}" for i, s in enumerate(strides)) or "0"
    text = isl.box("", loops)
    domain, _, where = text.partition(" : ")
    layout = isl.Map(f"{{ {domain or '[]'} -> [{offset}]{' : ' + where if where else ''} }}")
    if not layout.is_injective():
        raise HwgenError("H501", f"the layout of {name} sends two elements to one entry")
