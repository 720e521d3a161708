"""A sum of products with a number added in one factor, as two sums.

`b[i] += (x[i, k] - 5) * w[k]` is `p[i] += x[i, k] * w[k]` and `q[0] += w[k] * -5`, with
`b[i] = p[i] + q[0]`: the zero point of a quantised tensor leaves the product, and what is added
depends on the other factor alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.copies import cache_write
from hwgen.polyhedral.tree.edit import find_stage, refuse, value_dtype
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage, Storage, Tensor
from hwgen.polyhedral.tree.placement import nest_beside
from hwgen.spec.expression import Access, Binary, Const, Expr, Name, add, names
from hwgen.spec.typecheck import holds

WORD = "int32"
"""The type of sums that wrap around, so that they may be formed in any order and in parts."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """A product of which one factor is `element` and a number, and the other is `factor`."""

    element: Expr
    number: int
    factor: Expr


def shifted(value: Expr) -> Shifted | None:
    """What a value is, where it is such a product."""
    match value:
        case Binary("*", Binary("+" | "-" as op, element, Const(int(number))), factor):
            return Shifted(element, number if op == "+" else -number, factor)
        case Binary("*", factor, Binary("+" | "-" as op, element, Const(int(number)))):
            return Shifted(element, number if op == "+" else -number, factor)
        case _:
            return None


def distribute(state: LoopTree, tensor: str) -> tuple[LoopTree, tuple[str, str]]:
    """The stage of a tensor adds a sum of products and a sum of one factor times a number.

    Returns:
        The state, and the names of the two sums.

    Raises:
        HwgenError: H413 where the stage is no such sum of 32-bit integers; H414.
    """
    stage = find_stage(state, tensor)
    found = shifted(stage.value)
    if found is None or not _is_sum(state, stage) or not _is_word(state, stage, found):
        raise refuse(
            f"{tensor} is no sum of products with a number in one factor",
            str(stage),
            f"`t[i] += (x[i, k] - 5) * w[k]`, a sum of {WORD}",
            "leave it as it is",
        )
    taken = {*state.tensor, *state.loop}
    state, products = cache_write(state, tensor, "", "", (), f"{tensor}_products")
    whole, copy = state.stage[products], state.stage[tensor]
    own = Binary("*", found.element, found.factor)
    made = _factor_sum(stage, found, unique(f"{tensor}_offset", {*taken, products}))
    places = dict(zip((str(i) for i in whole.target.indices), copy.target.indices, strict=True))
    offset = Access(made.tensor, tuple(places.get(str(i), i) for i in made.target.indices))
    joined = replace(copy, value=add(copy.value, offset), kind="compute")
    spatial = dict(made.spatial)
    shape = tuple(spatial[i.name] if isinstance(i, Name) else 1 for i in made.target.indices)
    held = Tensor(made.tensor, WORD, shape, "intermediate")
    state = state.with_tensor(held, Storage(made.tensor))
    # Before the products: their sums are at hand then where the offset is added to them.
    state = state.with_stages(products, made, replace(whole, value=own))
    state = nest_beside(state.with_stages(tensor, joined), made, products)
    return state, (products, made.tensor)


def _is_sum(state: LoopTree, stage: Stage) -> bool:
    """Whether a stage adds up words, element by element of its iterators, from zero."""
    plain = all(isinstance(i, Name) for i in stage.target.indices)
    sums = stage.op == "+=" and stage.seed is None and not (stage.ordered or stage.over)
    return plain and sums and not stage.where and state.tensor[stage.tensor].dtype == WORD


def _is_word(state: LoopTree, stage: Stage, found: Shifted) -> bool:
    """Whether products with and without the number are words, and so is what it adds."""
    dtypes = {t.name: t.dtype for t in state.tensors}
    products = (stage.value, Binary("*", found.element, found.factor))
    return all(value_dtype(p, dtypes) == WORD for p in products) and holds(
        WORD, found.number * prod(e for _, e in stage.reduction)
    )


def _factor_sum(stage: Stage, found: Shifted, name: str) -> Stage:
    """What the number adds: the other factor times it, once for each iteration of a sum that the
    factor does not move with."""
    used = set(names(found.factor))
    iterators = tuple((n, e) for n, e in stage.iterators if n in used)
    again = prod(e for n, e in stage.reduction if n not in used)
    target = tuple(i for i in stage.target.indices if {*names(i)} <= used) or (Const(0),)
    value = Binary("*", found.factor, Const(found.number * again))
    op = "+=" if any(n in used for n, _ in stage.reduction) else "="
    return Stage(name, iterators, Access(name, target), op, value)
