"""Exact integer bounds: does an index leave its tensor, where its guards hold?

Indices and guards are affine forms over loops with constant extents. Constraints with the same
linear part are first joined to intervals (this alone settles guards such as
`i + r >= P and i + r < H + P`); the rest is branch and bound over the box, which finds a witness
or proves that there is none. The number of boxes looked at is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Binary, Const, Expr, Unary
from hwgen.spec.intervals import Interval

MAX_BOXES = 20_000
MAX_CASES = 64


class SearchLimitError(Exception):
    """The bounded search ended without an answer."""


Case = tuple[Affine, ...]
"""A conjunction: every form is at least zero."""


def cases(condition: Expr, holds: bool = True) -> tuple[Case, ...]:
    """A condition (or its negation) as a disjunction of conjunctions.

    Parts that are not affine comparisons restrict nothing, so the cases cover at least every
    point where the condition holds.

    Raises:
        SearchLimitError: more than `MAX_CASES` cases.
    """
    match condition:
        case Unary("not", operand):
            return cases(operand, not holds)
        case Binary(("and" | "or") as op, left, right):
            a, b = cases(left, holds), cases(right, holds)
            joined = (op == "and") == holds
            result = tuple((*x, *y) for x in a for y in b) if joined else (*a, *b)
            if len(result) > MAX_CASES:
                raise SearchLimitError
            return result
        case Binary(op, left, right):
            a, b = affine(left), affine(right)
            return _comparison(op if holds else _NEGATED.get(op, ""), a, b) if a and b else ((),)
        case Const(value):
            return ((),) if bool(value) == holds else ()
        case _:
            return ((),)


_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def _comparison(op: str, a: Affine, b: Affine) -> tuple[Case, ...]:
    difference, opposite = a.plus(b, -1), b.plus(a, -1)
    one = Affine((), 1)
    match op:
        case ">=":
            return ((difference,),)
        case "<=":
            return ((opposite,),)
        case ">":
            return ((difference.plus(one, -1),),)
        case "<":
            return ((opposite.plus(one, -1),),)
        case "==":
            return ((difference, opposite),)
        case "!=":
            return ((difference.plus(one, -1),), (opposite.plus(one, -1),))
        case _:
            return ((),)


Box = dict[str, Interval]


def find_point(constraints: Case, extents: Mapping[str, int]) -> dict[str, int] | None:
    """A point of `0 <= name < extent` where every form is at least zero, or None.

    Raises:
        SearchLimitError: `MAX_BOXES` boxes did not settle it.
    """
    box: Box = {name: (0, extent - 1) for name, extent in extents.items()}
    joined = _join(constraints)
    if joined is None:
        return None
    stack = [box]
    looked = 0
    while stack:
        looked += 1
        if looked > MAX_BOXES:
            raise SearchLimitError
        tight = _tighten(joined, stack.pop())
        if tight is None:
            continue
        open_form = next((f for f in joined if f.within(tight)[0] < 0), None)
        if open_form is None:
            return {name: low for name, (low, _) in tight.items()}
        _, widest = max((abs(c) * (tight[n][1] - tight[n][0]), n) for n, c in open_form.terms)
        low, high = tight[widest]
        assert low < high, "a form with fixed names is settled by `_tighten`"
        middle = (low + high) // 2
        halves = [{**tight, widest: (low, middle)}, {**tight, widest: (middle + 1, high)}]
        if dict(open_form.terms)[widest] < 0:
            halves.reverse()
        stack += halves  # the half that helps the open form is looked at first
    return None


def _join(constraints: Case) -> list[Affine] | None:
    """One lower bound per linear part; None where opposite parts contradict each other."""
    lowest: dict[tuple[tuple[str, int], ...], int] = {}
    for form in constraints:
        divisor = gcd(*(c for _, c in form.terms)) if form.terms else 1
        if not form.terms:
            if form.constant < 0:
                return None
            continue
        terms = tuple((n, c // divisor) for n, c in form.terms)
        limit = form.constant // divisor  # terms + limit >= 0, over integers
        lowest[terms] = min(limit, lowest.get(terms, limit))
    for terms, limit in lowest.items():
        opposite = tuple((n, -c) for n, c in terms)
        if opposite in lowest and limit + lowest[opposite] < 0:
            return None
    return [Affine(terms, limit) for terms, limit in lowest.items()]


def _tighten(forms: list[Affine], box: Box) -> Box | None:
    """Shrink the box by each form's single names until nothing moves; None where it is empty."""
    box = dict(box)
    for _ in range(8):
        moved = False
        for form in forms:
            highest = form.within(box)[1]
            if highest < 0:
                return None
            for name, c in form.terms:
                low, high = box[name]
                rest = highest - c * (high if c > 0 else low)
                if c > 0:
                    new_low, new_high = max(low, -(rest // c)), high
                else:
                    new_low, new_high = low, min(high, rest // -c)
                if new_low > new_high:
                    return None
                if (new_low, new_high) != (low, high):
                    box[name] = (new_low, new_high)
                    moved = True
        if not moved:
            break
    return box
