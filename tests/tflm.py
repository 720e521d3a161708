"""Scalar int8 kernels of TFLite Micro, in Python's integers, for `workloads/quantised/`.

Written from tensorflow/lite/kernels/internal (common.cc, common.h, reference/softmax.h and
reference/integer_ops) of https://github.com/tensorflow/tflite-micro and fixedpoint/fixedpoint.h of
https://github.com/google/gemmlowp, without regard to how the workloads say it. Where the C of those
would be undefined, `int32` stops. `srdhm`, `rdbpot`, `divide`, `scaled` and `scaled_once` are
looked up when called, so that a test can replace them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def int32(value: int) -> int:
    """A value that int32 holds."""
    assert LEAST <= value <= MOST, f"{value} is outside of int32: undefined in C"
    return value


def divide(dividend: int, divisor: int) -> int:
    """C's division, towards zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def srdhm(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul: the product in Q0.31, rounded, -1 * -1 saturated."""
    if a == b == LEAST:
        return MOST
    product = a * b
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    return int32(divide(product + nudge, 1 << 31))


def rdbpot(x: int, exponent: int) -> int:
    """RoundingDivideByPOT: halves away from zero."""
    assert 0 <= exponent <= 31
    mask = (1 << exponent) - 1
    remainder, threshold = x & mask, (mask >> 1) + (x < 0)
    return (x >> exponent) + (remainder > threshold)


def scaled(x: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier, rounded twice."""
    return rdbpot(srdhm(int32(x * (1 << max(shift, 0))), multiplier), max(-shift, 0))


def scaled_once(x: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier with TFLITE_SINGLE_ROUNDING."""
    assert multiplier >= 0
    assert -31 <= shift <= 30
    total = 31 - shift
    return int32((x * multiplier + (1 << (total - 1))) >> total)


def points(*extents: int) -> Iterator[tuple[int, ...]]:
    return product(*map(range, extents))


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


@dataclass(frozen=True, slots=True)
class Layer:
    """What a convolution or fully connected layer of a model says besides its tensors."""

    input_zero: int
    output_zero: int
    low: int = -128
    high: int = 127
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    single: bool = False

    def output(self, sum_: int, bias: Any, multiplier: Any, shift: Any) -> int:
        rescale = scaled_once if self.single else scaled
        value = rescale(int32(sum_ + int(bias)), int(multiplier), int(shift))
        return clamp(int32(value + self.output_zero), self.low, self.high)


def conv(
    layer: Layer, x: Array, w: Array, bias: Array, mul: Array, shift: Array, size: Sequence[int]
) -> Array:
    """ConvPerChannel: x[h, w, c], w[o, r, s, c]; `size`: of the output."""
    height, width, depth = x.shape
    channels, rows, columns, _ = w.shape
    y = np.zeros((*size, channels), np.int8)
    for i, j, o in points(*y.shape):
        total = 0
        for r, s in points(rows, columns):
            h, v = i * layer.stride - layer.pads[0] + r, j * layer.stride - layer.pads[1] + s
            if not (0 <= h < height and 0 <= v < width):
                continue
            for c in range(depth):
                total = int32(total + int(w[o, r, s, c]) * (int(x[h, v, c]) - layer.input_zero))
        y[i, j, o] = layer.output(total, bias[o], mul[o], shift[o])
    return y


def depthwise(
    layer: Layer, x: Array, w: Array, bias: Array, mul: Array, shift: Array, size: Sequence[int]
) -> Array:
    """DepthwiseConvPerChannel: x[h, w, c], w[r, s, c * multiplier + m]."""
    height, width, depth = x.shape
    rows, columns, channels = w.shape
    y = np.zeros((*size, channels), np.int8)
    for i, j, o in points(*y.shape):
        total, c = 0, o // (channels // depth)
        for r, s in points(rows, columns):
            h, v = i * layer.stride - layer.pads[0] + r, j * layer.stride - layer.pads[1] + s
            if 0 <= h < height and 0 <= v < width:
                total = int32(total + int(w[r, s, o]) * (int(x[h, v, c]) - layer.input_zero))
        y[i, j, o] = layer.output(total, bias[o], mul[o], shift[o])
    return y


def fully_connected(
    layer: Layer, x: Array, w: Array, bias: Array, multiplier: int, shift: int
) -> Array:
    """FullyConnected: x[b, d], w[o, d]."""
    y = np.zeros((x.shape[0], w.shape[0]), np.int8)
    for b, o in points(*y.shape):
        total = 0
        for d in range(x.shape[1]):
            total = int32(total + int(w[o, d]) * (int(x[b, d]) - layer.input_zero))
        y[b, o] = layer.output(total, bias[o], multiplier, shift)
    return y


@dataclass(frozen=True, slots=True)
class Scale:
    """A zero point, and a multiplier with its shift (at most 0)."""

    zero: int
    multiplier: int
    shift: int


def add(a: Array, b: Array, first: Scale, second: Scale, output: Scale) -> Array:
    """AddFunc, element by element."""
    y = np.zeros(a.shape, np.int8)
    for at in points(*a.shape):
        raw = 0
        for value, scale in ((int(a[at]), first), (int(b[at]), second)):
            assert scale.shift <= 0
            shifted = int32((value - scale.zero) * (1 << 20))
            raw = int32(raw + rdbpot(srdhm(shifted, scale.multiplier), -scale.shift))
        raw = rdbpot(srdhm(raw, output.multiplier), -output.shift)
        y[at] = clamp(raw + output.zero, -128, 127)
    return y


def average_pool(
    x: Array, window: int, stride: int, pads: tuple[int, int], size: Sequence[int]
) -> Array:
    """AveragePool of a square window."""
    height, width, depth = x.shape
    y = np.zeros((*size, depth), np.int8)
    for i, j, c in points(*y.shape):
        top, left = i * stride - pads[0], j * stride - pads[1]
        total = count = 0
        for r in range(max(0, -top), min(window, height - top)):
            for s in range(max(0, -left), min(window, width - left)):
                total += int(x[top + r, left + s, c])
                count += 1
        half = count // 2
        y[i, j, c] = divide(total + half if total > 0 else total - half, count)
    return y


def saturating_shift(x: int, exponent: int) -> int:
    """SaturatingRoundingMultiplyByPOT to the left."""
    threshold = (1 << (31 - exponent)) - 1
    if x > threshold:
        return MOST
    return LEAST if x < -threshold else x << exponent


def exp_on_negative_values(a: int) -> int:
    """The exponential of a value in Q5.26 that is at most 0, in Q0.31."""
    quarter = 1 << 24
    left = (a & (quarter - 1)) - quarter
    x = int32(saturating_shift(left, 5) + (1 << 28))
    x2 = srdhm(x, x)
    x3, x4 = srdhm(x2, x), srdhm(x2, x2)
    inner = int32(srdhm(int32(rdbpot(x4, 2) + x3), 715827883) + x2)
    result = int32(1895147668 + srdhm(1895147668, int32(x + rdbpot(inner, 1))))
    remainder = left - a
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in enumerate(factors, start=24):
        if remainder & (1 << bit):
            result = srdhm(result, factor)
    return MOST if a == 0 else result


def one_over_one_plus_x(a: int) -> int:
    """1 / (1 + a) for a in [0, 1), in Q0.31, by Newton's method."""
    half = divide(a + MOST + 1, 2)
    x = int32(1515870810 + srdhm(half, -1010580540))
    for _ in range(3):
        rest = int32((1 << 29) - srdhm(half, x))
        x = int32(x + saturating_shift(srdhm(x, rest), 2))
    return saturating_shift(x, 1)


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax, and what it computes on the way: exponentials, sums and reciprocals."""

    y: Array
    exponentials: Array
    sums: list[int] = field(default_factory=list[int])
    reciprocals: list[int] = field(default_factory=list[int])


def softmax(x: Array, multiplier: int, shift: int) -> Softmax:
    """Softmax of int8 rows, in units of 1/256 from -128 on."""
    least = -(31 * (1 << 26) // (1 << shift))
    done = Softmax(np.full(x.shape, -128, np.int8), np.zeros(x.shape, np.int32))
    for row in range(x.shape[0]):
        differences = [int(v) - int(x[row].max()) for v in x[row]]
        total = 0
        for j, difference in enumerate(differences):
            if difference >= least:
                e = exp_on_negative_values(srdhm(int32(difference * (1 << shift)), multiplier))
                total = int32(total + rdbpot(e, 12))
                done.exponentials[row, j] = e
        zeros = 32 - total.bit_length()
        scale = one_over_one_plus_x((total << zeros) - (1 << 31))
        exponent = 12 - zeros + 31 - 8
        for j, difference in enumerate(differences):
            if difference >= least:
                part = rdbpot(srdhm(scale, int(done.exponentials[row, j])), exponent)
                done.y[row, j] = clamp(part - 128, -128, 127)
        done.sums.append(total)
        done.reciprocals.append(scale)
    return done
