"""Primitives that add stages or say where values live: caches, scopes, prefetches, slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.decided import fills
from hwgen.polyhedral.tree.edit import (
    check_not_tensorized,
    check_tensor,
    find_loop,
    find_stage,
    main_site,
    refuse,
    replace_loop,
    stages_of,
)
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Prefetch,
    Site,
    Stage,
    Storage,
    Tensor,
    blocks,
    covers,
    first_of,
    map_blocks,
)
from hwgen.polyhedral.tree.placement import (
    compute_at,
    fresh_nest,
    insert_nest,
    nest_beside,
    replace_reads,
)
from hwgen.polyhedral.tree.terms import interval
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import (
    Access,
    Binary,
    Cast,
    Const,
    Expr,
    Name,
    add,
    names,
    substitute,
    walk,
)
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import converts, promoted


def cache_read(
    state: LoopTree,
    tensor: str,
    memory: str,
    readers: Sequence[str],
    occurrence: int | Sequence[int],
    dtype: str = "",
) -> tuple[LoopTree, str]:
    """Readers read a copy of a tensor in a memory; the copy is a stage of its own. `occurrence`:
    where in its value each reader does, counted from 1, or all of them; 0 for everywhere. `dtype`:
    to which type the copy widens it, of those that compute alike ("" for the tensor's).

    Raises:
        HwgenError: H413, H414.
    """
    check_tensor(state, tensor)
    reading = [s.tensor for s in state.readers(tensor)]
    chosen = list(readers) or reading
    for name in chosen:
        find_stage(state, name)
    strangers = [n for n in chosen if n not in reading]
    if strangers or not chosen:
        raise refuse(
            f"{strangers[0] if strangers else 'nobody'} reads {tensor}"
            if not strangers
            else f"{strangers[0]} does not read {tensor}",
            ", ".join(chosen) or "no reader",
            ", ".join(reading) or "a tensor that some stage reads",
            f"cache_read({tensor!r}, {memory!r}) serves all readers",
        )
    where = _occurrences(state, tensor, chosen, occurrence)
    source = state.tensor[tensor]
    name = unique(f"{tensor}_{memory}", state.tensor)
    stage = _copy(name, tensor, _read_box(state, tensor, chosen))
    if dtype:
        _check_wider(tensor, source.dtype, dtype)
        stage = replace(stage, value=Cast(dtype, stage.value))
    stages: list[Stage] = []
    for s in state.stages:
        if s.tensor in chosen:
            if stage not in stages:
                stages.append(stage)
            at = where[s.tensor]
            made = _reading(s, tensor, _at(at, lambda a: Access(name, a.indices)))
            stages.append(replace(made, seed=s.seed) if at else made)
        else:
            stages.append(s)

    def redirected(block: Block) -> Block:
        done = block.tensorized
        if done is None or block.stage not in chosen:
            return block
        moved = done.on(lambda a: Access(name, a.indices) if a.tensor == tensor else a)
        return replace(block, tensorized=moved)

    held = Tensor(name, dtype or source.dtype, source.shape, "intermediate")
    made = replace(state, stages=tuple(stages), root=map_blocks(state.root, redirected))
    made = made.with_tensor(held, Storage(name, memory))
    return insert_nest(made, fresh_nest(made, stage), name), name


def _check_wider(tensor: str, narrow: str, wide: str) -> None:
    if not converts(narrow, wide) or promoted(narrow) != promoted(wide):
        raise refuse(
            f"a copy of {tensor} cannot be {wide}",
            f"{narrow} to {wide}",
            f"types between {narrow} and {promoted(narrow)}, in which it is computed with",
            f"dtype={promoted(narrow)!r}, or none",
        )


def _reading(stage: Stage, tensor: str, by: Callable[[Access], Access]) -> Stage:
    """A stage that reads what `by` makes of its reads of a tensor."""
    value = replace_reads(stage.value, tensor, by)
    seed = stage.seed and replace_reads(stage.seed, tensor, by)
    return replace(stage, value=value, seed=seed)


def _at(occurrence: int, change: Callable[[Access], Access]) -> Callable[[Access], Access]:
    """A change of the access that comes so many calls on, from 1; with 0 of every one."""
    seen = count(1)
    return lambda access: change(access) if occurrence in (0, next(seen)) else access


def _occurrences(
    state: LoopTree, tensor: str, readers: Sequence[str], occurrence: int | Sequence[int]
) -> dict[str, int]:
    """Where each reader reads a tensor in its value; 0 for everywhere."""
    places = [occurrence] * len(readers) if isinstance(occurrence, int) else occurrence
    if len(places) != len(readers):
        raise refuse(
            f"{len(places)} occurrences of {tensor} for {len(readers)} readers",
            ", ".join(map(str, places)),
            f"one for each of {', '.join(readers)}, or one number for all",
            "name the readers in the order of their occurrences",
        )
    found = dict(zip(readers, places, strict=True))
    for reader, place in found.items():
        if place:
            _check_occurrence(state, tensor, (reader,), place)
    return found


def _check_occurrence(
    state: LoopTree, tensor: str, readers: Sequence[str], occurrence: int
) -> None:
    for reader in readers:
        places = [n for n in walk(state.stage[reader].value) if isinstance(n, Access)]
        most = sum(n.tensor == tensor for n in places)
        called = any(b.stage == reader and b.tensorized for b in blocks(state.root))
        if called or not 1 <= occurrence <= most:
            raise refuse(
                f"{reader} has no {occurrence}. occurrence of {tensor}",
                f"occurrence {occurrence}",
                f"1..{most} of a reader that has no call yet",
                f"cache_read({tensor!r}, memory, {reader!r}) serves all of them",
            )


def _copy(target: str, source: str, box: Sequence[tuple[int, int]]) -> Stage:
    """A copy of the elements in a box: its first index and extent along each dimension."""
    iterators = tuple((f"{target}_{d}", e) for d, (_, e) in enumerate(box))
    pairs = zip(iterators, box, strict=True)
    indices = tuple(add(Name(n), Const(low)) for (n, _), (low, _) in pairs)
    return Stage(target, iterators, Access(target, indices), "=", Access(source, indices), "copy")


def _read_box(state: LoopTree, tensor: str, readers: Sequence[str]) -> list[tuple[int, int]]:
    """The first index and the extent of what readers use along each dimension."""
    shape = state.tensor[tensor].shape
    reached: list[list[int]] = [[] for _ in shape]
    for stage in (state.stage[n] for n in readers):
        for access in (a for a in stage.reads_in("whole") if a.tensor == tensor):
            for d, index in enumerate(access.indices):
                reached[d] += interval(index, dict(stage.iterators))
    box: list[tuple[int, int]] = []
    for mine, extent in zip(reached, shape, strict=True):
        # What conditions keep from being read may lie outside.
        low, high = (min(max(0, n), extent - 1) for n in (min(mine), max(mine)))
        box.append((low, high - low + 1))
    return box


def target_first(stage: Stage) -> list[str]:
    """A stage's iterators: those of its target in the order of the indices, then the others."""
    own = [n for i in stage.target.indices for n in names(i)]
    return [*dict.fromkeys([*own, *(n for n, _ in stage.iterators)])]


def reindex_cache_read(
    state: LoopTree, tensor: str, memory: str, reader: str, occurrence: int, *, whole: bool
) -> tuple[LoopTree, str]:
    """A reader reads a copy of what it reads of a tensor, element by element of its iterators: of
    those that move what it reads, and with `whole` of all that its result has. `occurrence`: as for
    `cache_read`.

    Raises:
        HwgenError: H413, H414.
    """
    check_tensor(state, tensor)
    stage = find_stage(state, reader)
    if occurrence:
        _check_occurrence(state, tensor, (reader,), occurrence)
    places = [a for a in walk(stage.value) if isinstance(a, Access) and a.tensor == tensor]
    reads = [*dict.fromkeys(places)] if not occurrence else [places[occurrence - 1]]
    extents = dict(stage.iterators)
    shape = state.tensor[tensor].shape
    spans = [interval(i, extents) for i in reads[0].indices] if reads else []
    inside = all(low >= 0 and high < e for (low, high), e in zip(spans, shape, strict=False))
    called = any(b.stage == reader and b.tensorized for b in blocks(state.root))
    if len(reads) != 1 or not inside or called:
        raise refuse(
            f"what {reader} reads of {tensor} cannot be laid out for it",
            ", ".join(map(str, reads)) or "nothing",
            "one access, inside the tensor, of a stage that has no call yet",
            f"cache_read({tensor!r}, {memory!r})",
        )
    (read,) = reads
    moving = {n for i in read.indices for n in names(i)}
    moving |= {n for n, _ in stage.spatial} if whole else set()
    used = [n for n in target_first(stage) if n in moving]
    name = unique(f"{tensor}_{memory}", state.tensor)
    iterators = tuple((f"{name}_{d}", extents[n]) for d, n in enumerate(used))
    table = {n: Name(own) for n, (own, _) in zip(used, iterators, strict=True)}
    target = Access(name, tuple(Name(n) for n, _ in iterators))
    source = Access(tensor, tuple(substitute(i, table) for i in read.indices))
    copy = Stage(name, iterators, target, "=", source, "copy")
    own = Access(name, tuple(Name(n) for n in used))
    value = replace_reads(stage.value, tensor, _at(occurrence, lambda _: own))
    after = replace(stage, value=value)
    held = Tensor(name, state.tensor[tensor].dtype, tuple(e for _, e in iterators), "intermediate")
    made = state.with_tensor(held, Storage(name, memory)).with_stages(reader, copy, after)
    return insert_nest(made, fresh_nest(made, copy), name), name


def _copied(stage: Stage, target: str, source: str, held: Sequence[Expr]) -> Stage:
    """A copy of what a stage writes, which now has another name and is `held` at these indices; its
    loops in the order of the tensor's dimensions."""
    places = {n: d for d, i in enumerate(stage.target.indices) for n in names(i)}
    spatial = sorted(stage.spatial, key=lambda x: places[x[0]])
    made = {n: f"{target}_{places[n]}" for n, _ in spatial}
    if len(set(made.values())) < len(made):
        made = {n: f"{target}_{k}" for k, (n, _) in enumerate(spatial)}
    table = {n: Name(x) for n, x in made.items()}
    indices, places_held = (
        tuple(substitute(i, table) for i in x) for x in (stage.target.indices, held)
    )
    iterators = tuple((made[n], e) for n, e in spatial)
    read = Access(source, places_held)
    return Stage(target, iterators, Access(target, indices), "=", read, "copy")


def cache_write(
    state: LoopTree, tensor: str, memory: str, dtype: str, readers: Sequence[str], called: str = ""
) -> tuple[LoopTree, str]:
    """The stage of a tensor writes to a memory instead, and a copy moves the result; `dtype`: in
    which type the stage does, so that the copy narrows it ("" for the tensor's); `readers`: stages
    that read what is in the memory; `called`: the name there ("" for the tensor's and memory's).
    Where others that read the tensor stand in the stage's loops, the copy does too.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    if any(b.stage == tensor and b.tensorized for b in blocks(state.root)):
        raise refuse(
            f"{tensor} is tensorized",
            "a call that writes it",
            "stages whose loops are still free",
            "cache first, tensorize last",
        )
    strangers = [n for n in readers if n not in {s.tensor for s in state.readers(tensor)}]
    if strangers or (readers and dtype):
        raise refuse(
            f"{(strangers or readers)[0]} cannot read {tensor} in {memory}",
            "another type there" if dtype else f"{strangers[0]} does not read {tensor}",
            ", ".join(s.tensor for s in state.readers(tensor)) or "no reader",
            f"cache_write({tensor!r}, {memory!r})",
        )
    result = state.tensor[tensor]
    name = unique(called or f"{tensor}_{memory}", state.tensor)
    held, indices = result.shape, stage.target.indices
    if stage.over and not readers:  # Only what it writes, element by element of its iterators.
        used = [n for n in target_first(stage) if n in dict(stage.spatial)]
        held, indices = tuple(dict(stage.spatial)[n] for n in used), tuple(map(Name, used))
    moved = replace(stage, tensor=name, target=Access(name, indices), over="")
    if dtype:
        moved = replace(moved, value=_before_cast(stage, result.dtype, dtype))
    whole = covers(stage.target.indices, dict(stage.iterators), result.shape)
    box = [(0, extent) for extent in result.shape]
    copy = _copy(tensor, name, box) if whole else _copied(stage, tensor, name, indices)
    copy = replace(copy, over=stage.over)
    if dtype:
        copy = replace(copy, value=Cast(result.dtype, copy.value))
    root = map_blocks(state.root, lambda b: replace(b, stage=name) if b.stage == tensor else b)
    there = Tensor(name, dtype or result.dtype, held, "intermediate")
    made = replace(state, root=root).with_tensor(there, Storage(name, memory))
    for reader in readers:
        reading = _reading(state.stage[reader], tensor, lambda a: Access(name, a.indices))
        made = made.with_stages(reader, reading)
    made = nest_beside(made.with_stages(tensor, moved, copy), copy, name, behind=True)
    around = _around_both(made, name, tensor)
    return compute_at(made, tensor, around[-1]) if around else made, name


def _around_both(state: LoopTree, name: str, tensor: str) -> tuple[str, ...]:
    """The loops that a stage shares with all of those that read its copy in some."""
    mine, readers = main_site(state, name).names, {s.tensor for s in state.readers(tensor)}
    found = [[n for n in mine if n in s.names] for s in state.sites if s.block.stage in readers]
    return tuple(min(filter(None, found), key=len, default=()))


def _before_cast(stage: Stage, narrow: str, dtype: str) -> Expr:
    """What a stage narrows, of a type."""
    value = stage.value
    if stage.reduces or not isinstance(value, Cast) or value.dtype != narrow or dtype == narrow:
        raise refuse(
            f"{stage.tensor} narrows nothing of type {dtype}",
            str(stage),
            f"a stage whose value is {narrow}(...), of another type inside",
            f"cache_write({stage.tensor!r}, memory)",
        )
    return value.operand


def set_scope(state: LoopTree, tensor: str, memory: str) -> LoopTree:
    """Where a tensor lives, and all that is one array with it; the caller's arrays stay where they
    are.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "moved to another memory")
    array = {t for kept in state.versions.values() if tensor in kept for t in kept} or {tensor}
    for name in sorted(array):
        if state.tensor[name].role == "intermediate":
            state = state.with_storage(replace(state.storage[name], memory=memory))
    return state


def check_inner(state: LoopTree, tensor: str, what: str) -> None:
    """Raises:
    HwgenError: H413 where a tensor is an array of the caller, H414.
    """
    check_tensor(state, tensor)
    role = state.tensor[tensor].role
    if role != "intermediate":
        other = "cache_read" if role == "input" else "cache_write"
        raise refuse(
            f"{tensor} cannot be {what}",
            f"{tensor} is an {role}: the caller's array",
            "intermediates",
            f"{other}({tensor!r}, memory) makes a copy that can",
        )


def prefetch(state: LoopTree, tensor: str, loop: str, distance: int) -> LoopTree:
    """At the start of a loop's body, fetch what it will read of a tensor some iterations later.

    Raises:
        HwgenError: H413, H414.
    """
    check_tensor(state, tensor)
    found = find_loop(state, loop)
    check_not_tensorized(state, loop)
    reads = {r.tensor for s in stages_of(found) for r in state.stage[s].reads}
    if tensor not in reads:
        raise refuse(
            f"nothing inside {loop} reads {tensor}",
            f"{loop} reads {', '.join(sorted(reads)) or 'nothing'}",
            "a tensor that the loop reads",
            "name a loop around a reader",
        )
    if not 1 <= distance < max(2, found.extent):
        raise refuse(
            f"{loop} does not run so far",
            f"distance {distance}",
            f"1..{max(1, found.extent - 1)}",
            "a smaller distance",
        )

    def edit(x: Loop) -> tuple[Node, ...]:
        rest = tuple(p for p in x.prefetches if p.tensor != tensor)
        return (replace(x, prefetches=(*rest, Prefetch(tensor, distance))),)

    return replace(state, root=replace_loop(state.root, loop, edit))


def double_buffer(state: LoopTree, tensor: str, slots: int) -> LoopTree:
    """Consecutive tiles of a tensor take turns in `slots` copies of its buffer.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "double buffered")
    if not 1 <= slots <= 64:
        raise refuse(
            f"{tensor} cannot have {slots} slots", str(slots), "1..64", "2 is double buffering"
        )
    return state.with_storage(replace(state.storage[tensor], slots=slots))


def retain(state: LoopTree, tensor: str, loop: str) -> LoopTree:
    """What an iteration of a loop computes of a tensor stays for the later ones, each of which
    computes what none before it has.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "retained")
    find_stage(state, tensor)
    find_loop(state, loop)
    fresh: dict[str, Expr] = {}
    for site in (s for s in state.sites if s.block.stage == tensor):
        if loop not in site.names:
            raise refuse(
                f"{loop} is not around {tensor}", loop, ", ".join(site.names) or "no loop is",
                f"compute_at({tensor!r}, {loop!r}) first",
            )  # fmt: skip
        condition = new_in(site, loop)
        if condition is None:
            moved = {i: e for i, e in site.block.bindings if loop in names(e)}
            raise refuse(
                f"{loop} computes another part of {tensor} in each iteration",
                ", ".join(f"{i} = {e}" for i, e in moved.items()),
                "a loop whose iterations compute the same, or overlap along one dimension",
                "retain it over a loop that does not move it, or moves it by less than its tile",
            )
        fresh[site.block.name] = condition

    def once(block: Block) -> Block:
        condition = fresh.get(block.name)
        if condition is None or condition in block.predicate:
            return block
        return replace(block, predicate=(*block.predicate, condition))

    return replace(state, root=map_blocks(state.root, once))


def overlaps(state: LoopTree, tensor: str, loop: str) -> bool:
    """Whether iterations of a loop around a stage compute some of what earlier ones have."""
    mine = (s for s in state.sites if s.block.stage == tensor)
    return all(loop in s.names and new_in(s, loop) is not None for s in mine)


@dataclass(frozen=True, slots=True)
class Window:
    """What a block computes along an iterator in an iteration of a loop: `extent` elements in a
    row, at `own` from the first, of which there are `step` less in common with the next."""

    iterator: str
    own: Affine
    extent: int
    step: int


def window_of(site: Site, loop: str) -> Window | None:
    """The window that a loop slides; None where its iterations have nothing in common, or where
    indices do not tell."""
    moved = [(i, affine(e)) for i, e in site.block.bindings if loop in names(e)]
    iterator, index = moved[0] if len(moved) == 1 else ("", None)
    if index is None:
        return None
    step = index.coefficient(loop)
    inside = site.names[site.names.index(loop) + 1 :]
    own = Affine(tuple((n, c) for n, c in index.terms if n in inside))
    last = fills((c, site.extents[n]) for n, c in own.terms)
    return None if last is None or not 0 < step <= last else Window(iterator, own, last + 1, step)


def new_in(site: Site, loop: str) -> Expr | None:
    """Condition: a block computes what it has not in the iteration of a loop before; None where
    that is always so, or indices do not tell."""
    first = first_of(loop)
    if not any(loop in names(e) for _, e in site.block.bindings):
        return first
    window = window_of(site, loop)
    if window is None:
        return None
    new = Binary(">=", window.own.expression(), Const(window.extent - window.step))
    later = Binary("and", Binary(">=", Name(loop), Const(1)), new)
    return Binary("or", first, later)


def alias(state: LoopTree, hardware: HardwareSpec, tensor: str, of: str) -> LoopTree:
    """A tensor is stored in the place of another, which nothing uses any more by then.

    Raises:
        HwgenError: H413, H414.
    """
    check_inner(state, tensor, "in the place of another")
    check_inner(state, of, "the place of another")
    if not hardware.units:
        raise refuse(
            f"{tensor} cannot be in the place of {of}",
            f"{hardware.name}, whose processor allocates each buffer while it is in use",
            "chips with units, whose buffers have fixed addresses",
            f"compute_inline({of!r})",
        )
    place = of
    while place and place != tensor:
        place = state.storage[place].alias
    if place == tensor:
        raise refuse(
            f"{tensor} would be in its own place", f"{of} in the place of {tensor}",
            "another tensor", "alias the later one to the earlier",
        )  # fmt: skip
    return state.with_storage(replace(state.storage[tensor], alias=of))
