"""Tensors as off-chip memory holds them: in their own order, the lanes of calls last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hwgen.codegen.storages import Image
from hwgen.polyhedral.match.cuts import Cut, sizes_of
from hwgen.polyhedral.scop import View
from hwgen.polyhedral.tree.loop_tree import Tensor
from hwgen.spec.affine import affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec, Operand


def image_of(
    tensor: Tensor,
    operand: Operand,
    cut: Cut,
    padded: Sequence[int],
    hardware: HardwareSpec,
    view: View | None,
    source: Tensor,
    suffix: str,
) -> Image:
    """The image of a tensor. `padded`: extents to which lanes that take part past its end reach;
    `view`: how the host fills it from another tensor, `source`, which is the tensor itself where
    there is none.
    """
    rank = len(tensor.shape)
    order = axes(rank, cut, by_element=hardware.memory[operand.memory].by_element)
    lanes = tuple(n for _, n in cut) if order is None else ()
    if order is None:
        outer = tuple(-(-e // n) for e, n in zip(padded, sizes_of(rank, cut), strict=True))
        index = [_element(d, rank, cut) for d in range(rank)]
    else:
        outer = tuple(padded[d] for d in order)
        index: list[Expr] = [Name(f"p{order.index(d)}") for d in range(rank)]
    if view is not None:
        index = [f.expression({f"d{d}": e for d, e in enumerate(index)}) for f in view.indices]
    for apart in _idle(rank, cut) if lanes else ():
        # No iteration uses these lanes: they lie outside the tensor.
        index[0] = add(index[0], multiply(apart, Const(_beyond(index[0], outer, lanes, source))))
    if hardware.memory[operand.memory].by_element:
        outer, lanes = (*outer, *lanes), ()
    role = tensor.role
    image = Image(
        f"{tensor.name}_image{suffix}",
        source.name,
        "input" if view is not None else "temporary" if role == "intermediate" else role,
        operand.dtype,
        outer,
        lanes,
        tuple(index),
        view.fill if view is not None else 0,
        shape=tensor.shape if role == "intermediate" and view is None else (),
        memory=operand.memory,
        tensor_dtype=source.dtype,
    )
    if source.supplied is not None:
        own = replace(image, shape=source.shape, supplied=source.supplied)
        return replace(own, tensor_dtype="")  # A number is stored in each image's type.
    return _in_place(image, tensor, hardware, view)


def axes(rank: int, cut: Cut, *, by_element: bool) -> tuple[int, ...] | None:
    """The order of a tensor's dimensions where it is stored element by element, that along which
    lanes run inside; None where it is stored in blocks of lanes, as they run along several."""
    taken = [d for d, extent in cut if extent > 1]
    if not by_element or len(taken) > 1 or None in taken:
        return None
    inner = [d for d in taken if d is not None]
    return (*(d for d in range(rank) if d not in inner), *inner)


def _in_place(image: Image, tensor: Tensor, hardware: HardwareSpec, view: View | None) -> Image:
    """The image as the caller's own array, where it is the same and calls reach it."""
    memory = hardware.memory[image.memory]
    reached = memory.shared and hardware.code.handles_are_pointers
    if not reached or view is not None or image.role == "temporary":
        return image
    return replace(image, in_place=image.is_tensor(tensor.dtype, tensor.shape))


def _element(dimension: int, rank: int, cut: Cut) -> Expr:
    """The tensor's index along a dimension at a position of the image."""
    whole = Name(f"p{dimension}")
    for position, (along, extent) in enumerate(cut):
        if along == dimension and extent > 1:
            return add(multiply(whole, Const(extent)), Name(f"p{rank + position}"))
    return whole


def _beyond(index: Expr, outer: Sequence[int], lanes: Sequence[int], source: Tensor) -> int:
    """A distance by which no first index stays inside the tensor, whichever way it is moved."""
    function = affine(index)
    assert function is not None, "images index tensors by sums of positions"
    ranges = {f"p{n}": extent for n, extent in enumerate((*outer, *lanes))}
    low, high = function.interval(ranges)
    return max(source.shape[0] - low, high + 1)


def _idle(rank: int, cut: Cut) -> Iterator[Expr]:
    """What is zero in those lanes only that an iteration uses: the first of a dimension along which
    no loop runs, and a diagonal."""
    along = [d for d, _ in cut]
    for n, (dimension, extent) in enumerate(cut):
        if dimension is None and extent > 1:
            yield Name(f"p{rank + n}")
        elif dimension is not None and along.index(dimension) < n:
            yield Binary("-", Name(f"p{rank + n}"), Name(f"p{rank + along.index(dimension)}"))
