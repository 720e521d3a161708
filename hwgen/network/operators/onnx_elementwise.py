"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt

import numpy as np

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.onnx_layer import (
    Statements,
    axes_of,
    broadcast,
    cast,
    literal,
    need_float,
)

Said = Callable[[Statements], str]

_ROOT_2_PI = sqrt(2 / pi)


def _plain(text: str) -> Said:
    return lambda _: text


def _with(text: str, **defaults: float) -> Said:
    """Attributes in the place of their names. ONNX keeps them as float32."""

    def said(s: Statements) -> str:
        found = {n: s.number(n, float(np.float32(d))) for n, d in defaults.items()}
        return text.format("{0}", **{n: literal(v) for n, v in found.items()})

    return said


def _clip(s: Statements) -> str:
    low, high = (s.values(n, "bounds").item() if s.has(n) else None for n in (1, 2))
    bounds = [(f, v) for f, v in (("max", low), ("min", high)) if v is not None]
    text = "{0}"
    for function, value in bounds:
        said = str(value) if isinstance(value, int) else literal(value)
        text = f"{function}({text}, {said})"
    return text


UNARY: Mapping[str, Said] = {
    "Abs": _plain("abs({0})"),
    "Ceil": _plain("ceil({0})"),
    "Clip": _clip,
    "Elu": _with("select({0} < 0.0, {alpha} * (exp({0}) - 1.0), {0})", alpha=1.0),
    "Exp": _plain("exp({0})"),
    "Floor": _plain("floor({0})"),
    "HardSigmoid": _with("clip({0} * {alpha} + {beta}, 0.0, 1.0)", alpha=0.2, beta=0.5),
    "HardSwish": _plain(f"{{0}} * clip({{0}} * {literal(1 / 6)} + 0.5, 0.0, 1.0)"),
    "LeakyRelu": _with("select({0} < 0.0, {0} * {alpha}, {0})", alpha=0.01),
    "Log": _plain("log({0})"),
    "Neg": _plain("-{0}"),
    "Reciprocal": _plain("1.0 / {0}"),
    "Relu": lambda s: "max({0}, 0.0)" if s.y.dtype.startswith("float") else "max({0}, 0)",
    "Round": _plain("round({0})"),
    "Sigmoid": _plain("sigmoid({0})"),
    "Softplus": _plain("log(exp({0}) + 1.0)"),
    "Softsign": _plain("{0} / (abs({0}) + 1.0)"),
    "Sqrt": _plain("sqrt({0})"),
    "Tanh": _plain("tanh({0})"),
}
"""The value of an element: an expression of the input's."""

_OF_INTEGERS = ("Abs", "Clip", "Neg", "Relu")


def activation(graph: Graph, operator: Operator) -> str:
    """The expression of an operator with one computed input.

    Raises:
        UnsupportedError: where there is none.
    """
    s = Statements(graph, operator)
    if operator.kind not in _OF_INTEGERS:
        need_float(s.y)
    return UNARY[operator.kind](s)


def unary(graph: Graph, operator: Operator) -> Layer:
    """A function of each element."""
    s = Statements(graph, operator)
    said = activation(graph, operator)
    axes = axes_of((s.y.elements,))
    value = s.read(0, "x", axes)
    s.local("y", s.y.dtype, axes)
    return s.finish(said.format(value), axes)


def _folded(text: str, whole: bool = True) -> Callable[[Graph, Operator], Layer]:
    """Inputs of shapes that broadcast, two at a time; `whole`: also of integers."""

    def entry(graph: Graph, operator: Operator) -> Layer:
        s = Statements(graph, operator)
        if not whole:
            need_float(s.y)
        axes = axes_of(s.y.shape)
        value = ""
        for n in range(len(operator.inputs)):
            need(s.given(n).dtype == s.y.dtype, "inputs of several types")
            one = s.read(n, f"x{n}", broadcast(s.given(n).shape, axes))
            value = cast(s.y.dtype, text.format(value, one)) if value else one
        return s.finish(value, axes)

    return entry


def where(graph: Graph, operator: Operator) -> Layer:
    """Elements of two tensors by a constant condition."""
    s = Statements(graph, operator)
    axes = axes_of(s.y.shape)
    condition = s.values(0, "conditions")
    chosen = s.constant(
        "chosen", "int8", condition.astype(np.int8), broadcast(condition.shape, axes)
    )
    a, b = (s.read(n, f"x{n}", broadcast(s.given(n).shape, axes)) for n in (1, 2))
    return s.finish(f"select({chosen} != 0, {a}, {b})", axes)


def prelu(graph: Graph, operator: Operator) -> Layer:
    """A slope for each channel below zero."""
    s = Statements(graph, operator)
    need_float(s.y)
    axes = axes_of(s.y.shape)
    x = s.read(0, "x", axes)
    slope = s.read(1, "slope", broadcast(s.given(1).shape, axes))
    return s.finish(f"select({x} < 0.0, {x} * {slope}, {x})", axes)


def power(graph: Graph, operator: Operator) -> Layer:
    """A constant power: 1, 2, 3 or a half of one."""
    s = Statements(graph, operator)
    need_float(s.y, s.given(0))
    exponent = np.unique(s.values(1, "exponents"))
    said = {0.5: "sqrt({0})", 1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}"}
    need(exponent.size == 1 and float(exponent[0]) in said, "such an exponent")
    axes = axes_of(s.y.shape)
    x = s.read(0, "x", broadcast(s.given(0).shape, axes))
    return s.finish(said[float(exponent[0])].format(x), axes)


_ERF_P = (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
          0.18520832239976145, 1.128379143519084)  # fmt: skip
_ERF_Q = (-1.1791602954361697e-7, 2.3547966471313185e-5, 1.0179625278914885e-3,
          1.4070470171167667e-2, 1.1098505178285362e-1, 4.9746925110067538e-1, 1.0)  # fmt: skip
_ERF_END = 3.832506856900711
ERF_ERROR = 1.0e-7
"""Distance of the quotient of polynomials from the error function, at most."""


def _erf(s: Statements, value: str, dtype: str) -> str:
    """Statements for the error function of a value: an odd quotient of polynomials on the interval
    outside of which the function is 1 in float32. Coefficients as in Eigen's `erf` for floats."""
    axes = axes_of((s.y.elements,))
    u, u2, quotient = (s.local(n, dtype, axes) for n in ("u", "u2", "quotient"))
    s.say(f"{u} = clip({value}, -{_ERF_END}, {_ERF_END})")
    s.say(f"{u2} = {u} * {u}")
    p, q = (_horner(c, u2) for c in (_ERF_P, _ERF_Q))
    s.say(f"{quotient} = {u} * {p} / {q}")
    s.inexact["quotient"] = ERF_ERROR
    return quotient


def _horner(coefficients: tuple[float, ...], x: str) -> str:
    text = literal(coefficients[0])
    for c in coefficients[1:]:
        text = f"({text} * {x} + {literal(c)})"
    return text


def erf(graph: Graph, operator: Operator) -> Layer:
    """The error function, by an approximation of float32's accuracy."""
    s = Statements(graph, operator)
    dtype, axes = need_float(s.y), axes_of((s.y.elements,))
    need(dtype == "float32", f"{dtype}")
    return s.finish(_erf(s, s.read(0, "x", axes), dtype), axes)


def gelu(graph: Graph, operator: Operator) -> Layer:
    """x times the normal distribution's function of x, or its approximation by tanh."""
    s = Statements(graph, operator)
    dtype, axes = need_float(s.y), axes_of((s.y.elements,))
    x = s.read(0, "x", axes)
    if s.word("approximate", "none") == "tanh":
        inner = f"({x} + {x} * {x} * {x} * 0.044715) * {literal(_ROOT_2_PI)}"
        return s.finish(f"{x} * 0.5 * (tanh({inner}) + 1.0)", axes)
    need(dtype == "float32", f"{dtype}")
    found = _erf(s, f"{x} * {literal(sqrt(0.5))}", dtype)
    return s.finish(f"{x} * 0.5 * ({found} + 1.0)", axes)


ENTRIES: Mapping[str, Callable[[Graph, Operator], Layer]] = {
    **dict.fromkeys(UNARY, unary),
    "Add": _folded("{0} + {1}"),
    "Div": _folded("{0} / {1}", whole=False),
    "Erf": erf,
    "Gelu": gelu,
    "Max": _folded("max({0}, {1})"),
    "Min": _folded("min({0}, {1})"),
    "Mul": _folded("{0} * {1}"),
    "PRelu": prelu,
    "Pow": power,
    "Sub": _folded("{0} - {1}"),
    "Sum": _folded("{0} + {1}", whole=False),
    "Where": where,
}
