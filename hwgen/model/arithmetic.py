"""Arithmetic operations of a computation, counted from its statements."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from hwgen.polyhedral.scop import ScopStatement
from hwgen.spec.expression import Cast, Expr, parts
from hwgen.spec.workload import Statement


def arithmetic(statements: Iterable[ScopStatement | Statement]) -> int:
    """Scalar operations of a computation: a multiply-add is two, a conversion none."""
    return sum(
        prod(extent for _, extent in s.loops) * (_operations(s.value) + (s.op != "="))
        for s in statements
    )


def _operations(value: Expr) -> int:
    inner = parts(value)
    own = 1 if inner and not isinstance(value, Cast) else 0
    return own + sum(map(_operations, inner))
