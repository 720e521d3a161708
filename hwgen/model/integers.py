"""Integer expressions (addresses, bounds, image indices) over NumPy rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary
from hwgen.spec.intervals import not_integer

Rows = npt.NDArray[np.int64]


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
                raise not_integer(expr, "a name that no loop binds")
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
            raise not_integer(expr, "not an integer expression")


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
                raise not_integer(expr, "a division by zero")
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
            raise not_integer(expr, "not an operator of integer expressions")


def _truth(condition: npt.NDArray[np.bool_]) -> Rows:
    return np.asarray(condition).astype(np.int64)
