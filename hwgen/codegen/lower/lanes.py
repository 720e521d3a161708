"""Lanes past the end: of which loops calls end exactly, and of which they do whole blocks.

Where every call on some lanes can let fewer of them take part, each ends where its loop does.
Where one cannot, all do whole blocks, and what lies past the end is padding: of images, zeros that
the host puts there; of results, values that nobody reads. What is added up past the end must change
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.match.cuts import moved
from hwgen.polyhedral.match.lane_padding import evaluated, keeps, limits
from hwgen.polyhedral.semantics import updates
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.loop_tree import Site, Stage
from hwgen.spec.expression import Access, Name, names
from hwgen.spec.hardware import Intrinsic

Key = tuple[str, str] | tuple[str, int]
"""A block and a loop of lanes, or a tensor and a dimension."""


@dataclass(frozen=True)
class Lanes:
    """`whole`: by block, loops of lanes of which every call does all; `dimensions`: of tensors,
    those that such lanes run along, and how many lanes there are."""

    whole: Mapping[str, frozenset[str]]
    dimensions: Mapping[tuple[str, int], int]

    def padding(self, tensor: str, dimension: int) -> int:
        """What a dimension is to be a multiple of, as lanes reach past its end."""
        return self.dimensions.get((tensor, dimension), 1)


def lanes_of(covered: BoundTree) -> Lanes:
    """How each block's lanes end.

    Raises:
        HwgenError: H423 where lanes past the end would change a sum.
    """
    home = places_of(covered.state)
    groups: dict[Key, set[Key]] = {}
    able: dict[Key, bool] = {}
    for site in covered.state.sites:
        call = site.block.call
        lanes = {loop for _, loop in call.lanes if loop}
        for iterator, loop in call.lanes:
            if not loop:
                continue
            key = (site.block.name, loop)
            able[key] = able.get(key, True) and iterator in call.intrinsic.partial
            group = groups.setdefault(key, {key})
            for operand, access in zip(call.intrinsic.operands, call.operands, strict=True):
                along = moved(site, access, loop, lanes) if iterator in operand.indices else None
                if along is not None:
                    tensor: Key = (home.get(access.tensor, access.tensor), along)
                    group |= groups.get(tensor, {tensor})
                    groups |= dict.fromkeys(group, group)
    whole: dict[str, set[str]] = {}
    dimensions: dict[tuple[str, int], int] = {}
    for site in covered.state.sites:
        call = site.block.call
        for iterator, loop in call.lanes:
            along = [i for i, x in call.lanes if x == loop]
            exact = loop and all(able.get(k, True) for k in groups[site.block.name, loop])
            if loop and len(along) > 1:
                _check_past_the_end(covered, site, call, iterator, loop)
            if loop and not exact:
                whole.setdefault(site.block.name, set()).add(loop)
                for k in groups[site.block.name, loop]:
                    if isinstance(k[1], int):
                        dimensions[k[0], k[1]] = site.extents[loop]
                _check_past_the_end(covered, site, call, iterator, loop)
    _fill_rows(covered, whole, dimensions)
    return Lanes({b: frozenset(x) for b, x in whole.items()}, dimensions)


def _fill_rows(
    covered: BoundTree, whole: dict[str, set[str]], dimensions: dict[tuple[str, int], int]
) -> None:
    """What calls take past the end in whole blocks, others fill row by row."""
    home = places_of(covered.state)
    changed = True
    while changed:
        changed = False
        for site in covered.state.sites:
            call = site.block.call
            lanes = {loop for _, loop in call.lanes if loop}
            along = [(home.get(access.tensor, access.tensor), access) for access in call.operands]
            for loop in site.loops:
                if loop.name in lanes or loop.name in whole.get(site.block.name, ()):
                    continue
                found = [(t, moved(site, a, loop.name, {loop.name})) for t, a in along]
                keys = [(t, d) for t, d in found if d is not None]
                if not any(dimensions.get(k) == loop.extent > 1 for k in keys):
                    continue
                if not all(_is_inner(site, a, loop.name) for _, a in along):
                    continue
                whole.setdefault(site.block.name, set()).add(loop.name)
                dimensions |= {k: loop.extent for k in keys if k not in dimensions}
                changed = True


def _is_inner(site: Site, access: Access, loop: str) -> bool:
    """Whether a loop runs within blocks: where it moves an index, by ones, and all else that does
    by multiples of its extent."""
    extent = site.extents[loop]
    for terms in site.moves(access):
        mine = [c for c, t in terms if t == Name(loop)]
        if mine and (mine != [1] or any(c % extent for c, t in terms if t != Name(loop))):
            return False
    return True


def _check_past_the_end(
    covered: BoundTree, site: Site, call: Binding, iterator: str, loop: str
) -> None:
    """What lanes past a loop's end add to a sum changes nothing."""
    cuts = any(loop in names(p) for p in site.block.predicate)
    along = [i for i, x in call.lanes if x == loop]
    own = call.intrinsic.written
    stage = covered.state.stage[site.block.stage]
    diagonal = any(i in own.indices for i in along)
    sums = stage.reduces or call.intrinsic.semantics[-1].op != "="
    if not (cuts or diagonal) or iterator in own.indices or not sums:
        return
    check_neutral(covered, site, call, iterator, {*along} if diagonal else {iterator})


def check_neutral(
    covered: BoundTree, site: Site, call: Binding, iterator: str, along: Collection[str]
) -> None:
    """What lanes of an iterator add to a sum that are none of its loop's changes nothing.

    `along`: the iterators of an operand that is zero there.

    Raises:
        HwgenError: H423 where it may.
    """
    stage = covered.state.stage[site.block.stage]
    contents: dict[str, int | float] = {}
    for operand, access in zip(call.intrinsic.operands, call.operands, strict=True):
        held = _past_the_end(covered, access)
        if held is not None and {*along} <= {*operand.indices}:
            contents[operand.name] = held
    exact = not any("float" in o.dtype for o in call.intrinsic.operands)
    # One that sets what it then adds to has two assignments.
    adds = replace(call.intrinsic, semantics=call.intrinsic.semantics[-1:])
    neutral = any(
        op == "+=" and evaluated(value, contents, exact) == 0 for op, value in updates(adds)
    )
    if not (neutral or _limited(site, stage, adds, contents, exact)):
        where = f"past the end of {dict(call.lanes)[iterator] or iterator}"
        raise HwgenError(
            "H423",
            f"lanes of {call.intrinsic.name} {where} would change {stage.tensor}",
            field=f"blocks.{stage.tensor}",
            found=f"operands that hold {', '.join(map(str, contents.values())) or 'data'} there",
            allowed="zeros there, or lanes of which fewer take part",
            repair="pad the loop, or an extent that is a multiple of the lanes",
        )


def _limited(
    site: Site, stage: Stage, intrinsic: Intrinsic, contents: Mapping[str, int | float], exact: bool
) -> bool:
    """Whether values that lanes make one after the other stay as they are where operands hold some
    contents: each that a block makes, and what a sum begins with, is within the limits that this
    leaves alone."""
    (assign,) = intrinsic.semantics
    left = keeps(assign.value, assign.target, contents, exact)
    made = limits(stage.value)
    if left is None or made is None or stage.seed is not None or site.block.part == "init":
        return False
    if stage.reduces and stage.start is None:
        return False
    begun = () if stage.start is None else (stage.start.value,)
    low, high = left
    return all(low <= x <= high for x in (*made, *begun))


def _past_the_end(covered: BoundTree, access: Access) -> int | float | None:
    """What the host puts past the end of what a tensor is a copy of; None where it is data."""
    stage = covered.state.stage.get(access.tensor)
    while stage is not None and isinstance(stage.value, Access) and not stage.reduces:
        source = stage.value.tensor
        if source in covered.views:
            return covered.views[source].fill
        if covered.state.tensor[source].role == "input":
            return None if covered.state.storage[source].memory else 0
        stage = covered.state.stage.get(source)
    return None
