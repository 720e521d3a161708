"""One call a block: a stage that several intrinsics compute together becomes one stage for each.

What one call leaves for the next is a tensor of its own, in the memory where the next one reads it.
The loops directly around the block are then as many nests, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hwgen.errors import HwgenError, Tolerating
from hwgen.polyhedral.match.covering import Step, steps_of
from hwgen.polyhedral.match.lane_loops import assigned
from hwgen.polyhedral.scop import View
from hwgen.polyhedral.semantics import setting
from hwgen.polyhedral.tree.aliases import root, shared_homes
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.block_copies import copied, depth_of, nest
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import inserted
from hwgen.polyhedral.tree.loop_tree import (
    Homes,
    LoopTree,
    Node,
    Site,
    Stage,
    Storage,
    Tensor,
    listed,
    loops,
    map_blocks,
)
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.spec.expression import Access, Const, Expr, Name, names, replace_part, substitute, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic


@dataclass(frozen=True)
class BoundTree:
    """A tree in which every block is one call. `views`: by tensor, how the host lays an input out
    for it; nothing on the chip computes it. `again`: by tensor, the positions of calls' operands,
    from the end, along which it holds elements several times, and its dimensions of these."""

    state: LoopTree
    homes: Homes
    views: Mapping[str, View]
    again: Mapping[str, tuple[tuple[int, int], ...]] = field(
        default_factory=dict[str, tuple[tuple[int, int], ...]]
    )

    @cached_property
    def users(self) -> dict[str, tuple[Site, ...]]:
        """By tensor, the blocks whose calls have it as an operand, in textual order."""
        operands = ((s, s.block.call.operands) for s in self.state.sites)
        return listed((t, s) for s, found in operands for t in {a.tensor: s for a in found})


IN_PLACE = ("H411", "H413")
"""Errors of tensors in the place of others."""


def bind(
    state: LoopTree, homes: Homes, hardware: HardwareSpec, views: Mapping[str, View]
) -> BoundTree:
    """Every block with its call; `views`: tensors that only move an input's elements.

    Raises:
        HwgenError: H421 a block without intrinsics; H422 one that its intrinsics do not compute,
            or only in the place of what is still needed; H424 sums that nothing begins.
    """
    views = {t: v for t, v in views.items() if _is_view(state, t)}
    root = map_blocks(state.root, lambda b: None if b.stage in views else b)
    state = replace(state, root=root)
    with Tolerating(IN_PLACE):
        return _bound(state, homes, hardware, views, together=True)
    with Tolerating(IN_PLACE) as refused:
        return _bound(state, homes, hardware, views, together=False)
    found = refused.error.diagnostic
    raise HwgenError(
        "H422",
        "calls would write where something is that is still needed",
        found=f"{found.message}, as {found.found}",
        allowed="intrinsics that write elsewhere, or operands that nothing reads afterwards",
        repair="a copy of that operand for these calls (cache_read)",
    )


def _bound(
    state: LoopTree,
    homes: Homes,
    hardware: HardwareSpec,
    views: Mapping[str, View],
    *,
    together: bool,
) -> BoundTree:
    """`together`: what calls leave for each other is in the place of their result, where it fits;
    what is computed several times may have to be apart."""
    calls: dict[str, Binding] = {}
    homes = dict(homes)
    for stage, name in [(s.block.stage, s.block.name) for s in state.sites]:
        site = _site(state, stage, name)
        found = steps_of(state, site, hardware)
        state, mine = _split(state, homes, site, found, hardware, together=together)
        calls |= mine
    lanes = assigned(state, {b: (c.intrinsic, c.operands) for b, c in calls.items()})
    state = state.with_calls({b: replace(c, lanes=lanes[b]) for b, c in calls.items()})
    return BoundTree(state, shared_homes(state, homes, state.storage, typed=False), views)


def _site(state: LoopTree, stage: str, name: str) -> Site:
    return next(s for s in state.sites_of(stage) if s.block.name == name)


def _is_view(state: LoopTree, tensor: str) -> bool:
    """Whether the host is to lay a tensor out: no call computes it into a memory of the chip."""
    if tensor not in state.storage:
        return False  # Its value stands where it was read.
    mine = [s.block for s in state.sites_of(tensor)]
    return not state.storage[tensor].memory and all(b.tensorized is None for b in mine)


def _split(
    state: LoopTree,
    homes: dict[str, tuple[str, ...]],
    site: Site,
    found: list[Step],
    hardware: HardwareSpec,
    *,
    together: bool,
) -> tuple[LoopTree, dict[str, Binding]]:
    """A state in which a block's calls are blocks, and these calls."""
    depth = depth_of(state, homes, site)
    stage = state.stage[site.block.stage]
    taken = {*state.tensor, *(x.name for x in loops(state.root))}
    named: dict[str, str] = {}
    for step in found[:-1]:
        named[step.target.tensor] = unique(f"{stage.tensor}_{step.intrinsic.name}", taken)
        taken.add(named[step.target.tensor])
    found = [_renamed(step, named) for step in found]
    places = _places(state, stage, found, together=together)
    extents = dict(stage.iterators)
    nests: list[Node] = []
    calls: dict[str, Binding] = {}
    for step in found[:-1]:
        tensor = step.target.tensor
        iterators = tuple((n, extents[n]) for i in step.target.indices for n in names(i))
        own = replace(site.block, stage=tensor, part="whole")
        used = {n for n, _ in iterators}
        chain, block = copied(replace(site, block=own), depth, tensor, taken, used)
        taken |= {x.name for x in chain}
        calls[tensor] = _call(step)
        nests.append(nest(chain, block))
        memory = step.intrinsic.written.memory
        # It is indexed as the stage's tensor is, or by its own iterators.
        alike = step.target.indices == stage.target.indices
        shape = state.tensor[stage.tensor].shape if alike else tuple(e for _, e in iterators)
        dtype = hardware.memory[memory].dtype or state.tensor[stage.tensor].dtype
        state = state.with_tensor(
            Tensor(tensor, dtype, shape, "intermediate"),
            Storage(tensor, memory, alias=places.get(tensor, "")),
        )
        made = Stage(tensor, iterators, step.target, "=", _value(step))
        state = state.with_stages(stage.tensor, made, stage)
        homes[tensor] = homes.get(places.get(tensor, ""), site.names[:depth])
    last = found[-1]
    calls[site.block.name] = _call(last)
    if stage.reduces and site.block.part == "whole":
        calls[site.block.name] = replace(_call(last), first=_first(state, site, last, hardware))
    if stage.tensor in places:
        storage = state.storage[stage.tensor]
        state = state.with_storage(replace(storage, alias=places[stage.tensor]))
    if nests:
        state = replace(state, root=inserted(state.root, site, depth, tuple(nests)))
    if site.block.part != "init" and (nests or last.in_place):
        reads = replace(state.stage[stage.tensor], value=_value(last))
        state = state.with_stages(stage.tensor, reads)
    return state, calls


def _call(step: Step) -> Binding:
    return Binding(step.intrinsic, step.operands, immediates=step.immediates)


def _first(state: LoopTree, site: Site, step: Step, hardware: HardwareSpec) -> Intrinsic:
    """What sets the sums of a stage where a call adds to them."""
    stage = state.stage[site.block.stage]
    start = beginning(stage, state.tensor[stage.tensor].dtype)
    number = start.value if isinstance(start, Const) and not stage.ordered else None
    first = None if number is None else setting(hardware, step.intrinsic, number)
    if first is None:
        raise HwgenError(
            "H424",
            f"nothing begins the sums of {stage.tensor}",
            field=f"blocks.{site.block.name}",
            found=f"{step.intrinsic.name}, which adds to what is there",
            allowed=f"an intrinsic that does the same to {start}, or a block that sets it",
            repair=f"decompose_reduction({stage.tensor!r}, ...), and tensorize what it makes",
        )
    return first


def _renamed(step: Step, named: Mapping[str, str]) -> Step:
    """The same step, what calls leave for each other with their own names."""

    def own(access: Access) -> Access:
        return Access(named.get(access.tensor, access.tensor), access.indices)

    return replace(
        step,
        target=own(step.target),
        operands=tuple(map(own, step.operands)),
        in_place=named.get(step.in_place, step.in_place),
    )


def _value(step: Step) -> Expr:
    """What a call computes, over its operands' accesses."""
    table = dict(zip((o.name for o in step.intrinsic.operands), step.operands, strict=True))
    if step.in_place:
        table[step.intrinsic.written.name] = Access(step.in_place, step.target.indices)
    value = substitute(step.pattern, {n: Const(v) for n, v in step.immediates})
    for node in [n for n in walk(value) if isinstance(n, Access)]:
        value = replace_part(value, node, table[node.tensor])
    return value


def _places(
    state: LoopTree, stage: Stage, found: Sequence[Step], *, together: bool
) -> dict[str, str]:
    """The tensor in whose place each of some calls writes, where it is in another's: where the
    intrinsic works in place, and where what it leaves fits into the place of the stage's own result
    and nothing there is read later."""
    own = {s.target.tensor for s in found}
    groups = [{t} for t in sorted(own)]

    def join(a: str, b: str) -> None:
        mine = next((g for g in groups if a in g), {a})
        other = next((g for g in groups if b in g), {b})
        if mine is not other:
            groups[:] = [g for g in groups if g is not mine and g is not other]
            groups.append(mine | other)

    for step in found:
        if step.in_place:
            join(step.target.tensor, step.in_place)
    for number, step in enumerate(found[:-1]):
        rest = found[number + 1 :]
        later = {a.tensor for s in rest for a in s.operands} | {s.in_place for s in rest}
        beside = next((g for g in groups if stage.tensor in g), {stage.tensor})
        free = later.isdisjoint(beside - {stage.tensor, step.target.tensor})
        if together and free and _fits(state, stage, step, rest):
            join(step.target.tensor, stage.tensor)
    result: dict[str, str] = {}
    for group in groups:
        before = sorted(group - own)
        others = [s.target.tensor for s in found if s.target.tensor in group]
        place = before[0] if before else stage.tensor if stage.tensor in group else others[0]
        taken = {root(state, t) for t in before}
        for tensor in others:
            known = root(state, tensor) if tensor in state.storage else tensor
            if tensor != place and known not in taken:
                result[tensor] = place
    return result


def _fits(state: LoopTree, stage: Stage, step: Step, later: Sequence[Step]) -> bool:
    """Whether what a call leaves for others may be where the stage's own result will be."""
    place = root(state, stage.tensor)
    rest = {a.tensor for s in later for a in s.operands} - {stage.tensor}
    return (
        not stage.reduces
        and state.storage[stage.tensor].memory == step.intrinsic.written.memory
        and step.target.indices == stage.target.indices
        and all(isinstance(i, Name) for i in stage.target.indices)
        and state.tensor[stage.tensor].shape
        == tuple(dict(stage.iterators)[n] for i in stage.target.indices for n in names(i))
        and place not in {root(state, t) for t in rest if t in state.storage}
    )
