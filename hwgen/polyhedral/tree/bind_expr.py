"""A part of a value as a tensor of its own: the reverse of inlining."""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import find_uncalled, refuse, value_dtype
from hwgen.polyhedral.tree.joint_loops import joint
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage, Storage, Tensor
from hwgen.polyhedral.tree.placement import nest_beside
from hwgen.spec.expression import (
    Access,
    Const,
    Expr,
    Name,
    parts,
    replace_part,
    substitute,
    tensors_of,
)
from hwgen.spec.typecheck import ExpressionTypeError


def bind_expr(state: LoopTree, tensor: str, part: Expr) -> tuple[LoopTree, str]:
    """A stage before that of a tensor computes a part of its value, which then reads the result.

    Of `y[i] = f(g(x[i]))` the part `g(x[i])` becomes `t[i] = g(x[i])`, and `y[i] = f(t[i])` is
    left. The new tensor has the type of the part, over the stage's iterators that occur in it;
    those that only occur as a sum, `i + r`, are one iterator of its.

    Returns:
        The state, and the name of the new tensor.

    Raises:
        HwgenError: H413 where the value has no such part, or one that is no number of its own;
            H414 where there is no such stage.
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
    found = joint(part, dict(stage.iterators), {*dtypes, *state.loop, name})
    iterators = found.iterators
    target = Access(name, tuple(Name(n) for n, _ in iterators) or (Const(0),))
    made = Stage(name, iterators, target, "=", found.value)
    read = Access(name, tuple(substitute(i, found.sums) for i in target.indices))
    reading = replace(stage, value=replace_part(stage.value, part, read))
    shape = tuple(e for _, e in iterators) or (1,)
    state = state.with_tensor(Tensor(name, dtype, shape, "intermediate"), Storage(name))
    state = state.with_stages(tensor, made, reading)
    return nest_beside(state, made, tensor), name


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
