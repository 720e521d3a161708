"""Operators on the elements of one or two tensors, which may be broadcast.

Reference: tensorflow/lite/kernels/internal/reference/{add,sub,maximum_minimum,prelu,leaky_relu,
quantize,requantize,dequantize}.h and integer_ops/{add,mul}.h, their parameters as
tensorflow/lite/micro/kernels/*_common.cc derives them, and common.h
(MultiplyByQuantizedMultiplierSmallerThanOneExp without TFLITE_SINGLE_ROUNDING) of
https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Layer,
    Loops,
    limits_of,
    merged,
    need,
    result,
    same_scale,
    same_type,
    scale_of,
    stated,
    tensors,
    typed,
)
from hwgen.network.operators.rescaling import (
    activated,
    activation_range,
    divided,
    high_part,
    quantised_multiplier,
    scaled,
    stored,
)

_LEFT = {"int8": 20, "int16": 15}
"""Bits that inputs of a sum are shifted to the left before they are scaled."""


@dataclass(frozen=True, slots=True)
class Elements:
    """An output's dimensions, adjacent ones that the same operands have as one, but for the last;
    by operand its extents and how it is read at the output's index `at`."""

    extents: tuple[int, ...]
    at: str
    operands: tuple[tuple[Tensor, tuple[int, ...], str], ...]

    @staticmethod
    def of(y: Tensor, *operands: Tensor) -> Elements:
        shapes = [(1,) * (len(y.shape) - len(t.shape)) + t.shape for t in operands]
        for shape in shapes:
            need(len(shape) == len(y.shape), "shapes that do not agree")
            fits = all(n in (1, m) for n, m in zip(shape, y.shape, strict=True))
            need(fits, "shapes that do not agree")
        last = len(y.shape) - 1
        kinds = [
            None if n == 1 else (d == last, *(shape[d] == n for shape in shapes))
            for d, n in enumerate(y.shape)
        ]
        found = merged(y.shape, kinds, (1,) * (1 + len(shapes)))
        names = [*"ijklmn"[: len(found) - 1], "c"]
        reads: list[tuple[Tensor, tuple[int, ...], str]] = []
        for n, tensor in enumerate(operands, 1):
            own = [d for d, (_, kind) in enumerate(found) if kind[n]]
            index = ", ".join(names[d] for d in own) or "0"
            reads.append((tensor, tuple(found[d][0] for d in own) or (1,), f"[{index}]"))
        return Elements(tuple(n for n, _ in found), f"[{', '.join(names)}]", tuple(reads))

    def layer(
        self,
        operator: Operator,
        y: Tensor,
        *compute: str | Loops,
        constants: Mapping[str, Array] | None = None,
        **between: str,
    ) -> Layer:
        """`between`: data types of intermediates; the operands are called a and b."""
        given = {n: (t, e) for n, (t, e, _) in zip("ab", self.operands, strict=False)}
        types = {n: typed(dtype, self.extents) for n, dtype in between.items()}
        return stated(operator, given, types, (y, self.extents), compute, constants)


def add(graph: Graph, operator: Operator) -> Layer:
    """The sum of two tensors, each brought to a common scale first."""
    return _sum(graph, operator, "+")


def sub(graph: Graph, operator: Operator) -> Layer:
    """The difference of two tensors, each brought to a common scale first."""
    return _sum(graph, operator, "-")


def _sum(graph: Graph, operator: Operator, sign: str) -> Layer:
    (a, b), y = tensors(graph, operator, 2), result(graph, operator)
    dtype, found = same_type(a, b, y), Elements.of(y, a, b)
    at, (_, _, at_a), (_, _, at_b) = found.at, *found.operands
    if dtype == "float32":
        value = activated(operator, f"a{at_a} {sign} b{at_b}")
        return found.layer(operator, y, f"y{at} = {value}")
    (a_scale, a_zero), (b_scale, b_zero) = scale_of(a), scale_of(b)
    y_scale, y_zero = scale_of(y)
    left, twice = _LEFT[dtype], 2 * max(a_scale, b_scale)
    mul_a, shift_a = quantised_multiplier(a_scale / twice)
    mul_b, shift_b = quantised_multiplier(b_scale / twice)
    mul_y, shift_y = quantised_multiplier(twice / ((1 << left) * y_scale))
    shifts = (shift_a, shift_b, shift_y)
    need(min(shifts) >= -30 and max(shifts) <= 0, "scales that are too far apart")
    low, high = activation_range(operator, y_scale, y_zero, dtype)
    total = f"{divided(f'a_hi{at}', -shift_a)} {sign} {divided(f'b_hi{at}', -shift_b)}"
    return found.layer(
        operator,
        y,
        f"a_hi{at} = {high_part(f'(a{at_a} - {a_zero}) << {left}', mul_a)}",
        f"b_hi{at} = {high_part(f'(b{at_b} - {b_zero}) << {left}', mul_b)}",
        f"total{at} = {total}",
        f"hi{at} = {high_part(f'total{at}', mul_y)}",
        f"y{at} = {stored(divided(f'hi{at}', -shift_y), dtype, y_zero, low, high)}",
        a_hi="int32", b_hi="int32", total="int32", hi="int32",
    )  # fmt: skip


def mul(graph: Graph, operator: Operator) -> Layer:
    """The product of two tensors."""
    (a, b), y = tensors(graph, operator, 2), result(graph, operator)
    dtype, found = same_type(a, b, y), Elements.of(y, a, b)
    at, (_, _, at_a), (_, _, at_b) = found.at, *found.operands
    if dtype == "float32":
        return found.layer(operator, y, f"y{at} = {activated(operator, f'a{at_a} * b{at_b}')}")
    (a_scale, a_zero), (b_scale, b_zero) = scale_of(a), scale_of(b)
    y_scale, y_zero = scale_of(y)
    factor = quantised_multiplier(a_scale * b_scale / y_scale)
    made, value = scaled(at, f"(a{at_a} - {a_zero}) * (b{at_b} - {b_zero})", factor)
    limits = activation_range(operator, y_scale, y_zero, dtype)
    return found.layer(
        operator, y, made, f"y{at} = {stored(value, dtype, y_zero, *limits)}", hi="int32"
    )


def maximum(graph: Graph, operator: Operator) -> Layer:
    """The larger one of two numbers of one scale."""
    return _extreme(graph, operator, "max")


def minimum(graph: Graph, operator: Operator) -> Layer:
    """The smaller one of two numbers of one scale."""
    return _extreme(graph, operator, "min")


def _extreme(graph: Graph, operator: Operator, function: str) -> Layer:
    (a, b), y = tensors(graph, operator, 2), result(graph, operator)
    same_type(a, b, y)
    same_scale(y, a, b)
    found = Elements.of(y, a, b)
    (_, _, at_a), (_, _, at_b) = found.operands
    return found.layer(operator, y, f"y{found.at} = {function}(a{at_a}, b{at_b})")


def relu(graph: Graph, operator: Operator) -> Layer:
    """The operator's activation, from one scale to another."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    dtype, found = same_type(x, y), Elements.of(y, x)
    at = found.at
    if dtype == "float32":
        return found.layer(operator, y, f"y{at} = {activated(operator, f'a{at}')}")
    low, high = activation_range(operator, *scale_of(y), dtype)
    if scale_of(x) == scale_of(y):
        return found.layer(operator, y, f"y{at} = clip(a{at}, {low}, {high})")
    return _requantised(operator, x, y, found, (low, high))


def quantize(graph: Graph, operator: Operator) -> Layer:
    """Numbers of another scale or type; floats to the nearest, halves away from zero."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    found, limits = Elements.of(y, x), limits_of(y.dtype)
    if x.dtype != "float32":
        return _requantised(operator, x, y, found, limits)
    (scale, zero), at = scale_of(y), found.at
    # Floats below 2**23 have all their halves; what is above them exceeds every type's limits.
    bounded = f"clip(a{at} / {scale!r}, -8388608.0, 8388607.0)"
    whole = f"floor(abs(v{at}))"
    away = f"int32({whole}) + select(abs(v{at}) - {whole} >= 0.5, 1, 0)"
    return found.layer(
        operator,
        y,
        f"v{at} = {bounded}",
        f"away{at} = {away}",
        f"y{at} = "
        + stored(f"select(v{at} < 0.0, -away{at}, away{at})", y.dtype, zero, *limits),
        v="float32", away="int32",
    )  # fmt: skip


def dequantize(graph: Graph, operator: Operator) -> Layer:
    """Numbers as floats."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    need(y.dtype == "float32", f"{y.dtype} {y.name}")
    (scale, zero), found = scale_of(x), Elements.of(y, x)
    return found.layer(operator, y, f"y{found.at} = float32(a{found.at} - {zero}) * {scale!r}")


def _requantised(
    operator: Operator, x: Tensor, y: Tensor, found: Elements, limits: tuple[int, int]
) -> Layer:
    (x_scale, x_zero), (y_scale, y_zero) = scale_of(x), scale_of(y)
    made, value = scaled(
        found.at, f"a{found.at} - {x_zero}", quantised_multiplier(x_scale / y_scale)
    )
    last = f"y{found.at} = {stored(value, y.dtype, y_zero, *limits)}"
    return found.layer(operator, y, made, last, hi="int32")


def leaky_relu(graph: Graph, operator: Operator) -> Layer:
    """Negative numbers times a constant."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    dtype, alpha = same_type(x, y), operator.attributes.get("alpha")
    need(isinstance(alpha, float), "no alpha")
    assert isinstance(alpha, float)
    slope, found = np.float32(alpha), Elements.of(y, x)
    at = found.at
    if dtype == "float32":
        value = f"select(a{at} > 0.0, a{at}, a{at} * {float(slope)!r})"
        return found.layer(operator, y, f"y{at} = {value}")
    # The kernel derives both factors in floats.
    scale_x, scale_y = np.float32(scale_of(x)[0]), np.float32(scale_of(y)[0])
    below = np.divide(np.multiply(scale_x, slope), scale_y)
    factors = float(np.divide(scale_x, scale_y)), float(below)
    return _bent(operator, y, found, scale_of(x)[1], "", factors)


def prelu(graph: Graph, operator: Operator) -> Layer:
    """Negative numbers times those of another tensor."""
    (x, slope), y = tensors(graph, operator, 2), result(graph, operator)
    found = Elements.of(y, x, slope)
    (_, _, at), (_, _, at_b) = found.operands
    need(found.at == at, "shapes that do not agree")
    if same_type(x, y) == "float32":
        same_type(x, slope)
        value = f"select(a{at} >= 0.0, a{at}, a{at} * b{at_b})"
        return found.layer(operator, y, f"y{at} = {value}")
    need(slope.dtype == "int8", f"{slope.dtype} {slope.name}")
    (x_scale, x_zero), (y_scale, _) = scale_of(x), scale_of(y)
    b_scale, b_zero = scale_of(slope)
    factors = x_scale / y_scale, x_scale * b_scale / y_scale
    return _bent(operator, y, found, x_zero, f" * (b{at_b} - {b_zero})", factors)


def _bent(
    operator: Operator,
    y: Tensor,
    found: Elements,
    zero: int,
    slope: str,
    factors: tuple[float, float],
) -> Layer:
    """Numbers times one factor from the zero point on, and times another one below."""
    at, x = found.at, f"(a{found.at} - {zero})"
    above, positive = scaled(at, x, quantised_multiplier(factors[0]), "above")
    below, negative = scaled(at, f"{x}{slope}", quantised_multiplier(factors[1]), "below")
    value = f"select({x} >= 0, {positive}, {negative})"
    last = f"y{at} = {stored(value, y.dtype, scale_of(y)[1], *limits_of(y.dtype))}"
    return found.layer(operator, y, above, below, last, above="int32", below="int32")
