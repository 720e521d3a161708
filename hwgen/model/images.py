"""Tensors to off-chip images and back, as `Image.index` and `Image.fill` say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import names
from hwgen.spec.typecheck import converts, integer_range, is_float

from .integers import evaluate_rows
from .numeric import STORAGE, Array, Value, load, store

_GATHER_ELEMENTS = 1 << 22
"""Positions whose indices are held at once where an image is no strided view of the tensor."""

Offsets = npt.NDArray[np.int64]


def supplied(image: Image) -> Array:
    """The tensor of an image that no caller gives."""
    assert image.supplied is not None
    return np.full(image.shape, _number(image, image.supplied), STORAGE[image.dtype])


def pack(image: Image, tensor: Array, dtype: str) -> Array:
    """The image of a row-major tensor: an array of shape `outer + lanes`.

    Args:
        image: where each element goes.
        tensor: its elements, as `numeric.STORAGE[dtype]`.
        dtype: the tensor's data type; the image's may be wider.

    Raises:
        HwgenError: H726, the tensor has another rank or data type; H725, a conversion loses.
    """
    _check_tensor(image, tensor, dtype)
    source = np.ascontiguousarray(_converted(image, tensor, dtype))
    strided = _strided(image, tensor.shape)
    if strided is not None:
        before, after, origin, steps = strided
        if any(before) or any(after):
            source = _padded(source, before, after, _fill(image))
        strides = tuple(step * source.itemsize for step in steps)
        view = as_strided(source.ravel()[origin:], _shape(image), strides, writeable=False)
        return np.ascontiguousarray(view)
    shape = _shape(image)
    packed = np.empty(shape, source.dtype)
    flat = source.ravel()
    for start, stop in _blocks(shape):
        offsets, inside = _offsets(image, tensor.shape, start, stop)
        taken = flat[np.where(inside, offsets, 0)] if flat.size else np.zeros(1, flat.dtype)
        packed[start:stop] = np.where(inside, taken, _fill(image))
    return packed


def unpack(
    image: Image,
    packed: Array,
    shape: tuple[int, ...],
    written: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """The row-major tensor of an output image; positions outside the tensor are dropped.

    `written`: one bool per position; H724 is raised where an element's position has none.

    Raises:
        HwgenError: H725, an element has no position or several; H724, an element not written.
    """
    coverage = _coverage(image, shape)
    flat = packed.ravel()
    if written is not None:
        done: npt.NDArray[np.bool_] = written.ravel()[coverage]
        if not done.all():
            first = int(np.argmin(done))
            raise HwgenError(
                "H724",
                "an output element is never written",
                field=image.tensor,
                found=f"{element_text(image.tensor, first, shape)} "
                f"({int((~done).sum())} of {done.size} elements missing)",
                allowed="every element of an output is stored once at least",
                repair="check the loop bounds and extents of the calls that store it",
            )
    return np.reshape(flat[coverage], shape)


def held(image: Image, shape: tuple[int, ...]) -> Offsets:
    """For each position of an image, the flat offset of the tensor's element that it holds; -1
    outside."""
    whole = _shape(image)
    found = np.empty(whole, np.int64)
    for start, stop in _blocks(whole):
        offsets, inside = _offsets(image, shape, start, stop)
        found[start:stop] = np.where(inside, offsets, -1)
    return found.ravel()


@lru_cache(maxsize=64)
def _coverage(image: Image, shape: tuple[int, ...]) -> Offsets:
    """For each element of the tensor, the flat position that holds it."""
    positions = np.full(prod(shape), -1, np.int64)
    whole = _shape(image)
    per_row = prod(whole[1:])
    for start, stop in _blocks(whole):
        offsets, inside = _offsets(image, shape, start, stop)
        offsets = np.broadcast_to(offsets, (stop - start, *whole[1:])).ravel()
        inside = np.broadcast_to(inside, (stop - start, *whole[1:])).ravel()
        used = offsets[inside]
        again = positions[used] >= 0
        counts = np.bincount(used - used.min()) if used.size else np.zeros(1, np.int64)
        if again.any() or counts.max() > 1:
            twice = int(used[again][0]) if again.any() else int(used.min() + (counts > 1).argmax())
            raise _miscovered(image, shape, twice, "several positions")
        positions[used] = np.flatnonzero(inside) + start * per_row
    if (positions < 0).any():
        raise _miscovered(image, shape, int(np.flatnonzero(positions < 0)[0]), "no position")
    positions.flags.writeable = False
    return positions


def check_coverage(image: Image, shape: tuple[int, ...]) -> None:
    """Raise H725 unless each element of the tensor has exactly one position in the image."""
    _coverage(image, shape)


def outside(image: Image) -> npt.NDArray[np.bool_]:
    """Of each entry of a temporary image, whether none of its lanes lies in the tensor."""
    whole = _shape(image)
    inner = [_offsets(image, image.shape, start, stop)[1] for start, stop in _blocks(whole)]
    shapes = [(stop - start, *whole[1:]) for start, stop in _blocks(whole)]
    parts = [np.broadcast_to(i, s).ravel() for i, s in zip(inner, shapes, strict=True)]
    by_entry = np.reshape(np.concatenate(parts), (image.entries, -1))
    return np.logical_not(np.any(by_entry, axis=1, keepdims=True)).ravel()


def _miscovered(image: Image, shape: tuple[int, ...], element: int, how: str) -> HwgenError:
    return HwgenError(
        "H725",
        f"an image does not hold each element exactly once: {image.name}",
        field=image.name,
        found=f"{element_text(image.tensor, element, shape)} has {how}",
        allowed="one position for each element of an output",
    )


def element_text(tensor: str, flat: int, shape: tuple[int, ...]) -> str:
    """`name[i, j]` of a flat row-major offset."""
    index = np.unravel_index(flat, shape) if shape else ()
    return f"{tensor}[{', '.join(str(int(i)) for i in index)}]"


def _shape(image: Image) -> tuple[int, ...]:
    return image.outer + image.lanes


def _blocks(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Ranges of the first dimension that are worked on at once."""
    rows = shape[0] if shape else 1
    step = max(1, _GATHER_ELEMENTS // max(1, prod(shape[1:])))
    return [(start, min(rows, start + step)) for start in range(0, rows, step)]


def _offsets(
    image: Image, shape: tuple[int, ...], start: int, stop: int
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Flat tensor offsets of the positions of some rows, and which lie inside the tensor."""
    whole = _shape(image)
    rank = len(whole)
    environment: dict[str, Offsets] = {}
    for axis, extent in enumerate(whole):
        values = np.arange(start, stop) if axis == 0 else np.arange(extent)
        environment[f"p{axis}"] = np.reshape(values, [-1 if a == axis else 1 for a in range(rank)])
    total = np.zeros((1,) * rank, np.int64)
    inside = np.ones((1,) * rank, np.bool_)
    for index, extent in zip(image.index, shape, strict=True):
        values = evaluate_rows(index, environment)
        total = total * extent + values
        inside = inside & (values >= 0) & (values < extent)
    return total, inside


Strided = tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]


def _padded(
    array: Array, before: Sequence[int], after: Sequence[int], fill: int | float | np.generic
) -> Array:
    """The array inside a frame of the fill value."""
    sizes = zip(before, array.shape, after, strict=True)
    whole: Array = np.full(tuple(b + n + a for b, n, a in sizes), fill, dtype=array.dtype)
    inside = tuple(slice(b, b + n) for b, n in zip(before, array.shape, strict=True))
    whole[inside] = array
    return whole


def _strided(image: Image, shape: tuple[int, ...]) -> Strided | None:
    """Padding before and after each dimension, then first element and steps of the view that
    is the image; None where an index is not affine or the padding is out of proportion."""
    whole = _shape(image)
    ranges = {f"p{axis}": (0, extent - 1) for axis, extent in enumerate(whole)}
    before: list[int] = []
    after: list[int] = []
    forms: list[Affine] = []
    for index, extent in zip(image.index, shape, strict=True):
        form = affine(index)
        if form is None or not all(ranges.values()):
            return None
        low, high = form.within(ranges)
        before.append(max(0, -low))
        after.append(max(0, high - extent + 1))
        forms.append(form)
    padded = [b + e + a for b, e, a in zip(before, shape, after, strict=True)]
    if prod(padded) > 4 * (prod(shape) + prod(whole)):
        return None
    origin, steps = 0, [0] * len(whole)
    step = 1
    for form, pad, extent in reversed(list(zip(forms, before, padded, strict=True))):
        origin += (form.constant + pad) * step
        for name, factor in form.terms:
            steps[int(name[1:])] += factor * step
        step *= extent
    if any(k < 0 for k in steps):
        return None
    return tuple(before), tuple(after), origin, tuple(steps)


def _check_tensor(image: Image, tensor: Array, dtype: str) -> None:
    if tensor.ndim != len(image.index) or tensor.dtype != STORAGE[dtype]:
        raise HwgenError(
            "H726",
            f"the tensor does not fit its image: {image.tensor}",
            field=image.name,
            found=f"{tensor.dtype}{list(tensor.shape)}",
            allowed=f"{dtype} of {len(image.index)} dimensions",
        )
    free = {name for index in image.index for name in names(index)}
    known = {f"p{axis}" for axis in range(len(_shape(image)))}
    if not free <= known:
        raise HwgenError(
            "H725",
            f"an image's index uses an unknown name: {image.name}",
            field=image.name,
            found=", ".join(sorted(free - known)),
            allowed=", ".join(sorted(known)),
        )


def _fill(image: Image) -> np.generic:
    return _number(image, image.fill)


def _number(image: Image, number: int | float) -> np.generic:
    """A number as an element of the image."""
    dtype = "float64" if isinstance(number, float) else "int64"
    return store(Value(np.asarray(number, STORAGE[dtype]), dtype), image.dtype).ravel()[0]


def _converted(image: Image, tensor: Array, dtype: str) -> Array:
    if image.dtype == dtype:
        return tensor
    if not lossless(dtype, image.dtype):
        raise HwgenError(
            "H725",
            f"an image's data type cannot hold its tensor: {image.name}",
            field=image.name,
            found=f"{dtype} in {image.dtype}",
            allowed="a data type that holds every value of the tensor's",
        )
    return store(load(tensor, dtype), image.dtype)


def lossless(source: str, target: str) -> bool:
    """Whether every value of one data type is a value of the other."""
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
    if is_float(source) or not is_float(target):
        return converts(source, target)
    low, high = integer_range(source)
    return max(-low, high) <= 1 << digits[target]
