"""Affine functions of named integer variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hwgen.spec.expression import Binary, Const, Expr, Name, Unary, add, multiply
from hwgen.spec.intervals import Interval, Ranges


@dataclass(frozen=True, slots=True)
class Affine:
    """`sum(coefficient * name) + constant`; terms sorted by name, no zero coefficient."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        for own, coefficient in self.terms:
            if own == name:
                return coefficient
        return 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """`self + factor * other`."""
        added = [(n, factor * c) for n, c in other.terms]
        return combine([*self.terms, *added], self.constant + factor * other.constant)

    def rename(self, mapping: Mapping[str, str]) -> Affine:
        """The same function with variables renamed; merged names add up."""
        return combine([(mapping.get(n, n), c) for n, c in self.terms], self.constant)

    def fix(self, values: Mapping[str, int]) -> Affine:
        """The function with some variables set to numbers."""
        constant = self.constant
        left: list[tuple[str, int]] = []
        for name, coefficient in self.terms:
            if name in values:
                constant += coefficient * values[name]
            else:
                left.append((name, coefficient))
        return Affine(tuple(left), constant) if len(left) < len(self.terms) else self

    def at(self, values: Mapping[str, int]) -> int:
        """The value where each variable has one."""
        return self.constant + sum(c * values[name] for name, c in self.terms)

    def along(self, names: Iterable[str]) -> Affine:
        """The same function to be shown, its terms in the order of `names` and not sorted, so that
        no name decides what stands first; equal to none but those shown so."""
        return Affine(tuple((n, c) for n in names if (c := self.coefficient(n))), self.constant)

    def expression(self, bindings: Mapping[str, Expr] | None = None) -> Expr:
        """As a program expression, variables replaced by `bindings`."""
        bindings = bindings or {}
        total: Expr = Const(0)
        for name, coefficient in self.terms:
            variable = bindings.get(name, Name(name))
            total = add(total, multiply(variable, Const(coefficient)))
        return add(total, Const(self.constant)) if self.constant else total

    def within(self, ranges: Ranges) -> Interval:
        """Least and greatest value where each variable is in a range of its own."""
        low = high = self.constant
        for name, coefficient in self.terms:
            first, last = ranges[name]
            ends = coefficient * first, coefficient * last
            low, high = low + min(ends), high + max(ends)
        return low, high

    def interval(self, extents: Mapping[str, int]) -> Interval:
        """The same where each runs over `0 ..< extents[name]`."""
        low = high = self.constant
        for name, coefficient in self.terms:
            reach = coefficient * (extents[name] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    def is_injective(self, extents: Mapping[str, int]) -> bool:
        """Whether variables in other places are seen to give other values."""
        reach = 0
        for name, step in sorted(self.terms, key=lambda t: abs(t[1])):
            if abs(step) <= reach:
                return False
            reach += abs(step) * (extents[name] - 1)
        return True

    def packed(self, extents: Mapping[str, int]) -> Affine:
        """The number of a value among those that the function takes, where it takes each once and
        others lie between them; else the function itself."""
        terms: list[tuple[str, int]] = []
        reach, count = 0, 1
        for name, step in sorted(self.terms, key=lambda x: (abs(x[1]), x[0])):
            if extents[name] == 1:
                continue
            if abs(step) <= reach:
                return self
            terms.append((name, count))
            reach += abs(step) * (extents[name] - 1)
            count *= extents[name]
        return combine(terms) if count <= reach else self

    def __str__(self) -> str:
        parts = [n if c == 1 else f"{c}*{n}" for n, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


def sparse(indices: Sequence[Affine], extents: Mapping[str, int]) -> bool:
    """Whether elements lie between those that indices take, of which there are fewer than in the
    box around them."""
    taken = prod(extents[n] for n in {n for i in indices for n in i.names})
    ranges = (i.interval(extents) for i in indices)
    box = prod(high - low + 1 for low, high in ranges)
    return taken < box and any(i.packed(extents) != i for i in indices)


def combine(terms: Iterable[tuple[str, int]], constant: int = 0) -> Affine:
    """An affine function from terms in any order, duplicates allowed."""
    total: dict[str, int] = {}
    for name, coefficient in terms:
        total[name] = total.get(name, 0) + coefficient
    return Affine(tuple(sorted((n, c) for n, c in total.items() if c)), constant)


def affine(expr: Expr) -> Affine | None:
    """The affine function that an expression stands for, or None where it is not affine."""
    total: dict[str, int] = {}
    constant = _sum(expr, 1, total)
    if constant is None:
        return None
    return Affine(tuple(sorted((n, c) for n, c in total.items() if c)), constant)


def _sum(expr: Expr, factor: int, total: dict[str, int]) -> int | None:
    """The constant of `factor * expr`, its terms added to `total`; None where it is not affine."""
    if isinstance(expr, Name):
        total[expr.name] = total.get(expr.name, 0) + factor
        return 0
    if isinstance(expr, Const):
        return factor * expr.value if isinstance(expr.value, int) else None
    if isinstance(expr, Unary):
        return _sum(expr.operand, -factor, total) if expr.op == "-" else None
    if not isinstance(expr, Binary):
        return None
    left, right = expr.left, expr.right
    if expr.op in ("+", "-"):
        first = _sum(left, factor, total)
        if first is None:
            return None
        second = _sum(right, factor if expr.op == "+" else -factor, total)
        return None if second is None else first + second
    if expr.op != "*":
        return None
    for number, other in ((left, right), (right, left)):
        value = affine(number)
        if value is None:
            return None
        if not value.terms:
            return _sum(other, factor * value.constant, total)
    return None
