"""When a loop's iterations repeat: exact analysis of integer expressions in one loop variable.

An expression is quasi-periodic in `v` on an interval when e(v + period) = e(v) + shift there, for
every value of the other names in their ranges. Affine terms, `//` and `%` by constants are so
everywhere; `min`, `max` and comparisons are so between the points where the winner changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm

from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import (
    Binary,
    Call,
    Const,
    Expr,
    Unary,
    evaluate,
    names,
    walk,
)
from hwgen.spec.intervals import Interval, Ranges, compared
from hwgen.spec.intervals import interval as enclosing

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
MAX_PERIOD = 4096


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A unit touches a memory, by its number."""

    place: int
    unit: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """An expression that must repeat: exactly, modulo `modulus`, or divided by `divisor` and
    rounded down, where these are not 0. `read`: where a unit reads in a memory, which matters only
    while it may wait for who wrote there."""

    expression: Expr
    modulus: int = 0
    divisor: int = 0
    read: Use | None = None


@dataclass(frozen=True, slots=True)
class Zone:
    """Iterations `start ..< end`; `period` 0 means that nothing is known to repeat.

    `structure`: the period of everything but the remainders of what is watched modulo a number:
    the same calls come after it, though their addresses may be aligned otherwise.
    """

    start: int
    end: int
    period: int
    structure: int = 0


Turn = tuple[Affine, tuple[int, ...]]
"""An affine difference, and the values from which on a `min`, `max` or comparison of its two sides
comes out otherwise."""

_FORMS: dict[int, tuple[Expr, Affine | None, tuple[str, ...]]] = {}
_FORMS_LIMIT = 1 << 16


def _forms(expr: Expr) -> tuple[Expr, Affine | None, tuple[str, ...]]:
    """The affine form and the names of an expression, remembered by the object's identity."""
    known = _FORMS.get(id(expr))
    if known is None or known[0] is not expr:
        if len(_FORMS) >= _FORMS_LIMIT:
            _FORMS.clear()
        known = _FORMS[id(expr)] = (expr, affine(expr), names(expr))
    return known


_TURNS: dict[int, tuple[Expr, tuple[Turn, ...]]] = {}


def _turns(expr: Expr) -> tuple[Turn, ...]:
    """Where the sides of an expression may change, remembered by the object's identity."""
    known = _TURNS.get(id(expr))
    if known is None or known[0] is not expr:
        if len(_TURNS) >= _FORMS_LIMIT:
            _TURNS.clear()
        known = _TURNS[id(expr)] = (expr, tuple(_find_turns(expr)))
    return known[1]


def _find_turns(expr: Expr) -> Iterator[Turn]:
    for node in walk(expr):
        match node:
            case Call("min" | "max", (left, right)):
                signs = (0,)
            case Binary("<" | ">=", left, right):
                signs = (0,)
            case Binary("<=" | ">", left, right):
                signs = (1,)
            case Binary("==" | "!=", left, right):
                signs = (0, 1)
            case _:
                continue
        linear = _difference(left, right)
        if linear is not None:
            yield linear, signs


def interval(expr: Expr, ranges: Ranges) -> Interval:
    """Bounds of an expression over a box, tight where it is affine."""
    linear = _forms(expr)[1]
    return enclosing(expr, ranges) if linear is None else linear.within(ranges)


def _difference(left: Expr, right: Expr) -> Affine | None:
    a, b = _forms(left)[1], _forms(right)[1]
    if a is None or b is None:
        return None
    return a.plus(b, -1)


def difference_interval(left: Expr, right: Expr, ranges: Ranges) -> Interval:
    """Bounds of `left - right` over a box, tight where it is affine."""
    linear = _difference(left, right)
    if linear is not None:
        return linear.within(ranges)
    a, b = interval(left, ranges), interval(right, ranges)
    return a[0] - b[1], a[1] - b[0]


def _constant(expr: Expr, ranges: Ranges) -> int | None:
    low, high = interval(expr, ranges)
    return low if low == high else None


def progression(expr: Expr, variable: str, ranges: Ranges) -> tuple[int, int] | None:
    """(period, shift) of an expression in `variable` over its range, or None."""
    _, linear, mentioned = _forms(expr)
    if linear is not None:
        return 1, linear.coefficient(variable)
    if variable not in mentioned:
        return 1, 0
    match expr:
        case Unary("-", operand):
            p = progression(operand, variable, ranges)
            return None if p is None else (p[0], -p[1])
        case Unary("not", operand):
            p = progression(operand, variable, ranges)
            return p if p is not None and p[1] == 0 else None
        case Call("min" | "max" as function, (left, right)):
            return _selected(function, left, right, variable, ranges)
        case Call("select", (condition, yes, no)):
            p, same = (
                progression(condition, variable, ranges),
                _same_rate(yes, no, variable, ranges),
            )
            if p is None or same is None or p[1]:
                return None
            period = lcm(p[0], same[0])
            return period, same[1] * (period // same[0])
        case Binary(op, left, right):
            return _binary_progression(op, left, right, variable, ranges)
        case _:
            return None


def _binary_progression(
    op: str, left: Expr, right: Expr, variable: str, ranges: Ranges
) -> tuple[int, int] | None:
    if op in _COMPARISONS:
        return _compared(op, left, right, variable, ranges)
    a = progression(left, variable, ranges)
    b = progression(right, variable, ranges)
    if a is None or b is None:
        return None
    period = lcm(a[0], b[0])
    sa, sb = a[1] * (period // a[0]), b[1] * (period // b[0])
    match op:
        case "+":
            return period, sa + sb
        case "-":
            return period, sa - sb
        case "*":
            if sa == 0 and sb == 0:
                return period, 0
            factor = _constant(right, ranges) if sb == 0 else _constant(left, ranges)
            if factor is None or (sa and sb):
                return None
            return period, (sa + sb) * factor
        case "//" | "%":
            k = _constant(right, ranges)
            if k is None or k <= 0:
                return None
            repeat = k // gcd(a[1], k)
            return a[0] * repeat, a[1] * repeat // k if op == "//" else 0
        case "and" | "or":
            return (period, 0) if sa == 0 and sb == 0 else None
        case _:
            return None


def _same_rate(left: Expr, right: Expr, variable: str, ranges: Ranges) -> tuple[int, int] | None:
    a, b = progression(left, variable, ranges), progression(right, variable, ranges)
    if a is None or b is None or a[1] * b[0] != b[1] * a[0]:
        return None
    period = lcm(a[0], b[0])
    return period, a[1] * (period // a[0])


def _selected(
    function: str, left: Expr, right: Expr, variable: str, ranges: Ranges
) -> tuple[int, int] | None:
    same = _same_rate(left, right, variable, ranges)
    if same is not None:
        return same
    difference = difference_interval(left, right, ranges)
    if difference[1] <= 0:
        return progression(left if function == "min" else right, variable, ranges)
    if difference[0] >= 0:
        return progression(right if function == "min" else left, variable, ranges)
    return None


def _compared(
    op: str, left: Expr, right: Expr, variable: str, ranges: Ranges
) -> tuple[int, int] | None:
    same = _same_rate(left, right, variable, ranges)
    if same is not None:
        return same[0], 0
    decided = compared(op, difference_interval(left, right, ranges))
    return (1, 0) if decided is not None else None


def cuts(expr: Expr, variable: str, span: Interval, rest: Ranges) -> Iterator[int]:
    """First iterations after each point where a `min`, `max` or comparison may change sides;
    `rest`: the ranges with the variable at 0."""
    for linear, signs in _turns(expr):
        slope = linear.coefficient(variable)
        if not slope:
            continue
        bounds = linear.within(rest)
        for sign in signs:
            # Where slope * v + rest >= sign, for all values of the rest and for some.
            low, high = bounds[0] - sign, bounds[1] - sign
            if slope < 0:
                low, high = -high - 1, -low - 1
            for cut in (-(low // abs(slope)), -(high // abs(slope))):
                if span[0] < cut <= span[1]:
                    yield cut


def zones(
    watched: Iterable[Watched], variable: str, span: Interval, ranges: Ranges
) -> tuple[Zone, ...]:
    """Partition of the iterations `span[0] .. span[1]` into intervals with a common period."""
    dependent = [w for w in watched if variable in _forms(w.expression)[2]]
    edges = {span[0], span[1] + 1}
    rest = {**ranges, variable: (0, 0)}
    for w in dependent:
        edges.update(cuts(w.expression, variable, span, rest))
        if w.divisor:
            edges |= _quotient_cuts(w, variable, span, rest)
    ordered = sorted(edges)
    found: list[Zone] = []
    for start, end in pairwise(ordered):
        inside = {**ranges, variable: (start, end - 1)}
        period = structure = 1
        for w in dependent:
            if w.divisor and _one_quotient(w, inside):
                continue
            expression = Binary("//", w.expression, Const(w.divisor)) if w.divisor else w.expression
            step = progression(expression, variable, inside)
            if step is None or (step[1] and not w.modulus):
                period = structure = 0
                break
            repeat, shift = step
            structure = lcm(structure, repeat)
            if shift:
                repeat *= w.modulus // gcd(shift, w.modulus)
            if structure > MAX_PERIOD:
                period = structure = 0
                break
            # Once 0, it stays so.
            period = lcm(period, repeat)
            if period > MAX_PERIOD:
                period = 0
        found.append(Zone(start, end, period, structure))
    return tuple(found)


def _one_quotient(watched: Watched, ranges: Ranges) -> bool:
    low, high = interval(watched.expression, ranges)
    return low // watched.divisor == high // watched.divisor


MAX_QUOTIENT_CUTS = 64


def _quotient_cuts(watched: Watched, variable: str, span: Interval, rest: Ranges) -> set[int]:
    """First iterations after each point where an affine expression's quotient may change; `rest`:
    the ranges with the variable at 0."""
    linear = _forms(watched.expression)[1]
    slope, size = linear.coefficient(variable) if linear else 0, watched.divisor
    if linear is None or not slope:
        return set()
    cuts: set[int] = set()
    for offset in linear.within(rest):
        ends = sorted(slope * v + offset for v in span)
        edges = range(-(-ends[0] // size) * size, ends[1] + 1, size)
        if len(edges) > MAX_QUOTIENT_CUTS:
            return set()
        for edge in edges:
            # From here on at the edge or past it; with a falling slope, below it.
            cuts.add(-((offset - edge) // slope) if slope > 0 else (offset - edge) // -slope + 1)
    return {c for c in cuts if span[0] < c <= span[1]}


def watched_names(watched: Watched) -> Iterator[str]:
    """Names whose values can change where what is watched repeats, or how."""
    yield from names(watched.expression) if watched.divisor else decided_by(watched.expression)


def decided_by(expr: Expr) -> Iterator[str]:
    """Names whose values can change where an expression repeats, or how."""
    for node in walk(expr):
        match node:
            case Call() | Binary("<" | "<=" | ">" | ">=" | "==" | "!=", _, _):
                yield from names(node)
            case Binary("*" | "//" | "%", left, right) if names(right) and names(left):
                yield from names(node)
            case _:
                pass


def value(expr: Expr, values: Mapping[str, int]) -> int:
    """An integer expression's value."""
    return int(evaluate(expr, values))
