"""Layouts: where each tensor element lies, off chip (images) and on chip (buffers).

Both derive from the match alone. An image is dense: entry coordinates in tensor order, then the
lanes. A buffer slot holds the box of coordinates that one tile touches, row-major.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from hwgen.codegen.program import Image
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Lanes, Match, entry_coordinates, operand_iterators
from hwgen.polyhedral.operations import Operation, Storage
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """An image with the coordinates that address it and the steps between them, in entries."""

    image: Image
    coordinates: tuple[Affine, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A storage's slots: `box` extents and `strides` of the coordinates, and the isl map from
    tensor index to (slot, entry, lanes), parametric in the tile counters."""

    storage: str
    memory: str
    slots: int
    box: tuple[int, ...]
    strides: tuple[int, ...]
    text: str

    @property
    def slot_entries(self) -> int:
        return prod(self.box)

    def __str__(self) -> str:
        size = f"{self.slots} x {self.slot_entries} entries of {self.memory}"
        return f"{self.storage}: {size}\n  {self.text}"


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """Steps of a dense array, last dimension fastest."""
    return tuple(prod(extents[i + 1 :]) for i in range(len(extents)))


def image_layouts(scop: Scop, hardware: HardwareSpec, match: Match) -> dict[str, ImageLayout]:
    """The image of every loaded storage and stored tensor, keyed by storage or tensor name."""
    result: dict[str, ImageLayout] = {}
    for operation in match.selection.operations:
        if operation.kind == "load":
            storage = match.selection.storage(_onchip(operation, hardware))
            operand = _offchip_operand(operation, hardware)
            result[storage.name] = _image(
                f"{storage.name}_image", "input", scop, match, operation, storage, operand
            )
        elif operation.kind == "store":
            operand = _offchip_operand(operation, hardware)
            tensor = operation.storages[_position(operation.intrinsic, operand.name)]
            statement = next(s for s in scop.statements if s.name == operation.statement)
            storage = Storage(tensor, operand.memory, tensor, statement.target.indices)
            result[tensor] = _image(
                f"{tensor}_image", "output", scop, match, operation, storage, operand
            )
    return result


def _position(intrinsic: Intrinsic, operand: str) -> int:
    return [o.name for o in intrinsic.operands].index(operand)


def _offchip_operand(operation: Operation, hardware: HardwareSpec) -> Operand:
    return next(
        o for o in operation.intrinsic.operands if hardware.memory[o.memory].kind == "offchip"
    )


def _onchip(operation: Operation, hardware: HardwareSpec) -> str:
    return next(
        s
        for o, s in zip(operation.intrinsic.operands, operation.storages, strict=True)
        if hardware.memory[o.memory].kind != "offchip"
    )


def _image(
    name: str,
    role: str,
    scop: Scop,
    match: Match,
    operation: Operation,
    storage: Storage,
    operand: Operand,
) -> ImageLayout:
    mapping = dict(match.lane[operation.name])
    lanes: Lanes = tuple(mapping[i] for i in operand_iterators(operation.intrinsic, operand.name))
    coordinates = entry_coordinates(storage, lanes, match.block)
    assert not isinstance(coordinates, str), coordinates
    outer = tuple(c.interval(match.count)[1] + 1 for c in coordinates)
    view = scop.view.get(storage.tensor) if role == "input" else None
    tensor = view.source if view else storage.tensor
    shape = scop.workload.tensor[tensor].shape
    index = _tensor_index(storage, lanes, operand, match)
    extents = _extents(storage, lanes, outer, match)
    low, high = 0, extents["d0"] - 1
    if view:
        bindings = {f"d{i}": e for i, e in enumerate(index)}
        index = [f.expression(bindings) for f in view.indices]
        low, high = view.indices[0].interval(extents)
    for apart in _idle(lanes, operand, len(outer)):
        # No iteration uses the positions where this is not zero: they lie outside the tensor.
        index[0] = add(index[0], multiply(apart, Const(max(shape[0] - low, high + 1))))
    image = Image(
        name,
        tensor,
        "input" if role == "input" else "output",
        operand.dtype,
        outer,
        operand.shape,
        tuple(index),
        view.fill if view else 0,
    )
    return ImageLayout(image, coordinates, row_major(outer))


def _along(index: Affine, lanes: Lanes, match: Match) -> list[int]:
    """The lanes' positions that run along a tensor dimension."""
    return [
        position
        for position, lane in enumerate(lanes)
        if lane and index.coefficient(lane) and match.block.get(lane, 1) > 1
    ]


def _extents(
    storage: Storage, lanes: Lanes, outer: tuple[int, ...], match: Match
) -> dict[str, int]:
    """How many values the image's positions give each tensor dimension `d0, d1, ...`."""
    result: dict[str, int] = {}
    for dimension, index in enumerate(storage.indices):
        along = _along(index, lanes, match)
        size = match.block[str(lanes[along[0]])] if along else 1
        result[f"d{dimension}"] = outer[dimension] * size
    return result


def _tensor_index(storage: Storage, lanes: Lanes, operand: Operand, match: Match) -> list[Expr]:
    """The tensor index at position `p0, p1, ...`: entry coordinates, then lanes."""
    rank = len(storage.indices)
    result: list[Expr] = []
    for dimension, index in enumerate(storage.indices):
        expression: Expr = Name(f"p{dimension}")
        for position in _along(index, lanes, match)[:1]:
            lane = Name(f"p{rank + position}")
            expression = add(multiply(expression, Const(operand.shape[position])), lane)
        result.append(expression)
    return result


def _idle(lanes: Lanes, operand: Operand, rank: int) -> Iterator[Expr]:
    """Expressions that are zero only at positions that an iteration uses: lanes without a loop
    and the differences of lanes that share one (a diagonal)."""
    for position, lane in enumerate(lanes):
        if lane is None and operand.shape[position] > 1:
            yield Name(f"p{rank + position}")
        elif lane is not None and lanes.index(lane) < position:
            yield Binary("-", Name(f"p{rank + position}"), Name(f"p{rank + lanes.index(lane)}"))


def buffer_layouts(tiling: Tiling) -> dict[str, BufferLayout]:
    """The layout of every storage; checked to be injective within a slot.

    Raises:
        HwgenError: H501, only by a defect of the layout itself.
    """
    result: dict[str, BufferLayout] = {}
    for storage in tiling.match.selection.storages:
        box = tiling.room(storage.name)
        strides = row_major(box)
        text = _layout_text(tiling, storage, box, strides)
        slots = tiling.slot[storage.name]
        result[storage.name] = BufferLayout(storage.name, storage.memory, slots, box, strides, text)
        _check_injective(storage.name, box, strides)
    return result


def counter(tiling: Tiling, depth: int) -> Affine:
    """The number of the current iteration of the outermost `depth` tile loops, from zero."""
    terms: list[tuple[str, int]] = []
    radix = 1
    for loop in reversed(tiling.loops[:depth]):
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
    parameters = [f"{loop.loop}_tile" for loop in tiling.loops[:depth]]
    lanes = tiling.match.storage_lane[storage.name]
    names = [f"i{d}" for d in range(len(storage.indices))]
    entry: list[str] = []
    lane_text = ["0"] * len(lanes)
    bounds: list[str] = []
    for d, coordinate in enumerate(tiling.match.coordinate[storage.name]):
        cut, size = tiling.match.cut(storage, d)
        quotient = f"floor({names[d]}/{size})" if size > 1 else names[d]
        base = storage_base(tiling, storage, coordinate)
        offset = f"{quotient} - ({base})" if base.terms or base.constant else quotient
        if box[d] > 1:
            entry.append(f"{strides[d]}*({offset})" if strides[d] > 1 else offset)
        bounds.append(f"0 <= {offset} < {box[d]}")
        if cut:
            lane_text[lanes.index(cut)] = f"{names[d]} mod {size}"
    slots = tiling.slot[storage.name]
    slot = f"({counter(tiling, depth)}) mod {slots}" if slots > 1 else "0"
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
