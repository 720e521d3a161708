"""Sums and products to the output's type, bit for bit as TFLite Micro's reference kernels do it.

Reference: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier), common.cc
(MultiplyByQuantizedMultiplier of int32 and of int64, without TFLITE_SINGLE_ROUNDING) and
kernel_util.cc (CalculateActivationRangeQuantized) of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, frexp

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Tensor
from hwgen.network.operators.layer import need, same_type, scale_of
from hwgen.network.operators.statements import Axis, Statements, access
from hwgen.spec.typecheck import integer_range


def rounded(value: float) -> int:
    """To the nearest, halves away from zero, as C's `round`."""
    return floor(value + 0.5) if value >= 0 else -floor(0.5 - value)


def quantised_multiplier(real: float) -> tuple[int, int]:
    """A factor as (multiplier in Q0.31, shift to the left): `multiplier * 2**(shift - 31)`."""
    need(0.0 <= real < float("inf"), f"a factor of {real} between scales")
    if real == 0.0:
        return 0, 0
    fraction, shift = frexp(real)
    multiplier = rounded(fraction * (1 << 31))
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    need(shift <= 30, f"a factor of {real} between scales")
    return (multiplier, shift) if shift >= -31 else (0, 0)


_ACTIVATIONS: dict[object, tuple[float | None, float | None]] = {
    "none": (None, None), "relu": (0.0, None), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0),
    "relu_0_to_1": (0.0, 1.0),
}  # fmt: skip


def _activation(s: Statements) -> tuple[float | None, float | None]:
    word = s.operator.attributes.get("activation", "none")
    need(word in _ACTIVATIONS, f"the activation {word}")
    return _ACTIVATIONS[word]


def activation_range(s: Statements) -> tuple[int, int]:
    """The least and the greatest output that the activation leaves, as it is stored."""
    scale, zero = scale_of(s.y)

    def stored(value: float) -> int:
        return zero + rounded(float(np.divide(np.float32(value), np.float32(scale))))

    (low, high), (least, most) = _activation(s), integer_range(s.y.dtype)
    least = least if low is None else max(least, stored(low))
    most = most if high is None else min(most, stored(high))
    need(least <= most, "an activation that leaves no value at this scale")
    return least, most


def activated(s: Statements) -> Statements:
    """The statements of floats, with the activation."""
    low, high = _activation(s)
    text = "{0}" if low is None else f"max({{0}}, {low})"
    s.activation = text if high is None else f"min({text}, {high})"
    return s


# --- one factor for all channels ------------------------------------------------------------------


def high_part(value: str, multiplier: int, shift: int = 0) -> str:
    """The product's upper half, doubled and rounded, of a value shifted to the left before: the
    product is shifted less to the right. Where no bit is lost, a smaller product is left."""
    right = 31 - max(shift, 0)
    if multiplier % (1 << right) == 0:
        return f"({value}) * {multiplier >> right}"
    return f"int32((int64({value}) * {multiplier} + {1 << (right - 1)}) >> {right})"


def divided(value: str, exponent: int) -> str:
    """The value by a power of two of at most 2**30, halves away from zero. The value is at most
    2**30 in magnitude, so half of the power still fits."""
    if exponent == 0:
        return value
    return f"(({value} + {1 << (exponent - 1)} - select({value} < 0, 1, 0)) >> {exponent})"


def scaled(s: Statements, axes: Sequence[Axis], value: str, real: float, name: str = "hi") -> str:
    """A value, at most 2**30 in magnitude, times a factor: in terms of `name`, which a statement
    makes."""
    return shifted(s, axes, value, quantised_multiplier(real), name)


def shifted(
    s: Statements, axes: Sequence[Axis], value: str, factor: tuple[int, int], name: str = "hi"
) -> str:
    """The same, by a factor of `quantised_multiplier`."""
    multiplier, shift = factor
    need(shift >= -30, "scales that are too far apart")
    return divided(s.made(name, "int32", axes, high_part(value, multiplier, shift)), max(-shift, 0))


def stored(s: Statements, value: str, limits: tuple[int, int] | None = None) -> str:
    """A number about the output's zero point, within limits or those of its type."""
    zero, (low, high) = scale_of(s.y)[1], limits or integer_range(s.y.dtype)
    return f"clip({f'{value} + {zero}' if zero else value}, {low}, {high})"


# --- one factor for each channel ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fixed:
    """Sums of products to the output's type: multipliers and shifts to the left, one for each
    channel, also where the model has one for all, so that layers share kernels and an instruction
    for either form serves both. `sums`: the type of sums of products; those that are brought to the
    output from int64 have multipliers of 15 bits and one rounding. `bias`: less the input's zero
    point times the sums of weights; `zero`: that of the input, which padding is, so that borders
    are exact."""

    sums: str
    bias: Array
    zero: int
    limits: tuple[int, int, int]
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]

    @staticmethod
    def of(
        s: Statements, x: Tensor, weights: Tensor, bias: Array | None, axis: int, *, single: bool
    ) -> Fixed:
        """`axis`: of the weights, that of the output's channels; `single`: one scale for all
        weights is multiplied with the input's as floats.

        Raises:
            UnsupportedError: of scales that the kernels do not have.
        """
        dtype, w = same_type(x, s.y), weights.data
        assert w is not None
        (x_scale, x_zero), (y_scale, y_zero) = scale_of(x), scale_of(s.y)
        need(weights.dtype == "int8", f"{weights.dtype} weights")
        known, channels = weights.quantisation, w.shape[axis]
        need(known is not None, "weights without a scale")
        assert known is not None
        need(not any(known.zero_points), "weights with a zero point")
        count = len(known.scales)
        need(count == 1 or (count == channels and known.axis == axis), "scales along another axis")
        wide = "int64" if dtype == "int16" else "int32"
        rest = tuple(n for n in range(w.ndim) if n != axis)
        w64 = w.astype(np.int64)
        # Sums of int16 are in int64, unless no input makes one that leaves int32.
        narrow = int(np.abs(w64).sum(rest).max()) << 15 < 1 << 31
        folded = -x_zero * w64.sum(rest)
        if bias is not None:
            need(str(bias.dtype) == wide, f"a bias of {bias.dtype}")
            folded += bias.astype(np.int64)
        factors = [x_scale * scale / y_scale for scale in known.scales]
        if single and count == 1:
            both = np.multiply(np.float32(x_scale), np.float32(known.scales[0]))
            factors = [float(both) / y_scale]
        pairs = [quantised_multiplier(f) for f in factors] * (channels if count == 1 else 1)
        if wide == "int64":
            need(all(left <= 7 for _, left in pairs), "scales that are too far apart")
            pairs = [(min((m + (1 << 15)) >> 16, 0x7FFF), left - 15) for m, left in pairs]
        return Fixed(
            "int32" if narrow else wide, folded.astype(wide), x_zero,
            (y_zero, *activation_range(s)), tuple(m for m, _ in pairs), tuple(n for _, n in pairs),
        )  # fmt: skip

    @property
    def outside(self) -> str:
        """What an image is surrounded by."""
        return str(self.zero)

    def product(self, x: str, w: str) -> str:
        """One term of a sum."""
        return f"{x} * {w}"

    def instead(self, w: Array, parts: Array, times: int) -> Fixed:
        """Of weights `[O, R, Q, C]` that others stand for, whose last axis is so many times the
        channels."""
        bias = self.bias + self.zero * w.sum((1, 2, 3), dtype=self.bias.dtype)
        folded = np.tile(bias, times) - self.zero * parts.sum((0, 1, 2), dtype=self.bias.dtype)
        many, shifts = self.multipliers * times, self.shifts * times
        return replace(self, bias=folded.astype(self.bias.dtype), multipliers=many, shifts=shifts)

    def declare(self, s: Statements, axes: Sequence[Axis], channels: Sequence[Axis], /) -> None:
        """The constants, and the statement between the sums and the output, if there is one: the
        product's upper half, doubled and rounded."""
        wide, shifts = str(self.bias.dtype), np.array(self.shifts)
        bias = s.constant("bias", wide, self.bias, channels)
        mul = s.constant("mul", "int32", np.array(self.multipliers, np.int32), channels)
        s.sizes |= dict(zip(("ZY", "LOW", "HIGH"), self.limits, strict=True))
        if wide == "int32":
            left = s.constant("left", "int32", np.maximum(shifts, 0).astype(np.int32), channels)
            value = f"int64(({access('acc', axes)} + {bias}) << {left})"
            s.made("hi", "int32", axes, f"int32(({value} * int64({mul}) + (1 << 30)) >> 31)")
        s.constant("right", "int32", np.maximum(-shifts, 0).astype(np.int32), channels)

    def value(self, axes: Sequence[Axis], channels: Sequence[Axis]) -> str:
        """The output: from `hi` by a rounding shift with ties away from zero, in the text of
        `workloads/quantised/`, which chips' instructions match; or from the sum."""
        right, hi = access("right", channels), access("hi", axes)
        half = f"((int64(1) << {right}) >> 1)"
        odd = f"select({hi} < 0 and {right} > 0, 1, 0)"
        scaled = f"(int64({hi}) + {half} - {odd}) >> {right}"
        if str(self.bias.dtype) == "int64":
            value = f"int64({access('acc', axes)} + {access('bias', channels)})"
            scaled = f"({value} * int64({access('mul', channels)}) + {half}) >> {right}"
        return f"clip(int32({scaled}) + ZY, LOW, HIGH)"
