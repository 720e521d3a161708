"""Buffers that hold some indices of a dimension at a time, such as the rows that a window still
reads: layouts with a remainder, `[y % 4, x]`.

An element takes the place of an earlier one when nothing needs that any more. So elements that
share a place must be used in turn, in the order of their indices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.polyhedral.tree.relations import Side, conjoin, not_before, same
from hwgen.polyhedral.tree.terms import not_quasi_affine
from hwgen.spec.expression import Access, Binary, Const, Expr, substitute, walk


def rolls(layout: Sequence[Expr]) -> bool:
    """Whether a layout repeats along some dimensions and is a sum of the others else."""
    remainders = 0
    for dimension in layout:
        inner = dimension
        match dimension:
            case Binary("%", left, Const(int())):
                inner, remainders = left, remainders + 1
            case _:
                pass
        divided = any(isinstance(e, Binary) and e.op in ("//", "%") for e in walk(inner))
        if divided or not_quasi_affine(inner):
            return False
    return remainders > 0


def taken_too_early(
    state: LoopTree, tensors: Sequence[str], depth: int
) -> tuple[Side, Side, isl.Pair] | None:
    """A use of an element after another has been written in its place, of tensors of one shape and
    in one place; their home is the outermost `depth` loops. Nothing where no two share a place."""
    layout = state.place(tensors[0]).layout
    if not rolls(layout):
        return None
    sites = [s for s in state.sites if _accesses(state, s, tensors)]
    writers = [s for s in sites if s.block.stage in tensors]
    for user, writer in product(sites, writers):
        u, w = Side(state, user, "'"), Side(state, writer, "''")
        target = w.stage.target
        # What an instance overwrites, it may have read itself.
        other = [f"({' or '.join(map('{} != {}'.format, u.names, w.names)) or '0 = 1'})"]
        for access in _accesses(state, user, tensors):
            old, new = u.element(access), w.element(target)
            place = [f"{_at(u, access, d)} = {_at(w, target, d)}" for d in layout]
            # A guard keeps reads outside of the tensor from happening.
            shape = state.tensor[access.tensor].shape
            inside = [f"0 <= {i} < {n}" for i, n in zip(old, shape, strict=True)]
            pair = isl.some_pair(
                f"{{ {u.tuple} -> {w.tuple} : "
                + conjoin(
                    u.domain,
                    w.domain,
                    same(u, w, depth),
                    place,
                    inside,
                    other if user.block.name == writer.block.name else (),
                )
                + f" and ({_earlier(old, new)}) and {not_before(u, w)} }}"
            )
            if pair is not None:
                return u, w, pair
    return None


def _accesses(state: LoopTree, site: Site, tensors: Collection[str]) -> list[Access]:
    stage = state.stage[site.block.stage]
    found = [r for r in stage.reads_in(site.block.part) if r.tensor in tensors]
    return [stage.target, *found] if stage.tensor in tensors else found


def _at(side: Side, access: Access, dimension: Expr) -> str:
    """A dimension of the layout at an access."""
    indices = (substitute(i, side.block.binding) for i in access.indices)
    return side.own(substitute(dimension, {f"d{n}": i for n, i in enumerate(indices)}))


def _earlier(one: Sequence[str], other: Sequence[str]) -> str:
    """Condition: an element comes before another in the order of their indices."""
    ways = [
        " and ".join([*(f"{a} = {b}" for a, b in zip(one[:d], other[:d], strict=True)),
                      f"{one[d]} < {other[d]}"])
        for d in range(len(one))
    ]  # fmt: skip
    return " or ".join(f"({w})" for w in ways) or "0 = 1"


def repeated(layout: Sequence[Expr]) -> tuple[Expr, int] | None:
    """What the first dimension of a layout is the remainder of, and by what; None where it is no
    remainder."""
    match layout[0] if layout else None:
        case Binary("%", inner, Const(int(size))):
            return inner, size
        case _:
            return None
