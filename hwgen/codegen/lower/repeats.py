"""Operands that a call wants again in every lane of a loop that they do not move with.

Where the host lays such a tensor out, its image has a dimension more, along which all elements are
the same; where a call of the chip writes it, that call writes all those lanes, or its row as often.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.match.cuts import moved
from hwgen.polyhedral.match.lane_loops import laid_out
from hwgen.polyhedral.scop import View
from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.binding import Binding
from hwgen.polyhedral.tree.block_copies import nest
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import (
    Loop,
    LoopTree,
    Node,
    Site,
    Stage,
    Tensor,
    map_blocks,
)
from hwgen.polyhedral.tree.tensorize import steps
from hwgen.spec.affine import Affine, affine, combine, sparse
from hwgen.spec.expression import Access, Const, Expr, Name, names, replace_part
from hwgen.spec.hardware import HardwareSpec, Operand

Lane = tuple[tuple[int, ...], int, str]
"""Positions of an operand's index, from its end (of a diagonal two); how many lanes there are; the
loop, "" where none runs along rows that the call reads all the same."""


def spread(covered: BoundTree, hardware: HardwareSpec) -> BoundTree:
    """The same with a dimension more for each such loop of each tensor, and what the host lays out
    as calls take it.

    Raises:
        HwgenError: H503 where calls disagree on what a buffer holds again, or another is in its
            place.
    """
    state = covered.state
    for tensor in [s.tensor for s in reversed(state.stages) if s.tensor not in covered.views]:
        covered = _written(covered, tensor)
    for tensor in sorted(laid_out(state)):
        covered = _gathered(covered, tensor, hardware)
    for tensor in sorted(laid_out(covered.state)):
        covered = _laid_out(covered, tensor)
    return covered


@dataclass(frozen=True, slots=True)
class _Read:
    """An operand that only reads a tensor: its block and number, and its lanes that do not move it;
    `sums`: some of those that no loop runs along are added up; `added`: the positions of all lanes
    that are, with or without a loop."""

    block: str
    operand: int
    lanes: tuple[Lane, ...]
    sums: bool
    added: frozenset[int]


def _reads(covered: BoundTree, tensor: str, rows: int) -> Iterator[_Read]:
    """Each operand that only reads a tensor; `rows`: the positions that others write."""
    for site in covered.users.get(tensor, ()):
        call = site.block.call
        pairs = zip(call.intrinsic.operands, call.operands, strict=True)
        written = call.intrinsic.written
        for k, (operand, access) in enumerate(pairs):
            if access.tensor != tensor or operand.access != "read":
                continue
            lanes = tuple(_still(site, call, operand, access, rows))
            idle = {operand.indices[-p] for at, _, loop in lanes if not loop for p in at}
            added = frozenset(
                len(operand.indices) - n
                for n, iterator in enumerate(operand.indices)
                if iterator not in (*written.indices, *call.intrinsic.partial)
            )
            yield _Read(site.block.name, k, lanes, not idle <= {*written.indices}, added)


def _still(
    site: Site, call: Binding, operand: Operand, access: Access, rows: int
) -> Iterator[Lane]:
    lanes = dict(call.lanes)
    inner = {x for x in lanes.values() if x}
    shape = zip(operand.indices, operand.shape, strict=True)
    along: dict[str, list[int]] = {}
    for n, (iterator, extent) in enumerate(shape):
        loop, position = lanes.get(iterator, ""), len(operand.indices) - n
        if extent == 1 or moved(site, access, loop, inner) is not None:
            continue
        if loop:
            along.setdefault(loop, []).append(position)
        elif position > rows and iterator not in call.intrinsic.partial:
            yield (position,), extent, ""
    for loop, positions in along.items():
        yield tuple(positions), operand.shape[-positions[0]], loop


def _written(covered: BoundTree, tensor: str) -> BoundTree:
    """What calls of the chip write, in all lanes in which others read it."""
    state = covered.state
    writers = [s.block for s in state.sites_of(tensor)]
    targets = [b.call.intrinsic.written for b in writers]
    reads = list(_reads(covered, tensor, min((len(o.indices) for o in targets), default=0)))
    wanted = sorted({(p, n) for read in reads for p, n, _ in read.lanes}, reverse=True)
    if not wanted:
        return covered
    zeros = any(read.sums for read in reads)
    loops = any(loop for read in reads for _, _, loop in read.lanes)
    home = places_of(state)
    alone = [t for t, p in home.items() if p == home.get(tensor, tensor)] == [tensor]
    again = {p for at, _ in wanted for p in at}
    for read in reads if loops else ():
        own = {p for at, _, _ in read.lanes for p in at}
        # What is there again would be added up once for each lane.
        zeros = zeros or bool(again & read.added - own)
    if not alone or not writers or (zeros and loops):
        raise _refused(tensor)
    stage, held = state.stage[tensor], state.tensor[tensor]
    taken = {*(t.name for t in state.tensors), *state.loop, *(n for n, _ in stage.iterators)}
    iterators: list[tuple[str, int]] = []
    for _, extent in wanted:
        iterators.append((unique(f"{tensor}_lane", taken), extent))
        taken.add(iterators[-1][0])
    target = Access(tensor, (*stage.target.indices, *(Name(n) for n, _ in iterators)))
    made: dict[str, Node] = {}
    for block, own in zip(writers, targets, strict=True):
        call = block.call
        mine: list[Loop] = []
        given = dict(call.lanes)
        for positions, extent in wanted:
            mine.append(Loop(unique(f"{block.name}_again", taken), extent, ()))
            taken.add(mine[-1].name)
            own_lanes = [own.indices[-p] for p in positions if p <= len(own.indices)]
            if any(given[i] for i in own_lanes) or 0 < len(own_lanes) < len(positions):
                raise _refused(tensor)
            given |= dict.fromkeys(own_lanes, mine[-1].name)
        more = ((n, Name(x.name)) for (n, _), x in zip(iterators, mine, strict=True))
        call = replace(call, lanes=tuple(given.items()))
        call = call.on(lambda a: target if a.tensor == tensor else a)
        wider = replace(block, bindings=(*block.bindings, *more)).calling(call)
        made[block.name] = nest(mine[::-1], wider)
    stage = replace(stage, iterators=(*stage.iterators, *iterators), target=target)
    state = state.with_stages(stage.tensor, stage)
    state = _with_tensor(state, replace(held, shape=(*held.shape, *(n for _, n in wanted))))
    state = replace(state, root=map_blocks(state.root, lambda b: made.get(b.name, b)))
    rank = len(held.shape)
    places = tuple((p, rank + n) for n, (positions, _) in enumerate(wanted) for p in positions)
    if len(dict(places)) < len(places):
        raise _refused(tensor)
    held_again = {**covered.again, tensor: places}
    covered = replace(covered, state=state, again=held_again)
    for read in reads:
        by_position = {p: loop for p, _, loop in read.lanes}
        lanes = [(p, n, by_position.get(p, "")) for p, n in wanted]
        covered = _read(covered, read.block, read.operand, tensor, lanes)
    for block in writers if zeros else ():
        covered = _from_zeros(covered, block.name, tensor, iterators)
    return covered


def _from_zeros(
    covered: BoundTree, block: str, tensor: str, iterators: Sequence[tuple[str, int]]
) -> BoundTree:
    """The same with a copy from what is zero but in the first of some lanes, as those that read it
    add the others up too."""
    call, value = covered.state.site[block].block.call, covered.state.stage[tensor].value
    sources = [k for k, a in enumerate(call.operands) if a == value]
    name = value.tensor if isinstance(value, Access) else ""
    if not sources or covered.state.tensor[name].role != "input":
        raise _refused(tensor)
    if covered.state.memory(name):
        raise _refused(tensor)
    extents = tuple(n for _, n in iterators)
    made = unique(f"{name}_first", {t.name for t in covered.state.tensors})
    covered = _viewed(covered, name, made, extents, zeros=True)
    operands = list(call.operands)
    for k in sources:
        indices = (*call.operands[k].indices, *(Name(n) for n, _ in iterators))
        operands[k] = Access(made, indices)
    state = covered.state.with_calls({block: replace(call, operands=tuple(operands))})
    return replace(covered, state=state)


def _gathered(covered: BoundTree, tensor: str, hardware: HardwareSpec) -> BoundTree:
    """What the host lays out, element by element for calls whose lanes move otherwise in it, and
    for those that leave out elements of what it rearranges anyway."""
    for site in covered.state.sites:
        call = site.block.call
        inner = {x for _, x in call.lanes if x}
        for k, access in enumerate(call.operands):
            if access.tensor != tensor:
                continue
            memory = hardware.memory[call.intrinsic.operands[k].memory]
            reached = memory.shared and hardware.code.handles_are_pointers
            rearranged = tensor in covered.views or not reached
            by_ones = all(_by_ones(site, access, x, inner) for x in inner)
            if not by_ones or (rearranged and _leaves_out(covered, site, access)):
                covered = _gather(covered, site, k, tensor)
    return covered


def _leaves_out(covered: BoundTree, site: Site, access: Access) -> bool:
    """Whether elements of a tensor lie between those that a block reads."""
    extents = dict(covered.state.stage[site.block.stage].iterators)
    moves = [f for i in access.indices if (f := affine(i)) is not None]
    return len(moves) == len(access.indices) and sparse(moves, extents)


def _by_ones(site: Site, access: Access, loop: str, inner: set[str]) -> bool:
    step = steps(site, access, loop, inner)
    return [s for s in step or () if s] in ([], [1])


def _gather(covered: BoundTree, site: Site, operand: int, tensor: str) -> BoundTree:
    """The same with an operand that is a tensor of its own, over the stage's iterators."""
    state = covered.state
    call = state.site[site.block.name].block.call  # Another operand of it may have changed.
    stage, access = state.stage[site.block.stage], call.operands[operand]
    used = [(n, e) for n, e in stage.iterators if any(n in names(i) for i in access.indices)]
    moves = [affine(i) for i in access.indices]
    if None in moves:
        raise _refused(tensor)
    places = {n: f"d{d}" for d, (n, _) in enumerate(used)}
    own = [f.rename(places) for f in moves if f is not None]
    view = covered.views.get(tensor)
    indices = own if view is None else [_composed(f, own) for f in view.indices]
    name = unique(f"{tensor}_{stage.tensor}", {t.name for t in state.tensors})
    held = Tensor(name, state.tensor[tensor].dtype, tuple(e for _, e in used), "input")
    source, fill = (tensor, 0) if view is None else (view.source, view.fill)
    views = {**covered.views, name: View(name, source, tuple(indices), fill)}
    after = Access(name, tuple(Name(n) for n, _ in used))
    operands = (*call.operands[:operand], after, *call.operands[operand + 1 :])
    state = replace(state, tensors=(*state.tensors, held))
    state = state.with_calls({site.block.name: replace(call, operands=operands)})
    return replace(covered, state=state, views=views)


def _composed(function: Affine, values: Sequence[Affine]) -> Affine:
    """A function of positions, each of which is a function of others."""
    terms: list[tuple[str, int]] = []
    constant = function.constant
    for name, factor in function.terms:
        value = values[int(name.removeprefix("d"))]
        terms += [(n, c * factor) for n, c in value.terms]
        constant += value.constant * factor
    return combine(terms, constant)


def _laid_out(covered: BoundTree, tensor: str) -> BoundTree:
    """What the host lays out, for each form in which calls read it again."""
    made: dict[tuple[int, ...], str] = {}
    for read in list(_reads(covered, tensor, sys.maxsize)):
        if not read.lanes:
            continue
        extents = tuple(n for _, n, _ in read.lanes)
        if extents not in made:
            if covered.state.memory(tensor):
                raise _refused(tensor)
            made[extents] = unique(f"{tensor}_again", {t.name for t in covered.state.tensors})
            covered = _viewed(covered, tensor, made[extents], extents)
        covered = _read(covered, read.block, read.operand, made[extents], read.lanes)
    return covered


def _viewed(
    covered: BoundTree, tensor: str, name: str, extents: Sequence[int], *, zeros: bool = False
) -> BoundTree:
    """The same with a tensor that the host fills from another, for each of some lanes: from the
    same element, or with `zeros` so in the first ones alone."""
    held = covered.state.tensor[tensor]
    rank = len(held.shape)
    own = tuple(Affine(((f"d{d}", 1),)) for d in range(rank))
    view = covered.views.get(tensor, View(tensor, tensor, own, 0))
    if zeros:
        source = covered.state.tensor[view.source]
        first, *rest = view.indices
        low, high = first.interval({f"d{d}": n for d, n in enumerate(held.shape)})
        outside = max(source.shape[0] - low, high + 1)
        lanes = [(f"d{rank + n}", outside) for n in range(len(extents))]
        view = replace(view, indices=(combine([*first.terms, *lanes], first.constant), *rest))
    wider = Tensor(name, held.dtype, (*held.shape, *extents), "input")
    state = replace(covered.state, tensors=(*covered.state.tensors, wider))
    views = {**covered.views, name: replace(view, tensor=name)}
    return replace(covered, state=state, views=views)


def _read(
    covered: BoundTree, name: str, operand: int, tensor: str, lanes: Sequence[Lane]
) -> BoundTree:
    """The same with an operand that reads `tensor` in these lanes too."""
    state, block = covered.state, covered.state.site[name].block
    stage, call = state.stage[block.stage], block.call
    before = call.operands[operand]
    taken = {n for n, _ in stage.iterators}
    added: list[tuple[str, int, str]] = []
    indices: list[Expr] = []
    for _, extent, loop in lanes:
        if loop:
            added.append((unique("lane", taken), extent, loop))
            taken.add(added[-1][0])
        indices.append(Name(added[-1][0]) if loop else Const(0))
    after = Access(tensor, (*before.indices, *indices))
    wider = replace(stage, iterators=(*stage.iterators, *((n, e) for n, e, _ in added)))
    if tensor not in covered.views:
        wider = _reading(wider, before, after)
    operands = (*call.operands[:operand], after, *call.operands[operand + 1 :])
    bindings = (*block.bindings, *((n, Name(loop)) for n, _, loop in added))
    made = replace(block, bindings=bindings).calling(replace(call, operands=operands))
    state = state.with_stages(stage.tensor, wider)
    root = map_blocks(state.root, lambda b: made if b.name == name else b)
    return replace(covered, state=replace(state, root=root))


def _reading(stage: Stage, before: Access, after: Access) -> Stage:
    seed = stage.seed and replace_part(stage.seed, before, after)
    return replace(stage, value=replace_part(stage.value, before, after), seed=seed)


def _with_tensor(state: LoopTree, tensor: Tensor) -> LoopTree:
    tensors = tuple(tensor if t.name == tensor.name else t for t in state.tensors)
    return replace(state, tensors=tensors)


def _refused(tensor: str) -> HwgenError:
    return HwgenError(
        "H503",
        f"calls disagree on the lanes of {tensor}",
        found="one that reads the same element in several lanes, and others that do not",
        allowed="one layout for a tensor that calls write",
        repair=f"a copy of {tensor} for one of them (cache_read, cache_write)",
    )
