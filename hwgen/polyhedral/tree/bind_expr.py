"""A part of a value as a tensor of its own: the reverse of inlining."""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.defined import reads_inside
from hwgen.polyhedral.tree.edit import find_uncalled, refuse, value_dtype
from hwgen.polyhedral.tree.joint_loops import joint
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage, Storage, Tensor
from hwgen.polyhedral.tree.padding import Box, box_of
from hwgen.polyhedral.tree.placement import nest_beside
from hwgen.polyhedral.tree.terms import counted_from
from hwgen.spec.expression import (
    Access,
    Call,
    Const,
    Expr,
    Name,
    parts,
    replace_part,
    substitute,
    tensors_of,
    walk,
)
from hwgen.spec.typecheck import ExpressionTypeError


def bind_expr(state: LoopTree, tensor: str, part: Expr) -> tuple[LoopTree, str]:
    """A stage before that of a tensor computes a part of its value, which then reads the result.

    Of `y[i] = f(g(x[i]))` the part `g(x[i])` becomes `t[i] = g(x[i])`, and `y[i] = f(t[i])` is
    left. The new tensor has the type of the part, over the stage's iterators that occur in it;
    those that only occur as a sum, `i + r`, are one iterator of its. Of a part that a `select` on
    iterators chooses, it has the elements that are chosen, where these are a box.

    Returns:
        The state, and the name of the new tensor.

    Raises:
        HwgenError: H413 where the value has no such part, or one that is no number of its own or
            reads outside of its tensors where it is not chosen; H414 where there is no such stage.
    """
    stage = find_uncalled(state, tensor)
    dtypes = {t.name: t.dtype for t in state.tensors}
    try:
        dtype = value_dtype(part, dtypes) if part in parts_to_bind(stage) else ""
    except ExpressionTypeError:
        dtype = ""
    if not dtype:
        raise refuse(
            f"{part} is no part of {tensor} that can stand for itself",
            str(stage),
            "; ".join(map(str, parts_to_bind(stage))) or "none: its value is an element",
            "name one of the parts of the value, as the statement has it",
        )
    name = unique(f"{tensor}_part", {*dtypes, *state.loop})
    box, own = _chosen(stage, part), dict(stage.iterators)
    first = {n: low for n, (low, _) in box.items() if low}
    extents = {n: e for n, (_, e) in box.items()}
    moved = counted_from(part, first, extents) if first else part
    found = joint(moved, extents, {*dtypes, *state.loop, name})
    if not reads_inside(state, stage.value, moved, extents):
        raise refuse(
            f"{part} stands for itself only where it is chosen",
            str(stage),
            "parts that read what is in their tensors in every iteration",
            "bind a part of it, or the whole select",
        )
    iterators = found.iterators
    target = Access(name, tuple(Name(n) for n, _ in iterators) or (Const(0),))
    made = Stage(name, iterators, target, "=", found.value)
    read = Access(name, tuple(substitute(i, found.sums) for i in target.indices))
    read = counted_from(read, {n: -low for n, low in first.items()}, own) if first else read
    reading = replace(stage, value=replace_part(stage.value, part, read))
    shape = tuple(e for _, e in iterators) or (1,)
    state = state.with_tensor(Tensor(name, dtype, shape, "intermediate"), Storage(name))
    state = state.with_stages(tensor, made, reading)
    return nest_beside(state, made, tensor), name


def _chosen(stage: Stage, part: Expr) -> dict[str, tuple[int, int]]:
    """By iterator, the least value for which a part of the value counts, and how many there are."""
    extents = dict(stage.iterators)
    box: Box | None = None
    match stage.value:
        case Call("select", (guard, yes, no)) if part in walk(yes):
            only = part not in walk(no) and part not in walk(guard)
            box = box_of(guard, extents) if only else None
        case _:
            pass
    whole = {n: (0, e - 1) for n, e in extents.items()}
    return {n: (low, high - low + 1) for n, (low, high) in (box or whole).items()}


def parts_to_bind(stage: Stage) -> list[Expr]:
    """The operations on elements in a stage's value, all of it first, each once; not those of
    indices, nor any that read what the stage itself has computed."""
    found: dict[Expr, None] = {}
    waiting = [stage.value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Access | Const | Name):
            continue
        read = tensors_of(node)
        if read and read.isdisjoint((stage.tensor, RUNNING.tensor)):
            found[node] = None
        waiting += parts(node)[::-1]
    return [*found]
