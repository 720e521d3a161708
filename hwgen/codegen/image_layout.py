"""Layouts of images: the tensors as the chip's off-chip memory holds them.

An image is dense: entry coordinates in tensor order, then the lanes; where a load brings a block
row by row, its rows stand beside the coordinate that they refine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Protocol

from hwgen.codegen.layout import dense
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.matching import Match, entry_coordinates
from hwgen.polyhedral.match.operations import Operation, Storage
from hwgen.polyhedral.match.partial_lanes import Lanes
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.semantics import operand_iterators
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.workload import Tensor


class Array(Protocol):
    """A tensor, of whatever tree."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """An image with the coordinates that address it. `dimensions`: each coordinate's axis of the
    image; `scales`: how far a step of each coordinate is along its axis."""

    image: Image
    coordinates: tuple[Affine, ...]
    dimensions: tuple[int, ...]
    scales: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """What one position of an image's coordinates holds: its lanes, the first `loose` of which
    are rows that a load brings one by one, and their extents."""

    lanes: Lanes
    shape: tuple[int, ...]
    loose: int


@dataclass(frozen=True, slots=True)
class _Axes:
    """The image's dimensions: where each tensor dimension and each lane of a block stands. One that
    holds both counts elements: a step of the tensor dimension's blocks is `scales` of them."""

    dimensions: tuple[int, ...]
    lanes: tuple[int, ...]
    scales: tuple[int, ...]
    extents: tuple[int, ...]


def image_layouts(scop: Scop, hardware: HardwareSpec, match: Match) -> dict[str, ImageLayout]:
    """The image of every loaded storage and stored tensor, keyed by storage or tensor name; of
    what sums start from, by the tensor's. Further statements that store a tensor have layouts of
    their own, of the same image.

    Raises:
        HwgenError: H302 where calls store entries that the tensor's elements do not fill; H504
            where several statements store a tensor in different layouts.
    """
    result: dict[str, ImageLayout] = {}
    parts: dict[str, list[str]] = {}
    for operation in match.selection.operations:
        operand = hardware.offchip_operand(operation.intrinsic)
        if operand is None:
            continue
        if operation.kind == "load":
            storage = match.selection.storage(_onchip(operation, hardware))
            result[storage.name] = _image(
                f"{storage.name}_image", "input", scop, hardware, match, operation, storage, operand
            )
        elif operation.kind == "init":
            tensor = operation.storages[_position(operation.intrinsic, operand.name)]
            storage = Storage(tensor, operand.memory, tensor, match.selection.start)
            result[tensor] = _image(
                f"{tensor}_image", "input", scop, hardware, match, operation, storage, operand
            )
        elif operation.kind == "store":
            tensor = operation.storages[_position(operation.intrinsic, operand.name)]
            statement = next(s for s in scop.statements if s.name == operation.statement)
            storage = Storage(tensor, operand.memory, tensor, statement.target.indices)
            key = f"{operation.name} {tensor}" if tensor in parts else tensor
            parts.setdefault(tensor, []).append(key)
            result[key] = _image(
                f"{tensor}_image", "output", scop, hardware, match, operation, storage, operand
            )
    for tensor, keys in parts.items():
        for key in keys[1:]:
            if result[key].image != result[keys[0]].image:
                raise _differ(scop.workload.tensor[tensor], [result[k].image for k in keys])
    return result


def images_refused(hardware: HardwareSpec, scop: Scop, match: Match) -> HwgenError | None:
    """Why the images of a match do not do; None where they do, as most."""
    targets = [s.target for s in scop.statements]
    whole = all(str(i) in ("0", *i.names) for t in targets for i in t.indices)
    if whole and len({t.tensor for t in targets}) == len(targets):
        return None
    try:
        image_layouts(scop, hardware, match)
    except HwgenError as error:
        return error
    return None


def _differ(tensor: Tensor, images: Sequence[Image]) -> HwgenError:
    shapes = [f"{[*i.outer, *i.lanes]} at ({', '.join(map(str, i.index))})" for i in images]
    return HwgenError(
        "H504",
        f"statements store parts of {tensor.name} in different layouts",
        location=tensor.location,
        field=f"tensors.{tensor.name}",
        found=" and ".join(dict.fromkeys(shapes)),
        allowed="one layout of a tensor, whichever statement stores an element",
        repair=f"a tensor of its own for each statement that stores a part of {tensor.name}",
    )


def packed_bytes(scop: Scop, hardware: HardwareSpec, match: Match) -> int:
    """Bytes of images that the host fills from tensors, or tensors from them; more than any image
    has where calls cannot lay one out."""
    try:
        layouts = image_layouts(scop, hardware, match)
    except HwgenError as error:
        if error.code not in ("H302", "H504", "H614"):
            raise
        return sys.maxsize
    images = {i.image.name: i.image for i in layouts.values()}
    return sum(image.bytes for image in images.values() if not image.in_place)


def keeps_order(image: Image, shape: tuple[int, ...]) -> bool:
    """Whether an image holds a tensor's elements in the tensor's own order, each once; it may pad
    between them."""
    steps: dict[str, int] = {}
    for index, step in zip(image.index, dense(shape), strict=True):
        function = affine(index)
        if function is None:
            return False
        for name, coefficient in function.terms:
            steps[name] = steps.get(name, 0) + coefficient * step
    extents = (*image.outer, *image.lanes)
    moved = [steps.get(f"p{n}", 0) for n, extent in enumerate(extents) if extent > 1]
    return all(a > b for a, b in pairwise([*moved, 0]))


def is_tensor(image: Image, tensor: Array) -> bool:
    """Whether an image is its tensor as the host has it: the same elements in the same order,
    nothing between, before or behind them."""
    extents = (*image.outer, *image.lanes)
    if image.dtype != tensor.dtype or prod(extents) != prod(tensor.shape):
        return False
    ranges = {f"p{n}": extent for n, extent in enumerate(extents)}
    functions: list[tuple[Affine, int]] = []
    for index, extent, step in zip(image.index, tensor.shape, dense(tensor.shape), strict=True):
        function = affine(index)
        if function is None:
            return False
        low, high = function.interval(ranges)
        if low < 0 or high >= extent:
            return False
        functions.append((function, step))
    return all(
        sum(f.coefficient(f"p{n}") * step for f, step in functions) == own
        for n, (extent, own) in enumerate(zip(extents, dense(extents), strict=True))
        if extent > 1
    )


def _position(intrinsic: Intrinsic, operand: str) -> int:
    return [o.name for o in intrinsic.operands].index(operand)


def _onchip(operation: Operation, hardware: HardwareSpec) -> str:
    return next(
        s
        for o, s in zip(operation.intrinsic.operands, operation.storages, strict=True)
        if not hardware.is_offchip(o.memory)
    )


def _block(match: Match, operation: Operation, operand: Operand) -> _Block:
    mapping = dict(match.lane[operation.name])
    own = tuple(mapping[i] for i in operand_iterators(operation.intrinsic, operand.name))
    loose: tuple[tuple[str | None, int], ...] = ()
    if operation.kind == "load":
        for other, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
            if name in match.coordinate:
                loose = match.loose_rows(operation, other.name, name)
    lanes = (*(loop for loop, _ in loose), *own)
    shape = (*(extent for _, extent in loose), *operand.shape)
    if match.single:
        shape = tuple(1 if n is None else e for n, e in zip(lanes, shape, strict=True))
    return _Block(lanes, shape, len(loose))


def _image(
    name: str,
    role: str,
    scop: Scop,
    hardware: HardwareSpec,
    match: Match,
    operation: Operation,
    storage: Storage,
    operand: Operand,
) -> ImageLayout:
    block = _block(match, operation, operand)
    coordinates = entry_coordinates(storage, block.lanes, match.block)
    if isinstance(coordinates, str):
        statement = next(s for s in scop.statements if s.name == operation.statement)
        raise HwgenError(
            "H302",
            f"{operation.intrinsic.name} matches {statement.name} in shape but not in its accesses",
            location=statement.source.location,
            field="compute",
            found=coordinates,
            allowed=f"entries of {storage.tensor} that the lanes fill, one after the other",
            repair="let each part begin where an entry does, or add an intrinsic for this access",
        )
    counts = tuple(c.interval(match.count)[1] + 1 for c in coordinates)
    if role == "output":
        counts = _whole(storage, block, counts, match, scop.workload.tensor[storage.tensor].shape)
    axes = _axes(storage, block, match, counts)
    if hardware.memory[operand.memory].by_element:
        least = scop.workload.tensor[storage.tensor].shape if role == "output" else ()
        axes = _joined(storage, block, match, axes, least)
    entry = len(axes.extents) - len(operand.entry_shape)
    view = scop.view.get(storage.tensor) if role == "input" else None
    tensor = view.source if view else storage.tensor
    shape = scop.workload.tensor[tensor].shape
    index = _tensor_index(storage, block, axes, match)
    reach = _extents(storage, block, counts, match)
    low, high = 0, reach["d0"] - 1
    if view:
        bindings = {f"d{i}": e for i, e in enumerate(index)}
        index = [f.expression(bindings) for f in view.indices]
        low, high = view.indices[0].interval(reach)
    for apart in _idle(block, axes):
        # No iteration uses the positions where this is not zero: they lie outside the tensor.
        index[0] = add(index[0], multiply(apart, Const(max(shape[0] - low, high + 1))))
    image = Image(
        name,
        tensor,
        "input" if role == "input" else "output",
        operand.dtype,
        axes.extents[:entry],
        axes.extents[entry:],
        tuple(index),
        view.fill if view else 0,
        memory=operand.memory,
    )
    reached = hardware.memory[operand.memory].shared and hardware.code.handles_are_pointers
    image = replace(image, in_place=reached and is_tensor(image, scop.workload.tensor[tensor]))
    return ImageLayout(image, coordinates, axes.dimensions, axes.scales)


def _axes(storage: Storage, block: _Block, match: Match, counts: tuple[int, ...]) -> _Axes:
    """Tensor dimensions in order, each followed by the loose rows that run along it; rows along
    none come first, the lanes of an entry last."""
    owner: dict[int, int] = {}
    for dimension, index in enumerate(storage.indices):
        for lane in _along(index, block.lanes, match)[:1]:
            owner[lane] = dimension
    order = [("lane", n) for n in range(block.loose) if n not in owner]
    for dimension in range(len(storage.indices)):
        order.append(("dimension", dimension))
        order += [("lane", n) for n in range(block.loose) if owner.get(n) == dimension]
    order += [("lane", n) for n in range(block.loose, len(block.lanes))]
    return _Axes(
        tuple(order.index(("dimension", d)) for d in range(len(storage.indices))),
        tuple(order.index(("lane", n)) for n in range(len(block.lanes))),
        (1,) * len(counts),
        tuple(counts[n] if kind == "dimension" else block.shape[n] for kind, n in order),
    )


def _joined(
    storage: Storage, block: _Block, match: Match, axes: _Axes, least: tuple[int, ...]
) -> _Axes:
    """The same with one axis, of elements, for blocks and lanes that follow each other, which ends
    where the loop does, or with the tensor's extent in `least`."""
    tails = dict(match.tails)
    extents, scales, dimensions = [*axes.extents], [*axes.scales], [*axes.dimensions]
    for dimension, index in enumerate(storage.indices):
        outside = dimensions[dimension]
        for lane in _along(index, block.lanes, match)[:1]:
            inside = axes.lanes[lane]
            if block.lanes.count(block.lanes[lane]) > 1:
                continue  # A diagonal: other lanes are told apart from these.
            if any(extents[axis] > 1 for axis in range(outside + 1, inside)):
                continue
            loop, size = str(block.lanes[lane]), block.shape[lane]
            last = tails.get(loop, size)
            whole = (extents[outside] - 1) * size + last
            if least and last < size:
                whole = max(whole, least[dimension])
            extents[inside], scales[dimension], dimensions[dimension] = whole, size, inside
    kept = sorted({*dimensions, *axes.lanes})
    return _Axes(
        tuple(kept.index(axis) for axis in dimensions),
        tuple(kept.index(axis) for axis in axes.lanes),
        tuple(scales),
        tuple(extents[axis] for axis in kept),
    )


def _along(index: Affine, lanes: Sequence[str | None], match: Match) -> list[int]:
    """The lanes' positions that run along a tensor dimension."""
    return [
        position
        for position, lane in enumerate(lanes)
        if lane and index.coefficient(lane) and match.block.get(lane, 1) > 1
    ]


def _extents(
    storage: Storage, block: _Block, counts: tuple[int, ...], match: Match
) -> dict[str, int]:
    """How many values the image's positions give each tensor dimension `d0, d1, ...`."""
    result: dict[str, int] = {}
    for dimension, index in enumerate(storage.indices):
        along = _along(index, block.lanes, match)
        size = match.block[str(block.lanes[along[0]])] if along else 1
        result[f"d{dimension}"] = counts[dimension] * size
    return result


def _whole(
    storage: Storage, block: _Block, counts: tuple[int, ...], match: Match, shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Positions of all elements of a tensor, where a statement may store a part of them only."""
    sizes = _extents(storage, block, (1,) * len(counts), match)
    return tuple(
        max(count, -(-extent // sizes[f"d{dimension}"]))
        for dimension, (count, extent) in enumerate(zip(counts, shape, strict=True))
    )


def _tensor_index(storage: Storage, block: _Block, axes: _Axes, match: Match) -> list[Expr]:
    """The tensor index at position `p0, p1, ...` of the image."""
    result: list[Expr] = []
    for dimension, index in enumerate(storage.indices):
        expression: Expr = Name(f"p{axes.dimensions[dimension]}")
        for lane in _along(index, block.lanes, match)[:1]:
            if axes.lanes[lane] == axes.dimensions[dimension]:
                continue
            inside = Name(f"p{axes.lanes[lane]}")
            expression = add(multiply(expression, Const(block.shape[lane])), inside)
        result.append(expression)
    return result


def _idle(block: _Block, axes: _Axes) -> Iterator[Expr]:
    """Expressions that are zero only at positions that an iteration uses: lanes without a loop
    and the differences of lanes that share one (a diagonal)."""
    for position, lane in enumerate(block.lanes):
        if lane is None and block.shape[position] > 1:
            yield Name(f"p{axes.lanes[position]}")
        elif lane is not None and block.lanes.index(lane) < position:
            first = axes.lanes[block.lanes.index(lane)]
            yield Binary("-", Name(f"p{axes.lanes[position]}"), Name(f"p{first}"))
