"""The first state of a workload: one nest per statement, in textual order, each tensor defined
by one stage (a statement that rewrites a tensor defines a new one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count

from hwgen.polyhedral.tree.loop_tree import (
    RUNNING,
    Block,
    Loop,
    LoopTree,
    Node,
    Stage,
    Storage,
    Tensor,
    covers,
    first_of,
)
from hwgen.spec.expression import (
    Access,
    Call,
    Const,
    Expr,
    Name,
    conjunction,
    rename_tensors,
    replace_part,
    tensors_of,
)
from hwgen.spec.typecheck import is_float
from hwgen.spec.workload import Statement, Workload


def build_state(workload: Workload, resident: Mapping[str, str] | None = None) -> LoopTree:
    """Every statement as a stage with a nest of its own. `resident`: the memories of inputs that
    are on the chip already, and of outputs that stay there."""
    version = version_names(workload)
    current = {t.name: t.name for t in workload.tensors if t.role == "input"}
    staying = {t.name for t in workload.outputs} & {*(resident or {})}
    tensors = {
        t.name: Tensor(
            t.name,
            t.dtype,
            t.shape,
            "intermediate" if t.name in staying else t.role,
            t.supplied,
        )
        for t in workload.tensors
    }
    stages: list[Stage] = []
    read: set[str] = set()
    for number, statement in enumerate(workload.statements):
        written = statement.target.tensor
        value = statement.value
        if statement.ordered:
            value = replace_part(value, statement.target, RUNNING)
        value = rename_tensors(value, current)
        over = ""
        indices, extents = statement.target.indices, dict(statement.loops)
        start = seed = None
        if statement.ordered:
            start, value = _started(statement, value, current[written], stages, tensors)
        if statement.continues:
            seed = _seed(statement, current[written], stages, tensors)
        read |= tensors_of(value)
        if written in current and current[written] in tensors:
            # What nothing has read is in the same place too: it is an array of nobody.
            whole = covers(indices, extents, tensors[written].shape)
            if not whole or current[written] not in read:
                over = current[written]
        name = version[number]
        if name != written:
            first = tensors[written]
            tensors[name] = Tensor(name, first.dtype, first.shape, "intermediate")
        current[written] = name
        target = Access(name, statement.target.indices)
        made = Stage(
            name, statement.loops, target, statement.op, value, start=start, seed=seed, over=over
        )
        stages.append(made)
    taken = set(tensors)
    root = tuple(nest(stage, taken) for stage in stages)
    over = {s.over: s.tensor for s in stages if s.over}
    held = dict(resident or {})
    for stage in reversed(stages):
        if stage.over and stage.tensor in held:
            held[stage.over] = held[stage.tensor]
    storages = tuple(Storage(n, held.get(n, ""), alias=over.get(n, "")) for n in tensors)
    return LoopTree(workload.name, tuple(tensors.values()), tuple(stages), root, storages)


def stage_of(workload: Workload, state: LoopTree) -> tuple[str, ...]:
    """The stage of each statement in the first state; "" for one that only sets what another's
    elements begin with."""
    return tuple(name if name in state.stage else "" for name in version_names(workload))


def version_names(workload: Workload) -> tuple[str, ...]:
    """What each statement writes: the tensor that it names, where it is the last one to write it,
    else one of its own."""
    last = {s.target.tensor: n for n, s in enumerate(workload.statements)}
    taken = {t.name for t in workload.tensors}
    found: list[str] = []
    for number, statement in enumerate(workload.statements):
        name = statement.target.tensor
        if number != last[name]:
            name = unique(f"{name}_{number}", taken)
            taken.add(name)
        found.append(name)
    return tuple(found)


def _started(
    statement: Statement,
    value: Expr,
    before: str,
    stages: list[Stage],
    tensors: dict[str, Tensor],
) -> tuple[Const, Expr]:
    """What elements that take new values in order begin with, and the value then: a constant that
    the statement before set, which then is no stage unless it sets more, or read in the first
    iteration."""
    first = next(s for s in stages if s.tensor == before)
    read = any(r.tensor == before for s in stages for r in s.reads)
    shape = tensors[before].shape
    everywhere = covers(first.target.indices, dict(first.iterators), shape)
    if isinstance(first.value, Const) and first.op == "=" and everywhere and not read:
        if covers(statement.target.indices, dict(statement.loops), shape):
            stages.remove(first)
            del tensors[before]
        return first.value, value
    begin = Access(before, statement.target.indices)
    extents = dict(statement.loops)
    earliest = conjunction(tuple(first_of(n) for n in statement.folded if extents[n] > 1))
    chosen = begin if earliest is None else Call("select", (earliest, begin, RUNNING))
    zero = Const(0.0 if is_float(tensors[before].dtype) else 0)
    return zero, replace_part(value, RUNNING, chosen)


def _seed(
    statement: Statement, before: str, stages: list[Stage], tensors: dict[str, Tensor]
) -> Access:
    """What an update goes on from: what the statement before set, or another tensor's element that
    it copied for this one, which then is no stage."""
    first = next(s for s in stages if s.tensor == before)
    if not isinstance(first.value, Access) or first.target.indices != statement.target.indices:
        return Access(before, statement.target.indices)
    stages.remove(first)
    del tensors[before]
    return first.value


def unique(name: str, taken: Iterable[str]) -> str:
    """The name, or the name with the first number that makes it new."""
    used = set(taken)
    return next(n for n in numbered(name) if n not in used)


def numbered(name: str) -> Iterator[str]:
    """The name, then with 1, 2 and so on behind it."""
    return chain((name,), (f"{name}_{number}" for number in count(1)))


def nest(stage: Stage, taken: set[str]) -> Node:
    """A stage's block under one loop per iterator; loop names are added to `taken`."""
    loops: list[tuple[str, int]] = []
    bindings: list[tuple[str, Expr]] = []
    for iterator, extent in stage.iterators:
        name = iterator if iterator not in taken else unique(f"{stage.tensor}_{iterator}", taken)
        taken.add(name)
        loops.append((name, extent))
        bindings.append((iterator, Name(name)))
    part = "update" if stage.continues else "whole"
    node: Node = Block(stage.tensor, part, tuple(bindings))
    for name, extent in reversed(loops):
        node = Loop(name, extent, (node,))
    return node
