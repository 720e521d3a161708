"""Sums of two tensors, element by element.

Reference: tensorflow/lite/kernels/internal/reference/integer_ops/add.h (AddFunc), its parameters as
tensorflow/lite/micro/kernels/add_common.cc derives them, and common.h
(MultiplyByQuantizedMultiplierSmallerThanOneExp without TFLITE_SINGLE_ROUNDING) of
https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    int8_scale,
    need,
    result,
    tensors,
)
from hwgen.network.operators.rescaling import activation_range, quantised_multiplier

_LEFT = 20
"""Bits that both inputs are shifted to the left before they are scaled."""


def add(graph: Graph, operator: Operator) -> Layer:
    """The sum of two int8 tensors of one shape, each brought to a common scale first."""
    a, b = tensors(graph, operator, 2)
    y = result(graph, operator)
    need(a.shape == b.shape == y.shape, "broadcasting")
    need(a.data is None and b.data is None, "a constant input")
    (a_scale, a_zero), (b_scale, b_zero) = int8_scale(a), int8_scale(b)
    y_scale, y_zero = int8_scale(y)
    twice = 2 * max(a_scale, b_scale)
    mul_a, shift_a = quantised_multiplier(a_scale / twice)
    mul_b, shift_b = quantised_multiplier(b_scale / twice)
    mul_y, shift_y = quantised_multiplier(twice / ((1 << _LEFT) * y_scale))
    need(max(shift_a, shift_b, shift_y) <= 0, "scales that are too far apart")
    low, high = activation_range(operator, y_scale, y_zero)
    channels = y.shape[-1] if y.shape else 1
    at = "[i, c]"
    shape = "[M, C]"
    computation = Computation(
        operator.kind,
        (
            ("M", y.elements // channels), ("C", channels), ("ZA", a_zero), ("ZB", b_zero),
            ("MULA", mul_a), ("MULB", mul_b), ("MULY", mul_y), ("ZY", y_zero),
            ("LOW", low), ("HIGH", high),
        ),
        (
            ("a", f"int8{shape}"), ("b", f"int8{shape}"), ("a_hi", f"int32{shape}"),
            ("b_hi", f"int32{shape}"), ("total", f"int32{shape}"), ("hi", f"int32{shape}"),
            ("y", f"int8{shape}"),
        ),
        (),
        (
            f"a_hi{at} = int32((int64((a{at} - ZA) << {_LEFT}) * MULA + (1 << 30)) >> 31)",
            f"b_hi{at} = int32((int64((b{at} - ZB) << {_LEFT}) * MULB + (1 << 30)) >> 31)",
            f"total{at} = {_divided(f'a_hi{at}', -shift_a)} + {_divided(f'b_hi{at}', -shift_b)}",
            f"hi{at} = int32((int64(total{at}) * MULY + (1 << 30)) >> 31)",
            f"y{at} = int8(clip({_divided(f'hi{at}', -shift_y)} + ZY, LOW, HIGH))",
        ),
    )  # fmt: skip
    inputs = (("a", a.name), ("b", b.name))
    return Layer(operator, computation, inputs, ("y", y.name))


def _divided(value: str, exponent: int) -> str:
    """The value by a power of two, halves away from zero. It is below 2**29 in magnitude, as the
    inputs have 9 bits with their zero points, so half of the power still fits."""
    if exponent == 0:
        return value
    return f"(({value} + {1 << (exponent - 1)} - select({value} < 0, 1, 0)) >> {exponent})"
