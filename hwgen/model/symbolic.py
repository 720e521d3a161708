"""Expressions of the spec's language, and polynomials over trips of loops, in sympy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import sympy  # pyright: ignore[reportMissingTypeStubs]  # It has none.

from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary

if TYPE_CHECKING:
    from .tally import Count

Formula = sympy.Expr

_sp: Any = sympy
"""The library, whose types say little."""


def symbol(name: str) -> Formula:
    """A whole number, not below 0."""
    return _sp.Symbol(name, integer=True, nonnegative=True)


def symbolic(expr: Expr) -> Formula:
    """A number's expression as a formula: `evaluate` on the same numbers gives the same, of
    divisions exactly.

    Raises:
        TypeError: it is no number.
    """
    match expr:
        case Const(value):
            return _sp.Rational(str(value))
        case Name(name):
            return symbol(name)
        case Binary(op, left, right):
            return _binary(op, symbolic(left), symbolic(right))
        case Unary("-", operand):
            return -symbolic(operand)
        case Unary(_, operand):
            return _truth(_sp.Eq(symbolic(operand), 0))
        case Call(function, arguments):
            return _call(function, [symbolic(a) for a in arguments])
        case Cast() | Access():
            raise TypeError(f"{expr} is not a number")


def _binary(op: str, left: Any, right: Any) -> Formula:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return _sp.floor(left / right)
        case "%":
            return _sp.Mod(left, right)
        case "<<":
            return _sp.floor(left) * 2 ** _sp.floor(right)
        case ">>":
            return _sp.floor(_sp.floor(left) / 2 ** _sp.floor(right))
        case "and":
            return _truth(_sp.And(_sp.Ne(left, 0), _sp.Ne(right, 0)))
        case "or":
            return _truth(_sp.Or(_sp.Ne(left, 0), _sp.Ne(right, 0)))
        case _:
            return _truth(_COMPARISONS[op](left, right))


_COMPARISONS = {
    "<": _sp.Lt, "<=": _sp.Le, ">": _sp.Gt, ">=": _sp.Ge, "==": _sp.Eq, "!=": _sp.Ne,
}  # fmt: skip


def _truth(condition: Any) -> Formula:
    return _sp.Piecewise((1, condition), (0, True))


def _call(function: str, arguments: Sequence[Any]) -> Formula:
    match function, arguments:
        case "min", _:
            return _sp.Min(*arguments)
        case "max", _:
            return _sp.Max(*arguments)
        case "clip", (value, low, high):
            return _sp.Min(_sp.Max(value, low), high)
        case "select", (condition, yes, no):
            return _sp.Piecewise((yes, _sp.Ne(condition, 0)), (no, True))
        case "ceil", (value,):
            return _sp.ceiling(value)
        case "floor", (value,):
            return _sp.floor(value)
        case "abs", (value,):
            return _sp.Abs(value)
        case _:
            raise TypeError(f"{function} is not a function of numbers")


def whole(formula: Formula) -> Formula:
    """A formula rounded up, where it may be no whole number."""
    return formula if formula.is_integer else _sp.ceiling(formula)


def without(formula: Formula, names: Sequence[str]) -> Formula:
    """A formula in which names are 0."""
    found: Any = formula
    return found.subs({symbol(n): 0 for n in names})


def number(found: int) -> Formula:
    """A number as a formula."""
    return _sp.Integer(found)


def nested(count: Count, order: Sequence[str]) -> Formula:
    """A polynomial, the parameter that most of its terms have taken out first; `order`: of those
    that as many have, the outermost loop's."""
    if not count:
        return _sp.Integer(0)
    within = {n: sum(1 for monomial in count if n in monomial) for n in order}
    taken = max(order, key=lambda n: within[n], default="")
    if not taken or not within[taken]:
        return _rational(Fraction(count[()]))
    with_it: Count = {}
    rest: Count = {}
    for monomial, times in count.items():
        if taken in monomial:
            at = monomial.index(taken)
            with_it[monomial[:at] + monomial[at + 1 :]] = times
        else:
            rest[monomial] = times
    common = _common(with_it)
    inner = nested({monomial: n / common for monomial, n in with_it.items()}, order)
    # At once: of a number and a sum alone the library makes another sum.
    product: Any = _sp.Mul(_rational(common), symbol(taken), inner)
    return product + nested(rest, order)


def _common(count: Count) -> Fraction:
    """What is taken out of all terms: a factor of one of which the others are multiples, else what
    makes them whole. Others would hide what one iteration takes."""
    factors = [Fraction(n) for n in count.values()]
    below = lcm(*(f.denominator for f in factors))
    found = Fraction(gcd(*(f.numerator for f in factors)), below)
    return found if found in factors else Fraction(1, below)


def _rational(found: Fraction) -> Formula:
    return _sp.Rational(found.numerator, found.denominator)


def value(formula: Formula, numbers: Mapping[str, int]) -> int:
    """The whole number that a formula stands for."""
    given: Any = formula
    found = given.subs({symbol(name): _sp.Integer(n) for name, n in numbers.items()})
    assert found.is_Integer, f"{shown(formula)} is {found}"
    return int(found)


def shown(formula: Formula) -> str:
    """A formula in a line, its functions by the names that specs have for them."""
    text: Any = formula
    for function, name in ((_sp.ceiling, "ceil"), (_sp.Max, "max"), (_sp.Min, "min")):
        text = text.replace(function, _sp.Function(name))
    return str(_sp.sstr(text, order="lex"))
