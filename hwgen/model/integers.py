"""Integer expressions (addresses, bounds, image indices) over NumPy rows, and over intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary

Rows = npt.NDArray[np.int64]
Interval = tuple[int, int]


def evaluate_rows(expr: Expr, environment: Mapping[str, Rows]) -> Rows:
    """The values of an integer expression, broadcast over the environment's arrays.

    `//` and `%` round towards minus infinity; comparisons give 0 or 1.

    Raises:
        HwgenError: H728, an unknown name, a division by zero, or not an integer expression.
    """
    match expr:
        case Const(value):
            return np.asarray(int(value), np.int64)
        case Name(name):
            if name not in environment:
                raise _bad(expr, "a name that no loop binds")
            return environment[name]
        case Unary("-", operand):
            return np.negative(evaluate_rows(operand, environment))
        case Unary(_, operand):
            return _truth(evaluate_rows(operand, environment) == 0)
        case Binary(op, left, right):
            return _binary(
                expr, op, evaluate_rows(left, environment), evaluate_rows(right, environment)
            )
        case Call("select", (condition, yes, no)):
            chosen = evaluate_rows(condition, environment) != 0
            return np.where(chosen, evaluate_rows(yes, environment), evaluate_rows(no, environment))
        case Call("min", (left, right)):
            return np.minimum(evaluate_rows(left, environment), evaluate_rows(right, environment))
        case Call("max", (left, right)):
            return np.maximum(evaluate_rows(left, environment), evaluate_rows(right, environment))
        case Call() | Cast() | Access():
            raise _bad(expr, "not an integer expression")


def _binary(expr: Expr, op: str, left: Rows, right: Rows) -> Rows:
    match op:
        case "+":
            return np.add(left, right)
        case "-":
            return np.subtract(left, right)
        case "*":
            return np.multiply(left, right)
        case "//" | "%":
            if not np.all(right):
                raise _bad(expr, "a division by zero")
            return np.floor_divide(left, right) if op == "//" else np.remainder(left, right)
        case "<":
            return _truth(left < right)
        case "<=":
            return _truth(left <= right)
        case ">":
            return _truth(left > right)
        case ">=":
            return _truth(left >= right)
        case "==":
            return _truth(left == right)
        case "!=":
            return _truth(left != right)
        case "and":
            return _truth((left != 0) & (right != 0))
        case "or":
            return _truth((left != 0) | (right != 0))
        case _:
            raise _bad(expr, "not an operator of integer expressions")


def _truth(condition: npt.NDArray[np.bool_]) -> Rows:
    return np.asarray(condition).astype(np.int64)


def _bad(expr: Expr, why: str) -> HwgenError:
    return HwgenError(
        "H728",
        f"the expression cannot be evaluated: {why}",
        found=str(expr),
        allowed="+ - * // %, comparisons, and, or, not, min, max and select over loop variables",
    )


def evaluate_interval(expr: Expr, ranges: Mapping[str, Interval]) -> Interval:
    """Bounds of an integer expression whose names lie in closed intervals (perhaps not tight).

    Raises:
        HwgenError: H728, as `evaluate_rows`.
    """
    match expr:
        case Const(value):
            return int(value), int(value)
        case Name(name):
            if name not in ranges:
                raise _bad(expr, "a name that no loop binds")
            return ranges[name]
        case Unary("-", operand):
            low, high = evaluate_interval(operand, ranges)
            return -high, -low
        case Unary() | Binary("<" | "<=" | ">" | ">=" | "==" | "!=" | "and" | "or"):
            return 0, 1
        case Binary(op, left, right):
            return _interval(
                expr, op, evaluate_interval(left, ranges), evaluate_interval(right, ranges)
            )
        case Call("select", (_, yes, no)):
            one, other = evaluate_interval(yes, ranges), evaluate_interval(no, ranges)
            return min(one[0], other[0]), max(one[1], other[1])
        case Call("min" | "max" as function, (left, right)):
            pick = min if function == "min" else max
            one, other = evaluate_interval(left, ranges), evaluate_interval(right, ranges)
            return pick(one[0], other[0]), pick(one[1], other[1])
        case Call() | Cast() | Access():
            raise _bad(expr, "not an integer expression")


def _interval(expr: Expr, op: str, left: Interval, right: Interval) -> Interval:
    match op:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case "*":
            corners = [a * b for a in left for b in right]
            return min(corners), max(corners)
        case "//" | "%":
            if right[0] <= 0 <= right[1]:
                raise _bad(expr, "a division by zero")
            corners = [a // b for a in left for b in right]
            if op == "//":
                return min(corners), max(corners)
            if right[0] == right[1] and min(corners) == max(corners):
                return left[0] - corners[0] * right[0], left[1] - corners[0] * right[0]
            return (0, right[1] - 1) if right[0] > 0 else (right[0] + 1, 0)
        case _:
            raise _bad(expr, "not an operator of integer expressions")


Coefficients = tuple[int, dict[str, int]]
"""A constant, and a factor for each name."""


def affine(expr: Expr) -> Coefficients | None:
    """`constant + sum factor x name`, or None where the expression has no such form."""
    match expr:
        case Const(int(value)):
            return value, {}
        case Name(name):
            return 0, {name: 1}
        case Unary("-", operand):
            inner = affine(operand)
            return None if inner is None else _scale(inner, -1)
        case Binary("+" | "-" as op, left, right):
            one, other = affine(left), affine(right)
            if one is None or other is None:
                return None
            return _sum(one, _scale(other, 1 if op == "+" else -1))
        case Binary("*", left, right):
            one, other = affine(left), affine(right)
            if one is None or other is None:
                return None
            if not other[1]:
                return _scale(one, other[0])
            return _scale(other, one[0]) if not one[1] else None
        case _:
            return None


def _scale(value: Coefficients, factor: int) -> Coefficients:
    return value[0] * factor, {name: k * factor for name, k in value[1].items()}


def _sum(left: Coefficients, right: Coefficients) -> Coefficients:
    names = dict.fromkeys((*left[1], *right[1]))
    factors = {name: left[1].get(name, 0) + right[1].get(name, 0) for name in names}
    return left[0] + right[0], {name: k for name, k in factors.items() if k}
