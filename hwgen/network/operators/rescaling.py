"""Sums in int32 to int8, bit for bit as TFLite Micro's reference kernels do it.

Reference: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier), common.cc
(MultiplyByQuantizedMultiplier without TFLITE_SINGLE_ROUNDING) and kernel_util.cc
(CalculateActivationRangeQuantized) of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, frexp

import numpy as np
from numpy.typing import NDArray

from hwgen.model.numeric import Array
from hwgen.network.graph import Operator
from hwgen.network.operators.layer import need


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


def activation_range(operator: Operator, scale: float, zero: int) -> tuple[int, int]:
    """The least and the greatest output that the activation leaves, stored as int8."""
    word = operator.attributes.get("activation", "none")
    limits: dict[object, tuple[float | None, float | None]] = {
        "none": (None, None), "relu": (0.0, None), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0),
    }  # fmt: skip
    need(word in limits, f"the activation {word}")

    def stored(value: float) -> int:
        return zero + rounded(float(np.divide(np.float32(value), np.float32(scale))))

    low, high = limits[word]
    least = -128 if low is None else max(-128, stored(low))
    most = 127 if high is None else min(127, stored(high))
    need(least <= most, f"the activation {word} leaves no value at this scale")
    return least, most


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Multipliers and shifts to the left, one for each channel: also where the model has one for
    all, so that layers share kernels and an instruction for either form serves both."""

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]

    @staticmethod
    def of(factors: Sequence[float], channels: int) -> Rescaling:
        """`factors`: one for all, or one for each channel."""
        pairs = [quantised_multiplier(f) for f in factors]
        pairs = pairs * channels if len(pairs) == 1 else pairs
        return Rescaling(tuple(m for m, _ in pairs), tuple(s for _, s in pairs))

    def types(self, extents: str) -> list[tuple[str, str]]:
        """The constants' names and types; `extents`: of the channels."""
        return [(name, f"int32[{extents}]") for name in ("mul", "left", "right")]

    def values(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """The constants; `shape`: of the channels."""
        shifts = np.array(self.shifts, np.int32)
        found: dict[str, NDArray[np.int32]] = {
            "mul": np.array(self.multipliers, np.int32),
            "left": np.maximum(shifts, 0).astype(np.int32),
            "right": np.maximum(-shifts, 0).astype(np.int32),
        }
        return {name: np.reshape(values, shape) for name, values in found.items()}

    def statements(self, value: str, at: str, channel: str) -> tuple[str, str]:
        """`hi`, the product's upper half, doubled and rounded; and `y` from a rounding shift with
        ties away from zero: the text of `workloads/quantised/`, which chips' instructions match.
        `at`: an output's index; `channel`: that of its channel."""
        hi, mul, left, right = (
            f"hi[{at}]",
            f"mul[{channel}]",
            f"left[{channel}]",
            f"right[{channel}]",
        )
        return (
            f"{hi} = int32((int64(({value}) << {left}) * int64({mul}) + (1 << 30)) >> 31)",
            f"y[{at}] = int8(clip(int32((int64({hi}) + ((int64(1) << {right}) >> 1) "
            f"- select({hi} < 0 and {right} > 0, 1, 0)) >> {right}) + ZY, LOW, HIGH))",
        )
