"""Conditions over loops: taken apart, decided by intervals, turned into bounds of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hwgen.polyhedral.tree.terms import addends, interval, simplify, total
from hwgen.spec.expression import Binary, Call, Const, Expr, Name, conjuncts, names
from hwgen.spec.intervals import compared


def needed(conditions: Iterable[Expr], extents: Mapping[str, int]) -> dict[str, Expr]:
    """Conditions that the loops' ranges do not imply, simplified, by their text."""
    result: dict[str, Expr] = {}
    for condition in conditions:
        for part in conjuncts(condition):
            simple = _simplified(part, extents)
            if not holds(simple, extents):
                result.setdefault(str(simple), simple)
    return result


def _simplified(condition: Expr, extents: Mapping[str, int]) -> Expr:
    match condition:
        case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" | "or" | "and" as op, left, right):
            return Binary(op, _simplified(left, extents), _simplified(right, extents))
        case _:
            return simplify(condition, extents)


def holds(condition: Expr, extents: Mapping[str, int]) -> bool | None:
    """Whether a condition holds wherever the loops' ranges do, nowhere there, or neither."""
    match condition:
        case Const(value):
            return bool(value)
        case Binary("and" | "or" as op, left, right):
            sides, enough = (holds(left, extents), holds(right, extents)), op == "or"
            return enough if enough in sides else None if None in sides else not enough
        case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
            slack = simplify(Binary("-", left, right), extents)
            return compared(op, interval(slack, extents))
        case _:
            return None


def upper_bound(condition: Expr, loop: str, extents: Mapping[str, int]) -> Expr | None:
    """The least value of `loop` at which the condition fails, if it holds exactly below that."""
    match condition:
        case Binary("<", left, right):
            slack = Binary("-", right, left)
        case Binary("<=", left, right):
            slack = Binary("-", Binary("+", right, Const(1)), left)
        case Binary(">", left, right):
            slack = Binary("-", left, right)
        case Binary(">=", left, right):
            slack = Binary("-", Binary("+", left, Const(1)), right)
        case _:
            return None
    # slack > 0, where slack = rest - factor * loop.
    found = addends(simplify(slack, extents))
    factor = -sum(c for c, t in found if t == Name(loop))
    rest = [(c, t) for c, t in found if t != Name(loop)]
    if factor <= 0 or any(t is not None and loop in names(t) for _, t in rest):
        return None
    return simplify(
        Binary("//", total([*rest, (factor - 1, None)]), Const(factor)) if factor > 1
        else total(rest),
        extents,
    )  # fmt: skip


def least(bound: Expr, other: Expr, extents: Mapping[str, int]) -> Expr:
    """The smaller of two bounds, one alone where ranges decide."""
    if isinstance(bound, Const):
        low, high = interval(other, extents)
        value = int(bound.value)
        if low >= value:
            return bound
        if high <= value:
            return other
    return Call("min", (bound, other))
