"""The form in which values are compared: a statement's, and an intrinsic's semantics."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.polyhedral.folding import folded
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary

_WIDTH = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}


def normalise(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    """The value with `clip` expanded, lossless casts dropped, constants folded and to the right."""
    return folded(_normalised(expr, dtypes))


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
            return inner if lossless else Cast(dtype, inner)
        case Call("clip", (value, low, high)):
            bounded = Call("max", (value, low))
            return normalise(Call("min", (bounded, high)), dtypes)
        case Call(function, arguments):
            inner = tuple(normalise(a, dtypes) for a in arguments)
            if function in ("min", "max") and isinstance(inner[0], Const):
                inner = inner[::-1]
            return Call(function, inner)
        case Binary(op, left, right):
            a, b = normalise(left, dtypes), normalise(right, dtypes)
            if op == "-" and isinstance(b, Const):
                op, b = "+", Const(-b.value)
            if op in ("+", "*") and isinstance(a, Const):
                a, b = b, a
            return Binary(op, a, b)
