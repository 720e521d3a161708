"""Quasi-affine functions in one normal form, compared term by term.

A form is a sum of whole multiples of names and of quotients `form // n`; a remainder is written by
its quotient. Quotients that ranges decide are gone. It shares no code with what lowering does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd

from hwgen.codegen.instances.refuted import unproved
from hwgen.spec.expression import Binary, Const, Expr, Name, Unary

Ranges = Mapping[str, tuple[int, int]]
"""By name, the half-open interval of its values."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """`of // by`, rounded down."""

    of: Form
    by: int

    def __str__(self) -> str:
        return f"({self.of}) // {self.by}"


Atom = str | Quotient


@dataclass(frozen=True)
class Form:
    """The sum of `terms` and `constant`: no factor is zero, no atom occurs twice."""

    terms: frozenset[tuple[Atom, int]] = frozenset()
    constant: int = 0

    def scaled(self, factor: int) -> Form:
        if factor == 1:
            return self
        if factor == 0:
            return Form()
        return Form(frozenset((a, c * factor) for a, c in self.terms), self.constant * factor)

    @property
    def steps(self) -> dict[str, int]:
        """By name, what it is multiplied by."""
        return {a: c for a, c in self.terms if isinstance(a, str)}

    @property
    def quotients(self) -> tuple[tuple[Quotient, int], ...]:
        return tuple((a, c) for a, c in self.terms if isinstance(a, Quotient))

    @property
    def names(self) -> frozenset[str]:
        """All that it depends on, within quotients too."""
        found: set[str] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.of.names
        return frozenset(found)

    def interval(self, ranges: Ranges) -> tuple[int, int]:
        """Bounds of its values, both included."""
        low = high = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, str):
                first, end = ranges[atom]
                ends = first * factor, (end - 1) * factor
            else:
                first, last = atom.of.interval(ranges)
                ends = first // atom.by * factor, last // atom.by * factor
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __str__(self) -> str:
        terms = sorted(f"{c} * {a}" for a, c in self.terms)
        return " + ".join([*terms, str(self.constant)])


def number(value: int) -> Form:
    return Form(frozenset(), value)


def variable(name: str) -> Form:
    return Form(frozenset([(name, 1)]))


def total(*forms: Form) -> Form:
    """Their sum."""
    found: dict[Atom, int] = {}
    for form in forms:
        for atom, factor in form.terms:
            found[atom] = found.get(atom, 0) + factor
    terms = frozenset((a, c) for a, c in found.items() if c)
    return Form(terms, sum(f.constant for f in forms))


def divided(form: Form, by: int, ranges: Ranges) -> Form:
    """`form // by`."""
    whole = frozenset((a, c // by) for a, c in form.terms if c % by == 0)
    rest = Form(frozenset((a, c) for a, c in form.terms if c % by), form.constant % by)
    outside = Form(whole, form.constant // by)
    low, high = rest.interval(ranges)
    if low // by == high // by:
        return total(outside, number(low // by))
    turned = frozenset((a, c // by) for a, c in rest.terms if c // by)
    rest = Form(frozenset((a, c % by) for a, c in rest.terms), rest.constant)
    low, high = rest.interval(ranges)
    inside = number(low // by) if low // by == high // by else _quotient(rest, by)
    return total(outside, Form(turned), inside)


def _quotient(rest: Form, by: int) -> Form:
    """`rest // by`, both without what divides all factors."""
    common = reduce(gcd, (c for _, c in rest.terms), by)
    terms = frozenset((a, c // common) for a, c in rest.terms)
    small, divisor = Form(terms, rest.constant // common), by // common
    if divisor == 1:
        return small
    match [*small.terms]:
        case [(Quotient(of, inner), 1)]:  # (f // a + c) // b is (f + a c) // (a b).
            return _quotient(total(of, number(inner * small.constant)), inner * divisor)
        case _:
            return Form(frozenset([(Quotient(small, divisor), 1)]))


def remainder(form: Form, by: int, ranges: Ranges) -> Form:
    """`form % by`."""
    return total(form, divided(form, by, ranges).scaled(-by))


def form_of(expr: Expr, table: Mapping[str, Form], ranges: Ranges) -> Form | None:
    """An expression in normal form, its names as the table has them, else as themselves; None
    where it is not quasi-affine. `ranges`: of the names in the result."""
    match expr:
        case Const(int(value)):
            return number(value)
        case Name(name):
            return table.get(name) or variable(name)
        case Unary("-", operand):
            inner = form_of(operand, table, ranges)
            return None if inner is None else inner.scaled(-1)
        case Binary(op, left, right):
            a, b = form_of(left, table, ranges), form_of(right, table, ranges)
            if a is None or b is None:
                return None
            match op:
                case "+":
                    return total(a, b)
                case "-":
                    return total(a, b.scaled(-1))
                case "*" if not b.terms:
                    return a.scaled(b.constant)
                case "*" if not a.terms:
                    return b.scaled(a.constant)
                case "//" if not b.terms and b.constant > 0:
                    return divided(a, b.constant, ranges)
                case "%" if not b.terms and b.constant > 0:
                    return remainder(a, b.constant, ranges)
                case _:
                    return None
        case _:
            return None


def known_form(expr: Expr, table: Mapping[str, Form], ranges: Ranges) -> Form:
    """The same of what must be quasi-affine.

    Raises:
        HwgenError: H747 where it is not.
    """
    found = form_of(expr, table, ranges)
    if found is None:
        raise unproved(str(expr), "a quasi-affine function of loops")
    return found


def replaced(form: Form, table: Mapping[str, Form], ranges: Ranges) -> Form:
    """The form with names replaced; `ranges`: of the names in the result."""
    parts = [number(form.constant)]
    for atom, factor in form.terms:
        if isinstance(atom, str):
            parts.append((table.get(atom) or variable(atom)).scaled(factor))
        else:
            inner = replaced(atom.of, table, ranges)
            parts.append(divided(inner, atom.by, ranges).scaled(factor))
    return total(*parts)
