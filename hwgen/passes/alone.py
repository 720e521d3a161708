"""A stage of a schedule as a workload of its own, to be matched alone."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.lower.idle import contributing
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.spec.expression import (
    Access,
    Expr,
    Name,
    UpdateOp,
    map_accesses,
    stepped,
    tensors_of,
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
