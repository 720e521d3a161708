"""Tensors in the place of others: whether what was there is dead by then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from math import inf

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.by_indices import together
from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.legality import overtaken, reused, violation
from hwgen.polyhedral.tree.loop_tree import Block, Homes, LoopTree, Site, map_blocks
from hwgen.polyhedral.tree.relations import NEVER, before, equal, same, side_of, some_pair
from hwgen.polyhedral.tree.rolling import rolls
from hwgen.spec.expression import Access, map_accesses


def root(state: LoopTree, tensor: str) -> str:
    """The tensor whose buffer one is stored in: its own where it is in no other's place."""
    return state.place(tensor).tensor


def shared_homes(
    state: LoopTree, homes: Homes, among: Collection[str], *, typed: bool = True
) -> Homes:
    """Homes of tensors that share a place: the loops around those of all of them. `among`: the
    tensors that are looked at where they are in the place of others.

    `typed`: they are of one type too; where calls hold values, all are of their memory's.

    Raises:
        HwgenError: H411 where one still needs what another overwrites; H413 one in the place of
            what has none, or another form or memory.
    """
    aliased = [s.tensor for s in state.storages if s.alias and s.tensor in among]
    if not aliased:
        return homes
    result = dict(homes)
    for tensor in aliased:
        _check_alike(state, tensor, typed=typed)
    groups: dict[str, list[str]] = {}
    for tensor in (s.tensor for s in state.stages):
        groups.setdefault(root(state, tensor), []).append(tensor)
    for place, group in groups.items():
        if len(group) == 1 or {*group}.isdisjoint(aliased):
            continue
        side_by_side = zip(*(homes[t] for t in group), strict=False)
        depth = sum(1 for _ in takewhile(lambda loops: len(set(loops)) == 1, side_by_side))
        result |= {tensor: homes[tensor][:depth] for tensor in group}
        together = overtaken(state, [place, *group], depth) or reused(state, group, depth)
        for tensor in group:
            broken = violation(state, state.stage[tensor], depth, output=False) or together
            if broken is not None:
                raise _refusal(tensor, str(broken))
        _check_dead(state, group, depth)
    return result


def _check_alike(state: LoopTree, tensor: str, *, typed: bool) -> None:
    of = state.storage[tensor].alias
    mine, other = state.tensor.get(tensor), state.tensor.get(of)
    assert mine is not None
    over = any(s.over == tensor for s in state.stages)
    if other is None or of not in state.stage or not (over or other.role == "intermediate"):
        raise refuse(
            f"{tensor} cannot be in the place of {of}",
            f"{of} stays as it is"
            if other is not None and other.role == "input"
            else f"{of} has no buffer of its own",
            "an intermediate tensor",
            "alias again, to a tensor that there is",
        )
    # Calls use entries of a box that holds what all of them touch.
    fits = mine.shape == other.shape or (not typed and _within(mine.shape, other.shape))
    if not fits or (typed and mine.dtype != other.dtype):
        raise refuse(
            f"{tensor} cannot be in the place of {of}",
            f"{mine.dtype}{list(mine.shape)} and {other.dtype}{list(other.shape)}",
            "tensors of one shape and type",
            "alias a tensor of the same shape and type",
        )
    own, whole = state.storage[tensor].layout, mine.shape == other.shape
    if rolls(own) or (rolls(state.place(of).layout) and not whole):
        raise refuse(
            f"{tensor} cannot be in the place of {of}",
            f"a layout of {tensor if rolls(own) else of} that repeats",
            "buffers that hold all of what they are for",
            "leave the alias out, or the remainder in the layout",
        )
    memory, place = (state.storage[t].memory for t in (tensor, of))
    if memory != place:
        raise refuse(
            f"{tensor} cannot be in the place of {of}",
            f"{memory or 'the default memory'} and {place or 'the default memory'}",
            "tensors in one memory",
            f"set_scope({tensor!r}, {place!r}) first"
            if place
            else f"set_scope({of!r}, {memory!r})",
        )


def _within(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    alike = len(shape) == len(other)
    return alike and all(a <= b for a, b in zip(shape, other, strict=True))


def _check_dead(state: LoopTree, group: list[str], depth: int) -> None:
    """What was in the place of a tensor is neither read nor written once that is. Who stands before
    all that is written from then on, in one iteration of their home, needs no look."""
    users = {t: _users(state, t) for t in group}
    later = [*accumulate((_first(state.sites_of(t), depth) for t in reversed(group)), min)]
    alive: list[str] = []
    for tensor, first in zip(group, reversed(later), strict=True):
        alive = [t for t in alive if _last(users[t], depth) >= first]
        for earlier in alive:
            for writer in state.sites_of(tensor):
                for other in users[earlier]:
                    _check_pair(state, writer, other, earlier, depth)
        alive.append(tensor)


def _users(state: LoopTree, tensor: str) -> list[Site]:
    """The blocks that write a tensor, or read it by its own name."""
    return [
        s
        for s in state.users[tensor]
        if s.block.stage == tensor
        or any(r.tensor == tensor for r in state.stage[s.block.stage].reads_in(s.block.part))
    ]


def _first(sites: Sequence[Site], depth: int) -> float:
    """Where the first of some blocks stands in its home; before all, where one runs in another
    iteration than its own."""
    return min((s.places[depth] if _on_time(s) else -inf for s in sites), default=inf)


def _last(sites: Sequence[Site], depth: int) -> float:
    """Where the last of some blocks stands in its home; behind all, where one runs in another
    iteration than its own."""
    return max((s.places[depth] if _on_time(s) else inf for s in sites), default=-inf)


def _on_time(site: Site) -> bool:
    return not site.block.shifts and not site.block.band


def _check_pair(state: LoopTree, writer: Site, other: Site, earlier: str, depth: int) -> None:
    stage = state.stage[other.block.stage]
    accesses = [stage.target] if other.block.stage == earlier else []
    accesses += [r for r in stage.reads_in(other.block.part) if r.tensor == earlier]
    if not accesses:
        return
    w, o = side_of(state, writer, "'"), side_of(state, other, "''")
    own = writer.block.name == other.block.name
    if own and stage.continues:
        return  # Each instance adds to what the others left there.
    for access in accesses:
        alike = together(w, w.stage.target, o, access, depth)
        order = before(w, o, alike)
        if own and stage.reduces and access in stage.reads:
            order = "0 = 0"  # What a sum starts from is there before an iteration reads.
        elif own:
            # Calls take their iterations in any order.
            apart = " or ".join(f"{a} != {b}" for a, b in zip(w.names, o.names, strict=True))
            order = f"({apart})" if alike < len(w.names) else NEVER
        elements = equal(w.element(w.stage.target), o.element(access))
        clash = some_pair(w, o, order, same(w, o, depth), elements)
        if clash is not None:
            (_, x), (_, y) = clash
            first = ", ".join(f"{n}={v}" for n, v in zip(writer.names, x, strict=True))
            second = ", ".join(f"{n}={v}" for n, v in zip(other.names, y, strict=True))
            raise _refusal(
                w.stage.tensor,
                f"{writer.block.name}[{first}] overwrites an element of {earlier} that "
                f"{other.block.name}[{second}] uses",
            )


def _refusal(tensor: str, found: str) -> HwgenError:
    return HwgenError(
        "H411",
        f"{tensor} cannot be in the place of another tensor",
        found=found,
        allowed="the place of one that nothing uses any more",
        repair=f"a buffer of its own for {tensor}",
    )


def places_of(state: LoopTree) -> Mapping[str, str]:
    """By tensor, the one whose buffer it is stored in."""
    return {s.tensor: root(state, s.tensor) for s in state.storages}


def in_one_place(state: LoopTree) -> LoopTree:
    """The state with one name in its accesses for all tensors of one place."""
    place = {t: p for t, p in places_of(state).items() if t != p}
    if not place:
        return state

    def moved(access: Access) -> Access:
        return Access(place.get(access.tensor, access.tensor), access.indices)

    stages = tuple(
        replace(
            s,
            target=moved(s.target),
            value=map_accesses(s.value, moved),
            seed=s.seed and map_accesses(s.seed, moved),
            over=place.get(s.over, s.over),
        )
        for s in state.stages
    )

    def called(block: Block) -> Block:
        done = block.tensorized
        return block if done is None else replace(block, tensorized=done.on(moved))

    return replace(state, stages=stages, root=map_blocks(state.root, called))
