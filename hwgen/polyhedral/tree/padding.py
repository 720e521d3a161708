"""The primitive decompose_padding: elements that are chosen by where they are, as two stages.

`p[i] = select(1 <= i and i <= N, x[i - 1], 0)` is `p[i] = 0` everywhere, and then `p[i + 1] = x[i]`
inside. What no instruction chooses, two of them set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import find_stage, main_site, refuse, stages_of
from hwgen.polyhedral.tree.loop_tree import LoopTree, Tensor, covers
from hwgen.polyhedral.tree.placement import fresh_nest
from hwgen.polyhedral.tree.terms import counted_from
from hwgen.spec.affine import affine
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    conjuncts,
    walk,
)

Box = Mapping[str, tuple[int, int]]
"""The least and the greatest value of each iterator."""


def decompose_padding(state: LoopTree, tensor: str) -> tuple[LoopTree, str]:
    """The constant elements of a tensor as a stage that sets all of it, before the stage of the
    others; the state, and the name of the former.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    plain = stage.op == "=" and not stage.over and not stage.reduces
    own = state.tensor[tensor]
    parts = padded(stage.target, stage.value, stage.iterators, own.shape) if plain else None
    site = main_site(state, tensor)
    place = next(n for n, x in enumerate(state.root) if tensor in stages_of(x))
    if parts is None or site.block.tensorized is not None or len(stages_of(state.root[place])) > 1:
        raise refuse(
            f"{tensor} has no padding to decompose",
            str(stage) if parts is None else f"loops of {tensor} that hold other stages, or a call",
            "`t[i, j] = select(L <= i and i <= H, value, constant)` of all of t, in loops of its "
            "own",
            "decompose it first, before other edits of its loops",
        )
    name = unique(f"{tensor}_pad", (*state.tensor, *state.loop))
    first = replace(
        stage, tensor=name, target=Access(name, stage.target.indices), value=parts.constant
    )
    inside = replace(
        stage, iterators=parts.iterators, target=parts.target, value=parts.value, over=name
    )
    storage = replace(state.storage[tensor], tensor=name, alias=tensor)
    bare = replace(state, root=(*state.root[:place], *state.root[place + 1 :]))
    held = Tensor(name, own.dtype, own.shape, "intermediate")
    made = bare.with_tensor(held, storage).with_stages(tensor, first, inside)
    root = list(made.root)
    for number, new in enumerate((name, tensor)):
        root.insert(place + number, fresh_nest(made, made.stage[new]))
        made = replace(made, root=tuple(root))
    return made, name


def is_by_place(value: Expr) -> bool:
    """Whether a value is chosen by where it is alone, whatever the data: by integers."""
    match value:
        case Call("select", (condition, _, _)):
            return all(map(_of_place, walk(condition)))
        case _:
            return False


def _of_place(part: Expr) -> bool:
    match part:
        case Const(number):
            return isinstance(number, int)
        case Call(function):
            return function in ("min", "max", "select")
        case _:
            return not isinstance(part, Access | Cast)


@dataclass(frozen=True, slots=True)
class Padded:
    """Elements that have a `constant` but for those that `value` gives at `target`."""

    constant: Expr
    iterators: tuple[tuple[str, int], ...]
    target: Access
    value: Expr


def padded(
    target: Access, value: Expr, iterators: Sequence[tuple[str, int]], shape: Sequence[int]
) -> Padded | None:
    """What sets all elements of a tensor that are chosen by where they are; None where they are
    not."""
    match value:
        case Call("select", (guard, chosen, Const() | Cast(_, Const()) as constant)):
            box = box_of(guard, dict(iterators))
        case _:
            return None
    if box is None or not covers(target.indices, dict(iterators), shape):
        return None
    first = {n: low for n, (low, _) in box.items()}
    inner = tuple((n, box[n][1] - box[n][0] + 1) for n, _ in iterators)
    own, values = (counted_from(v, first, dict(inner)) for v in (target, chosen))
    assert isinstance(own, Access)
    return Padded(constant, inner, own, values)


def box_of(guard: Expr, extents: Mapping[str, int]) -> Box | None:
    """The iterators' values for which a condition holds; None where these are no box, or none."""
    box: dict[str, tuple[float, float]] = {n: (0, e - 1) for n, e in extents.items()}
    for condition in conjuncts(guard):
        bounds = _bounds(condition)
        if bounds is None or bounds[0] not in box:
            return None
        name, low, high = bounds
        box[name] = max(low, box[name][0]), min(high, box[name][1])
    if any(low > high for low, high in box.values()):
        return None
    return {n: (int(low), int(high)) for n, (low, high) in box.items()}


def _bounds(condition: Expr) -> tuple[str, float, float] | None:
    """An iterator and the values of it for which a comparison holds."""
    match condition:
        case Binary("<" | "<=" | ">" | ">=" | "==" as op, left, right):
            difference = affine(Binary("-", left, right))
        case _:
            return None
    if difference is None or len(difference.terms) != 1:
        return None
    # step * name + constant, compared with 0.
    ((name, step),) = difference.terms
    constant = difference.constant
    low, high = -inf, inf
    if op == "==":
        return None if constant % step else (name, -constant // step, -constant // step)
    if op in ("<", "<="):
        step, constant, op = -step, -constant, {"<": ">", "<=": ">="}[op]
    constant -= op == ">"
    if step > 0:  # name >= -constant / step
        low = -(constant // step)
    else:
        high = constant // -step
    return name, low, high
