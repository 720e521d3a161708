"""Conditions over loops, as boxes of loops in which all of them hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from hwgen.codegen.instances.forms import Form, Quotient, Ranges, known_form, number, total
from hwgen.codegen.instances.refuted import unproved
from hwgen.spec.expression import Binary, Const, Expr, Unary

MOST_BOXES = 1 << 14
"""Boxes of one block, or around one call; conditions that need more are not taken apart."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`slack` compared with zero: "<", "<=", "==" or "!="."""

    slack: Form
    op: str

    def holds(self, ranges: Ranges) -> bool | None:
        low, high = self.slack.interval(ranges)
        match self.op:
            case "<":
                always, never = high < 0, low >= 0
            case "<=":
                always, never = high <= 0, low > 0
            case "==":
                always, never = low == high == 0, low > 0 or high < 0
            case _:
                always, never = low > 0 or high < 0, low == high == 0
        return True if always else False if never else None


@dataclass(frozen=True, slots=True)
class Either:
    """One of some conjunctions holds."""

    ways: tuple[tuple[Condition, ...], ...]

    def holds(self, ranges: Ranges) -> bool | None:
        found = [_all(way, ranges) for way in self.ways]
        return True if True in found else None if None in found else False


Condition = Comparison | Either

_NOT = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def conditions_of(expr: Expr, table: Mapping[str, Form], ranges: Ranges) -> tuple[Condition, ...]:
    """A condition as those of which all must hold.

    Raises:
        HwgenError: H747 where it does not compare quasi-affine functions.
    """
    match expr:
        case Const(value):
            return () if value else (Either(()),)
        case Binary("and", left, right):
            return (*conditions_of(left, table, ranges), *conditions_of(right, table, ranges))
        case Binary("or", left, right):
            return (Either(tuple(conditions_of(e, table, ranges) for e in (left, right))),)
        case Unary("not", Binary("and", a, b)):
            return conditions_of(Binary("or", Unary("not", a), Unary("not", b)), table, ranges)
        case Unary("not", Binary("or", a, b)):
            return conditions_of(Binary("and", Unary("not", a), Unary("not", b)), table, ranges)
        case Unary("not", Unary("not", inner)):
            return conditions_of(inner, table, ranges)
        case Unary("not", Binary(op, left, right)) if op in _NOT:
            return conditions_of(Binary(_NOT[op], left, right), table, ranges)  # type: ignore[arg-type]
        case Binary("<" | "<=" | "==" | "!=" as op, left, right):
            return (Comparison(known_form(Binary("-", left, right), table, ranges), op),)
        case Binary(">" | ">=" as op, left, right):
            turned = "<" if op == ">" else "<="
            return (Comparison(known_form(Binary("-", right, left), table, ranges), turned),)
        case _:
            raise unproved(str(expr), "comparisons of quasi-affine functions")


def _all(conditions: Sequence[Condition], ranges: Ranges) -> bool | None:
    result: bool | None = True
    for condition in conditions:
        holds = condition.holds(ranges)
        if holds is False:
            return False
        result = result if holds else None
    return result


def boxes(ranges: Ranges, conditions: Sequence[Condition]) -> Iterator[Ranges]:
    """Disjoint boxes that together are where all conditions hold.

    Raises:
        HwgenError: H747 where there are too many.
    """
    if any(low >= high for low, high in ranges.values()):
        return
    todo: list[tuple[Ranges, Sequence[Condition]]] = [(ranges, conditions)]
    seen = 0
    while todo:
        box, left = todo.pop()
        seen += 1
        if seen > MOST_BOXES:
            raise unproved(f"conditions of more than {MOST_BOXES} boxes", f"{MOST_BOXES}")
        open_ones: list[Condition] = []
        for condition in left:
            holds = condition.holds(box)
            if holds is False:
                break
            if holds is None:
                open_ones.append(condition)
        else:
            if open_ones:
                todo += [(part, open_ones) for part in _cut(box, open_ones[0])]
            else:
                yield box


def _cut(box: Ranges, condition: Condition) -> Iterator[Ranges]:
    """Parts of a box, smaller where a condition decides."""
    comparison = _open(condition, box)
    slack = comparison.slack
    steps = slack.steps

    def reach(loop: str) -> int:
        return abs(steps.get(loop, 1)) * (box[loop][1] - box[loop][0] - 1)

    name = max(sorted(slack.names), key=reach)
    low, high = box[name]
    ends = {low, high}
    if name in steps and not any(name in q.of.names for q, _ in slack.quotients):
        factor = steps[name]
        rest = total(slack, Form(frozenset([(name, -factor)])))
        for bound in rest.interval(box):
            at = -bound // factor
            ends |= {n for n in (at - 1, at, at + 1, at + 2) if low < n < high}
    if len(ends) == 2:
        ends.add((low + high) // 2)
    for first, end in pairwise(sorted(ends)):
        yield {**box, name: (first, end)}


def _open(condition: Condition, box: Ranges) -> Comparison:
    """A comparison on which an undecided condition depends."""
    match condition:
        case Comparison():
            return condition
        case Either(ways):
            inside = (c for way in ways if _all(way, box) is None for c in way)
            return _open(next(c for c in inside if c.holds(box) is None), box)


def settled(
    ranges: Ranges, conditions: Sequence[Condition]
) -> tuple[dict[str, tuple[int, int]], frozenset[Condition]]:
    """The ranges, narrowed by the conditions, and what is left of these, in a form in which equal
    ones mostly are the same."""
    within = dict(ranges)
    left = [_plain(c) for c in conditions]
    before: dict[str, tuple[int, int]] = {}
    while before != within and all(low < high for low, high in within.values()):
        before = dict(within)
        for condition in left:
            if isinstance(condition, Comparison):
                _narrow(within, condition)
    return within, frozenset(c for c in left if c.holds(within) is not True)


def _narrow(ranges: dict[str, tuple[int, int]], condition: Comparison) -> None:
    """Leave out what no condition holds for, whatever other names are."""
    ways = {"<=": (1,), "==": (1, -1)}.get(condition.op, ())
    for slack in (condition.slack.scaled(way) for way in ways):
        for name, factor in slack.steps.items():
            low, high = ranges[name]
            rest = slack.interval(ranges)[0] - min(factor * low, factor * (high - 1))
            if factor > 0:
                ranges[name] = low, min(high, -rest // factor + 1)
            else:
                ranges[name] = max(low, -(-rest // -factor)), high
            if ranges[name][0] >= ranges[name][1]:
                return


def _plain(condition: Condition) -> Condition:
    """The same without a quotient that is alone, and without what divides all factors."""
    match condition:
        case Either(ways):
            return Either(tuple(tuple(_plain(c) for c in way) for way in ways))
        case Comparison(slack, "<"):
            return _plain(Comparison(total(slack, number(1)), "<="))
        case Comparison(slack, "<="):
            alone = [(q, c) for q, c in slack.quotients if abs(c) == 1]
            if alone:
                quotient, sign = max(alone, key=lambda pair: (pair[0].by, str(pair[0])))
                rest = _without(slack, quotient).scaled(quotient.by)
                # x // n + r <= 0 is x <= n - 1 - n r, and r <= x // n is n r <= x.
                spare = number(1 - quotient.by if sign > 0 else 0)
                return _plain(Comparison(total(rest, quotient.of.scaled(sign), spare), "<="))
            common = gcd(*(factor for _, factor in slack.terms))
            if common > 1:
                terms = frozenset((a, c // common) for a, c in slack.terms)
                slack = Form(terms, -(-slack.constant // common))
            return Comparison(slack, "<=")
        case _:
            return condition


def _without(form: Form, quotient: Quotient) -> Form:
    return Form(frozenset((a, c) for a, c in form.terms if a != quotient), form.constant)
