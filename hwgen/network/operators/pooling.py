"""Averages and maxima of windows.

Reference: tensorflow/lite/kernels/internal/reference/integer_ops/pooling.h (AveragePool, MaxPool)
of https://github.com/tensorflow/tflite-micro: only elements inside the image count; an average is
rounded to the nearest, halves away from zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    Loops,
    int8_scale,
    integers,
    need,
    result,
    tensors,
)
from hwgen.network.operators.rescaling import activation_range

_LOOPS = (("i", "OH"), ("j", "OW"), ("c", "C"), ("r", "R"), ("s", "Q"))


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows over an image. `padded`: the statement that surrounds it by a number, where windows
    reach outside; `counts`: by output, how many elements of its window lie inside."""

    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[str, str], ...]
    padded: tuple[str, ...]
    read: str
    counts: NDArray[np.int64]
    layer: tuple[tuple[tuple[str, str], ...], tuple[str, str]]


def average_pool2d(graph: Graph, operator: Operator) -> Layer:
    """Sums over windows, divided by the numbers of elements inside, which are constants."""
    found = _windows(graph, operator, 0)
    least, most = int(found.counts.min()), int(found.counts.max())
    one = least == most
    count = "COUNT" if one else "count[i, j]"
    # `//` rounds down, C's `/` towards zero: both operands are positive here.
    value = (
        f"select(acc[i, j, c] > 0, (acc[i, j, c] + {count}//2)//{count}, "
        f"-(({count}//2 - acc[i, j, c])//{count}))"
    )
    computation = Computation(
        operator.kind,
        (*found.sizes, *((("COUNT", most),) if one else ())),
        (*found.tensors, ("acc", "int32[OH, OW, C]"), ("y", "int8[OH, OW, C]")),
        () if one else (("count", "int32[OH, OW]"),),
        (
            *found.padded,
            Loops(f"acc[i, j, c] += {found.read}", _LOOPS),
            f"y[i, j, c] = int8(clip({value}, LOW, HIGH))",
        ),
    )
    constants = {} if one else {"count": found.counts.astype(np.int32)}
    return Layer(operator, computation, *found.layer, constants)


def max_pool2d(graph: Graph, operator: Operator) -> Layer:
    """Maxima over windows; outside the image there is the least number."""
    found = _windows(graph, operator, -128)
    computation = Computation(
        operator.kind,
        found.sizes,
        (*found.tensors, ("most", "int8[OH, OW, C]"), ("y", "int8[OH, OW, C]")),
        (),
        (
            *found.padded,
            Loops(f"most[i, j, c] max= {found.read}", _LOOPS),
            "y[i, j, c] = int8(clip(most[i, j, c], LOW, HIGH))",
        ),
    )
    return Layer(operator, computation, *found.layer)


def _windows(graph: Graph, operator: Operator, outside: int) -> _Windows:
    """`outside`: what the image is surrounded by."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    scale, zero = int8_scale(y)
    need(int8_scale(x) == (scale, zero), "another scale than its input")
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
    low, high = activation_range(operator, scale, zero)
    sizes = [("H", height), ("W", width), ("C", channels), ("R", window[0]), ("Q", window[1])]
    sizes += [("OH", out[0]), ("OW", out[1]), ("LOW", low), ("HIGH", high)]
    declared, padded, source = [("x", "int8[H, W, C]")], (), "x"
    if any((top, left, bottom, right)):
        # Only so many rows and columns as windows reach.
        used = [(o - 1) * s + k for o, s, k in zip(out, strides, window, strict=True)]
        sizes += [("HP", used[0]), ("WP", used[1])]
        declared.append(("xp", "int8[HP, WP, C]"))
        source = "xp"
        padded = (
            f"xp[h, v, c] = select(h >= {top} and h < {top + height} and v >= {left} "
            f"and v < {left + width}, x[h - {top}, v - {left}, c], {outside})",
        )
    read = f"{source}[i*{strides[0]} + r, j*{strides[1]} + s, c]"
    layer = ((("x", x.name),), ("y", y.name))
    counts = np.outer(rows, columns)
    return _Windows(tuple(sizes), tuple(declared), padded, read, counts, layer)


def _inside(extent: int, before: int, outputs: int, stride: int, window: int) -> NDArray[np.int64]:
    """By output, how many elements of its window lie inside the image, along one dimension."""
    starts = np.arange(outputs) * stride - before
    return np.minimum(starts + window, extent) - np.maximum(starts, 0)
