"""A stage of a schedule as a workload of its own, to be matched alone; the room that it has for
lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.codegen.lower.idle import contributing
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.search.script_tiles import called_loops, shared_loops, taken
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Stage
from hwgen.spec.expression import (
    Access,
    Expr,
    Name,
    UpdateOp,
    map_accesses,
    stepped,
    tensors_of,
    walk,
)
from hwgen.spec.workload import Role, Statement, Tensor, Workload


def stage_alone(state: LoopTree, stage: Stage, workload: Workload) -> Workload:
    """A stage as a workload of its own."""
    where = workload.location
    read = tensors_of(stage.spelt)
    tensors: list[Tensor] = []
    for t in state.tensors:
        if t.name in read | {stage.tensor}:
            role: Role = "output" if t.name == stage.tensor else "input"
            tensors.append(Tensor(t.name, t.dtype, t.shape, role, False, where))
    first = ()
    if stage.start is not None:
        first = (Statement("S", stage.spatial, stage.target, "=", stage.start, where),)
    chosen = contributing(state, stage)
    value = stage.spelt if chosen is None else chosen[1]
    target = stage.target
    if not stage.ordered:  # Its own elements stand where its iterators say, but for what is added.
        target = Access(stage.tensor, tuple(map(_moved, target.indices)))
    own = Statement(stage.tensor, stage.iterators, target, stage.op, value, where)
    return Workload(stage.tensor, (), tuple(tensors), (*first, own), where)


def _moved(index: Expr) -> Expr:
    """An index of one iterator and a number without the number."""
    name, _ = stepped(index) or ("", 0)
    return Name(name) if name else index


def seed_alone(
    state: LoopTree, stage: Stage, op: UpdateOp, workload: Workload
) -> tuple[Workload, str]:
    """What a stage starts from, set or, with another operation, contributed to a neutral element;
    and the name that elements of its own tensor have as an input."""
    assert stage.seed is not None
    before = unique(f"{stage.tensor}_before", state.tensor)

    def earlier(access: Access) -> Expr:
        return replace(access, tensor=before) if access.tensor == stage.tensor else access

    value = map_accesses(stage.seed, earlier)
    own = replace(stage, iterators=stage.spatial, op=op, value=value, seed=None)
    held = replace(
        state, tensors=(*state.tensors, replace(state.tensor[stage.tensor], name=before))
    )
    return stage_alone(held, own, workload), before


def lane_room(schedule: Schedule, scop: Scop, stages: Sequence[str]) -> dict[str, int]:
    """Iterations of each loop that can be lanes of all that computes statements: those of the
    innermost loop that is a stage's own, or the lanes that its call has."""
    room: dict[str, int] = {}
    shared = shared_loops(schedule.state)
    for statement in scop.statements:
        name = stages[scop.workload.statements.index(statement.source)]
        site = schedule.state.site.get(name)
        if site is None:
            continue
        stage = schedule.state.stage[name]
        inside = {*site.names} - shared
        every = len(stage.iterators) == len(statement.loops)
        pairs = zip(statement.loops, stage.iterators if every else stage.spatial, strict=False)
        for (loop, _), (iterator, _) in pairs:
            own = [n for n in site.names if n in inside and n in moving_loops(site, iterator)]
            most = next((site.extents[n] for n in reversed(own) if site.extents[n] > 1), 1)
            if called_loops(site):
                most = taken(site, site.block.binding[iterator])
            room[loop] = min(most, room.get(loop, most))
    return room


def moving_loops(site: Site, iterator: str) -> set[str]:
    """The loops that an iterator of a stage is bound to."""
    binding = dict(site.block.bindings).get(iterator)
    return set() if binding is None else {n.name for n in walk(binding) if isinstance(n, Name)}
