"""Intervals that integer expressions over loop variables lie in."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.errors import HwgenError
from hwgen.spec.expression import Binary, Call, Const, Expr, Name, Unary

Interval = tuple[int, int]
"""The least and the greatest of some integers, both included."""

Ranges = Mapping[str, Interval]
"""By name, the integers that it may be."""


def interval(expr: Expr, ranges: Ranges) -> Interval:
    """An interval that holds every value of an integer expression (perhaps not the least such).

    Raises:
        HwgenError: H728, a name without a range, a division by what may be zero, or not an integer
            expression.
    """
    match expr:
        case Const(value):
            return int(value), int(value)
        case Name(name):
            if name not in ranges:
                raise not_integer(expr, "a name that no loop binds")
            return ranges[name]
        case Binary("+" | "-" | "*" as op, left, right):
            return combined(op, interval(left, ranges), interval(right, ranges))
        case Binary("//" | "%" as op, left, right):
            a, b = interval(left, ranges), interval(right, ranges)
            if b[0] <= 0 <= b[1]:
                raise not_integer(expr, "a division by zero")
            return _quotient(a, b) if op == "//" else _remainder(a, b)
        case Unary("-", operand):
            low, high = interval(operand, ranges)
            return -high, -low
        case Unary() | Binary("<" | "<=" | ">" | ">=" | "==" | "!=" | "and" | "or"):
            return 0, 1
        case Call("select", (_, *values)):
            ends = [interval(v, ranges) for v in values]
            return min(low for low, _ in ends), max(high for _, high in ends)
        case Call("min" | "max" as function, values):
            pick = min if function == "min" else max
            ends = [interval(v, ranges) for v in values]
            return pick(low for low, _ in ends), pick(high for _, high in ends)
        case _:
            raise not_integer(expr, "not an integer expression")


def combined(op: str, left: Interval, right: Interval) -> Interval:
    """The interval of a sum, a difference or a product."""
    match op:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case _:
            products = [a * b for a in left for b in right]
            return min(products), max(products)


def _quotient(left: Interval, right: Interval) -> Interval:
    quotients = [a // b for a in left for b in right]
    return min(quotients), max(quotients)


def _remainder(left: Interval, right: Interval) -> Interval:
    if right[0] == right[1] and left[0] // right[0] == left[1] // right[0]:
        return left[0] % right[0], left[1] % right[0]
    return (0, right[1] - 1) if right[0] > 0 else (right[0] + 1, 0)


def within(inner: Interval, outer: Interval) -> bool:
    """Whether an interval lies in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


_OPPOSITE = {">": "<=", ">=": "<", "!=": "=="}


def compared(op: str, values: Interval) -> bool | None:
    """Whether a comparison with zero holds for all values of an interval; None where for some."""
    low, high = values
    match op:
        case "<":
            always, never = high < 0, low >= 0
        case "<=":
            always, never = high <= 0, low > 0
        case "==":
            always, never = low == high == 0, low > 0 or high < 0
        case _:
            opposite = compared(_OPPOSITE[op], values)
            return None if opposite is None else not opposite
    return True if always else False if never else None


def not_integer(expr: Expr, why: str) -> HwgenError:
    """The error of an expression that has no integer value."""
    return HwgenError(
        "H728",
        f"the expression cannot be evaluated: {why}",
        found=str(expr),
        allowed="+ - * // %, comparisons, and, or, not, min, max and select over loop variables",
    )
