"""Numbers of 8 bits with scales, by the arithmetic of onnx's reference evaluator.

Reference: onnx/reference/ops/op_qlinear_conv.py, op_qlinear_matmul.py, op_quantize_linear.py and
op_dequantize_linear.py of https://github.com/onnx/onnx. Sums are scaled in float64 and rounded
once, halves to even, after the zero point is added.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.onnx_layer import Axis, Statements, axes_of, literal, need_float
from hwgen.network.operators.onnx_sums import product_axes
from hwgen.network.operators.onnx_windows import Convolution
from hwgen.spec.typecheck import integer_range

_BYTES = ("int8", "uint8")
_WORDS = (*_BYTES, "int16", "uint16")


def _scale_axes(s: Statements, number: int) -> tuple[list[Axis], list[Axis]]:
    """The dimensions of the tensor, and those of its scales."""
    x, scale = s.given(0).shape, s.given(number)
    axes = axes_of(x)
    if scale.elements == 1:
        return axes, []
    axis = int(s.number("axis", 1)) % max(len(x), 1)
    need(scale.shape == x[axis : axis + 1], "scales of blocks")
    return axes, axes[axis : axis + 1]


def quantise(graph: Graph, operator: Operator) -> Layer:
    """Floats divided by the scale, rounded to even, and moved by the zero point."""
    s = Statements(graph, operator)
    need_float(s.given(0))
    need(s.y.dtype in _WORDS, s.y.dtype)
    low, high = integer_range(s.y.dtype)
    axes, of = _scale_axes(s, 1)
    x, scale = s.read(0, "x", axes), s.read(1, "scale", of)
    # Far from zero the result is an end of the range in any case.
    value = f"int32(clip(round({x} / {scale}), -1048576.0, 1048576.0))"
    if s.has(2):
        value = f"{value} + {s.read(2, 'zero', of)}"
    return s.finish(f"clip({value}, {low}, {high})", axes)


def dequantise(graph: Graph, operator: Operator) -> Layer:
    """Integers less the zero point, times the scale."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    need(dtype == "float32", dtype)
    need(s.given(0).dtype in (*_WORDS, "int32"), s.given(0).dtype)
    axes, of = _scale_axes(s, 1)
    value = f"float32({s.read(0, 'x', axes)})"
    if s.has(2):
        value = f"({value} - float32({s.read(2, 'zero', of)}))"
    return s.finish(f"{value} * {s.read(1, 'scale', of)}", axes)


def _scaled(s: Statements, sums: str, scales: tuple[int, int, int, int], of: list[Axis]) -> str:
    """The sum in the output's type. `scales`: the numbers of the inputs' scales, of the output's
    and of its zero point; `of`: the channels, where one of them has a scale each."""
    a, b, c = (s.values(n, "scales").astype(np.float32) for n in scales[:3])
    need(a.size == c.size == 1 and b.size in (1, prod(n for _, n in of)), "scales of rows")
    factor: Array = np.divide(np.multiply(a.ravel()[0], b.ravel()), c.ravel()[0])
    said = s.constant("factor", "float32", factor, of if factor.size > 1 else [])
    zero = int(s.values(scales[3], "zero points").item()) if s.has(scales[3]) else 0
    need(s.y.dtype in _BYTES, s.y.dtype)
    low, high = integer_range(s.y.dtype)
    value = f"float64({sums}) * float64({said}) + {literal(zero)}"
    return f"round(clip({value}, {literal(low)}, {literal(high)}))"


def _shifted(s: Statements, value: str, number: int) -> tuple[str, int]:
    """A value less its one zero point."""
    zero = s.values(number, "zero points").ravel() if s.has(number) else np.zeros(1, np.int32)
    need(not np.ptp(zero.astype(np.int64)), "a zero point a channel")
    point = int(zero[0])
    return (f"({value} - {point})" if point else value), point


def convolution(graph: Graph, operator: Operator) -> Layer:
    """A convolution of bytes."""
    s = Statements(graph, operator)
    found = Convolution.of(s, 3)
    need({s.given(0).dtype, s.given(3).dtype} <= set(_BYTES), "other types than of 8 bits")
    _, zero = _shifted(s, "", 2)
    x = found.read(s, str(zero))
    w, point = _shifted(s, s.read(3, "w", found.w), 5)
    sums = s.local("acc", "int32", found.y)
    bias = s.given(8).data if s.has(8) else np.zeros(1, np.int32)
    weights = s.given(3).data
    if weights is None or bias is None or point:
        s.say(f"{sums} += {_shifted(s, x, 2)[0]} * {w}")
        value = f"({sums} + {s.read(8, 'bias', found.bias)})" if s.has(8) else sums
    else:
        # The zero point times the weights is a part of the bias.
        s.say(f"{sums} += {x} * {w}")
        total = weights.astype(np.int64).sum(tuple(range(1, weights.ndim)))
        folded = (bias.astype(np.int64) - zero * total).astype(np.int32)
        value = f"({sums} + {s.constant('bias', 'int32', folded, found.bias)})"
    return s.finish(_scaled(s, value, (1, 4, 6, 7), found.bias), found.y, found.macs)


def matmul(graph: Graph, operator: Operator) -> Layer:
    """Products of matrices of bytes."""
    s = Statements(graph, operator)
    need({s.given(0).dtype, s.given(3).dtype} <= set(_BYTES), "other types than of 8 bits")
    left, right, axes = product_axes(s, 3)
    x, _ = _shifted(s, s.read(0, "x", left), 2)
    w, _ = _shifted(s, s.read(3, "w", right), 5)
    sums = s.local("acc", "int32", axes)
    s.say(f"{sums} += {x} * {w}")
    macs = prod(n for _, n in axes) * left[-1][1]
    return s.finish(_scaled(s, sums, (1, 4, 6, 7), axes[-1:]), axes, macs)


ENTRIES = {
    "DequantizeLinear": dequantise,
    "QLinearConv": convolution,
    "QLinearMatMul": matmul,
    "QuantizeLinear": quantise,
}
