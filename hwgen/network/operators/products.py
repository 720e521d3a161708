"""Sums of products with weights: convolutions and fully connected layers.

Reference: tensorflow/lite/kernels/internal/reference/integer_ops/conv.h (ConvPerChannel),
depthwise_conv.h (DepthwiseConvPerChannel), transpose_conv.h (TransposeConv) and fully_connected.h
(FullyConnected) of https://github.com/tensorflow/tflite-micro, and those for floats. The bias here
is that of the model less the input's zero point times the sum of the channel's weights, and padding
is the zero point, so borders are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    Loops,
    constant,
    integers,
    need,
    result,
    same_type,
    scale_of,
    tensors,
    typed,
)
from hwgen.network.operators.rescaling import Rescaling, activation_range


@dataclass(frozen=True, slots=True)
class _Product:
    """What the kinds have in common. `w`: the weights as the model has them; `bias`: folded;
    `limits`: sizes of the output's zero point and range; `zero`: the input's; `sums`: the data type
    of sums of products."""

    x: Tensor
    w: Array
    y: Tensor
    bias: Array
    rescaling: Rescaling
    limits: tuple[tuple[str, int], ...]
    zero: int | float
    sums: str

    @property
    def dtype(self) -> str:
        """Of activations."""
        return self.x.dtype

    def between(self, shape: str) -> list[tuple[str, str]]:
        """Intermediates of the output's shape."""
        return [("acc", f"{self.sums}{shape}"), *self.rescaling.between(shape)]

    def constants(self, weights: str, channels: str) -> tuple[tuple[str, str], ...]:
        """Their types, by the extents of the weights and of the channels."""
        return (
            ("w", f"{self.w.dtype}[{weights}]"),
            ("bias", f"{self.bias.dtype}[{channels}]"),
            *self.rescaling.types(channels),
        )

    def values(self, w: Array, channels: tuple[int, ...]) -> dict[str, Array]:
        """The constants' values."""
        bias = np.reshape(self.bias, channels)
        return {"w": np.ascontiguousarray(w), "bias": bias, **self.rescaling.values(channels)}

    def first(self, at: str, channel: str) -> list[str]:
        """The statement after the sums, where there is one before the output's."""
        return self.rescaling.first(f"acc[{at}] + bias[{channel}]", at, channel)

    def value(self, operator: Operator, at: str, channel: str) -> str:
        """The output."""
        return self.rescaling.last(operator, f"acc[{at}] + bias[{channel}]", at, channel)

    def last(self, operator: Operator, at: str, channel: str) -> list[str]:
        """The statements after the sums."""
        return [*self.first(at, channel), f"y[{at}] = {self.value(operator, at, channel)}"]

    def instead(self, w: Array, times: int) -> _Product:
        """With other weights, whose last axis is so many times the channels."""
        bias = self.bias + self.zero * self.w.sum((1, 2, 3), dtype=self.bias.dtype)
        folded = np.tile(bias, times) - self.zero * w.sum((0, 1, 2), dtype=self.bias.dtype)
        return replace(
            self, w=w, bias=folded.astype(self.bias.dtype), rescaling=self.rescaling.repeated(times)
        )


def _product(
    graph: Graph, operator: Operator, axis: int, order: tuple[int, int, int] = (0, 1, 2)
) -> _Product:
    """`axis`: of the weights, that of the output's channels; `order`: the places of the
    activations, the weights and the bias among the inputs."""
    given = tensors(graph, operator, max(order[:2]) + 1)
    x, weights, y = given[order[0]], given[order[1]], result(graph, operator)
    dtype, w = same_type(x, y), constant(weights, "weights")
    channels = w.shape[axis]
    bias = _bias(graph, operator, order[2], channels)
    if dtype == "float32":
        need(weights.dtype == dtype, f"{weights.dtype} weights")
        folded = np.zeros(channels, np.float32) if bias is None else bias
        need(folded.dtype == np.float32, f"a bias of {folded.dtype}")
        return _Product(x, w, y, folded, Rescaling(dtype, dtype), (), 0.0, dtype)
    (x_scale, x_zero), (y_scale, y_zero) = scale_of(x), scale_of(y)
    need(weights.dtype == "int8", f"{weights.dtype} weights")
    known = weights.quantisation
    need(known is not None, "weights without a scale")
    assert known is not None
    need(not any(known.zero_points), "weights with a zero point")
    count = len(known.scales)
    need(count == 1 or (count == channels and known.axis == axis), "scales along another axis")
    accumulator = "int64" if dtype == "int16" else "int32"
    rest = tuple(n for n in range(w.ndim) if n != axis)
    w64 = w.astype(np.int64)
    # Sums of int16 are in int64, unless no input makes one that leaves int32.
    narrow = int(np.abs(w64).sum(rest).max()) << 15 < 1 << 31
    sums = "int32" if narrow else accumulator
    folded = -x_zero * w64.sum(rest)
    if bias is not None:
        need(bias.dtype == accumulator, f"a bias of {bias.dtype}")
        folded += bias.astype(np.int64)
    if count == 1 and operator.kind == "fully_connected":
        # That kernel multiplies the two scales as floats.
        both = np.multiply(np.float32(x_scale), np.float32(known.scales[0]))
        factors = [float(both) / y_scale]
    else:
        factors = [x_scale * s / y_scale for s in known.scales]
    low, high = activation_range(operator, y_scale, y_zero, dtype)
    limits = (("ZY", y_zero), ("LOW", low), ("HIGH", high))
    rescaling = Rescaling.of(dtype, accumulator, factors, channels)
    return _Product(x, w, y, folded.astype(accumulator), rescaling, limits, x_zero, sums)


def _bias(graph: Graph, operator: Operator, place: int, channels: int) -> Array | None:
    if len(operator.inputs) <= place or not operator.inputs[place]:
        return None
    bias = graph.tensor[operator.inputs[place]]
    need(bias.shape == (channels,), f"a bias of shape {list(bias.shape)}")
    return constant(bias, "biases")


def fully_connected(graph: Graph, operator: Operator) -> Layer:
    """Rows of the input, flattened, times the weights."""
    found = _product(graph, operator, 0)
    need(found.w.ndim == 2, f"weights of {found.w.ndim} dimensions")
    outputs, depth = found.w.shape
    rows, rest = divmod(found.x.elements, depth)
    need(rest == 0 and found.y.elements == rows * outputs, "shapes that do not agree")
    return _matrix(operator, found, rows, depth, np.transpose(found.w))


def _matrix(operator: Operator, found: _Product, rows: int, depth: int, w: Array) -> Layer:
    """`w[k, n]`; of integers they are laid out as the model has them, for whoever adds products up
    in lanes, and of floats, whose sums have an order, for whoever runs along the channels."""
    weights, at = ("K, N", "k, n") if found.dtype == "float32" else ("N, K", "n, k")
    computation = Computation(
        operator.kind if depth > 1 or operator.kind == "fully_connected" else "conv2d",
        (("M", rows), ("N", w.shape[1]), ("K", depth), *found.limits),
        (
            ("x", f"{found.dtype}[M, K]"),
            *found.between("[M, N]"),
            ("y", f"{found.dtype}[M, N]"),
        ),
        found.constants(weights, "N"),
        (f"acc[m, n] += x[m, k] * w[{at}]", *found.last(operator, "m, n", "n")),
    )
    return _layer(
        operator,
        computation,
        found,
        found.values(w if at == "k, n" else np.transpose(w), (w.shape[1],)),
        rows * w.size,
    )


def conv2d(graph: Graph, operator: Operator) -> Layer:
    """A convolution over the two middle dimensions of the input; weights `[O, R, Q, C]`."""
    found = _product(graph, operator, 0)
    need(found.x.shape[-1:] == found.w.shape[-1:], "groups")
    window = _window_of(operator, found)
    channels, depth = found.w.shape[0], found.w.shape[3]
    need(found.y.shape[-1] == channels, "shapes that do not agree")
    if window.is_point:
        rows = prod(found.x.shape[:3])
        w = np.transpose(np.reshape(found.w, (channels, depth)))
        return _matrix(operator, found, rows, depth, w)
    n, floats = window.batch, found.dtype == "float32"
    at = "r, s, c, o" if floats else "o, r, s, c"
    shape = f"[{window.batches}OH, OW, O]"
    computation = Computation(
        "conv2d",
        (*window.sizes, ("C", depth), ("O", channels), *found.limits),
        (*window.tensors, *found.between(shape), ("y", f"{found.dtype}{shape}")),
        found.constants("R, Q, C, O" if floats else "O, R, Q, C", "O"),
        (
            *window.padded,
            f"acc[{n}i, j, o] += {window.source}[{window.at}, c] * w[{at}]",
            *found.last(operator, f"{n}i, j, o", "o"),
        ),
    )
    constants = found.values(
        np.transpose(found.w, (1, 2, 3, 0)) if floats else found.w, (channels,)
    )
    macs = found.y.elements * prod(found.w.shape[1:])
    return _layer(operator, computation, found, constants, macs)


def transpose_conv(graph: Graph, operator: Operator) -> Layer:
    """A convolution that computes a block of outputs for each input, with channels for each place
    in the block, and a statement for each place that moves it; weights `[O, R, Q, C]`."""
    found = _product(graph, operator, 0, (2, 1, 3))
    x, w, y = found.x, found.w, found.y
    need(len(x.shape) == len(y.shape) == w.ndim == 4, "no images")
    channels, *kernel, depth = w.shape
    agree = (x.shape[0], depth) == (y.shape[0], x.shape[3]) and y.shape[3] == channels
    need(agree, "shapes that do not agree")
    strides, before = integers(operator, "strides", 2), integers(operator, "padding", 4)[:2]
    need(min(strides) > 0, "a stride of 0")
    # Output s*u + p reads input u + d with the weight p + before - s*d, for each d of a range.
    first = [-((k - 1 - b) // s) for k, b, s in zip(kernel, before, strides, strict=True)]
    taps = [(s - 1 + b) // s - f + 1 for b, s, f in zip(before, strides, first, strict=True)]
    parts = np.zeros((*taps, depth, *strides, channels), w.dtype)
    for t0, t1, p, q in product(*map(range, (*taps, *strides))):
        r = p + before[0] - strides[0] * (first[0] + t0)
        s = q + before[1] - strides[1] * (first[1] + t1)
        if 0 <= r < kernel[0] and 0 <= s < kernel[1]:
            parts[t0, t1, :, p, q] = np.transpose(w[:, r, s])
    places = prod(strides)
    found = found.instead(np.reshape(parts, (*taps, depth, places * channels)), places)
    blocks = [-(-n // s) for n, s in zip(y.shape[1:3], strides, strict=True)]
    window = _window(found, (1, 1), (1, 1), (-first[0], -first[1]), blocks, taps)
    n, many = window.batch, window.batches
    batch = (("n", "B"),) if n else ()
    moves: list[Loops] = []
    for place, (p, q) in enumerate(product(*map(range, strides))):
        rows, columns = (
            len(range(m)[a::s]) for m, a, s in zip(y.shape[1:3], (p, q), strides, strict=True)
        )
        loops = (*batch, ("i", str(rows)), ("j", str(columns)), ("o", str(channels)))
        at, channel = f"{n}i, j, o + {place * channels}", f"o + {place * channels}"
        to = f"{n}i*{strides[0]} + {p}, j*{strides[1]} + {q}, o"
        if rows and columns:
            moves.append(Loops(f"y[{to}] = {found.value(operator, at, channel)}", loops))
    computation = Computation(
        operator.kind,
        (*window.sizes, ("C", depth), ("O", places * channels), *found.limits),
        (
            *window.tensors,
            *found.between(f"[{many}OH, OW, O]"),
            ("y", typed(found.dtype, y.shape if n else y.shape[1:])),
        ),
        found.constants("R, Q, C, O", "O"),
        (
            *window.padded,
            f"acc[{n}i, j, o] += {window.source}[{window.at}, c] * w[r, s, c, o]",
            *found.first(f"{n}i, j, o", "o"),
            *moves,
        ),
    )
    values = found.values(found.w, (places * channels,))
    return _layer(operator, computation, found, values, x.elements * prod(w.shape[:3]))


def depthwise_conv2d(graph: Graph, operator: Operator) -> Layer:
    """A convolution of each channel by itself; weights `[1, R, Q, C * D]`, D outputs a channel."""
    found = _product(graph, operator, 3)
    need(found.w.ndim == 4 and found.w.shape[0] == 1, "weights of another shape")
    window = _window_of(operator, found)
    depth, channels = found.x.shape[-1], found.w.shape[3]
    each = channels // depth
    need(each * depth == channels == found.y.shape[-1], "shapes that do not agree")
    many = each > 1
    d, extents = (", d", "C, D") if many else ("", "C")
    at = f"{window.batch}i, j, c{d}"
    shape = f"[{window.batches}OH, OW, {extents}]"
    computation = Computation(
        "depthwise_conv2d",
        (*window.sizes, ("C", depth), *((("D", each),) if many else ()), *found.limits),
        (*window.tensors, *found.between(shape), ("y", f"{found.dtype}{shape}")),
        found.constants(f"R, Q, {extents}", extents),
        (
            *window.padded,
            f"acc[{at}] += {window.source}[{window.at}, c] * w[r, s, c{d}]",
            *found.last(operator, at, f"c{d}"),
        ),
    )
    own = (depth, each) if many else (depth,)
    w = np.reshape(found.w, (*found.w.shape[1:3], *own))
    macs = found.y.elements * prod(found.w.shape[1:3])
    return _layer(operator, computation, found, found.values(w, own), macs)


def _layer(
    operator: Operator,
    computation: Computation,
    found: _Product,
    constants: dict[str, Array],
    macs: int,
) -> Layer:
    return Layer(
        operator, computation, (("x", found.x.name),), ("y", found.y.name), constants, macs
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """How outputs read the image. `batch`: an index before the others, "" for a batch of one;
    `padded`: the statement that makes `source` where it is not the input itself."""

    is_point: bool
    batch: str
    batches: str
    sizes: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[str, str], ...]
    padded: tuple[str, ...]
    source: str
    at: str


def _window_of(operator: Operator, found: _Product) -> _Window:
    """By the attributes of a convolution, whose weights' middle dimensions are the window."""
    need(len(found.x.shape) == len(found.y.shape) == found.w.ndim == 4, "no images")
    kernel, strides = found.w.shape[1:3], integers(operator, "strides", 2)
    dilations, padding = integers(operator, "dilations", 2), integers(operator, "padding", 4)
    need(min(*strides, *dilations) > 0, "a stride of 0")
    ends = zip(found.x.shape[1:3], padding[:2], padding[2:], strict=True)
    room = [n + before + after for n, before, after in ends]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = tuple((n - k) // s + 1 for n, k, s in zip(room, reach, strides, strict=True))
    agree = out == found.y.shape[1:3] and found.y.shape[0] == found.x.shape[0]
    need(agree, "shapes that do not agree")
    return _window(found, strides, dilations, padding[:2], out, kernel)


def _window(
    found: _Product,
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
) -> _Window:
    """`before`: rows above the image and columns before it."""
    batches, height, width, _ = found.x.shape
    top, left = before
    # Only so many rows and columns as windows reach.
    sums = zip(out, strides, kernel, dilations, strict=True)
    used = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in sums]
    point = (*kernel, *strides, *before) == (1, 1, 1, 1, 0, 0)
    n = "n, " if batches > 1 else ""
    many = "B, " if batches > 1 else ""
    sizes = [("H", height), ("W", width), ("R", kernel[0]), ("Q", kernel[1])]
    sizes += [("OH", out[0]), ("OW", out[1])] + ([("B", batches)] if many else [])

    def index(loop: str, offset: str, stride: int, dilation: int) -> str:
        scaled = loop if stride == 1 else f"{loop}*{stride}"
        return f"{scaled} + {offset if dilation == 1 else f'{offset}*{dilation}'}"

    at = f"{n}{index('i', 'r', strides[0], dilations[0])}, "
    at += index("j", "s", strides[1], dilations[1])
    tensors = [("x", f"{found.dtype}[{many}H, W, C]")]
    inside = [
        *((f"h >= {top}",) if top else ()),
        *((f"h < {top + height}",) if used[0] > top + height else ()),
        *((f"v >= {left}",) if left else ()),
        *((f"v < {left + width}",) if used[1] > left + width else ()),
    ]
    if not inside:
        return _Window(point, n, many, tuple(sizes), tuple(tensors), (), "x", at)
    sizes += [("HP", used[0]), ("WP", used[1])]
    tensors.append(("xp", f"{found.dtype}[{many}HP, WP, C]"))
    row, column = f"h - {top}" if top else "h", f"v - {left}" if left else "v"
    taken = f"x[{n}{row}, {column}, c]"
    padded = f"xp[{n}h, v, c] = select({' and '.join(inside)}, {taken}, {found.zero})"
    return _Window(point, n, many, tuple(sizes), tuple(tensors), (padded,), "xp", at)
