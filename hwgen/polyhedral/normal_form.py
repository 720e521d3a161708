"""The form in which values are compared: a statement's, and an intrinsic's semantics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from math import copysign

from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    parts,
    rewrite,
)
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import integer_range, is_float, own_dtype

_ZERO = (Const(0), Const(0.0))
_WIDTH = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}


def normalise(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    """The value with `clip` expanded, what changes nothing dropped (lossless casts, shifts by 0,
    bounds that are met anyway), constants folded and to the right."""
    return _folded(_normalised(expr, dtypes))


def without_idle_steps(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    """The same numbers without bounds that they meet anyway, and without casts to narrow types that
    hold them; of a wider type, where that was the last step."""

    def kept(part: Expr) -> Expr:
        match part:
            case Call("clip", (value, low, high)):
                above = _idle_bound("max", (value, low), dtypes)
                below = _idle_bound("min", (value, high), dtypes)
                if above or below:
                    value = value if above else Call("max", (value, low))
                    return value if below else Call("min", (value, high))
                return part
            case Call(function, arguments) if _idle_bound(function, arguments, dtypes):
                return arguments[0]
            case _:
                return _uncast(part, dtypes)

    return rewrite(expr, kept)


def _normalised(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    match expr:
        case Const() | Name() | Access():
            return expr
        case Unary("-", Const(value)):
            return Const(-value)
        case Unary(op, operand):
            return Unary(op, normalise(operand, dtypes))
        case Cast(dtype, operand):
            inner = normalise(operand, dtypes)
            lossless = (
                isinstance(inner, Access)
                and dtype in ("int32", "int64")
                and _WIDTH.get(dtypes[inner.tensor], 99) <= _WIDTH[dtype]
                and not (dtype == "int64" and dtypes[inner.tensor] != "int64")
            )
            same = isinstance(inner, Access) and dtypes[inner.tensor] == dtype
            kept = lossless or same or _is_of(operand, dtype, dtypes)
            return inner if kept else Cast(dtype, inner)
        case Call("clip", (value, low, high)):
            bounded = Call("max", (value, low))
            return normalise(Call("min", (bounded, high)), dtypes)
        case Call(function, arguments):
            inner = tuple(_uncast(normalise(a, dtypes), dtypes) for a in arguments)
            if function in ("min", "max") and isinstance(inner[0], Const):
                inner = inner[::-1]
            return inner[0] if _idle_bound(function, inner, dtypes) else Call(function, inner)
        case Binary(op, left, right):
            a, b = (_uncast(normalise(x, dtypes), dtypes) for x in (left, right))
            if b in _ZERO and op in (">>", "<<", "-") and copysign(1, b.value) > 0:
                return a
            if op == "-" and isinstance(b, Const):
                op, b = "+", Const(-b.value)
            if op in ("+", "*") and isinstance(a, Const):
                a, b = b, a
            # A float's +0.0 would make 0.0 of -0.0.
            if op == "+" and b == Const(0) and _is_integer(a, dtypes):
                return a
            return a if op == "*" and b == Const(1) else Binary(op, a, b)


def _uncast(operand: Expr, dtypes: Mapping[str, str]) -> Expr:
    """An operand without a cast that changes no number, and which is promoted to int32 anyway."""
    match operand:
        case Cast("int8" | "uint8" | "int16" | "uint16" as dtype, inner):
            held = value_range(inner, dtypes)
            return inner if held and within(held, integer_range(dtype)) else operand
        case _:
            return operand


def _is_of(value: Expr, dtype: str, dtypes: Mapping[str, str]) -> bool:
    """Whether a value as it is written is of a type; one with immediates or loops may not be."""

    def type_of(node: Access | Name) -> str:
        return dtypes[node.tensor] if isinstance(node, Access) else ""

    return not _names_values(value) and own_dtype(value, type_of) == dtype


def _names_values(value: Expr) -> bool:
    return isinstance(value, Name) or any(map(_names_values, parts(value)))


def _is_integer(value: Expr, dtypes: Mapping[str, str]) -> bool:
    match value:
        case Const(number):
            return isinstance(number, int)
        case Access(tensor, _):
            return not is_float(dtypes[tensor])
        case Cast(dtype, _):
            return not is_float(dtype)
        case Name():
            return False
        case Call("select", (_, yes, no)):
            return _is_integer(yes, dtypes) and _is_integer(no, dtypes)
        case _:
            return all(_is_integer(part, dtypes) for part in parts(value))


def _idle_bound(function: str, arguments: tuple[Expr, ...], dtypes: Mapping[str, str]) -> bool:
    """Whether a value is on the right side of a bound whatever it is computed from."""
    if function not in ("min", "max"):
        return False
    known, bound = (value_range(a, dtypes) for a in arguments)
    if known is None or bound is None or bound[0] != bound[1]:
        return False
    return bound[1] >= known[1] if function == "min" else bound[0] <= known[0]


# Floating-point constants

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


def _folded(expr: Expr) -> Expr:
    """The node as a constant, computed in double precision when the kernel is made, where its
    operands are and it is a float; else as it is.

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
