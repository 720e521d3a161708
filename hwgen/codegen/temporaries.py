"""Images of what one phase stores and later ones load: one layout for all of them.

Each phase lays out its images by its own calls. Two of them are one where they send each element
of the tensor to the same place; the padding at the end of a dimension is then the larger of both,
and zero where no element is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from hwgen.codegen.image_layout import ImageLayout
from hwgen.codegen.layout import dense
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.scop import ScopStatement
from hwgen.spec.affine import affine
from hwgen.spec.workload import Tensor


@dataclass(frozen=True, slots=True)
class _Digit:
    """An axis of an image: `step` elements of the tensor's `dimension`, `extent` times, and so many
    elements of the image apart."""

    dimension: int
    step: int
    extent: int
    apart: int


_Axes = list[tuple[int, int]]
"""By axis of an image, the tensor dimension that it runs along, and its step there."""


def shared_image(
    tensor: Tensor, stored: ImageLayout, loads: Sequence[ImageLayout]
) -> list[ImageLayout]:
    """The layouts of a tensor that goes through off-chip memory, all of one image: that of its
    store, then those of its loads.

    Raises:
        HwgenError: H504 where they differ.
    """
    uses = [stored, *loads]
    axes = [_axes(use.image) for use in uses]
    result: list[ImageLayout] = []
    for use, mine in zip(uses, axes, strict=True):
        if mine is None:
            raise _differ(tensor, stored.image, use.image)
        image = use.image
        for dimension in range(len(image.index)):
            image = _padded(image, mine, dimension, [a for a in axes if a is not None], uses)
        name = f"{tensor.name}_image"
        image = replace(image, name=name, role="temporary", shape=tensor.shape, in_place=False)
        result.append(replace(use, image=image))
        first = result[0].image
        same = (image.dtype, image.lanes, image.memory) == (first.dtype, first.lanes, first.memory)
        if not same or _digits(image, mine) != _digits(first, axes[0] or []):
            raise _differ(tensor, stored.image, use.image)
    return result


def written_part(tensor: Tensor, statements: Sequence[ScopStatement]) -> str:
    """The elements of a tensor that statements write, as isl text; empty where they are all."""
    parts = [
        isl.Map(f"{{ {s.access_text(replace(s.target, tensor=''))} }}").range()
        for s in statements
        if s.target.tensor == tensor.name
    ]
    written = parts[0]
    for part in parts[1:]:
        written = written.union(part)
    whole = isl.Set(f"{{ {_elements(tensor)} }}")
    return "" if whole.is_subset(written) else str(written)


def check_written(
    tensor: Tensor, written: str, load: ImageLayout, count: Mapping[str, int]
) -> None:
    """Loads bring whole boxes of a tensor: of one written in part, no more than that part and what
    lies outside the tensor. `written`: as `written_part` gives it; `count`: how often loops run.

    Raises:
        HwgenError: H505 where they bring entries of which nothing is written.
    """
    if not written:
        return
    image = load.image
    extents = (*image.outer, *image.lanes)
    ranges = {axis: (0, extent - 1) for axis, extent in enumerate(extents)}
    for axis, coordinate, size in zip(load.dimensions, load.coordinates, load.scales, strict=True):
        low, high = coordinate.interval(count)
        ranges[axis] = (low * size, min((high + 1) * size, extents[axis]) - 1)
    axes = [f"p{axis}" for axis in range(len(extents))]
    where = " and ".join(f"{low} <= p{axis} <= {high}" for axis, (low, high) in ranges.items())
    index = isl.relation("", axes, "", [affine(i) for i in image.index])
    entry = isl.relation("", axes, "", axes[: len(image.outer)])
    held, entries = isl.Map(f"{{ {index} : {where} }}"), isl.Map(f"{{ {entry} }}")
    inside = held.intersect_range(isl.Set(f"{{ {_elements(tensor)} }}"))
    stored = held.intersect_range(isl.Set(written)).domain().apply(entries)
    missing = entries.intersect_range(inside.domain().apply(entries).subtract(stored)).domain()
    point = isl.some_point(str(missing.apply(inside)))
    if point is None:
        return
    raise HwgenError(
        "H505",
        f"loads of {tensor.name} would bring what no statement writes",
        location=tensor.location,
        field=f"tensors.{tensor.name}",
        found=f"{tensor.name}{list(point[1])}, between elements that are read",
        allowed="a part without gaps, of a tensor that goes through off-chip memory between two "
        "phases",
        repair=f"let {tensor.name} hold what is written and nothing else, each dimension indexed "
        "by one loop",
    )


def _elements(tensor: Tensor) -> str:
    return isl.box("", [(f"d{d}", extent) for d, extent in enumerate(tensor.shape)])


def _axes(image: Image) -> _Axes | None:
    """None where some axis runs along several dimensions, or past one."""
    extents = (*image.outer, *image.lanes)
    found: dict[str, tuple[int, int]] = {}
    for dimension, index in enumerate(image.index):
        function = affine(index)
        if function is None or function.constant:
            return None
        for axis, step in function.terms:
            if axis in found or step < 1:
                return None
            found[axis] = (dimension, step)
    if any(f"p{n}" not in found for n, extent in enumerate(extents) if extent > 1):
        return None
    return [found.get(f"p{n}", (-1, 0)) for n in range(len(extents))]


def _padded(
    image: Image,
    mine: _Axes,
    dimension: int,
    axes: Sequence[_Axes],
    uses: Sequence[ImageLayout],
) -> Image:
    """An image with as many elements along a dimension as all of them need."""
    pairs = list(zip(axes, (use.image for use in uses), strict=False))
    whole = max(_reach(a, i, dimension) for a, i in pairs)
    unit = lcm(*(_outermost(a, dimension)[1] for a, _ in pairs))
    whole = -(-whole // unit) * unit
    axis, step = _outermost(mine, dimension)
    if not 0 <= axis < len(image.outer):
        return image
    outer = [whole // step if n == axis else extent for n, extent in enumerate(image.outer)]
    return replace(image, outer=tuple(outer))


def _outermost(axes: _Axes, dimension: int) -> tuple[int, int]:
    """The axis with the largest step along a dimension, and that step; -1 where there is none."""
    mine = [(step, axis) for axis, (d, step) in enumerate(axes) if d == dimension]
    step, axis = max(mine, default=(1, -1))
    return axis, step


def _reach(axes: _Axes, image: Image, dimension: int) -> int:
    """Elements along a dimension."""
    extents = (*image.outer, *image.lanes)
    along = zip(axes, extents, strict=True)
    return max((step * extent for (d, step), extent in along if d == dimension), default=1)


def _digits(image: Image, axes: _Axes) -> list[_Digit]:
    """Where the elements lie, in a form that does not tell how the axes are cut."""
    extents = (*image.outer, *image.lanes)
    found = [
        _Digit(dimension, step, extent, apart)
        for (dimension, step), extent, apart in zip(axes, extents, dense(extents), strict=True)
        if extent > 1
    ]
    merged: list[_Digit] = []
    for digit in sorted(found, key=lambda d: (d.dimension, d.step)):
        last = merged[-1] if merged else None
        if last is not None and last.dimension == digit.dimension:
            follows = digit.step == last.step * last.extent
            if follows and digit.apart == last.apart * last.extent:
                merged[-1] = replace(last, extent=last.extent * digit.extent)
                continue
        merged.append(digit)
    return merged


def _differ(tensor: Tensor, stored: Image, loaded: Image) -> HwgenError:
    return HwgenError(
        "H504",
        f"{tensor.name} is stored in another layout than it is loaded in",
        location=tensor.location,
        field=f"tensors.{tensor.name}",
        found=f"{_text(stored)} and {_text(loaded)}",
        allowed="one layout of a tensor that goes through off-chip memory between two phases",
        repair="an intrinsic that loads entries as they are stored, or a workload for each phase, "
        "between which the host rearranges it",
    )


def _text(image: Image) -> str:
    shape = "".join(f"[{n}]" for n in (*image.outer, *image.lanes))
    at = ", ".join(map(str, image.index))
    return f"{image.dtype}{shape} at ({at}){f' in {image.memory}' if image.memory else ''}"
