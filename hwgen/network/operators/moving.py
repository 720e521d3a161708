"""Operators that move numbers without a change: their statements are copies.

Reference: tensorflow/lite/kernels/internal/reference/{pad,concatenation,slice,resize_nearest_
neighbor}.h and tensorflow/lite/micro/kernels/{split,split_v,strided_slice_common}.cc of
https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, prod

import numpy as np

from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Layer,
    Loops,
    constant,
    merged,
    need,
    result,
    same_scale,
    stated,
    tensors,
    typed,
)
from hwgen.network.operators.rescaling import rounded

_LOOPS = "ijklmn"
Pattern = list[tuple[str, str, str]]
"""Places along a dimension as affine expressions: where to, where from, how often."""


def pad(graph: Graph, operator: Operator) -> Layer:
    """The input, surrounded by zeros or by a constant."""
    (x, widths), y = tensors(graph, operator, 2), result(graph, operator)
    same_scale(y, x)
    around: list[list[int]] = np.reshape(constant(widths, "widths"), (-1, 2)).tolist()
    need(len(around) == len(x.shape), "widths of other dimensions")
    fits = all(n + sum(w) == m for n, w, m in zip(x.shape, around, y.shape, strict=True))
    need(fits and np.min(around) >= 0, "shapes that do not agree")
    fill: int | float = 0.0 if y.quantisation is None else y.quantisation.zero_points[0]
    if len(operator.inputs) > 2:
        fill = constant(graph.tensor[operator.inputs[2]], "numbers for padding").ravel()[0].item()
    kinds = [
        (d, *w) if any(w) else None if n == 1 else ()
        for d, (n, w) in enumerate(zip(x.shape, around, strict=True))
    ]
    found = merged(x.shape, kinds)
    extents, index, inside = [n for n, _ in found], list(_LOOPS), list[str]()
    for d, (n, kind) in enumerate(found):
        if kind:
            _, before, after = kind
            extents[d] = before + n + after
            index[d] = f"{_LOOPS[d]} - {before}" if before else _LOOPS[d]
            inside += [f"{_LOOPS[d]} >= {before}"] if before else []
            inside += [f"{_LOOPS[d]} < {before + n}"] if after else []
    value = f"x[{', '.join(index[: len(found)])}]"
    value = f"select({' and '.join(inside)}, {value}, {fill})" if inside else value
    at = f"[{', '.join(_LOOPS[: len(found)])}]"
    return stated(
        operator, {"x": (x, [n for n, _ in found])}, {}, (y, extents), [f"y{at} = {value}"]
    )


def concatenation(graph: Graph, operator: Operator) -> Layer:
    """Tensors beside each other along one dimension: a statement for each."""
    given, y = tensors(graph, operator, len(operator.inputs)), result(graph, operator)
    need(operator.attributes.get("activation", "none") == "none", "an activation")
    same_scale(y, *given)
    axis = _axis(operator.attributes.get("axis"), y)
    rows = prod(y.shape[:axis])
    columns = [t.elements // rows for t in given]
    need(sum(columns) == y.elements // rows, "shapes that do not agree")
    starts = [sum(columns[:n]) for n in range(len(given))]
    return stated(
        operator,
        {f"x{n}": (t, (rows, c)) for n, (t, c) in enumerate(zip(given, columns, strict=True))},
        {},
        (y, (rows, sum(columns))),
        [f"y[i, j + {at}] = x{n}[i, j]" for n, at in enumerate(starts)],
    )


def _axis(given: object, tensor: Tensor) -> int:
    rank = len(tensor.shape)
    need(isinstance(given, int) and -rank <= given < rank, "no axis")
    assert isinstance(given, int)
    return given % rank


def slice_(graph: Graph, operator: Operator) -> Layer:
    """A part of the input."""
    x, begin, size = tensors(graph, operator, 3)
    first = constant(begin, "places").ravel().tolist()
    sizes = constant(size, "sizes").ravel().tolist()
    extents = [n - b if s < 0 else s for n, b, s in zip(x.shape, first, sizes, strict=True)]
    return _part(operator, x, result(graph, operator), first, [1] * len(first), extents)


def strided_slice(graph: Graph, operator: Operator) -> Layer:
    """A part of the input, every so many elements, forwards or backwards."""
    given = tensors(graph, operator, 4)
    x = given[0]
    need(not operator.attributes.get("other_masks"), "an ellipsis, a new axis or an offset")
    masks = [operator.attributes.get(f"{word}_mask", 0) for word in ("begin", "end", "shrink")]
    rows = [constant(t, "places").ravel().tolist() for t in given[1:]]
    need(all(len(row) == len(x.shape) for row in rows), "places of other dimensions")
    first, extents = list[int](), list[int]()
    for d, (n, b, e, s) in enumerate(zip(x.shape, *rows, strict=True)):
        need(s != 0, "a stride of 0")
        begin, end, shrink = (isinstance(m, int) and bool(m >> d & 1) for m in masks)
        start, stop, step = slice(None if begin else b, None if end else e, s).indices(n)
        first.append(b % n if shrink else start)
        extents.append(1 if shrink else len(range(start, stop, step)))
    return _part(operator, x, result(graph, operator), first, rows[2], extents)


def split(graph: Graph, operator: Operator) -> tuple[Layer, ...]:
    """A layer for each of the outputs, along one dimension."""
    axis, x = tensors(graph, operator, 2)
    return _split(graph, operator, x, axis)


def split_v(graph: Graph, operator: Operator) -> tuple[Layer, ...]:
    """As `split`, in parts of other sizes."""
    x, _, axis = tensors(graph, operator, 3)
    return _split(graph, operator, x, axis)


def _split(graph: Graph, operator: Operator, x: Tensor, axis: Tensor) -> tuple[Layer, ...]:
    made = [graph.tensor[name] for name in operator.outputs]
    along = _axis(int(constant(axis, "axes").ravel()[0]), x)
    sizes = [y.shape[along] if len(y.shape) == len(x.shape) else 0 for y in made]
    need(sum(sizes) == x.shape[along], "shapes that do not agree")
    ones = [1] * len(x.shape)
    return tuple(
        _part(
            operator, x, y, [sum(sizes[:n]) if d == along else 0 for d in range(len(ones))], ones,
            [sizes[n] if d == along else m for d, m in enumerate(x.shape)],
        )
        for n, y in enumerate(made)
    )  # fmt: skip


def _part(
    operator: Operator,
    x: Tensor,
    y: Tensor,
    first: Sequence[int],
    steps: Sequence[int],
    extents: Sequence[int],
) -> Layer:
    """By dimension: where it begins, how far apart its elements are, and how many there are."""
    same_scale(y, x)
    dimensions = list(zip(x.shape, first, steps, extents, strict=True))
    inside = all(n > 0 and 0 <= b < m and 0 <= b + (n - 1) * s < m for m, b, s, n in dimensions)
    need(inside and prod(extents) == y.elements, "shapes that do not agree")
    kinds = [
        (d, b, s, n) if (b, s, n) != (0, 1, m) else None if m == 1 else ()
        for d, (m, b, s, n) in enumerate(dimensions)
    ]
    found = merged(x.shape, kinds)
    sizes, index = [n for n, _ in found], list(_LOOPS[: len(found)])
    for d, (_, kind) in enumerate(found):
        if kind:
            _, begin, step, sizes[d] = kind
            index[d] = f"{begin} + {_LOOPS[d]}*{step}"
    at = f"[{', '.join(_LOOPS[: len(found)])}]"
    return stated(
        operator,
        {"x": (x, [n for n, _ in found])},
        {},
        (y, sizes),
        [f"y{at} = x[{', '.join(index)}]"],
    )


def resize_nearest_neighbor(graph: Graph, operator: Operator) -> Layer:
    """An image of another size: a statement for each row, and for each column, of the shortest
    pattern in which they repeat; one in all where each is repeated equally often."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    same_scale(y, x)
    need(len(x.shape) == len(y.shape) == 4, "no images")
    (batches, height, width, depth), (_, rows, columns, _) = x.shape, y.shape
    need((batches, depth) == (y.shape[0], y.shape[3]), "shapes that do not agree")
    down = _pattern(_nearest(operator, height, rows), "i")
    right = _pattern(_nearest(operator, width, columns), "j")
    apart = min(len(down), len(right)) > 1

    def stage(made: str, given: str, down: Pattern, right: Pattern) -> list[str | Loops]:
        return [
            Loops(f"{made}[b, {i}, {j}, c] = {given}[b, {from_i}, {from_j}, c]",
                  (("b", str(batches)), ("i", many_i), ("j", many_j), ("c", str(depth))))
            for i, from_i, many_i in down
            for j, from_j, many_j in right
        ]  # fmt: skip

    if apart:
        between = {"t": typed(y.dtype, (batches, rows, width, depth))}
        statements = stage("t", "x", down, [("j", "j", str(width))])
        statements += stage("y", "t", [("i", "i", str(rows))], right)
    else:
        between, statements = {}, stage("y", "x", down, right)
    return stated(operator, {"x": (x, x.shape)}, between, (y, y.shape), statements)


def _nearest(operator: Operator, given: int, made: int) -> list[int]:
    """By output, its input."""
    corners, centres = (operator.attributes.get(word) for word in ("align_corners", "centres"))
    aligned = bool(corners) and made > 1
    scale = np.divide(np.float32(given - aligned), np.float32(made - aligned))
    outputs = np.arange(made, dtype=np.float32) + np.float32(0.5 if centres else 0.0)
    places: list[float] = (outputs * scale).tolist()
    return [max(0, min(rounded(p) if corners else floor(p), given - 1)) for p in places]


def _pattern(read: list[int], loop: str) -> Pattern:
    """The shortest pattern of outputs that repeats with equal steps."""
    count, last = len(read), read[-1] + 1
    if count % last == 0 and read == [n // (count // last) for n in range(count)]:
        return [(loop, f"{loop}//{count // last}" if count > last else loop, str(count))]
    period = next(
        p
        for p in range(1, count + 1)
        if len({read[n + p] - read[n] for n in range(count - p)}) <= 1
    )
    step = read[period] - read[0] if period < count else 0
    return [
        (f"{n} + {loop}*{period}", f"{read[n]} + {loop}*{step}", str(len(range(n, count, period))))
        for n in range(period)
    ]
