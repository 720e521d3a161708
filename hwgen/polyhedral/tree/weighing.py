"""Narrow integers as products with weights that the kernel supplies: an element times 1.

Units that sum up products read their operands in memories of narrow integers, and widen them on the
way. So `int32(x[i]) * int32(one[0])`, which is `x[i]`, may be had where `x[i]` itself would first
have to be brought as a wide integer. What is subtracted is a product with -1. Integers only: in a
call that also adds up what is off a diagonal, 0 times an infinity would not be 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hwgen.polyhedral.normal_form import without_idle_steps
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import find_stage, find_uncalled, refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage, Storage, Tensor
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    map_accesses,
    tensors_of,
)
from hwgen.spec.typecheck import ExpressionTypeError, dtype_of, holds, is_float

WIDE = "int32"
"""The type of the products, which narrower integers are promoted to in any case."""

MOST_SHIFTED = 31
"""By fewer bits a shift to the left is a product with a number of that type."""


def weigh(state: LoopTree, tensor: str, dtype: str) -> tuple[LoopTree, tuple[str, ...]]:
    """The narrow integers that the stage of a tensor reads are products with weights of a type; the
    state, and the names of the weights.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    found, allowed = "", ""
    if dtype not in DTYPES or is_float(dtype) or DTYPES[dtype] >= DTYPES[WIDE]:
        found, allowed = dtype, f"integers narrower than {WIDE}"
    elif stage.reduces and not _sums_wide(state, stage):
        found, allowed = str(stage), f"a stage that sets each element once, or adds up {WIDE}"
    if allowed:
        raise refuse(
            f"{tensor} cannot be made of products with weights",
            found,
            allowed,
            "leave it as it is, or weigh another stage",
        )
    find_uncalled(state, tensor)
    dtypes = {t.name: t.dtype for t in state.tensors}
    taken = {*dtypes, *state.loop}
    supplied = {t.name for t in state.tensors if t.supplied is not None}
    search = _Weighing(tensor, dtype, dtypes, supplied, taken)
    # Of products it is not known how large they may be, though they are what they were.
    plain = without_idle_steps(stage.value, dtypes)
    value = search.of(plain)
    if value == plain:
        raise refuse(
            f"{tensor} is computed from nothing that can be weighed",
            str(stage),
            f"elements of integers narrower than {WIDE}, by themselves or in sums",
            "leave it as it is, or weigh another stage",
        )

    before = dtype_of(stage.value, search.type_of)
    if dtype_of(value, search.type_of) != before and not stage.reduces:
        value = Cast(before, value)
    read = tensors_of(value)
    weights = tuple(
        Tensor(name, dtype, (1,), "input", number)
        for number, name in search.made.items()
        if name in read
    )
    made = state.with_stages(tensor, replace(stage, value=value))
    for weight in weights:
        made = made.with_tensor(weight, Storage(weight.name))
    return made, tuple(t.name for t in weights)


def _sums_wide(state: LoopTree, stage: Stage) -> bool:
    """Whether a stage adds up what may as well be of the products' type."""
    return stage.op == "+=" and not stage.ordered and state.tensor[stage.tensor].dtype == WIDE


def weighed_out(state: LoopTree) -> LoopTree:
    """The state with the numbers themselves for what is supplied, as a processor computes with
    them."""
    numbers = {t.name: Const(t.supplied) for t in state.tensors if t.supplied is not None}
    if not numbers:
        return state

    def known(access: Access) -> Expr:
        return numbers.get(access.tensor, access)

    return replace(
        state,
        tensors=tuple(t for t in state.tensors if t.name not in numbers),
        storages=tuple(s for s in state.storages if s.tensor not in numbers),
        stages=tuple(replace(s, value=map_accesses(s.value, known)) for s in state.stages),
    )


@dataclass
class _Weighing:
    """Products in place of what is read. `made`: by number, the tensor of that weight."""

    tensor: str
    dtype: str
    dtypes: Mapping[str, str]
    supplied: set[str]
    taken: set[str]
    made: dict[int, str] = field(default_factory=dict[int, str])

    def of(self, value: Expr) -> Expr:
        """The value with products in it; as it is where they would give it another wide type."""
        made, before = self._of(value), dtype_of(value, self.type_of)
        try:
            same = before == dtype_of(made, self.type_of) or DTYPES[before] < DTYPES[WIDE]
        except ExpressionTypeError:
            same = False  # Products are signed, and what they would meet is not.
        return made if same else value

    def _of(self, value: Expr) -> Expr:
        match value:
            case Access() if self._narrow(value):
                return self._product(value, 1)
            case Binary("+" | "-" | "*", _, _) | Unary("-", _) if self._integer(value):
                return self._sum(value)
            case Binary("<<", _, Const()) if self._integer(value):
                return self._sum(value)
            case Binary(">>" | "<<" as op, left, right):
                return Binary(op, self.of(left), right)
            case Cast(dtype, operand) if not is_float(dtype):
                return Cast(dtype, self.of(operand))
            case Call("min" | "max" | "clip" as function, arguments):
                return Call(function, tuple(map(self.of, arguments)))
            case Call("select" as function, (condition, *values)):
                return Call(function, (condition, *map(self.of, values)))
            case _:
                return value

    def _sum(self, value: Expr) -> Expr:
        total: Expr | None = None
        terms = _terms(value, 1)
        if terms == [(1, value)]:
            return value
        for factor, term in terms:
            number, part = self._weighted(factor, term)
            if abs(number) != 1:
                number, part = 1, Binary("*", part, Const(number))
            if total is None:
                total = part if number > 0 else Unary("-", part)
            else:
                total = Binary("+" if number > 0 else "-", total, part)
        assert total is not None
        return total

    def _weighted(self, factor: int, term: Expr) -> tuple[int, Expr]:
        """A term of a sum with products in it, and what it is still to be multiplied by."""
        inner = _bare(term)
        if isinstance(inner, Access) and self._narrow(inner) and holds(self.dtype, factor):
            return 1, self._product(inner, factor)
        return factor, self.of(term)

    def type_of(self, node: Access | Name) -> str:
        """The type of an element, weights included, or of a loop."""
        if isinstance(node, Name):
            return WIDE
        return self.dtypes.get(node.tensor, self.dtype)

    def _integer(self, value: Expr) -> bool:
        return not is_float(dtype_of(value, self.type_of))

    def _narrow(self, access: Access) -> bool:
        """Whether an element is a narrow integer, and no weight."""
        dtype = self.dtypes.get(access.tensor, WIDE)
        return (
            not is_float(dtype)
            and DTYPES[dtype] < DTYPES[WIDE]
            and access.tensor not in self.supplied
        )

    def _product(self, access: Access, number: int) -> Expr:
        if number not in self.made:
            sign = "minus_" if number < 0 else ""
            name = unique(f"{self.tensor}_times_{sign}{abs(number)}", self.taken)
            self.taken.add(name)
            self.made[number] = name
        weight = Access(self.made[number], (Const(0),))
        return Binary("*", Cast(WIDE, access), Cast(WIDE, weight))


def _terms(value: Expr, factor: int) -> list[tuple[int, Expr]]:
    """The terms of a sum, and what each is multiplied by."""
    match value:
        case Binary("+", left, right):
            return [*_terms(left, factor), *_terms(right, factor)]
        case Binary("-", left, right):
            return [*_terms(left, factor), *_terms(right, -factor)]
        case Unary("-", operand):
            return _terms(operand, -factor)
        case Binary("*", term, Const(int(number))) | Binary("*", Const(int(number)), term):
            return _terms(term, factor * number)
        case Binary("<<", term, Const(int(number))) if 0 <= number < MOST_SHIFTED:
            return _terms(term, factor << number)
        case _:
            return [(factor, value)]


def _bare(value: Expr) -> Expr:
    """A value without casts to the type of the products."""
    while isinstance(value, Cast) and value.dtype == WIDE:
        value = value.operand
    return value
