"""Averages and maxima of windows, and over whole dimensions.

Reference: tensorflow/lite/kernels/internal/reference/{pooling,integer_ops/pooling}.h (AveragePool,
MaxPool) of https://github.com/tensorflow/tflite-micro: only elements inside the image count; an
average is rounded to the nearest, halves away from zero. reduce.h (QuantizedMeanOrSum, Mean,
ReduceGeneric) for whole dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    Loops,
    constant,
    integers,
    limits_of,
    merged,
    need,
    result,
    same_scale,
    same_type,
    scale_of,
    stated,
    tensors,
    typed,
)
from hwgen.network.operators.rescaling import (
    activated,
    activation_range,
    quantised_multiplier,
    scaled,
    stored,
)

_LOOPS = (("i", "OH"), ("j", "OW"), ("c", "C"), ("r", "R"), ("s", "Q"))


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows over an image. `padded`: the statement that surrounds it by a number, where windows
    reach outside; `counts`: by output, how many elements of its window lie inside."""

    dtype: str
    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[str, str], ...]
    padded: tuple[str, ...]
    read: str
    counts: NDArray[np.int64]
    layer: tuple[tuple[tuple[str, str], ...], tuple[str, str]]

    def bounded(self, operator: Operator, value: str) -> str:
        """The output's statement."""
        if self.dtype == "float32":
            return f"y[i, j, c] = {activated(operator, value)}"
        return f"y[i, j, c] = {self.dtype}(clip({value}, LOW, HIGH))"


def average_pool2d(graph: Graph, operator: Operator) -> Layer:
    """Sums over windows, divided by the numbers of elements inside, which are constants."""
    found = _windows(graph, operator, "0", "0.0")
    least, most = int(found.counts.min()), int(found.counts.max())
    one, total = least == most, "float32" if found.dtype == "float32" else "int32"
    count = "COUNT" if one else "count[i, j]"
    if total == "float32":
        value = f"acc[i, j, c] / {f'{most}.0' if one else count}"
    else:
        # `//` rounds down, C's `/` towards zero: both operands are positive here.
        value = (
            f"select(acc[i, j, c] > 0, (acc[i, j, c] + {count}//2)//{count}, "
            f"-(({count}//2 - acc[i, j, c])//{count}))"
        )
    computation = Computation(
        operator.kind,
        (*found.sizes, *((("COUNT", most),) if one and total == "int32" else ())),
        (*found.tensors, ("acc", f"{total}[OH, OW, C]"), ("y", f"{found.dtype}[OH, OW, C]")),
        () if one else (("count", f"{total}[OH, OW]"),),
        (
            *found.padded,
            Loops(f"acc[i, j, c] += {found.read}", _LOOPS),
            found.bounded(operator, value),
        ),
    )
    constants = {} if one else {"count": found.counts.astype(total)}
    return Layer(operator, computation, *found.layer, constants)


def max_pool2d(graph: Graph, operator: Operator) -> Layer:
    """Maxima over windows; outside the image there is the least number."""
    found = _windows(graph, operator, "LEAST", "-inf")
    dtype = found.dtype
    computation = Computation(
        operator.kind,
        found.sizes,
        (*found.tensors, ("most", f"{dtype}[OH, OW, C]"), ("y", f"{dtype}[OH, OW, C]")),
        (),
        (
            *found.padded,
            Loops(f"most[i, j, c] max= {found.read}", _LOOPS),
            found.bounded(operator, "most[i, j, c]"),
        ),
    )
    return Layer(operator, computation, *found.layer)


def _windows(graph: Graph, operator: Operator, outside: str, outside_float: str) -> _Windows:
    """`outside`: what the image is surrounded by; LEAST stands for the type's least number."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    dtype = same_type(x, y)
    same_scale(y, x)
    need(len(x.shape) == len(y.shape) == 4 and x.shape[3] == y.shape[3], "no images")
    need(x.shape[0] == y.shape[0] == 1, "a batch")
    strides, window = integers(operator, "strides", 2), integers(operator, "window", 2)
    top, left, bottom, right = integers(operator, "padding", 4)
    need(min(*strides, *window) > 0, "an empty window")
    _, height, width, channels = x.shape
    room = (height + top + bottom, width + left + right)
    out = tuple((n - k) // s + 1 for n, k, s in zip(room, window, strides, strict=True))
    need(out == y.shape[1:3], "shapes that do not agree")
    rows = _inside(height, top, out[0], strides[0], window[0])
    columns = _inside(width, left, out[1], strides[1], window[1])
    need(min(rows.min(), columns.min()) > 0, "a window that lies wholly in the padding")
    sizes = [("H", height), ("W", width), ("C", channels), ("R", window[0]), ("Q", window[1])]
    sizes += [("OH", out[0]), ("OW", out[1])]
    if dtype == "float32":
        outside = outside_float
    else:
        low, high = activation_range(operator, *scale_of(y), dtype)
        sizes += [("LOW", low), ("HIGH", high)]
        outside = outside.replace("LEAST", str(limits_of(dtype)[0]))
    declared, padded, source = [("x", f"{dtype}[H, W, C]")], (), "x"
    if any((top, left, bottom, right)):
        # Only so many rows and columns as windows reach.
        used = [(o - 1) * s + k for o, s, k in zip(out, strides, window, strict=True)]
        sizes += [("HP", used[0]), ("WP", used[1])]
        declared.append(("xp", f"{dtype}[HP, WP, C]"))
        source = "xp"
        padded = (
            f"xp[h, v, c] = select(h >= {top} and h < {top + height} and v >= {left} "
            f"and v < {left + width}, x[h - {top}, v - {left}, c], {outside})",
        )
    read = f"{source}[i*{strides[0]} + r, j*{strides[1]} + s, c]"
    layer = ((("x", x.name),), ("y", y.name))
    counts = np.outer(rows, columns)
    return _Windows(dtype, tuple(sizes), tuple(declared), padded, read, counts, layer)


def _inside(extent: int, before: int, outputs: int, stride: int, window: int) -> NDArray[np.int64]:
    """By output, how many elements of its window lie inside the image, along one dimension."""
    starts = np.arange(outputs) * stride - before
    return np.minimum(starts + window, extent) - np.maximum(starts, 0)


# --- over whole dimensions ------------------------------------------------------------------------


def mean(graph: Graph, operator: Operator) -> Layer:
    """Averages, rescaled."""
    return _total(graph, operator, average=True)


def sum_(graph: Graph, operator: Operator) -> Layer:
    """Sums, rescaled."""
    return _total(graph, operator, average=False)


def _total(graph: Graph, operator: Operator, *, average: bool) -> Layer:
    (x, _), y = tensors(graph, operator, 2), result(graph, operator)
    dtype, count = same_type(x, y), x.elements // y.elements
    if dtype == "float32":
        value = f"total{{at}} / {count}.0" if average else "total{at}"
        return _reduced(graph, operator, "+=", "float32", "y{at} = " + value)
    (x_scale, x_zero), (y_scale, y_zero) = scale_of(x), scale_of(y)
    least, most = limits_of(dtype)
    need(count * max(most - x_zero, x_zero - least) <= 1 << 30, f"sums of {count} elements")
    multiplier, left = quantised_multiplier(x_scale / y_scale)
    if average:
        shift = min(count.bit_length() - 1, 32, 31 + left)
        multiplier, left = (multiplier << shift) // count, left - shift
    # The kernel's shift may be longer than the multiplier has bits.
    made, value = scaled("{at}", f"total{{at}} - {x_zero * count}", (multiplier, max(left, -30)))
    last = stored(value, dtype, y_zero, least, most)
    return _reduced(graph, operator, "+=", "int32", made, f"y{{at}} = {last}")


def reduce_max(graph: Graph, operator: Operator) -> Layer:
    """The largest numbers."""
    return _extreme(graph, operator, "max=")


def reduce_min(graph: Graph, operator: Operator) -> Layer:
    """The smallest numbers."""
    return _extreme(graph, operator, "min=")


def _extreme(graph: Graph, operator: Operator, update: str) -> Layer:
    (x, _), y = tensors(graph, operator, 2), result(graph, operator)
    same_scale(y, x)
    return _reduced(graph, operator, update, same_type(x, y), "y{at} = total{at}")


def _reduced(graph: Graph, operator: Operator, update: str, kind: str, *compute: str) -> Layer:
    """`kind`: the data type of the total; `compute`: statements on it, with `{at}` for an index."""
    (x, axes), y = tensors(graph, operator, 2), result(graph, operator)
    away = {int(a) % max(len(x.shape), 1) for a in constant(axes, "axes").ravel()}
    need(y.elements == prod(n for d, n in enumerate(x.shape) if d not in away), "other axes")
    kinds = [None if n == 1 else (int(d in away),) for d, n in enumerate(x.shape)]
    found = merged(x.shape, kinds, (0,))
    names = "ijklmn"[: len(found)]
    kept = [d for d, (_, (gone,)) in enumerate(found) if not gone]
    index, extents = ", ".join(names[d] for d in kept) or "o", [found[d][0] for d in kept] or [1]
    loops = [("o", "1")] * (not kept)
    order = sorted(range(len(found)), key=lambda d: found[d][1])
    loops += [(names[d], str(found[d][0])) for d in order]
    own = {"total": kind, **({"hi": "int32"} if len(compute) > 1 else {})}
    return stated(
        operator,
        {"x": (x, [n for n, _ in found])},
        {name: typed(dtype, extents) for name, dtype in own.items()},
        (y, extents),
        [
            Loops(f"total[{index}] {update} x[{', '.join(names)}]", tuple(loops)),
            *(statement.replace("{at}", f"[{index}]") for statement in compute),
        ],
    )
