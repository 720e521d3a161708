"""Contributions that change nothing do not run.

A part of a sum that ends early (`rfactor` of a loop with a tail) adds zeros past its end: its value
is `select(k < 255, a * b, 0)`. No call computes such a choice; that none runs there is the same.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, Stage, map_blocks
from hwgen.polyhedral.tree.terms import apply
from hwgen.spec.expression import Call, Const, Expr, conjuncts
from hwgen.spec.typecheck import neutral


def contributing(state: LoopTree, stage: Stage) -> tuple[Expr, Expr] | None:
    """Where a sum's contributions change something, and what they are there; None where all do."""
    match stage.value:
        case Call("select", (condition, value, Const() as other)) if (
            stage.reduces
            and not stage.ordered
            and other == neutral(stage.op, state.tensor[stage.tensor].dtype)
        ):
            return condition, value
        case _:
            return None


def without_idle(state: LoopTree) -> LoopTree:
    """The same sums without the contributions that are neutral where a condition fails. A sum that
    begins with its first contribution keeps them all."""
    found: dict[str, Expr] = {}
    stages: list[Stage] = []
    for stage in state.stages:
        parts = {s.block.part for s in state.sites if s.block.stage == stage.tensor}
        chosen = contributing(state, stage)
        if chosen is None or "whole" in parts:
            stages.append(stage)
            continue
        condition, value = chosen
        found[stage.tensor] = condition
        stages.append(replace(stage, value=value, where=(condition,)))
    if not found:
        return state
    extents = state.extents

    def guarded(block: Block) -> Block:
        if block.stage not in found or block.part == "init":
            return block
        own = conjuncts(found[block.stage])
        more = tuple(apply(c, block.binding, extents) for c in own)
        return replace(block, predicate=(*block.predicate, *more))

    return replace(state, stages=tuple(stages), root=map_blocks(state.root, guarded))
