"""Which part of a tensor the loops inside a place touch: a box that moves with the loops outside.

An index over loops is a part over the loops outside (the base) plus a part over those inside (an
interval). Where both mix in one term, or accesses do not agree on the base, the dimension is kept
whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node
from hwgen.polyhedral.tree.terms import apply, ordered, reach, simplify
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, add, conjuncts


@dataclass(frozen=True, slots=True)
class Use:
    """An access with its indices over loops; the loops around it, outermost first. `extents`: of
    these; `reached`: the same, of a loop whose first iterations alone have the block so many."""

    block: Block
    loops: tuple[Loop, ...]
    access: Access
    writes: bool
    extents: Mapping[str, int]
    reached: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Box:
    """Per dimension of a tensor: the first index, over the loops outside, and how many."""

    origins: tuple[Expr, ...]
    extents: tuple[int, ...]


def uses(state: LoopTree, nodes: tuple[Node, ...], around: tuple[Loop, ...] = ()) -> list[Use]:
    """Every access under the nodes, in textual order; a target comes first, then reads."""
    found: list[Use] = []
    for node in nodes:
        match node:
            case Loop():
                found += uses(state, node.body, (*around, node))
            case Block():
                found += block_uses(state, node, around)
    return found


def block_uses(state: LoopTree, block: Block, around: tuple[Loop, ...]) -> list[Use]:
    """The accesses of one block: its target, then what its value reads."""
    stage = state.stage[block.stage]
    extents = {x.name: x.extent for x in around}
    reached = _reached(block, extents)
    binding = block.binding
    known: dict[str, Expr] = {}

    def over_loops(index: Expr) -> Expr:
        if not isinstance(index, Name):
            return apply(index, binding, extents)
        if index.name not in known:
            known[index.name] = apply(index, binding, extents)
        return known[index.name]

    def use(access: Access, writes: bool) -> Use:
        indices = tuple(map(over_loops, access.indices))
        return Use(block, around, Access(access.tensor, indices), writes, extents, reached)

    return [use(stage.target, True), *(use(r, False) for r in stage.reads_in(block.part))]


def _reached(block: Block, extents: Mapping[str, int]) -> Mapping[str, int]:
    found = dict(extents)
    for condition in (c for p in block.predicate for c in conjuncts(p)):
        match condition:
            case Binary("<", Name(loop), Const(int(end))) if loop in found:
                found[loop] = max(1, min(found[loop], end))
            case _:
                pass
    return found


def box(found: Sequence[Use], outside: Collection[str], shape: Sequence[int]) -> Box:
    """The box of one tensor that accesses touch while the loops `outside` stand still."""
    origins: list[Expr] = []
    extents: list[int] = []
    for d, extent in enumerate(shape):
        origin, size = _dimension([(u, u.access.indices[d]) for u in found], outside, extent)
        origins.append(origin)
        extents.append(size)
    return Box(tuple(origins), tuple(extents))


def _dimension(
    indices: Iterable[tuple[Use, Expr]], outside: Collection[str], extent: int
) -> tuple[Expr, int]:
    bases: dict[str, Expr] = {}
    low, high = extent, -1
    for use, index in indices:
        found = reach(index, outside, use.extents, use.reached)
        if found is None:
            return Const(0), extent
        base_sum = ordered(found[0])
        bases[str(base_sum)] = base_sum
        low, high = min(low, found[1]), max(high, found[2])
    if len(bases) != 1:
        return Const(0), extent
    (base_sum,) = bases.values()
    if base_sum == Const(0):
        # Nothing outside the tensor is ever used: such reads are guarded.
        low, high = max(low, 0), min(high, extent - 1)
    size = high - low + 1
    if size >= extent or size <= 0:
        return Const(0), extent
    return add(base_sum, Const(low)), size


def minus(left: Expr, right: Expr, extents: Mapping[str, int]) -> Expr:
    """`left - right`, simplified."""
    return simplify(Binary("-", left, right), extents)
