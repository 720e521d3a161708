"""Indices with a loop divided by a number, made affine: the loop is split where they divide it.

`y[h] = x[h // 2]` for h below 8 becomes `y[2*h_o + h_i] = x[h_o]`, h_o below 4 and h_i below 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Const,
    Expr,
    Name,
    accesses,
    add,
    children,
    multiply,
    walk,
    with_children,
)

Loops = tuple[tuple[str, int], ...]
"""Loops with their extents."""


def split_divided(assign: Assign, loops: Loops, taken: Collection[str]) -> tuple[Assign, Loops]:
    """A statement and its loops, those split by which indices divide: by factors of their extents,
    the smallest first. No new loop has a name that is `taken`."""
    while True:
        extents = dict(loops)
        found = [(d, n) for n, d in _divisors(assign) if d > 1 and extents[n] % d == 0]
        if not found:
            return assign, loops
        factor, loop = min(found)
        outer, inner = (_fresh(f"{loop}_{part}", {*taken, *extents}) for part in "oi")
        pair = ((outer, extents[loop] // factor), (inner, factor))
        loops = tuple(x for own in loops for x in (pair if own[0] == loop else (own,)))

        def split(expr: Expr, at: tuple[str, int, str, str] = (loop, factor, outer, inner)) -> Expr:
            return _split(expr, *at)

        target = split(assign.target)
        assert isinstance(target, Access)
        assign = Assign(target, assign.op, split(assign.value))


def _divisors(assign: Assign) -> Iterator[tuple[str, int]]:
    """The loops that indices divide, and by what."""
    for access in accesses(assign):
        for part in (p for index in access.indices for p in walk(index)):
            match part:
                case Binary("//" | "%", Name(name), Const(int(divisor))):
                    yield name, divisor
                case _:
                    pass


def _split(expr: Expr, loop: str, factor: int, outer: str, inner: str) -> Expr:
    """An expression with `factor * outer + inner` for a loop."""
    match expr:
        case Binary("//", Name(name), Const(int(d))) if name == loop and d % factor == 0:
            return Name(outer) if d == factor else Binary("//", Name(outer), Const(d // factor))
        case Binary("%", Name(name), Const(int(d))) if name == loop and d % factor == 0:
            high = Binary("%", Name(outer), Const(d // factor)) if d > factor else Const(0)
            return add(multiply(high, Const(factor)), Name(inner))
        case Name(name) if name == loop:
            return add(multiply(Name(outer), Const(factor)), Name(inner))
        case _:
            return with_children(
                expr, [_split(c, loop, factor, outer, inner) for c in children(expr)]
            )


def _fresh(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name
