"""Operators of TensorFlow Lite as templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

import numpy as np
from numpy.typing import NDArray

from hwgen.network.operators import elementwise, moves, sums, tables, windows
from hwgen.network.operators.layer import Layer, agree, need, same_scale, same_type, scale_of
from hwgen.network.operators.products import Ending, OfFloats, matrix
from hwgen.network.operators.rescaling import Fixed, activated, activation_range, rounded
from hwgen.network.operators.statements import Statements, alias
from hwgen.spec.typecheck import is_float

Entry = Callable[[Statements], Layer]

# --- products -------------------------------------------------------------------------------------


def _ending(
    s: Statements, axis: int, inputs: tuple[int, int, int] = (0, 1, 2), *, single: bool = False
) -> Ending:
    """`axis`: of the weights, that of the output's channels; `inputs`: the activations, the weights
    and the bias."""
    x, weights = s.given(inputs[0]), s.given(inputs[1])
    dtype, w = same_type(x, s.y), s.values(inputs[1], "weights")
    need(w.ndim > axis, f"weights of {w.ndim} dimensions")
    bias = None
    if s.has(inputs[2]):
        bias = s.values(inputs[2], "biases")
        need(bias.shape == w.shape[axis : axis + 1], f"a bias of shape {list(bias.shape)}")
    if dtype != "float32":
        return Fixed.of(s, x, weights, bias, axis, single=single)
    need(weights.dtype == dtype, f"{weights.dtype} weights")
    need(bias is None or bias.dtype == np.float32, "a bias of another type")
    activated(s)
    return OfFloats(dtype, None if bias is None else inputs[2])


def _fully_connected(s: Statements) -> Layer:
    ending, w = _ending(s, 0, single=True), s.given(1)
    need(len(w.shape) == 2, f"weights of {len(w.shape)} dimensions")
    columns, depth = w.shape
    return matrix(s, s.given().elements // depth, columns, depth, ending)


def _conv2d(s: Statements) -> Layer:
    ending, w = _ending(s, 0), s.given(1)
    need(len(w.shape) == 4, "no images")
    need(s.given().shape[-1:] == w.shape[-1:], "groups")
    outputs, *kernel, depth = w.shape
    return windows.convolution(s, kernel, (1, depth, outputs), "orc", ending)


def _depthwise(s: Statements) -> Layer:
    """Weights `[1, R, Q, C * D]`, D outputs a channel."""
    ending, w, depth = _ending(s, 3), s.given(1), s.given().shape[-1]
    need(len(w.shape) == 4 and w.shape[0] == 1, "weights of another shape")
    agree(w.shape[3] % depth == 0)
    sizes = (depth, 1, w.shape[3] // depth)
    return windows.convolution(s, w.shape[1:3], sizes, "rgo", ending)


def _transposed(s: Statements) -> Layer:
    return windows.by_places(s, _ending(s, 0, (2, 1, 3)))


# --- pools and sums -------------------------------------------------------------------------------


def _pool(s: Statements) -> tuple[tuple[int, ...], tuple[int, int] | None]:
    """The window, and the limits of integers."""
    same_type(s.given(), s.y)
    same_scale(s.y, s.given())
    limits = None if is_float(activated(s).y.dtype) else activation_range(s)
    if limits is not None:
        s.activation = "{0}"
    return s.integers("window"), limits


def _axes(s: Statements) -> set[int]:
    return {a % max(len(s.given().shape), 1) for a in s.list(1, "axes")}


def _total(s: Statements, *, average: bool) -> Layer:
    if same_type(s.given(), s.y) != "float32":
        return sums.scaled_total(s, _axes(s), average=average)
    total, axes = sums.reduced(s, _axes(s), "float32", "+=")
    count = s.given().elements // s.y.elements
    return s.finish(f"{total} / {count}.0" if average else total, axes)


def _extreme(update: str) -> Entry:
    def entry(s: Statements) -> Layer:
        same_scale(s.y, s.given())
        total, axes = sums.reduced(s, _axes(s), same_type(s.given(), s.y), update)
        return s.finish(total, axes)

    return entry


def _softmax(s: Statements) -> Layer:
    beta = s.number("beta")
    need(0.0 < beta < float("inf"), "no beta")
    if same_type(s.given(), s.y) == "float32":
        return sums.softmax(s, len(s.y.shape) - 1, beta)
    return sums.softmax_of_bytes(s, beta)


# --- elements -------------------------------------------------------------------------------------


def _by_type(floats: Entry, integers: Entry, inputs: int = 1) -> Entry:
    """Another template of floats than of integers with scales; all tensors are of one type."""

    def entry(s: Statements) -> Layer:
        dtype = same_type(*map(s.given, range(inputs)), s.y)
        return (floats if dtype == "float32" else integers)(s)

    return entry


def _of_two(text: str, integers: Entry) -> Entry:
    return _by_type(lambda s: elementwise.folded(activated(s), text), integers, 2)


def _chosen(function: str) -> Entry:
    def entry(s: Statements) -> Layer:
        same_type(s.given(0), s.given(1), s.y)
        same_scale(s.y, s.given(0), s.given(1))
        return elementwise.folded(s, f"{function}({{0}}, {{1}})")

    return entry


def _prelu(s: Statements) -> Layer:
    agree(s.given().shape == s.y.shape)
    return _by_type(elementwise.prelu, elementwise.bent)(s)


def _quantize(s: Statements) -> Layer:
    scale_of(s.y)
    return elementwise.quantised(s) if is_float(s.given().dtype) else elementwise.requantised(s)


# --- moves ----------------------------------------------------------------------------------------


def _pad(s: Statements) -> Layer:
    widths = np.reshape(s.values(1, "widths"), (-1, 2))
    need(widths.min(initial=0) >= 0, "shapes that do not agree")
    quantisation = s.y.quantisation
    fill: float = 0.0 if quantisation is None else quantisation.zero_points[0]
    if s.has(2):
        fill = s.values(2, "numbers for padding").ravel()[0].item()
    return moves.pad(s, [(int(a), int(b)) for a, b in widths], fill)


def _concatenation(s: Statements) -> Layer:
    need(s.word("activation", "none") == "none", "an activation")
    return moves.concat(s, s.axis(len(s.y.shape)))


def _split(axis: int, number: int) -> Entry:
    """`axis`: the number of the input that says it; `number`: that of the tensor."""

    def entry(s: Statements) -> Layer:
        rank, (along,) = len(s.given(number).shape), s.list(axis, "axes")
        need(-rank <= along < rank, "no axis")
        return moves.part(s, along % rank, number)

    return entry


def _slice(s: Statements) -> Layer:
    x, first, sizes = s.given().shape, s.list(1, "places"), s.list(2, "sizes")
    agree(len(first) == len(sizes) == len(x))
    rows = zip(x, first, sizes, strict=True)
    return moves.taken(s, x, [np.arange(b, n if m < 0 else b + m) for n, b, m in rows])


def _strided_slice(s: Statements) -> Layer:
    x = s.given().shape
    need(not s.number("other_masks", 0), "an ellipsis, a new axis or an offset")
    masks = [int(s.number(f"{word}_mask", 0)) for word in ("begin", "end", "shrink")]
    rows = [s.list(n, "places") for n in (1, 2, 3)]
    need(all(len(row) == len(x) for row in rows), "places of other dimensions")
    found: list[moves.Indices] = []
    for d, (n, b, e, t) in enumerate(zip(x, *rows, strict=True)):
        need(t != 0, "a stride of 0")
        begin, end, shrink = (bool(m >> d & 1) for m in masks)
        places = range(n)[None if begin else b : None if end else e : t]
        found.append(np.array([b % n] if shrink else places, np.int64))
    return moves.taken(s, x, found)


def _resize(s: Statements) -> Layer:
    x, y = s.given().shape, s.y.shape
    need(len(x) == len(y) == 4, "no images")
    agree((x[0], x[3]) == (y[0], y[3]))
    rows, columns = (_nearest(s, x[d], y[d]) for d in (1, 2))
    return moves.taken(s, x, [None, rows, columns, None])


def _nearest(s: Statements, given: int, made: int) -> NDArray[np.int64]:
    """By output, its input."""
    corners, centres = s.number("align_corners"), s.number("centres")
    aligned = bool(corners) and made > 1
    scale = np.divide(np.float32(given - aligned), np.float32(made - aligned))
    outputs = np.arange(made, dtype=np.float32) + np.float32(0.5 if centres else 0.0)
    places: list[float] = (outputs * scale).tolist()
    found = [max(0, min(rounded(p) if corners else floor(p), given - 1)) for p in places]
    return np.array(found, np.int64)


OPERATORS: Mapping[str, Entry] = {
    "add": _of_two("{0} + {1}", lambda s: elementwise.scaled_sum(s, "+")),
    "average_pool2d": lambda s: windows.average_pool(s, *_pool(s)),
    "concatenation": _concatenation,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "dequantize": elementwise.dequantised,
    "fully_connected": _fully_connected,
    "leaky_relu": _by_type(
        lambda s: elementwise.unary(s, elementwise.expression(s, "leaky_relu")),
        lambda s: elementwise.bent(s, s.number("alpha")),
    ),
    "logistic": tables.logistic,
    "max_pool2d": lambda s: windows.max_pool(s, *_pool(s)),
    "maximum": _chosen("max"),
    "mean": lambda s: _total(s, average=True),
    "minimum": _chosen("min"),
    "mul": _of_two("{0} * {1}", elementwise.scaled_product),
    "pad": _pad,
    "prelu": _prelu,
    "quantize": _quantize,
    "reduce_max": _extreme("max="),
    "reduce_min": _extreme("min="),
    "relu": _by_type(lambda s: elementwise.unary(activated(s), "{0}"), elementwise.bounded),
    "reshape": alias,
    "resize_nearest_neighbor": _resize,
    "slice": _slice,
    "softmax": _softmax,
    "split": _split(0, 1),
    "split_v": _split(2, 0),
    "strided_slice": _strided_slice,
    "sub": _of_two("{0} - {1}", lambda s: elementwise.scaled_sum(s, "-")),
    "sum": lambda s: _total(s, average=False),
    "tanh": tables.tanh,
    "transpose": lambda s: moves.transpose(s, s.list(1, "orders")),
    "transpose_conv": _transposed,
}
"""By the kind that the reader gives an operator."""
