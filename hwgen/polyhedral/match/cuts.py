"""How the lanes of calls cut a tensor's dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.tensorize import steps
from hwgen.spec.expression import Access
from hwgen.spec.hardware import Operand

Cut = tuple[tuple[int | None, int], ...]
"""For each dimension of an operand: the tensor's dimension that its lanes run along (None where
none does), and how many there are. The last ones are an entry's, those before are rows."""


def cut_of(
    site: Site,
    given: Sequence[tuple[str, str]],
    operand: Operand,
    access: Access,
    again: Mapping[int, int] | None = None,
) -> Cut:
    """How an operand's dimensions cut the tensor that it stands for; `given`: the loop that each
    iterator is; `again`: of positions from the end, the tensor's dimension where no loop runs."""
    lanes = dict(given)
    inner = {x for x in lanes.values() if x}
    result: list[tuple[int | None, int]] = []
    for n, (iterator, extent) in enumerate(zip(operand.indices, operand.shape, strict=True)):
        dimension = moved(site, access, lanes.get(iterator, ""), inner)
        if dimension is None and again:
            dimension = again.get(len(operand.indices) - n)
        result.append((dimension, extent))
    return tuple(result)


def moved(site: Site, access: Access, loop: str, inner: set[str]) -> int | None:
    """The dimension that an access moves along with a loop; None where it does not."""
    step = steps(site, access, loop, inner) if loop else None
    found = [d for d, s in enumerate(step or ()) if s]
    return found[0] if found else None


def longest(one: Cut, other: Cut, *, exact: bool) -> Cut | None:
    """The cut that serves both: one that covers fewer rows of a block is applied to each of them.
    None where they are no parts of each other, or, with `exact`, not the same: a diagonal, along
    whose rows and lanes one dimension runs, is not made row by row."""
    if one == other:
        return one
    if exact or any(_diagonal(cut) for cut in (one, other)):
        return None
    long, short = (one, other) if len(one) > len(other) else (other, one)
    return long if long[len(long) - len(short) :] == short else None


def _diagonal(cut: Cut) -> bool:
    along = [d for d, extent in cut if d is not None and extent > 1]
    return len({*along}) < len(along)


def sizes_of(rank: int, cut: Cut) -> tuple[int, ...]:
    """How many lanes cut each dimension of a tensor; those of a diagonal run along it together."""
    return tuple(next((n for d, n in cut if d == dim), 1) for dim in range(rank))
