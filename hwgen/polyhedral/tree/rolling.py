"""Buffers that hold some indices of a dimension at a time, such as the rows that a window still
reads: layouts with a remainder, `[y % 4, x]`.

An element takes the place of an earlier one when nothing needs that any more. So elements that
share a place must be used in turn, in the order of their indices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.decided import ahead
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.polyhedral.tree.relations import (
    Side,
    conjoin,
    equal,
    not_before,
    same,
    shared,
    side_of,
)
from hwgen.polyhedral.tree.terms import not_quasi_affine
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, substitute, walk


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


@dataclass(frozen=True)
class _Use:
    """What an instance does to a tensor, as text: the element, its place and the domain."""

    side: Side
    access: Access
    element: list[str]
    place: list[str]
    domain: list[str]

    @classmethod
    def of(cls, side: Side, access: Access, layout: Sequence[Expr]) -> _Use:
        place = [_at(side, access, dimension) for dimension in layout]
        return cls(side, access, side.element(access), place, side.domain)


def taken_too_early(
    state: LoopTree, tensors: Sequence[str], depth: int
) -> tuple[Side, Side, isl.Pair] | None:
    """A use of an element after another has been written in its place, of tensors of one shape and
    in one place; their home is the outermost `depth` loops. Nothing where no two share a place."""
    place = state.place(tensors[0])
    layout, rank = place.layout, len(state.tensor[tensors[0]].shape)
    # What is in the place of a tensor of another rank is refused for that.
    if not rolls(layout) or len(state.tensor[place.tensor].shape) != rank:
        return None
    uses = [
        _Use.of(side_of(state, site, "'"), access, layout)
        for site in state.users_of_any(tensors)
        for access in _accesses(state, site, tensors)
    ]
    writes = [
        _Use.of(side_of(state, site, "''"), state.stage[site.block.stage].target, layout)
        for site in state.users_of_any(tensors)
        if site.block.stage in tensors
    ]
    repeats = _one_remainder(layout, rank)
    for use, write in _pairs(uses, writes):
        if repeats is not None and _in_turn(use, write, depth, *repeats):
            continue
        u, w = use.side, write.side
        # What an instance overwrites, it may have read itself.
        other = [f"({' or '.join(map('{} != {}'.format, u.names, w.names)) or '0 = 1'})"]
        # A guard keeps reads outside of the tensor from happening.
        shape = state.tensor[use.access.tensor].shape
        inside = [f"0 <= {i} < {n}" for i, n in zip(use.element, shape, strict=True)]
        pair = isl.some_pair(
            f"{{ {u.tuple} -> {w.tuple} : "
            + conjoin(
                use.domain,
                write.domain,
                same(u, w, depth),
                equal(use.place, write.place),
                inside,
                other if u.block.name == w.block.name else (),
            )
            + f" and ({_earlier(use.element, write.element)}) and {not_before(u, w)} }}"
        )
        if pair is not None:
            return u, w, pair
    return None


def _one_remainder(layout: Sequence[Expr], rank: int) -> tuple[int, int] | None:
    """The dimension of a tensor of which a layout holds so many indices, and how many; None where
    it does more than that and change the order of dimensions."""
    found: list[tuple[int, int]] = []
    dimensions: list[str] = []
    for dimension in layout:
        match dimension:
            case Binary("%", Name(name), Const(int(size))):
                found.append((int(name.removeprefix("d")), size))
            case Name(name):
                pass
            case _:
                return None
        dimensions.append(name)
    whole = sorted(dimensions) == sorted(f"d{n}" for n in range(rank))
    return found[0] if whole and len(found) == 1 else None


def _in_turn(use: _Use, write: _Use, depth: int, dimension: int, size: int) -> bool:
    """Whether indices alone tell that an element is used before another is written in its place,
    which is a multiple of `size` further along a dimension: as many iterations later of the
    outermost loop that is not around the tensor's home. What they do not tell, isl may."""
    u, w = use.side.site, write.side.site
    one = use.side.functions(use.access)[dimension]
    other = write.side.functions(write.access)[dimension]
    if one is None or other is None:
        return False
    alike = {n for n in u.names[:depth] if one.coefficient(n) == other.coefficient(n)}
    if ahead(one, other, alike, u.extents, w.extents)[1] < size:
        return True
    common = shared(u, w)
    if depth >= common or u.delays[:depth] != w.delays[:depth] or u.block.band or w.block.band:
        return False
    loop = u.names[depth]
    step = one.coefficient(loop)
    if step <= 0 or step != other.coefficient(loop):
        return False
    _, most = ahead(one, other, {*alike, loop}, u.extents, w.extents)
    further = -(-(size - most) // step)
    later = u.delays[depth] - w.delays[depth]
    first = common == depth + 1 and u.places[common] < w.places[common]
    return further > later or (further == later and first)


def _pairs(uses: Sequence[_Use], writes: Sequence[_Use]) -> Iterator[tuple[_Use, _Use]]:
    """Uses with who writes, block by block."""
    for _, mine in groupby(uses, lambda use: id(use.side.site)):
        held = [*mine]
        yield from ((use, write) for write in writes for use in held)


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
