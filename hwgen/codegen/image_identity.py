"""Whether a buffer that one kernel filled is what another one reads: a number for each layout.

Two images with the same number hold the same elements at the same bytes, all of them elements. An
image with positions outside of its tensor shares its number with none of another role: what an
output has there is undefined, and an input has its fill.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from hwgen.codegen.layout import dense
from hwgen.codegen.storages import Image
from hwgen.spec.affine import affine
from hwgen.spec.expression import Name
from hwgen.spec.workload import Tensor


def layout_number(image: Image, tensor: Tensor) -> int:
    """32 bits that stand for an image's layout."""
    return _number(layout_text(image, tensor))


def array_number(tensor: Tensor, memory: str) -> int:
    """That of an image that is the row-major tensor byte for byte, in a memory."""
    shape = tensor.shape
    index = tuple(Name(f"p{n}") for n in range(len(shape)))
    image = Image(tensor.name, tensor.name, "output", tensor.dtype, shape, (), index, 0)
    return layout_number(replace(image, memory=memory), tensor)


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")


def layout_text(image: Image, tensor: Tensor) -> str:
    """The layout in words, the same for the same elements at the same bytes."""
    kind = f"{image.memory} {tensor.dtype} as {image.dtype}"
    runs = _runs(image, tensor)
    if runs is not None:
        return f"{kind}: {' '.join(f'{extent} by {step}' for extent, step in runs)}"
    index = ", ".join(map(str, image.index))
    shape = [*image.outer, *image.lanes]
    return f"{kind}: {image.role} {shape} of {list(tensor.shape)} at {index}, else {image.fill}"


def _runs(image: Image, tensor: Tensor) -> list[tuple[int, int]] | None:
    """The image's axes, from outside: extent and step in elements of the row-major tensor. Those
    that go on where the next one ends are one. None where it holds anything else."""
    extents = (*image.outer, *image.lanes)
    ranges = {f"p{n}": extent for n, extent in enumerate(extents)}
    steps, first = [0] * len(extents), 0
    for index, size, step in zip(image.index, tensor.shape, dense(tensor.shape), strict=True):
        function = affine(index)
        if function is None:
            return None
        low, high = function.interval(ranges)
        if low < 0 or high >= size:
            return None
        first += function.constant * step
        for n in range(len(extents)):
            steps[n] += function.coefficient(f"p{n}") * step
    if first:
        return None
    runs: list[tuple[int, int]] = []
    for extent, step in zip(extents, steps, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * step:
            runs[-1] = (runs[-1][0] * extent, step)
        else:
            runs.append((extent, step))
    return runs
