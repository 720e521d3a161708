"""Iterators that move a value only together, as one.

`select(1 <= i + r, x[i + r - 1], 0)` over `i` and `r` is `select(1 <= q, x[q - 1], 0)` over
`q = i + r`: fewer elements, each once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hwgen.polyhedral.tree.build import unique
from hwgen.spec.affine import Affine, affine, combine
from hwgen.spec.expression import Expr, Name, names, tensors_of, with_children
from hwgen.spec.expression import children as inside


@dataclass(frozen=True, slots=True)
class Joint:
    """A value over other iterators: by name, the extent of each, and which sum it stands for."""

    value: Expr
    iterators: tuple[tuple[str, int], ...]
    sums: Mapping[str, Expr]


def joint(value: Expr, iterators: Mapping[str, int], taken: Collection[str]) -> Joint:
    """A value over as few iterators as move it; `iterators`: by name, how many values each has."""
    sums: dict[str, Expr] = {}
    left = {n: e for n, e in iterators.items() if n in names(value)}
    while (found := _sum(value, left)) is not None:
        name = unique("_".join(found.names), {*taken, *sums, *iterators})
        value = _replaced(value, found, name)
        steps = sum(c * (left[n] - 1) for n, c in found.terms)
        first = next(n for n in left if n in found.names)
        kept = {name if n == first else n: e for n, e in left.items()} | {name: 1 + steps}
        left = {n: e for n, e in kept.items() if n not in found.names}
        sums[name] = found.expression()
    return Joint(value, tuple(left.items()), sums)


def _sum(value: Expr, extents: Mapping[str, int]) -> Affine | None:
    """The first sum of iterators that has every number up to its largest, and of which all indices
    and conditions are multiples, but for what else they have."""
    found = _functions(value)
    if found is None:
        return None
    for function in found:
        terms = tuple((n, c) for n, c in function.terms if n in extents)
        own = Affine(terms)
        if len(terms) > 1 and _dense(own, extents) and all(_multiple(f, own) for f in found):
            return own
    return None


def _dense(function: Affine, extents: Mapping[str, int]) -> bool:
    reach = 1
    for step, extent in sorted((c, extents[n]) for n, c in function.terms):
        if not 0 < step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _multiple(function: Affine, of: Affine) -> bool:
    """Whether a function moves with iterators as often as their sum does, or not at all."""
    times = {divmod(function.coefficient(n), c) for n, c in of.terms}
    return len(times) == 1 and next(iter(times))[1] == 0


def _functions(value: Expr) -> list[Affine] | None:
    """The indices and the sides of conditions in a value; None where one is not affine."""
    found: list[Affine] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if _is_place(node):
            function = affine(node)
            if function is None:
                return None
            found.append(function)
        elif isinstance(node, Name):
            return None
        else:
            waiting += inside(node)[::-1]
    return found


def _is_place(node: Expr) -> bool:
    """Whether a node is a number made of iterators alone."""
    return bool(names(node)) and not tensors_of(node) and affine(node) is not None


def _replaced(value: Expr, of: Affine, name: str) -> Expr:
    """A value with an iterator in place of a sum."""
    if not _is_place(value):
        return with_children(value, [_replaced(c, of, name) for c in inside(value)])
    function = affine(value)
    assert function is not None
    times = function.coefficient(of.terms[0][0]) // of.terms[0][1]
    kept = [(n, c) for n, c in function.terms if n not in of.names]
    return combine([*kept, (name, times)], function.constant).expression() if times else value
