"""Sums of products with weights: convolutions and fully connected layers.

Reference: tensorflow/lite/kernels/internal/reference/integer_ops/conv.h (ConvPerChannel),
depthwise_conv.h (DepthwiseConvPerChannel) and fully_connected.h (FullyConnected) of
https://github.com/tensorflow/tflite-micro. The bias here is that of the model less the input's zero
point times the sum of the channel's weights, and padding is the zero point, so borders are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    constant,
    int8_scale,
    integers,
    need,
    result,
    tensors,
)
from hwgen.network.operators.rescaling import Rescaling, activation_range


@dataclass(frozen=True, slots=True)
class _Product:
    """What the three kinds have in common. `w`: the weights as the model has them; `bias`: folded;
    `limits`: sizes of the output's zero point and range; `zero`: the input's."""

    x: Tensor
    w: Array
    y: Tensor
    bias: Array
    rescaling: Rescaling
    limits: tuple[tuple[str, int], ...]
    zero: int


def _product(graph: Graph, operator: Operator, axis: int) -> _Product:
    """`axis`: of the weights, that of the output's channels."""
    x, weights = tensors(graph, operator, 2)
    y = result(graph, operator)
    (x_scale, x_zero), (y_scale, y_zero) = int8_scale(x), int8_scale(y)
    w = constant(weights, "weights")
    need(weights.dtype == "int8", f"{weights.dtype} weights")
    channels = w.shape[axis]
    given = weights.quantisation
    need(given is not None, "weights without a scale")
    assert given is not None
    need(not any(given.zero_points), "weights with a zero point")
    count = len(given.scales)
    need(count == 1 or (count == channels and given.axis == axis), "scales along another axis")
    rest = tuple(n for n in range(w.ndim) if n != axis)
    w64 = w.astype(np.int64)
    folded = -x_zero * w64.sum(rest)
    if len(operator.inputs) > 2 and operator.inputs[2]:
        bias = graph.tensor[operator.inputs[2]]
        need(bias.dtype == "int32" and bias.shape == (channels,), f"a bias of {bias.dtype}")
        folded += constant(bias, "biases").astype(np.int64)
    if count == 1 and operator.kind == "fully_connected":
        # That kernel multiplies the two scales as floats.
        product = np.multiply(np.float32(x_scale), np.float32(given.scales[0]))
        factors = [float(product) / y_scale]
    else:
        factors = [x_scale * s / y_scale for s in given.scales]
    low, high = activation_range(operator, y_scale, y_zero)
    limits = (("ZY", y_zero), ("LOW", low), ("HIGH", high))
    rescaling = Rescaling.of(factors, channels)
    return _Product(x, w, y, folded.astype(np.int32), rescaling, limits, x_zero)


def fully_connected(graph: Graph, operator: Operator) -> Layer:
    """Rows of the input, flattened, times the weights."""
    found = _product(graph, operator, 0)
    need(found.w.ndim == 2, f"weights of {found.w.ndim} dimensions")
    outputs, depth = found.w.shape
    rows, rest = divmod(found.x.elements, depth)
    need(rest == 0 and found.y.elements == rows * outputs, "shapes that do not agree")
    return _matrix(operator, found, rows, depth, np.transpose(found.w))


def _matrix(operator: Operator, found: _Product, rows: int, depth: int, w: Array) -> Layer:
    """`w[k, n]`: constants are laid out for whoever runs along the channels."""
    hi, y = found.rescaling.statements("acc[m, n] + bias[n]", "m, n", "n")
    computation = Computation(
        operator.kind if depth > 1 or operator.kind == "fully_connected" else "conv2d",
        (("M", rows), ("N", w.shape[1]), ("K", depth), *found.limits),
        (
            ("x", "int8[M, K]"),
            ("acc", "int32[M, N]"),
            ("hi", "int32[M, N]"),
            ("y", "int8[M, N]"),
        ),
        (("w", "int8[K, N]"), ("bias", "int32[N]"), *found.rescaling.types("N")),
        ("acc[m, n] += x[m, k] * w[k, n]", hi, y),
    )
    constants: dict[str, Array] = {
        "w": np.ascontiguousarray(w),
        "bias": found.bias,
        **found.rescaling.values((w.shape[1],)),
    }
    return _layer(operator, computation, found, constants, rows * w.size)


def conv2d(graph: Graph, operator: Operator) -> Layer:
    """A convolution over the two middle dimensions of the input; weights `[O, R, Q, C]`."""
    found = _product(graph, operator, 0)
    need(found.x.shape[-1:] == found.w.shape[-1:], "groups")
    window = _window(operator, found, found.w.shape[1:3])
    channels, depth = found.w.shape[0], found.w.shape[3]
    need(found.y.shape[-1] == channels, "shapes that do not agree")
    if window.is_point:
        rows = prod(found.x.shape[:3])
        w = np.transpose(np.reshape(found.w, (channels, depth)))
        return _matrix(operator, found, rows, depth, w)
    n = window.batch
    hi, y = found.rescaling.statements(f"acc[{n}i, j, o] + bias[o]", f"{n}i, j, o", "o")
    shape = f"[{window.batches}OH, OW, O]"
    computation = Computation(
        "conv2d",
        (*window.sizes, ("C", depth), ("O", channels), *found.limits),
        (
            *window.tensors,
            ("acc", f"int32{shape}"), ("hi", f"int32{shape}"), ("y", f"int8{shape}"),
        ),
        (("w", "int8[R, Q, C, O]"), ("bias", "int32[O]"), *found.rescaling.types("O")),
        (
            *window.padded,
            f"acc[{n}i, j, o] += {window.source}[{window.at}, c] * w[r, s, c, o]",
            hi,
            y,
        ),
    )  # fmt: skip
    constants: dict[str, Array] = {
        "w": np.ascontiguousarray(np.transpose(found.w, (1, 2, 3, 0))),
        "bias": found.bias,
        **found.rescaling.values((channels,)),
    }
    macs = found.y.elements * prod(found.w.shape[1:])
    return _layer(operator, computation, found, constants, macs)


def depthwise_conv2d(graph: Graph, operator: Operator) -> Layer:
    """A convolution of each channel by itself; weights `[1, R, Q, C * D]`, D outputs a channel."""
    found = _product(graph, operator, 3)
    need(found.w.ndim == 4 and found.w.shape[0] == 1, "weights of another shape")
    window = _window(operator, found, found.w.shape[1:3])
    depth, channels = found.x.shape[-1], found.w.shape[3]
    each = channels // depth
    need(each * depth == channels == found.y.shape[-1], "shapes that do not agree")
    many = each > 1
    d, extents = (", d", "C, D") if many else ("", "C")
    n, at = window.batch, f"{window.batch}i, j, c{d}"
    hi, y = found.rescaling.statements(f"acc[{at}] + bias[c{d}]", at, f"c{d}")
    shape = f"[{window.batches}OH, OW, {extents}]"
    computation = Computation(
        "depthwise_conv2d",
        (*window.sizes, ("C", depth), *((("D", each),) if many else ()), *found.limits),
        (
            *window.tensors,
            ("acc", f"int32{shape}"), ("hi", f"int32{shape}"), ("y", f"int8{shape}"),
        ),
        (
            ("w", f"int8[R, Q, {extents}]"),
            ("bias", f"int32[{extents}]"),
            *found.rescaling.types(extents),
        ),
        (
            *window.padded,
            f"acc[{n}i, j, c{d}] += {window.source}[{window.at}, c] * w[r, s, c{d}]",
            hi,
            y,
        ),
    )  # fmt: skip
    own = (depth, each) if many else (depth,)
    constants: dict[str, Array] = {
        "w": np.reshape(found.w, (*found.w.shape[1:3], *own)),
        "bias": np.reshape(found.bias, own),
        **found.rescaling.values(own),
    }
    macs = found.y.elements * prod(found.w.shape[1:3])
    return _layer(operator, computation, found, constants, macs)


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


def _window(operator: Operator, found: _Product, kernel: tuple[int, ...]) -> _Window:
    need(len(found.x.shape) == len(found.y.shape) == found.w.ndim == 4, "no images")
    batches, height, width, _ = found.x.shape
    strides = integers(operator, "strides", 2)
    dilations = integers(operator, "dilations", 2)
    top, left, bottom, right = padding = integers(operator, "padding", 4)
    need(min(*strides, *dilations) > 0, "a stride of 0")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    room = (height + top + bottom, width + left + right)
    out = tuple((n - k) // s + 1 for n, k, s in zip(room, reach, strides, strict=True))
    need(out == found.y.shape[1:3] and found.y.shape[0] == batches, "shapes that do not agree")
    point = (*kernel, *strides, *padding) == (1, 1, 1, 1, 0, 0, 0, 0)
    n = "n, " if batches > 1 else ""
    many = "B, " if batches > 1 else ""
    sizes = [("H", height), ("W", width), ("R", kernel[0]), ("Q", kernel[1])]
    sizes += [("OH", out[0]), ("OW", out[1])] + ([("B", batches)] if many else [])

    def index(loop: str, offset: str, stride: int, dilation: int) -> str:
        scaled = loop if stride == 1 else f"{loop}*{stride}"
        return f"{scaled} + {offset if dilation == 1 else f'{offset}*{dilation}'}"

    at = f"{n}{index('i', 'r', strides[0], dilations[0])}, "
    at += index("j", "s", strides[1], dilations[1])
    tensors = [("x", f"int8[{many}H, W, C]")]
    if not any(padding):
        return _Window(point, n, many, tuple(sizes), tuple(tensors), (), "x", at)
    # Only so many rows and columns as windows reach.
    used = [(o - 1) * s + k for o, s, k in zip(out, strides, reach, strict=True)]
    sizes += [("HP", used[0]), ("WP", used[1]), ("ZX", found.zero)]
    tensors.append(("xp", f"int8[{many}HP, WP, C]"))
    inside = [
        *((f"h >= {top}",) if top else ()),
        *((f"h < {top + height}",) if used[0] > top + height else ()),
        *((f"v >= {left}",) if left else ()),
        *((f"v < {left + width}",) if used[1] > left + width else ()),
    ]
    row, column = f"h - {top}" if top else "h", f"v - {left}" if left else "v"
    taken = f"x[{n}{row}, {column}, c]"
    value = f"select({' and '.join(inside)}, {taken}, ZX)" if inside else taken
    padded = f"xp[{n}h, v, c] = {value}"
    return _Window(point, n, many, tuple(sizes), tuple(tensors), (padded,), "xp", at)
