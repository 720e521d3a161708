"""Layouts by hand of tensors that calls take by blocks of lanes: the same over whole blocks.

`[k, n] -> [n // 32, k, n % 32]` with 16 lanes along n is `[b // 2, k, b % 2]` of the blocks b, each
with its 16 elements next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.polyhedral.tree.terms import addends, total
from hwgen.spec.expression import Binary, Const, Expr, Name, names


def over_blocks(layout: Sequence[Expr], sizes: Sequence[int]) -> tuple[Expr, ...] | None:
    """A layout over the distances `d0, d1, ...` of elements as one over those of blocks, `sizes[d]`
    elements of dimension d each; None where the elements of a block do not follow each other in
    its innermost dimension."""
    cut = [d for d, n in enumerate(sizes) if n > 1]
    if len(cut) != 1:
        return None if cut else tuple(layout)
    (along,) = cut
    *outer, inner = (_apart(e, f"d{along}", sizes[along]) for e in layout)
    found = [e for part in outer if part is not None for e, lanes in (part,) if not lanes]
    if inner is None or not inner[1] or len(found) < len(outer):
        return None
    return (*found, inner[0])


def _apart(expr: Expr, name: str, size: int) -> tuple[Expr, bool] | None:
    """Over blocks: a value that all lanes of a block share, or (true) the block part of one that is
    `size` times it plus the lane; None where it is neither."""
    if name not in names(expr):
        return expr, False
    match expr:
        case Name():
            return expr, True
        case Binary("//" | "%" as op, left, Const(int(divisor))):
            inner = _apart(left, name, size)
            if inner is None or not inner[1]:
                return None if inner is None else (Binary(op, inner[0], Const(divisor)), False)
            if divisor % size:
                return None
            blocks = divisor // size
            if blocks == 1:
                return (inner[0], False) if op == "//" else (Const(0), True)
            return Binary(op, inner[0], Const(blocks)), op == "%"
        case Binary("+" | "-" | "*", _, _):
            return _sum(expr, name, size)
        case _:
            return None


def _sum(expr: Expr, name: str, size: int) -> tuple[Expr, bool] | None:
    """The same of a sum: at most one of its terms has lanes, once, beside whole blocks."""
    parts: list[tuple[int, Expr | None]] = []
    lanes = [0, 0]
    for coefficient, term in addends(expr):
        if term is None or name not in names(term):
            parts.append((coefficient, term))
            continue
        if not isinstance(term, Name) and not isinstance(term, Binary):
            return None
        found = _apart(term, name, size)
        if found is None or (found[1] and coefficient != 1):
            return None
        lanes[found[1]] += 1
        parts.append((size if found[1] else coefficient, found[0]))
    if not lanes[True]:
        return total(parts), False
    if lanes[True] > 1 or any(c % size for c, _ in parts):
        return None
    return total((c // size, t) for c, t in parts), True
