"""Primitives that place stages: compute_at, compute_root, compute_inline.

A stage computed at a loop runs there for the box of its points that the readers inside one
iteration of the loop need; where boxes overlap it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hwgen.polyhedral.tree.build import numbered, unique
from hwgen.polyhedral.tree.edit import (
    block_of,
    check_tensor,
    find_loop,
    find_stage,
    path,
    refuse,
    replace_loop,
    stages_of,
)
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Stage,
    map_blocks,
    map_loops,
    sites,
)
from hwgen.polyhedral.tree.relations import shared
from hwgen.polyhedral.tree.seeds import WRAPPING
from hwgen.polyhedral.tree.terms import (
    Addends,
    addends,
    interval,
    ordered,
    reach,
    simplify,
    total,
)
from hwgen.spec.affine import affine
from hwgen.spec.expression import (
    Access,
    Binary,
    Cast,
    Const,
    Expr,
    Name,
    add,
    map_accesses,
    nesting,
    substitute,
    walk,
)
from hwgen.spec.typecheck import dtype_of, is_float


def compute_at(state: LoopTree, tensor: str, loop: str, *, units: bool = False) -> LoopTree:
    """The stage of a tensor runs at the start of a loop's body, before what reads it there;
    `units`: also in loops of one iteration.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    find_loop(state, loop)
    _check_movable(state, stage)
    bare = _without(state, tensor)
    outer = path(bare.root, loop)
    if not outer:
        raise refuse(
            f"{tensor} cannot be computed at its own loop",
            f"{loop} is a loop of {tensor}",
            "a loop of a stage that reads it",
            "name a loop of the consumer",
        )
    boxes = _boxes(bare, stage, outer)
    if not boxes:
        raise refuse(
            f"nothing inside {loop} reads {tensor}",
            f"{loop} holds {', '.join(stages_of(outer[-1]))}",
            f"a loop around a reader of {tensor} ({_reader_names(state, tensor)})",
            "name a loop of the consumer",
        )
    node = _nest(bare, stage, boxes, outer, units=units)

    def edit(target: Loop) -> tuple[Node, ...]:
        place = next(n for n, x in enumerate(target.body) if _needs(bare, x, tensor))
        return (replace(target, body=(*target.body[:place], node, *target.body[place:])),)

    placed = bare.with_root(replace_loop(bare.root, loop, edit))
    return _remade(state, placed, tensor, f"compute_at({tensor!r}, {loop!r})")


def compute_root(state: LoopTree, tensor: str) -> LoopTree:
    """The stage of a tensor runs wholly before anything reads it.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    _check_movable(state, stage)
    bare = _without(state, tensor)
    placed = insert_nest(bare, _nest(bare, stage, {}), tensor)
    return _remade(state, placed, tensor, f"compute_root({tensor!r})")


def _remade(before: LoopTree, after: LoopTree, tensor: str, edit: str) -> LoopTree:
    """With a note of each loop that the stage no longer has in its new nest."""
    known = {n for n, _ in after.gone}
    why = made_anew(edit, tensor)
    had = dict.fromkeys(n for s in before.sites_of(tensor) for n in s.names)
    left = (n for n in had if n not in known and not path(after.root, n))
    return after.with_root(after.root, *((n, why) for n in left))


def made_anew(edit: str, tensor: str) -> str:
    """What became of a stage's loops that an edit replaced."""
    return f"{edit} made the loops of {tensor} anew"


def insert_nest(state: LoopTree, node: Node, tensor: str) -> LoopTree:
    """A nest at the root, before the first that reads the tensor, else at the end."""
    places = [n for n, x in enumerate(state.root) if _needs(state, x, tensor)]
    place = places[0] if places else len(state.root)
    return state.with_root((*state.root[:place], node, *state.root[place:]))


def fresh_nest(state: LoopTree, stage: Stage) -> Node:
    """The stage's nest with one loop per iterator."""
    return _nest(state, stage, {})


def nest_beside(state: LoopTree, stage: Stage, other: str, *, behind: bool = False) -> LoopTree:
    """The stage's nest at the root, before the first one with a block of another, or behind the
    last."""
    places = [n for n, x in enumerate(state.root) if other in stages_of(x)]
    place = places[-1] + 1 if behind else places[0]
    node = fresh_nest(state, stage)
    return replace(state, root=(*state.root[:place], node, *state.root[place:]))


def _reader_names(state: LoopTree, tensor: str) -> str:
    return ", ".join(s.tensor for s in state.readers(tensor)) or "nobody"


def _needs(state: LoopTree, node: Node, tensor: str) -> bool:
    """Whether something in a node reads a tensor, or keeps elements of it."""
    return not node.stages.isdisjoint(state.takers.get(tensor, ()))


def _without(state: LoopTree, tensor: str) -> LoopTree:
    root = map_blocks(state.root, lambda b: None if b.stage == tensor else b, tensor)
    return state.with_root(root)


def _check_movable(state: LoopTree, stage: Stage) -> None:
    """No other stage lives in the stage's own loops."""
    readers = {s.tensor for s in state.readers(stage.tensor)}
    for site in state.sites_of(stage.tensor):
        if site.block.tensorized is not None:
            raise refuse(
                f"{stage.tensor} is tensorized; its loops are fixed",
                f"a call of {site.block.tensorized.intrinsic}",
                "stages whose loops are still free",
                "place stages first, tensorize last",
            )
        held = (x.stages for x in site.loops)
        if all(len(x) == 1 or not readers.isdisjoint(x) for x in held):
            continue
        inside: dict[str, str] = {}
        for other in state.sites:
            name = other.block.stage
            if name == stage.tensor or name in readers:
                continue
            common = site.loops[: shared(site, other)]
            if common and not readers & set(stages_of(common[-1])):
                inside.setdefault(name, f"{name} at {common[-1].name}")
        if inside:
            roots = ", ".join(f"compute_root({n!r})" for n in inside)
            raise refuse(
                f"{', '.join(inside)} is computed inside the loops of {stage.tensor}",
                ", ".join(inside.values()),
                "a stage whose loops hold nothing else",
                f"{roots} first, or move them all as one group",
            )


Box = tuple[Expr, int]
"""Least value over the outer loops, and how many values."""


def _boxes(state: LoopTree, stage: Stage, outer: Sequence[Loop]) -> dict[str, Box]:
    """For each spatial iterator whose needed values form such a box, that box."""
    around = {x.name for x in outer}
    wanted: dict[str, list[tuple[Addends, int, int] | None]] = {}
    target = outer[-1]
    places = (0,) * (len(outer) - 1)
    inside = (
        site
        for name in target.stages & {*state.takers.get(stage.tensor, ())}
        for site in sites((target,), tuple(outer[:-1]), places, name)
    )
    for site in sorted(inside, key=lambda s: s.places):
        extents = site.extents
        for access in state.stage[site.block.stage].reads_in(site.block.part):
            if stage.tensor not in state.versions.get(access.tensor, (access.tensor,)):
                continue
            for index, wrote in zip(access.indices, stage.target.indices, strict=True):
                needed = substitute(index, site.block.binding)
                key, value = _solved(wrote, needed, extents)
                wanted.setdefault(key, []).append(reach(value, around, extents, extents))
    return {
        n: _enclosing(wanted[n], e) if n in wanted else (Const(0), e)
        for n, e in stage.iterators
        if wanted
    }


def _solved(wrote: Expr, value: Expr, extents: Mapping[str, int]) -> tuple[str, Expr]:
    """The iterator of a target's index, and its value where the index has one; "" where it is not
    one iterator, times a number and plus another, that this value always gives."""
    function = affine(wrote)
    if function is None or len(function.terms) != 1:
        return "", simplify(value, extents)
    (name, step), *_ = function.terms
    found = addends(simplify(Binary("-", value, Const(function.constant)), extents))
    if any(c % step for c, _ in found):
        return "", simplify(value, extents)
    return name, total([(c // step, term) for c, term in found])


def _enclosing(parts: list[tuple[Addends, int, int] | None], extent: int) -> Box:
    known = [p for p in parts if p is not None]
    whole: Box = (Const(0), extent)
    if len(known) < len(parts) or len({str(ordered(base)) for base, _, _ in known}) > 1:
        return whole
    low = min(x for _, x, _ in known)
    count = max(x for _, _, x in known) - low + 1
    if count >= extent:
        return whole
    return add(total(known[0][0]), Const(low)), count


def _nest(
    state: LoopTree,
    stage: Stage,
    boxes: Mapping[str, Box],
    outer: Sequence[Loop] = (),
    *,
    units: bool = False,
) -> Node:
    """A nest of the stage over the boxes inside of some loops (whole where none is given), guarded
    at the edges; `units`: with loops of one iteration too."""
    made: list[tuple[str, int]] = []
    bindings: list[tuple[str, Expr]] = []
    guards: list[Expr] = []
    extents = {x.name: x.extent for x in outer}
    for iterator, extent in stage.iterators:
        base, count = boxes.get(iterator, (Const(0), extent))
        value = base
        if count > 1 or units or not boxes:
            mine = {n for n, _ in made}
            names = chain((iterator,), numbered(f"{stage.tensor}_{iterator}"))
            name = next(n for n in names if n not in mine and not state.taken(n))
            made.append((name, count))
            extents[name] = count
            value = simplify(add(base, Name(name)), extents)
        bindings.append((iterator, value))
        low, high = interval(value, extents)
        if low < 0:
            guards.append(Binary(">=", value, Const(0)))
        if high >= extent:
            guards.append(Binary("<", value, Const(extent)))
    node: Node = Block(stage.tensor, "whole", tuple(bindings), tuple(guards))
    for name, count in reversed(made):
        node = Loop(name, count, (node,))
    return node


MAX_INLINED, MAX_NESTED = 10_000, 128
"""Nodes of a value, and levels of it, up to which another may be written out in it."""


def compute_inline(state: LoopTree, tensor: str) -> LoopTree:
    """What defines a tensor stands in place of every read of it; the tensor is gone. A sum that
    another one alone adds up becomes a part of that, in new loops.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    _check_movable(state, stage)
    why = ""
    if state.tensor[tensor].role == "output":
        why = f"{tensor} is an output"
    elif stage.reduces and not _is_summed(state, stage):
        why = f"{tensor} is a reduction ({stage})"
    elif stage.over:
        why = f"{stage} writes a part, and what {stage.over} holds is the rest of {tensor}"
    plain = [i.name for i in stage.target.indices if isinstance(i, Name)]
    if len(set(plain)) != len(stage.target.indices):
        why = f"the indices of {stage.target} are not all single loops"
    elif not stage.reduces and any(n not in plain for n, e in stage.iterators if e > 1):
        why = f"{stage} has loops that its indices do not name"
    elif (most := max(_inlined_nodes(state, stage), default=0)) > MAX_INLINED:
        why = f"a value of {most:,} terms and operations with it, where {MAX_INLINED:,} are allowed"
    elif (deep := max(_nested(state, stage), default=0)) > MAX_NESTED:
        why = f"a value of {deep} levels with it, where {MAX_NESTED} are allowed"
    if why:
        raise refuse(
            f"{tensor} cannot be inlined",
            why,
            "an intermediate that one statement `t[i, j] = ...` defines",
            f"compute_at({tensor!r}, loop) keeps it close to its readers",
        )
    readers = {s.tensor for s in state.readers(tensor)}
    for site in state.sites:
        if site.block.stage in readers and site.block.tensorized is not None:
            raise refuse(
                f"{tensor} cannot be inlined",
                f"{site.block.stage}, which reads it, is a call of "
                f"{site.block.tensorized.intrinsic}",
                "readers whose loops are still free",
                "inline first, tensorize last",
            )
    taken = {*state.loop, *state.tensor, *(n for s in state.stages for n, _ in s.iterators)}
    added = {n: unique(n, taken) for n, _ in stage.reduction}
    more = tuple((added[n], e) for n, e in stage.reduction)
    fixed: dict[str, Expr] = {n: Const(0) for n, _ in stage.iterators if n not in plain}
    value = substitute(stage.value, fixed | {n: Name(added[n]) for n in added})
    value = value if stage.reduces else _typed(state, stage, value)

    def at(access: Access) -> Expr:
        return substitute(value, dict(zip(plain, access.indices, strict=True)))

    stages = tuple(
        replace(
            s,
            iterators=(*s.iterators, *more),
            value=replace_reads(s.value, tensor, at),
            seed=s.seed and replace_reads(s.seed, tensor, at),
        )
        if s.tensor in readers
        else s
        for s in state.stages
        if s.tensor != tensor
    )
    gone = (*state.gone, (tensor, f"{tensor} was inlined"))
    bare = _without(state, tensor)

    def unfetched(loop: Loop) -> tuple[Node, ...]:
        rest = tuple(p for p in loop.prefetches if p.tensor != tensor)
        return (loop if rest == loop.prefetches else replace(loop, prefetches=rest),)

    made = replace(
        bare,
        root=map_loops(bare.root, unfetched),
        stages=stages,
        tensors=tuple(t for t in state.tensors if t.name != tensor),
        storages=tuple(s for s in state.storages if s.tensor != tensor),
        gone=gone,
    )
    if not stage.reduces:
        return made
    (reader,) = readers
    nest = fresh_nest(made, made.stage[reader])
    root = tuple(nest if reader in stages_of(x) else x for x in made.root)
    return _remade(state, made.with_root(root), reader, f"compute_inline({tensor!r})")


def _is_summed(state: LoopTree, stage: Stage) -> bool:
    """Whether all that a reduction of integers is read for is one of the same kind, which adds up
    its elements, in loops of its own."""
    readers = state.readers(stage.tensor)
    if len(readers) != 1:
        return False
    (reader,) = readers
    dtype = state.tensor[stage.tensor].dtype
    alike = stage.op == reader.op and dtype == state.tensor[reader.tensor].dtype
    free = dtype in WRAPPING if stage.op == "+=" else not is_float(dtype)
    plain = not (stage.ordered or reader.ordered or stage.where or stage.over) and not stage.seed
    alone = [x for x in state.root if reader.tensor in stages_of(x)]
    return (
        alike and free and plain
        and isinstance(reader.value, Access)
        and reader.seed is None
        and len(alone) == 1
        and len({*stages_of(alone[0])}) == 1
    )  # fmt: skip


def _typed(state: LoopTree, stage: Stage, value: Expr) -> Expr:
    """The value as the tensor would have held it."""
    dtype = state.tensor[stage.tensor].dtype
    own = dtype_of(value, lambda node: _dtype(state, node))
    return value if own == dtype else Cast(dtype, value)


def _dtype(state: LoopTree, node: Access | Name) -> str:
    return state.tensor[node.tensor].dtype if isinstance(node, Access) else "int32"


def _inlined_nodes(state: LoopTree, stage: Stage) -> Iterator[int]:
    """How long the values that read a stage become with it in them."""
    written = sum(1 for _ in walk(stage.value))
    for reader in state.readers(stage.tensor):
        nodes = list(walk(reader.value))
        reads = sum(isinstance(n, Access) and n.tensor == stage.tensor for n in nodes)
        yield len(nodes) + reads * written


def _nested(state: LoopTree, stage: Stage) -> Iterator[int]:
    """How deep the values that read a stage become with it in them, at the most."""
    mine = nesting(stage.value)
    for reader in state.readers(stage.tensor):
        yield nesting(reader.value) + mine


def replace_reads(expr: Expr, tensor: str, by: Callable[[Access], Expr]) -> Expr:
    """The expression with every access to a tensor replaced by what `by` makes of it."""
    return map_accesses(expr, lambda access: by(access) if access.tensor == tensor else access)


def create_group(
    state: LoopTree, outputs: Sequence[str], inputs: Sequence[str], include_inputs: bool
) -> tuple[LoopTree, str]:
    """The stages between some tensors and others, to be moved as one.

    Raises:
        HwgenError: H413 where nothing lies between them, H414.
    """
    for name in (*outputs, *inputs):
        check_tensor(state, name)
    members = _between(state, outputs, inputs, include_inputs)
    if not members:
        raise refuse(
            "the group is empty",
            f"no stage leads from {', '.join(inputs)} to {', '.join(outputs)}",
            "outputs that depend on the inputs",
            "name tensors along one path",
        )
    name = "group" if not state.groups else f"group_{len(state.groups)}"
    return replace(state, groups=(*state.groups, (name, members))), name


def _between(
    state: LoopTree, outputs: Sequence[str], inputs: Sequence[str], include: bool
) -> tuple[str, ...]:
    """Stages from which an output follows and which follow from an input, in textual order."""
    below: set[str] = set(inputs)
    for stage in state.stages:
        if any(r.tensor in below for r in stage.reads):
            below.add(stage.tensor)
    above: set[str] = set(outputs)
    for stage in reversed(state.stages):
        if stage.tensor in above and stage.tensor not in inputs:
            above |= {r.tensor for r in stage.reads}
    members = below & above
    if not include:
        members -= set(inputs)
    return tuple(s.tensor for s in state.stages if s.tensor in members)


def members(state: LoopTree, name: str) -> tuple[str, ...]:
    """The stages that a tensor's or a group's name stands for."""
    return dict(state.groups).get(name, (name,))


def at_group(state: LoopTree, name: str, loop: str, *, units: bool = False) -> LoopTree:
    """`compute_at` for every stage of a group, consumers first."""
    for tensor in reversed(members(state, name)):
        state = compute_at(state, tensor, loop, units=units)
    return state


def root_group(state: LoopTree, name: str) -> LoopTree:
    """`compute_root` for every stage of a group, consumers first."""
    for tensor in reversed(members(state, name)):
        state = compute_root(state, tensor)
    return state


def loops_of(state: LoopTree, tensor: str) -> tuple[str, ...]:
    """The loops around a block, outermost first; a stage's name means the one that computes."""
    return block_of(state, tensor).names
