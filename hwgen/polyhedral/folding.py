"""Floating-point constants computed when the kernel is made, in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

from hwgen.spec.expression import Binary, Call, Cast, Const, Expr, Unary

_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
}
_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def folded(expr: Expr) -> Expr:
    """The node as a constant, where its operands are and it is a float; else as it is.

    Integers are left alone: their arithmetic wraps by type. So is what has no finite value.
    """
    try:
        match expr:
            case Cast("float32" | "float64", Const(value)):
                return Const(float(value))
            case Unary("-", Const(float(value))):
                return Const(-value)
            case Call(function, (Const(float(value)),)) if function in _FUNCTIONS:
                return Const(_FUNCTIONS[function](value))
            case Binary(op, Const(a), Const(b)) if op in _OPERATIONS and float in (
                type(a),
                type(b),
            ):
                return Const(_OPERATIONS[op](float(a), float(b)))
            case _:
                return expr
    except (ArithmeticError, ValueError):
        return expr
