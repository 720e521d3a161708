"""Operators of ONNX as templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hwgen.network.operators import elementwise, linear, moves, sums, windows
from hwgen.network.operators.elementwise import UNARY, expression, folded, unary
from hwgen.network.operators.layer import Layer, agree, need, need_float
from hwgen.network.operators.products import Ending, OfFloats, matmul, matrix
from hwgen.network.operators.statements import Statements, alias, literal
from hwgen.packages import needed

FUNCTIONS: Mapping[str, str] = {
    **{name.capitalize(): name for name in UNARY if "_" not in name},
    "HardSigmoid": "hard_sigmoid", "HardSwish": "hard_swish", "LeakyRelu": "leaky_relu",
}  # fmt: skip
"""Functions of one number, by the table of their expressions."""

# --- products -------------------------------------------------------------------------------------


def _convolution(s: Statements, ending: Ending, weights: int) -> Layer:
    x, w, y = s.given().shape, s.given(weights).shape, s.y.shape
    groups = int(s.number("group", 1))
    need(len(x) == len(w) == len(y) >= 3 and groups > 0, "no images")
    need(x[1] == groups * w[1] and w[0] % groups == 0, "groups")
    sizes = (groups, w[1], w[0] // groups)
    return windows.convolution(s, w[2:], sizes, "gocr", ending, (0, weights))


def _floats(s: Statements, bias: int | None = None) -> OfFloats:
    return OfFloats(need_float(s.y), bias if bias is not None and s.has(bias) else None)


def _conv_transpose(s: Statements) -> Layer:
    x, w, y = s.given().shape, s.given(1).shape, s.y.shape
    rank, auto = len(x) - 2, s.word("auto_pad", "NOTSET")
    need(rank >= 1 and len(w) == len(y) == len(x), "no images")
    before = s.integers("pads", [0] * (2 * rank))[:rank]
    if "output_shape" in s.operator.attributes or auto.startswith("SAME"):
        strides, dilations = s.integers("strides", [1] * rank), s.integers("dilations", [1] * rank)
        added = s.integers("output_padding", [0] * rank)
        rows = zip(x[2:], strides, added, w[2:], dilations, y[2:], strict=True)
        totals = [(n - 1) * t + a + (k - 1) * d + 1 - o for n, t, a, k, d, o in rows]
        before = windows.halves(totals, auto)[:rank]
    elif auto == "VALID":
        before = (0,) * rank
    return windows.scattered(s, int(s.number("group", 1)), before)


def _gemm(s: Statements) -> Layer:
    """`alpha * A @ B + beta * C`, A and B transposed or not."""
    beta = s.number("beta", 1.0)
    bias = 2 if s.has(2) and beta else None
    scales = s.number("alpha", 1.0), beta
    shape = s.given(2).shape if bias else None
    ending = OfFloats(need_float(s.y), bias, scales, shape)
    rows, columns = s.y.shape
    turned = bool(s.number("transA", 0)), bool(s.number("transB", 0))
    return matrix(s, rows, columns, s.given().elements // rows, ending, (0, 1), turned)


# --- windows and sums -----------------------------------------------------------------------------


def _kernel(s: Statements) -> tuple[int, ...]:
    """The window of a pool; of one over everything, the image."""
    whole = s.operator.kind.startswith("Global")
    return s.given().shape[2:] if whole else s.integers("kernel_shape")


def _max_pool(s: Statements) -> Layer:
    need(not s.number("storage_order", 0), "columns first")
    return windows.max_pool(s, _kernel(s))


def _average_pool(s: Statements) -> Layer:
    need_float(s.y)
    return windows.average_pool(s, _kernel(s), padded=bool(s.number("count_include_pad", 0)))


def _lrn(s: Statements) -> Layer:
    alpha, beta = s.number("alpha", float(np.float32(1e-4))), s.number("beta", 0.75)
    return windows.lrn(s, int(s.number("size", 1)), alpha, beta, s.number("bias", 1.0))


_REDUCED: Mapping[str, tuple[str, str, str]] = {
    "ReduceL1": ("+=", "abs({0})", "{0}"),
    "ReduceL2": ("+=", "{0} * {0}", "sqrt({0})"),
    "ReduceLogSum": ("+=", "{0}", "log({0})"),
    "ReduceMax": ("max=", "{0}", "{0}"),
    "ReduceMean": ("+=", "{0}", "{0} / {1}"),
    "ReduceMin": ("min=", "{0}", "{0}"),
    "ReduceSum": ("+=", "{0}", "{0}"),
    "ReduceSumSquare": ("+=", "{0} * {0}", "{0}"),
}
"""How elements are put together, after and before which expression."""


def _reduced(s: Statements) -> Layer:
    dtype, rank = need_float(s.y), len(s.given().shape)
    chosen = s.list(1, "axes") if s.has(1) else s.integers("axes", ())
    away = {int(a) % rank for a in chosen}
    if not away and not s.number("noop_with_empty_axes", 0):
        away = set(range(rank))
    update, term, after = _REDUCED[s.operator.kind]
    total, axes = sums.reduced(s, away, dtype, update, term)
    return s.finish(after.format(total, literal(s.given().elements // s.y.elements)), axes)


def _softmax(s: Statements) -> Layer:
    need(bool(s.y.shape), "a number for a row")
    log = s.operator.kind == "LogSoftmax"
    return sums.softmax(s, s.axis(len(s.y.shape), -1), log=log)


# --- elements -------------------------------------------------------------------------------------


def _function(s: Statements) -> Layer:
    return unary(s, expression(s, FUNCTIONS[s.operator.kind]))


def _of_several(text: str, *, whole: bool = True) -> Callable[[Statements], Layer]:
    """`whole`: also of integers."""

    def entry(s: Statements) -> Layer:
        if not whole:
            need_float(s.y)
        return folded(s, text)

    return entry


def _dropout(s: Statements) -> Layer:
    """The input as it is: nothing is left out where nothing is learnt."""
    need(not s.has(2) or not s.values(2, "modes").any(), "training")
    return alias(s)


# --- moves ----------------------------------------------------------------------------------------


def _axis(s: Statements, default: int = 0) -> int:
    return s.axis(max(len(s.given().shape), 1), default)


def _slice(s: Statements) -> Layer:
    x = s.given().shape
    starts, ends = s.list(1, "bounds"), s.list(2, "bounds")
    axes = s.list(3, "axes") if s.has(3) else range(len(starts))
    steps = s.list(4, "steps") if s.has(4) else [1] * len(starts)
    found: list[moves.Indices | None] = [None] * len(x)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        found[axis] = np.arange(x[axis])[slice(*bounds)]
    return moves.taken(s, x, found)


def _pad(s: Statements) -> Layer:
    rank = len(s.given().shape)
    axes = s.list(3, "axes") if s.has(3) else list(range(rank))
    pads = s.list(1, "numbers of elements")
    around = [(0, 0)] * rank
    for axis, *widths in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        around[axis] = (widths[0], widths[1])
    mode = s.word("mode", "constant")
    if mode != "constant":
        return moves.padded(s, around, mode)
    return moves.pad(s, around, s.values(2, "a number").item() if s.has(2) else 0)


def _resize(s: Statements) -> Layer:
    """Which elements are the nearest, onnx's evaluator says for each dimension."""
    mode, transform = s.word("mode", "nearest"), "coordinate_transformation_mode"
    need(mode == "nearest", mode)
    need(s.word(transform, "half_pixel") != "tf_crop_and_resize", "tf_crop_and_resize")
    x, y = s.given().shape, s.y.shape
    agree(len(x) == len(y))
    rows = enumerate(zip(x, y, strict=True))
    return moves.taken(s, x, [None if n == m else _nearest(s, d, n, m) for d, (n, m) in rows])


def _nearest(s: Statements, axis: int, n: int, m: int) -> moves.Indices:
    """By place of the output, the index of the element that it takes, along one dimension."""
    onnx = needed("onnx", "reads ONNX models", "onnx")
    reference = needed("onnx.reference", "reads ONNX models", "onnx")
    rank = len(s.y.shape)
    chosen = s.integers("axes", range(rank)) or tuple(range(rank))
    place = [a % rank for a in chosen].index(axis)
    apart = ("axes", "keep_aspect_ratio_policy", "fused")
    attributes = {k: v for k, v in s.operator.attributes.items() if k not in apart}
    scales = s.values(2, "sizes") if s.has(2) else np.zeros(0)
    if scales.size:
        names, feeds = ["x", "", "s"], {"s": scales[place : place + 1]}
    else:
        names, feeds = ["x", "", "", "s"], {"s": np.asarray([m], np.int64)}
    node = onnx.helper.make_node("Resize", names, ["y"], **attributes)
    places = np.arange(n, dtype=np.float32)
    (found,) = reference.ReferenceEvaluator(node).run(None, {"x": places, **feeds})
    return found.astype(np.int64)


def _depth_to_space(s: Statements) -> Layer:
    return moves.depth_to_space(
        s, int(s.number("blocksize")), columns_first=s.word("mode", "DCR") == "CRD",
        inverse=s.operator.kind == "SpaceToDepth",
    )  # fmt: skip


ONNX: Mapping[str, Callable[[Statements], Layer]] = {
    **dict.fromkeys(FUNCTIONS, _function),
    **dict.fromkeys(_REDUCED, _reduced),
    **dict.fromkeys(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), alias),
    "Add": _of_several("{0} + {1}"),
    "AveragePool": _average_pool,
    "BatchNormalization": sums.by_channel,
    "Concat": lambda s: moves.concat(s, s.axis(len(s.y.shape), 0)),
    "Conv": lambda s: _convolution(s, _floats(s, 2), 1),
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "DequantizeLinear": linear.dequantised,
    "Div": _of_several("{0} / {1}", whole=False),
    "Dropout": _dropout,
    "Erf": elementwise.erf,
    "Expand": moves.expand,
    "Gather": lambda s: moves.gather(s, _axis(s), s.values(1, "indices")),
    "Gelu": elementwise.gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _average_pool,
    "GlobalMaxPool": _max_pool,
    "InstanceNormalization": lambda s: sums.normalised(s, 0, images=True),
    "LRN": _lrn,
    "LayerNormalization": lambda s: sums.normalised(s, _axis(s, -1), images=False),
    "LogSoftmax": _softmax,
    "MatMul": lambda s: matmul(s, _floats(s)),
    "Max": _of_several("max({0}, {1})"),
    "MaxPool": _max_pool,
    "Min": _of_several("min({0}, {1})"),
    "Mul": _of_several("{0} * {1}"),
    "PRelu": elementwise.prelu,
    "Pad": _pad,
    "Pow": elementwise.power,
    "QLinearConv": lambda s: _convolution(s, linear.Linear.of(s, 0), 3),
    "QLinearMatMul": lambda s: matmul(s, linear.Linear.of(s, 1), (0, 3)),
    "QuantizeLinear": linear.quantised,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _softmax,
    "SpaceToDepth": _depth_to_space,
    "Split": lambda s: moves.part(s, _axis(s)),
    "Sub": _of_several("{0} - {1}"),
    "Sum": _of_several("{0} + {1}", whole=False),
    "Tile": moves.expand,
    "Transpose": lambda s: moves.transpose(s, s.integers("perm", _reversed(s))),
    "Where": elementwise.where,
}
"""By the word of the format."""


def _reversed(s: Statements) -> range:
    return range(len(s.given().shape) - 1, -1, -1)
