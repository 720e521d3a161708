"""Quasi-affine expressions of loops: isl text, intervals, and sums taken apart.

Bindings use `+ - *` with constants, and `//` and `%` by positive constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from hwgen.spec import intervals
from hwgen.spec.expression import (
    Access,
    Binary,
    Const,
    Expr,
    Name,
    Unary,
    add,
    map_accesses,
    multiply,
    names,
    substitute,
)
from hwgen.spec.intervals import Interval

_ISL = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "and": "and", "or": "or"}


def isl_text(expr: Expr) -> str:
    """A quasi-affine expression, or a condition over such, in isl's notation."""
    match expr:
        case Const(value):
            return str(value)
        case Name(name):
            return name
        case Unary("-", operand):
            return f"(-{isl_text(operand)})"
        case Unary("not", operand):
            return f"(not {isl_text(operand)})"
        case Binary("//", left, right):
            return f"floor(({isl_text(left)})/{isl_text(right)})"
        case Binary("%", left, right):
            return f"(({isl_text(left)}) mod {isl_text(right)})"
        case Binary("+" | "-" | "*" as op, left, right):
            return f"({isl_text(left)} {op} {isl_text(right)})"
        case Binary(op, left, right) if op in _ISL:
            return f"({isl_text(left)} {_ISL[op]} {isl_text(right)})"
        case _:
            raise AssertionError(f"{expr} is not quasi-affine")


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def not_quasi_affine(expr: Expr, condition: bool = False) -> str:
    """The first part of a user's expression that is not quasi-affine; empty where all is.

    `condition`: comparisons of such expressions, joined by and, or, not, are wanted instead.
    """
    match expr:
        case Name() | Const(int()) if not condition:
            return ""
        case Unary("-", operand) if not condition:
            return not_quasi_affine(operand)
        case Unary("not", operand) if condition:
            return not_quasi_affine(operand, True)
        case Binary("+" | "-", left, right) if not condition:
            return not_quasi_affine(left) or not_quasi_affine(right)
        case Binary("*", inner, Const(int())) | Binary("*", Const(int()), inner) if not condition:
            return not_quasi_affine(inner)
        case Binary("//" | "%", left, Const(int(divisor))) if divisor > 0 and not condition:
            return not_quasi_affine(left)
        case Binary(op, left, right) if op in _COMPARISONS and condition:
            return not_quasi_affine(left) or not_quasi_affine(right)
        case Binary("and" | "or", left, right) if condition:
            return not_quasi_affine(left, True) or not_quasi_affine(right, True)
        case _:
            return str(expr)


def interval(expr: Expr, extents: Mapping[str, int]) -> Interval:
    """Bounds of the values that an expression takes where each loop runs over `0 ..< extent`.

    Exact for sums of distinct loops; otherwise an enclosing interval.
    """
    if isinstance(expr, Name):
        return 0, extents[expr.name] - 1
    return intervals.interval(expr, {n: (0, extents[n] - 1) for n in names(expr)})


Addends = list[tuple[int, Expr | None]]
"""A sum of `coefficient * term`; the constant has the term None."""


def addends(expr: Expr) -> Addends:
    """The expression as a sum."""
    parts: Addends = []
    _gather(expr, 1, parts)
    return parts


def _gather(expr: Expr, factor: int, parts: Addends) -> None:
    """Add the parts of `factor * expr`."""
    while True:
        if isinstance(expr, Binary):
            op, left, right = expr.op, expr.left, expr.right
            if op in ("+", "-"):
                _gather(left, factor, parts)
                expr, factor = right, factor if op == "+" else -factor
                continue
            if op == "*":
                if isinstance(right, Const):
                    left, right = right, left
                if isinstance(left, Const) and isinstance(left.value, int):
                    expr, factor = right, factor * left.value
                    continue
        elif isinstance(expr, Const) and isinstance(expr.value, int):
            parts.append((factor * expr.value, None))
            return
        elif isinstance(expr, Unary) and expr.op == "-":
            expr, factor = expr.operand, -factor
            continue
        parts.append((factor, expr))
        return


def total(parts: Iterable[tuple[int, Expr | None]]) -> Expr:
    """The sum of such parts, equal terms collected, in a fixed order; the constant last."""
    collected: dict[str, tuple[int, Expr]] = {}
    constant = 0
    for coefficient, term in parts:
        if term is None:
            constant += coefficient
            continue
        key = term.name if isinstance(term, Name) else str(term)
        before = collected[key][0] if key in collected else 0
        collected[key] = (before + coefficient, term)
    result: Expr | None = None
    for coefficient, term in collected.values():
        if coefficient:
            part = term if coefficient == 1 else multiply(term, Const(coefficient))
            result = part if result is None else add(result, part)
    if result is None:
        return Const(constant)
    if constant < 0 and not isinstance(result, Const):
        return Binary("-", result, Const(-constant))
    return add(result, Const(constant)) if constant else result


def simplify(expr: Expr, extents: Mapping[str, int]) -> Expr:
    """The same function with sums collected and divisions dropped where intervals decide them."""
    if isinstance(expr, Const | Name):
        return expr
    match expr:
        case Binary("//" | "%" as op, left, Const(int(divisor))):
            return _divided(op, simplify(left, extents), divisor, extents)
        case Binary("+" | "-" | "*", _, _) | Unary("-", _):
            parts = addends(expr)
            if all(t is None or isinstance(t, Name) for _, t in parts):
                return total(parts)  # As most are.
            inner = [(c, t if t is None else simplify(t, extents)) for c, t in parts]
            spread = [
                (c * c2, t2)
                for c, t in inner
                for c2, t2 in ([(1, None)] if t is None else addends(t))
            ]
            return total(_rejoined(addends(total(spread))))
        case Binary(op, left, right):
            return Binary(op, simplify(left, extents), simplify(right, extents))
        case Unary(op, operand):
            return Unary(op, simplify(operand, extents))
        case _:
            return expr


def counted_from(value: Expr, first: Mapping[str, int], extents: Mapping[str, int]) -> Expr:
    """A value in which iterators are counted from numbers, its indices as short as they are."""

    def short(access: Access) -> Access:
        return replace(access, indices=tuple(simplify(i, extents) for i in access.indices))

    moved = {n: add(Name(n), Const(number)) for n, number in first.items() if number}
    return map_accesses(substitute(value, moved), short)


def _rejoined(parts: Addends) -> list[tuple[int, Expr | None]]:
    """The same sum with `x // c * c + x % c` written as `x`."""
    for n, (high, term) in enumerate(parts):
        match term:
            case Binary("//", inner, Const(int(divisor))):
                for m, (low, other) in enumerate(parts):
                    if other == Binary("%", inner, Const(divisor)) and high == low * divisor:
                        rest = [p for k, p in enumerate(parts) if k not in (n, m)]
                        return _rejoined([*rest, *((low * c, t) for c, t in addends(inner))])
            case _:
                pass
    return parts


def _divided(op: str, left: Expr, divisor: int, extents: Mapping[str, int]) -> Expr:
    """`left // divisor` or `left % divisor`, multiples of the divisor taken out."""
    parts = addends(left)
    whole = [(c, t) for c, t in parts if c % divisor == 0]
    rest = total((c, t) for c, t in parts if c % divisor)
    low, high = interval(rest, extents)
    if op == "%":
        if low >= 0 and high < divisor:
            return rest
        return Binary("%", rest, Const(divisor))
    inside: Expr | None = None
    if low // divisor != high // divisor:
        inside = Binary("//", rest, Const(divisor))
    quotient = [(c // divisor, t) for c, t in whole]
    quotient.append((1, inside) if inside is not None else (low // divisor, None))
    return total(quotient)


def reach(
    index: Expr, outside: Collection[str], extents: Mapping[str, int], reached: Mapping[str, int]
) -> tuple[Addends, int, int] | None:
    """An index as a sum over the loops outside, and bounds of the rest where the others run as far
    as is `reached`; None where a term mixes the two."""
    base: Addends = []
    rest: Addends = []
    for coefficient, term in addends(simplify(index, extents)):
        used = set(names(term)) if term is not None else set[str]()
        if used and used.issubset(outside):
            base.append((coefficient, term))
        elif used.isdisjoint(outside):
            rest.append((coefficient, term))
        else:
            return None
    return base, *interval(total(rest), reached)


def ordered(parts: Addends) -> Expr:
    """The sum of parts, in an order that does not depend on how they were written."""
    collected = [(c, t) for c, t in addends(total(parts)) if c]
    return total(sorted(collected, key=lambda part: str(part[1])))


def apply(expr: Expr, bindings: Mapping[str, Expr], extents: Mapping[str, int]) -> Expr:
    """The expression with names replaced, simplified."""
    return simplify(substitute(expr, bindings), extents)
