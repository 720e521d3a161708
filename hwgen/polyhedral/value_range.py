"""The integers that a value can come to be, by the types of what it is computed from."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Unary
from hwgen.spec.intervals import Interval, combined, within
from hwgen.spec.typecheck import integer_range, is_float

_WORD = integer_range("int32")


def value_range(expr: Expr, dtypes: Mapping[str, str]) -> Interval | None:
    """The least and the greatest value that an expression may have; None where that is not known:
    for floats, and for unsigned words, which wrap around at zero. `dtypes`: of the tensors."""
    match expr:
        case Access(tensor, _):
            return _of_type(dtypes.get(tensor, "float32"))
        case Const(int(value)):
            return value, value
        case Cast(dtype, operand):
            inner, whole = value_range(operand, dtypes), _of_type(dtype)
            return inner if inner and whole and within(inner, whole) else whole
        case Call("min" | "max" | "select" as function, arguments):
            parts = [value_range(a, dtypes) for a in arguments[-2:]]
            known = [p for p in parts if p is not None]
            if len(known) < 2:
                return None
            (low, high), (other_low, other_high) = known
            match function:
                case "min":
                    return min(low, other_low), min(high, other_high)
                case "max":
                    return max(low, other_low), max(high, other_high)
                case "select":
                    return min(low, other_low), max(high, other_high)
        case Call("clip", (value, low, high)):
            return value_range(Call("min", (Call("max", (value, low)), high)), dtypes)
        case Unary("-", operand):
            return value_range(Binary("-", Const(0), operand), dtypes)
        case Binary(("+" | "-" | "*" | ">>") as op, left, right):
            a, b = value_range(left, dtypes), value_range(right, dtypes)
            if a is None or b is None:
                return None
            if not within(a, _WORD) or not within(b, _WORD):
                return integer_range("int64")
            if op == ">>":
                return (a[0] >> b[0], a[1] >> b[0]) if b[0] == b[1] and 0 <= b[0] < 32 else a
            found = combined(op, a, b)
            # Past int32 it may wrap around, or be an int64.
            return found if within(found, _WORD) else (min(*found, _WORD[0]), max(*found, _WORD[1]))
        case _:
            return None


def _of_type(dtype: str) -> Interval | None:
    return None if is_float(dtype) or dtype == "uint32" else integer_range(dtype)
