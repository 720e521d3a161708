"""Expressions of a stream as functions of the values of its loop variables."""

from __future__ import annotations

from collections.abc import Callable

from hwgen.spec.expression import Const

from .periodicity import Watched

Environment = list[int]
Compiled = Callable[[Environment], int]


def constant(watched: Watched) -> int:
    """What is watched of a constant."""
    assert isinstance(watched.expression, Const)
    number = int(watched.expression.value)
    if watched.modulus:
        return number % watched.modulus
    return number // watched.divisor if watched.divisor else number


def maker(function: Compiled, watched: Watched) -> Compiled:
    """What is watched of an expression."""
    modulus, divisor = watched.modulus, watched.divisor
    if modulus:
        return lambda v: function(v) % modulus
    if divisor:
        return lambda v: function(v) // divisor
    return function


def _operator(function: Callable[[int, int], int]) -> Callable[[Compiled, Compiled], Compiled]:
    return lambda a, b: lambda v: function(a(v), b(v))


OPERATORS: dict[str, Callable[[Compiled, Compiled], Compiled]] = {
    "+": _operator(lambda x, y: x + y),
    "-": _operator(lambda x, y: x - y),
    "*": _operator(lambda x, y: x * y),
    "//": _operator(lambda x, y: x // y),
    "%": _operator(lambda x, y: x % y),
    "<": _operator(lambda x, y: x < y),
    "<=": _operator(lambda x, y: x <= y),
    ">": _operator(lambda x, y: x > y),
    ">=": _operator(lambda x, y: x >= y),
    "==": _operator(lambda x, y: x == y),
    "!=": _operator(lambda x, y: x != y),
    "and": lambda a, b: lambda v: 1 if a(v) and b(v) else 0,
    "or": lambda a, b: lambda v: 1 if a(v) or b(v) else 0,
}
