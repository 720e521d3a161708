"""Conditions over loops that run over ranges: where they hold always, never, or sometimes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hwgen.codegen.processor.conditions import holds
from hwgen.polyhedral.tree.terms import addends, simplify
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, conjuncts, names, substitute
from hwgen.spec.intervals import compared

ANY_EXTENT = 1 << 30
"""Of a loop whose range shall decide nothing."""

Ranges = Mapping[str, tuple[int, int]]
"""By loop, the half-open interval that it runs over."""


def is_bound(condition: Expr) -> bool:
    """Whether a condition compares one loop with a number."""
    match condition:
        case Binary("==" | "<" | "<=" | ">" | ">=", Name(), Const(int())):
            return True
        case _:
            return False


def bounded(conditions: Iterable[Expr], loop: str, low: int, high: int) -> tuple[int, int]:
    """The part of a loop's range in which conditions that compare it with a number hold."""
    for condition in conditions:
        for part in conjuncts(condition):
            match part:
                case Binary("==", Name(name), Const(int(value))) if name == loop:
                    low, high = max(low, value), min(high, value + 1)
                case Binary("<" | "<=" as op, Name(name), Const(int(value))) if name == loop:
                    high = min(high, value + (op == "<="))
                case Binary(">" | ">=" as op, Name(name), Const(int(value))) if name == loop:
                    low = max(low, value + (op == ">"))
                case _:
                    pass
    return low, max(low, high)


def bounds(loop: str, own: tuple[int, int], span: tuple[int, int]) -> list[Expr]:
    """The conditions that a loop over a span is in a part of it."""
    (low, high), (first, end) = own, span
    if high == low + 1 and own != span:
        return [Binary("==", Name(loop), Const(low))]
    found: list[Expr] = []
    if low > first:
        found.append(Binary(">=", Name(loop), Const(low)))
    if high < end:
        found.append(Binary("<", Name(loop), Const(high)))
    return found


def for_any(condition: Expr, lanes: Mapping[str, int]) -> Expr:
    """The condition that another one holds for at least one lane."""
    match condition:
        case Binary("<" | "<=" | ">" | ">=" as op, left, right) if lanes:
            slack = Binary("-", left, right)
            extents = dict.fromkeys(names(slack), ANY_EXTENT) | dict(lanes)
            for coefficient, term in addends(simplify(slack, extents)):
                if isinstance(term, Name) and term.name in lanes:
                    least = (coefficient > 0) == (op in ("<", "<="))
                    value = 0 if least else lanes[term.name] - 1
                    condition = substitute(condition, {term.name: Const(value)})
            return condition
        case _:
            return condition


Part = tuple[int, int, bool | None]
"""A part of a loop's range, and whether a condition holds there: always, never, or neither."""


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition, and what is asked of it again and again. `slack`: where it compares affine
    functions, the first less the second."""

    expr: Expr
    loops: frozenset[str]
    op: str
    slack: Affine | None

    @classmethod
    def of(cls, expr: Expr) -> Condition:
        loops = frozenset(names(expr))
        match expr:
            case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
                free = dict.fromkeys(loops, ANY_EXTENT)
                return cls(expr, loops, op, affine(simplify(Binary("-", left, right), free)))
            case _:
                return cls(expr, loops, "", None)

    def holds(self, ranges: Ranges) -> bool | None:
        """Whether it holds wherever loops are in these ranges, nowhere there, or neither."""
        if self.slack is None:
            return decided(self.expr, ranges)
        return compared(self.op, _values(self.slack, ranges))

    def parts(self, loop: str, low: int, high: int, ranges: Ranges) -> list[Part]:
        """Parts of a loop's range in which it holds always, never, or as other loops decide."""
        step = self.slack.coefficient(loop) if self.slack is not None else 0
        if self.slack is None or not step:
            return self._halved(loop, low, high, ranges)
        least, most = _values(self.slack, {**ranges, loop: (0, 1)})
        if self.op in (">", ">=") or (self.op in ("==", "!=") and step < 0):
            step, least, most = -step, -most, -least
        strict = int(self.op in ("<", ">"))
        if self.op in ("==", "!="):
            first, last = -(most // step), -least // step + 1
            outside = beyond = self.op == "!="
            between = not outside if least == most else None
        elif step > 0:
            first, last = ((-x - strict) // step + 1 for x in (most, least))
            outside, between, beyond = True, None, False
        else:
            first, last = (-((-x - strict) // -step) for x in (least, most))
            outside, between, beyond = False, None, True
        first = min(max(first, low), high)
        last = min(max(last, first), high)
        found = ((low, first, outside), (first, last, between), (last, high, beyond))
        return [part for part in found if part[0] < part[1]]

    def _halved(self, loop: str, low: int, high: int, ranges: Ranges) -> list[Part]:
        """The same where no formula says it: parts of parts, until each is decided."""
        ends = ((low, high), (low, low + 1), (high - 1, high))
        whole, *others = (self.holds({**ranges, loop: x}) for x in ends)
        if whole is not None or high - low == 1 or others == [None, None]:
            return [(low, high, whole)]
        middle = (low + high) // 2
        first, *rest = self._halved(loop, middle, high, ranges)
        found = self._halved(loop, low, middle, ranges)
        if found[-1][2] == first[2]:
            found[-1] = (found[-1][0], first[1], first[2])
        else:
            found.append(first)
        return [*found, *rest]


def _values(function: Affine, ranges: Ranges) -> tuple[int, int]:
    """The least and the most that a function is."""
    low = high = function.constant
    for name, coefficient in function.terms:
        first, end = ranges[name]
        ends = coefficient * first, coefficient * (end - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def decided(condition: Expr, ranges: Ranges) -> bool | None:
    """Whether a condition holds wherever loops are in these ranges, nowhere there, or neither."""
    if is_bound(condition) and (loop := names(condition)[0]) in ranges:
        low, high = ranges[loop]
        part = bounded([condition], loop, low, high)
        return True if part == (low, high) else False if part[0] == part[1] else None
    used = [n for n in dict.fromkeys(names(condition)) if n in ranges]
    shifted = {n: add(Name(n), Const(ranges[n][0])) for n in used if ranges[n][0]}
    extents = {n: ranges[n][1] - ranges[n][0] for n in used}
    return holds(substitute(condition, shifted), extents)
