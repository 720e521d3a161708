"""Operators that compute each element by itself, of one or several tensors that may be broadcast.

Reference for integers with scales: tensorflow/lite/kernels/internal/reference/{add,sub,prelu,
leaky_relu,quantize,requantize,dequantize}.h and integer_ops/{add,mul}.h, their parameters as
tensorflow/lite/micro/kernels/*_common.cc derives them, and common.h
(MultiplyByQuantizedMultiplierSmallerThanOneExp without TFLITE_SINGLE_ROUNDING) of
https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt

import numpy as np

from hwgen.network.operators.layer import Layer, need, need_float, same_type, scale_of
from hwgen.network.operators.rescaling import (
    activation_range,
    divided,
    high_part,
    quantised_multiplier,
    scaled,
    stored,
)
from hwgen.network.operators.statements import Statements, axes_of, broadcast, cast, literal

Said = Callable[[Statements], str]


def _plain(text: str) -> Said:
    return lambda _: text


def _with(text: str, **defaults: float) -> Said:
    """Attributes in the place of their names, as float32."""

    def said(s: Statements) -> str:
        found = {n: float(np.float32(s.number(n, d))) for n, d in defaults.items()}
        return text.format("{0}", **{n: literal(v) for n, v in found.items()})

    return said


def _clip(s: Statements) -> str:
    text = "{0}"
    for number, function in ((1, "max"), (2, "min")):
        if s.has(number):
            value = s.values(number, "bounds").item()
            text = f"{function}({text}, {literal(value, s.y.dtype)})"
    return text


UNARY: Mapping[str, Said] = {
    "abs": _plain("abs({0})"),
    "ceil": _plain("ceil({0})"),
    "celu": _with("max({0}, 0.0) + min({alpha} * (exp({0} / {alpha}) - 1.0), 0.0)", alpha=1.0),
    "clip": _clip,
    "elu": _with("select({0} < 0.0, {alpha} * (exp({0}) - 1.0), {0})", alpha=1.0),
    "exp": _plain("exp({0})"),
    "floor": _plain("floor({0})"),
    "hard_sigmoid": _with("clip({0} * {alpha} + {beta}, 0.0, 1.0)", alpha=0.2, beta=0.5),
    "hard_swish": _plain(f"{{0}} * clip({{0}} * {literal(1 / 6)} + 0.5, 0.0, 1.0)"),
    "leaky_relu": _with("select({0} < 0.0, {0} * {alpha}, {0})", alpha=0.01),
    "log": _plain("log({0})"),
    "neg": _plain("-{0}"),
    "reciprocal": _plain("1.0 / {0}"),
    "relu": lambda s: f"max({{0}}, {literal(0, s.y.dtype)})",
    "round": _plain("round({0})"),
    "sigmoid": _plain("sigmoid({0})"),
    "softplus": _plain("log(exp({0}) + 1.0)"),
    "softsign": _plain("{0} / (abs({0}) + 1.0)"),
    "sqrt": _plain("sqrt({0})"),
    "tanh": _plain("tanh({0})"),
}
"""The value of an element: an expression of the input's."""

_OF_INTEGERS = ("abs", "clip", "neg", "relu")


def expression(s: Statements, function: str) -> str:
    """The expression of a function of the table.

    Raises:
        UnsupportedError: of a type that it is not for.
    """
    if function not in _OF_INTEGERS:
        need_float(s.y)
    return UNARY[function](s)


def unary(s: Statements, text: str) -> Layer:
    """An expression of each element."""
    axes, (x,) = s.elements(0)
    return s.finish(text.format(x), axes)


def folded(s: Statements, text: str) -> Layer:
    """All inputs, two at a time."""
    numbers = range(len(s.operator.inputs))
    for n in numbers:
        need(s.given(n).dtype == s.y.dtype, f"{s.given(n).dtype} {s.given(n).name}")
    axes, (value, *more) = s.elements(*numbers)
    for one in more:
        value = cast(s.y.dtype, text.format(value, one))
    return s.finish(value, axes)


def where(s: Statements) -> Layer:
    """Elements of two tensors by a constant condition."""
    condition, axes = s.values(0, "conditions"), axes_of(s.y.shape)
    own = broadcast(condition.shape, axes)
    chosen = s.constant("chosen", "int8", condition.astype(np.int8), own)
    a, b = (s.read(n, f"x{n}", broadcast(s.given(n).shape, axes)) for n in (1, 2))
    return s.finish(f"select({chosen} != 0, {a}, {b})", axes)


def prelu(s: Statements) -> Layer:
    """Numbers below zero times those of another tensor."""
    need_float(s.y, s.given(0), s.given(1))
    axes, (x, slope) = s.elements(0, 1)
    return s.finish(f"select({x} < 0.0, {x} * {slope}, {x})", axes)


def power(s: Statements) -> Layer:
    """A constant power: 1, 2, 3 or a half of one."""
    need_float(s.y, s.given())
    exponent = np.unique(s.values(1, "exponents"))
    said = {0.5: "sqrt({0})", 1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}"}
    need(exponent.size == 1 and float(exponent[0]) in said, "such an exponent")
    return unary(s, said[float(exponent[0])])


# --- the error function ---------------------------------------------------------------------------

_ERF_P = (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
          0.18520832239976145, 1.128379143519084)  # fmt: skip
_ERF_Q = (-1.1791602954361697e-7, 2.3547966471313185e-5, 1.0179625278914885e-3,
          1.4070470171167667e-2, 1.1098505178285362e-1, 4.9746925110067538e-1, 1.0)  # fmt: skip
_ERF_END = 3.832506856900711
ERF_ERROR = 1.0e-7
"""Distance of the quotient of polynomials from the error function, at most."""


def erf(s: Statements, text: str = "{0}", factor: float = 1.0) -> Layer:
    """An expression of the error function `{0}` of the number `{1}` times a factor. The function is
    an odd quotient of polynomials on the interval outside of which it is 1 in float32. Coefficients
    as in Eigen's `erf` for floats."""
    dtype, (axes, (x,)) = need_float(s.y), s.elements(0)
    need(dtype == "float32", dtype)
    value = x if factor == 1.0 else f"{x} * {literal(factor)}"
    u = s.made("u", dtype, axes, f"clip({value}, -{_ERF_END}, {_ERF_END})")
    u2 = s.made("u2", dtype, axes, f"{u} * {u}")
    p, q = (_horner(c, u2) for c in (_ERF_P, _ERF_Q))
    quotient = s.made("quotient", dtype, axes, f"{u} * {p} / {q}")
    s.inexact["quotient"] = ERF_ERROR
    return s.finish(text.format(quotient, x), axes)


def _horner(coefficients: tuple[float, ...], x: str) -> str:
    text = literal(coefficients[0])
    for c in coefficients[1:]:
        text = f"({text} * {x} + {literal(c)})"
    return text


def gelu(s: Statements) -> Layer:
    """x times the normal distribution's function of x, or its approximation by tanh."""
    need_float(s.y)
    if s.word("approximate", "none") == "tanh":
        inner = f"({{0}} + {{0}} * {{0}} * {{0}} * 0.044715) * {literal(sqrt(2 / pi))}"
        return unary(s, f"{{0}} * 0.5 * (tanh({inner}) + 1.0)")
    return erf(s, "{1} * 0.5 * ({0} + 1.0)", sqrt(0.5))


# --- integers with scales -------------------------------------------------------------------------

_LEFT = {"int8": 20, "int16": 15}
"""Bits that inputs of a sum are shifted to the left before they are scaled."""


def scaled_sum(s: Statements, sign: str) -> Layer:
    """The sum or difference of two tensors, each brought to a common scale first."""
    left = _LEFT[same_type(s.given(0), s.given(1), s.y)]
    (a_scale, a_zero), (b_scale, b_zero) = scale_of(s.given(0)), scale_of(s.given(1))
    twice, (axes, (a, b)) = 2 * max(a_scale, b_scale), s.elements(0, 1)
    real = (a_scale / twice, b_scale / twice, twice / ((1 << left) * scale_of(s.y)[0]))
    (mul_a, shift_a), (mul_b, shift_b), (mul_y, shift_y) = map(quantised_multiplier, real)
    shifts = (shift_a, shift_b, shift_y)
    need(min(shifts) >= -30 and max(shifts) <= 0, "scales that are too far apart")
    value = high_part(f"{a} - {a_zero}", mul_a, left)
    high_a = s.made("a_hi", "int32", axes, value)
    value = high_part(f"{b} - {b_zero}", mul_b, left)
    high_b = s.made("b_hi", "int32", axes, value)
    value = f"{divided(high_a, -shift_a)} {sign} {divided(high_b, -shift_b)}"
    total = s.made("total", "int32", axes, value)
    high = s.made("hi", "int32", axes, high_part(total, mul_y))
    return s.finish(stored(s, divided(high, -shift_y), activation_range(s)), axes)


def scaled_product(s: Statements) -> Layer:
    """The product of two tensors."""
    same_type(s.given(0), s.given(1), s.y)
    (a_scale, a_zero), (b_scale, b_zero) = scale_of(s.given(0)), scale_of(s.given(1))
    axes, (a, b) = s.elements(0, 1)
    value = f"({a} - {a_zero}) * ({b} - {b_zero})"
    value = scaled(s, axes, value, a_scale * b_scale / scale_of(s.y)[0])
    return s.finish(stored(s, value, activation_range(s)), axes)


def bounded(s: Statements) -> Layer:
    """The activation, from one scale to another."""
    same_type(s.given(), s.y)
    limits = activation_range(s)
    if scale_of(s.given()) != scale_of(s.y):
        return requantised(s, limits)
    return unary(s, f"clip({{0}}, {limits[0]}, {limits[1]})")


def requantised(s: Statements, limits: tuple[int, int] | None = None) -> Layer:
    """Integers of another scale or type."""
    (scale, zero), (axes, (x,)) = scale_of(s.given()), s.elements(0)
    value = scaled(s, axes, f"{x} - {zero}", scale / scale_of(s.y)[0])
    return s.finish(stored(s, value, limits), axes)


def quantised(s: Statements) -> Layer:
    """Floats to the nearest integers, halves away from zero."""
    (scale, _), (axes, (x,)) = scale_of(s.y), s.elements(0)
    # Floats below 2**23 have all their halves; what is above them exceeds every type's limits.
    v = s.made("v", "float32", axes, f"clip({x} / {scale!r}, -8388608.0, 8388607.0)")
    whole = f"floor(abs({v}))"
    value = f"int32({whole}) + select(abs({v}) - {whole} >= 0.5, 1, 0)"
    away = s.made("away", "int32", axes, value)
    return s.finish(stored(s, f"select({v} < 0.0, -{away}, {away})"), axes)


def dequantised(s: Statements) -> Layer:
    """Numbers as floats."""
    need(s.y.dtype == "float32", f"{s.y.dtype} {s.y.name}")
    scale, zero = scale_of(s.given())
    return unary(s, f"float32({{0}} - {zero}) * {scale!r}")


def bent(s: Statements, slope: float | None = None) -> Layer:
    """Numbers times one factor from the zero point on, and times another one below: a slope, or
    that of a second tensor."""
    (x_scale, x_zero), y_scale = scale_of(s.given()), scale_of(s.y)[0]
    if slope is None:
        need(s.given(1).dtype == "int8", f"{s.given(1).dtype} {s.given(1).name}")
        (b_scale, b_zero), (axes, (a, b)) = scale_of(s.given(1)), s.elements(0, 1)
        factors, times = (x_scale / y_scale, x_scale * b_scale / y_scale), f" * ({b} - {b_zero})"
    else:
        # The kernel derives both factors in floats.
        scale_x, scale_y = np.float32(x_scale), np.float32(y_scale)
        below = np.divide(np.multiply(scale_x, np.float32(slope)), scale_y)
        factors, times = (float(np.divide(scale_x, scale_y)), float(below)), ""
        axes, (a,) = s.elements(0)
    x = f"({a} - {x_zero})"
    above = scaled(s, axes, x, factors[0], "above")
    below = scaled(s, axes, f"{x}{times}", factors[1], "below")
    return s.finish(stored(s, f"select({x} >= 0, {above}, {below})"), axes)
