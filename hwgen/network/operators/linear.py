"""Numbers of 8 bits with scales, by the arithmetic of onnx's reference evaluator.

Reference: onnx/reference/ops/op_qlinear_conv.py, op_qlinear_matmul.py, op_quantize_linear.py and
op_dequantize_linear.py of https://github.com/onnx/onnx. Sums are scaled in float64 and rounded
once, halves to even, after the zero point is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.operators.layer import Layer, need, need_float
from hwgen.network.operators.statements import (
    Axis,
    Statements,
    access,
    axes_of,
    extent,
    literal,
    wide,
)
from hwgen.spec.typecheck import integer_range

_BYTES = ("int8", "uint8")
_WORDS = (*_BYTES, "int16", "uint16")


def _scale_axes(s: Statements) -> tuple[list[Axis], list[Axis]]:
    """The dimensions of the tensor, and those of its scales."""
    x, scale = s.given().shape, s.given(1)
    axes = axes_of(x)
    if scale.elements == 1:
        return wide(axes), []
    axis = s.axis(len(x), 1)
    need(scale.shape == x[axis : axis + 1], "scales of blocks")
    return wide(axes), axes[axis : axis + 1]


def quantised(s: Statements) -> Layer:
    """Floats divided by the scale, rounded to even, and moved by the zero point."""
    need_float(s.given())
    need(s.y.dtype in _WORDS, s.y.dtype)
    low, high = integer_range(s.y.dtype)
    axes, of = _scale_axes(s)
    # Far from zero the result is an end of the range in any case.
    value = f"round({s.read(0, 'x', axes)} / {s.read(1, 'scale', of)})"
    value = f"int32(clip({value}, -1048576.0, 1048576.0))"
    if s.has(2):
        value = f"{value} + {s.read(2, 'zero', of)}"
    return s.finish(f"clip({value}, {low}, {high})", axes)


def dequantised(s: Statements) -> Layer:
    """Integers less the zero point, times the scale."""
    need(need_float(s.y) == "float32", s.y.dtype)
    need(s.given().dtype in (*_WORDS, "int32"), s.given().dtype)
    axes, of = _scale_axes(s)
    value = f"float32({s.read(0, 'x', axes)})"
    if s.has(2):
        value = f"({value} - float32({s.read(2, 'zero', of)}))"
    return s.finish(f"{value} * {s.read(1, 'scale', of)}", axes)


@dataclass(frozen=True, slots=True)
class Linear:
    """Sums of products of bytes to bytes. `zeros`: what is subtracted from the activations and the
    weights; `around`: the zero point of the activations; `factor`: one, or one for each channel;
    `bias`: where it is known before; `read`: the number of a bias that is computed; `dtype`,
    `zero`: of the output."""

    zeros: tuple[int, int]
    around: int
    factor: Array
    bias: Array | None
    read: int | None
    dtype: str
    zero: int
    sums: str = "int32"

    @staticmethod
    def of(s: Statements, channels: int, bias: int = 8) -> Linear:
        """Of inputs in the order of `QLinearConv`; `channels`: which dimension of the weights the
        output's channels are; `bias`: the number of that input.

        Bytes without a sign are moved to int8, with their zero points. Those of constant weights
        are subtracted before, and that of the activations times the weights is a part of the bias,
        so that sums are of plain products.

        Raises:
            UnsupportedError: of other types and scales.
        """
        x, w = s.given(0), s.given(3)
        need({x.dtype, w.dtype, s.y.dtype} <= set(_BYTES), "other types than of 8 bits")
        a, b, c = (s.values(n, "scales").astype(np.float32).ravel() for n in (1, 4, 6))
        need(a.size == c.size == 1, "scales of rows")
        around, point, known = (
            _signed(s, 0, _zero(s, 2)),
            _signed(s, 3, _zero(s, 5)),
            s.given(3).data,
        )
        zeros, read, added = (around, point), bias if s.has(bias) else None, None
        other = s.given(bias).data if s.has(bias) else np.zeros((), np.int32)
        if known is not None and other is not None and (channels == 0 or known.ndim == 2):
            plain = known.astype(np.int64) - point
            rest = tuple(n for n in range(plain.ndim) if n != channels)
            added = (other.astype(np.int64) - around * plain.sum(rest)).astype(np.int32)
            narrow, read, zeros = plain.astype(np.int8), None, (0, point)
            if np.array_equal(narrow, plain):
                zeros, s.instead[3] = (0, 0), replace(s.given(3), data=narrow)
        return Linear(zeros, around, a * b / c, added, read, s.y.dtype, _zero(s, 7))

    @property
    def outside(self) -> str:
        """What an image is surrounded by."""
        return str(self.around)

    def product(self, x: str, w: str) -> str:
        """One term of a sum."""
        a, b = (f"({t} - {z})" if z else t for t, z in zip((x, w), self.zeros, strict=True))
        return f"{a} * {b}"

    def declare(self, s: Statements, _: Sequence[Axis], channels: Sequence[Axis], /) -> None:
        """The bias and the factors."""
        need(self.factor.size in (1, extent(channels)), "scales of rows")
        if self.bias is not None:
            s.constant("bias", "int32", self.bias, channels)
        elif self.read is not None:
            s.read(self.read, "bias", channels)
        s.constant("factor", "float32", self.factor, self._of(channels))

    def _of(self, channels: Sequence[Axis]) -> Sequence[Axis]:
        return channels if self.factor.size > 1 else []

    def value(self, axes: Sequence[Axis], channels: Sequence[Axis]) -> str:
        """The output."""
        total = access("acc", axes)
        if self.bias is not None or self.read is not None:
            total = f"({total} + {access('bias', channels)})"
        low, high = integer_range(self.dtype)
        factor = access("factor", self._of(channels))
        value = f"float64({total}) * float64({factor}) + {literal(self.zero)}"
        return f"round(clip({value}, {literal(low)}, {literal(high)}))"


def _signed(s: Statements, number: int, zero: int) -> int:
    """The zero point of an input in int8, to which its numbers are brought."""
    tensor = s.given(number)
    if tensor.dtype == "int8":
        return zero
    if tensor.data is None:
        s.converted[number] = "int8", "int8({0} - 128)"
    else:
        data = (tensor.data.astype(np.int16) - 128).astype(np.int8)
        s.instead[number] = replace(tensor, dtype="int8", data=data)
    return zero - 128


def _zero(s: Statements, number: int) -> int:
    """The one zero point of an input."""
    zero = s.list(number, "zero points") if s.has(number) else [0]
    need(len({*zero}) == 1, "a zero point a channel")
    return int(zero[0])
