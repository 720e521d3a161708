"""Sums and products to the output's type, bit for bit as TFLite Micro's reference kernels do it.

Reference: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier), common.cc
(MultiplyByQuantizedMultiplier of int32 and of int64, without TFLITE_SINGLE_ROUNDING) and
kernel_util.cc (CalculateActivationRangeQuantized) of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, frexp

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Operator
from hwgen.network.operators.layer import limits_of, need


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


def _activation(operator: Operator) -> tuple[float | None, float | None]:
    word = operator.attributes.get("activation", "none")
    need(word in _ACTIVATIONS, f"the activation {word}")
    return _ACTIVATIONS[word]


def activation_range(
    operator: Operator, scale: float, zero: int, dtype: str = "int8"
) -> tuple[int, int]:
    """The least and the greatest output that the activation leaves, as it is stored."""

    def stored(value: float) -> int:
        return zero + rounded(float(np.divide(np.float32(value), np.float32(scale))))

    (low, high), (least, most) = _activation(operator), limits_of(dtype)
    least = least if low is None else max(least, stored(low))
    most = most if high is None else min(most, stored(high))
    need(least <= most, "an activation that leaves no value at this scale")
    return least, most


def activated(operator: Operator, value: str) -> str:
    """The activation of a float."""
    low, high = _activation(operator)
    value = value if low is None else f"max({value}, {low})"
    return value if high is None else f"min({value}, {high})"


# --- one factor for all channels ------------------------------------------------------------------


def high_part(value: str, multiplier: int, shift: int = 0) -> str:
    """The product's upper half, doubled and rounded, of a value shifted to the left before."""
    shifted = f"({value}) << {shift}" if shift > 0 else value
    return f"int32((int64({shifted}) * {multiplier} + (1 << 30)) >> 31)"


def divided(value: str, exponent: int) -> str:
    """The value by a power of two of at most 2**30, halves away from zero. The value is at most
    2**30 in magnitude, so half of the power still fits."""
    if exponent == 0:
        return value
    return f"(({value} + {1 << (exponent - 1)} - select({value} < 0, 1, 0)) >> {exponent})"


def scaled(at: str, value: str, factor: tuple[int, int], name: str = "hi") -> tuple[str, str]:
    """A value, at most 2**30 in magnitude, times a factor: the statement that makes `name`, and the
    result in terms of it."""
    multiplier, shift = factor
    need(shift >= -30, "scales that are too far apart")
    return f"{name}{at} = {high_part(value, multiplier, shift)}", divided(
        f"{name}{at}", max(-shift, 0)
    )


def stored(value: str, dtype: str, zero: int, low: int, high: int) -> str:
    """A number about the zero point, within the limits, as it is stored."""
    return f"{dtype}(clip({f'{value} + {zero}' if zero else value}, {low}, {high}))"


# --- one factor for each channel ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Multipliers and shifts to the left, one for each channel: also where the model has one for
    all, so that layers share kernels and an instruction for either form serves both. Sums are in
    `accumulator`: those in int64 have multipliers of 15 bits and one rounding, those in float32
    none."""

    dtype: str
    accumulator: str
    multipliers: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()

    @staticmethod
    def of(dtype: str, accumulator: str, factors: Sequence[float], channels: int) -> Rescaling:
        """`factors`: one for all, or one for each channel."""
        pairs = [quantised_multiplier(f) for f in factors]
        pairs = pairs * channels if len(pairs) == 1 else pairs
        if accumulator == "int64":
            need(all(s <= 7 for _, s in pairs), "scales that are too far apart")
            pairs = [(min((m + (1 << 15)) >> 16, 0x7FFF), s - 15) for m, s in pairs]
        return Rescaling(dtype, accumulator, tuple(m for m, _ in pairs), tuple(s for _, s in pairs))

    def repeated(self, times: int) -> Rescaling:
        """For so many times the channels."""
        return Rescaling(
            self.dtype, self.accumulator, self.multipliers * times, self.shifts * times
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return {"int32": ("mul", "left", "right"), "int64": ("mul", "right")}.get(
            self.accumulator, ()
        )

    def types(self, extents: str) -> list[tuple[str, str]]:
        """The constants' names and types; `extents`: of the channels."""
        return [(name, f"int32[{extents}]") for name in self._names]

    def values(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """The constants; `shape`: of the channels."""
        shifts = np.array(self.shifts, np.int32)
        found = {
            "mul": np.array(self.multipliers, np.int32),
            "left": np.maximum(shifts, 0).astype(np.int32),
            "right": np.maximum(-shifts, 0).astype(np.int32),
        }
        return {name: np.reshape(found[name], shape) for name in self._names}

    def between(self, shape: str) -> list[tuple[str, str]]:
        """Intermediates, and their types."""
        return [("hi", f"int32{shape}")] if self.accumulator == "int32" else []

    def first(self, value: str, at: str, channel: str) -> list[str]:
        """The statement that makes `hi`: the product's upper half, doubled and rounded."""
        if self.accumulator != "int32":
            return []
        shifted = f"int64(({value}) << left[{channel}])"
        return [f"hi[{at}] = int32(({shifted} * int64(mul[{channel}]) + (1 << 30)) >> 31)"]

    def last(self, operator: Operator, value: str, at: str, channel: str) -> str:
        """The output: from `hi` by a rounding shift with ties away from zero, in the text of
        `workloads/quantised/`, which chips' instructions match; or from the value."""
        right = f"right[{channel}]"
        half = f"((int64(1) << {right}) >> 1)"
        if self.accumulator == "float32":
            return activated(operator, value)
        if self.accumulator == "int64":
            product = f"(int64({value}) * int64(mul[{channel}]) + {half}) >> {right}"
            return f"{self.dtype}(clip(int32({product}) + ZY, LOW, HIGH))"
        hi = f"hi[{at}]"
        odd = f"select({hi} < 0 and {right} > 0, 1, 0)"
        return (
            f"{self.dtype}(clip(int32((int64({hi}) + {half} - {odd}) >> {right}) + ZY, LOW, HIGH))"
        )
