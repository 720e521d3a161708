"""A part of a value said otherwise, where that is proved to be the same number.

What is proved: both are the same polynomial over the same parts, modulo the width of their type, as
sums and products of integers wrap around. So `x + 40000` is `x + 20000 + 20000`, `x << 2` is
`x * 4`, and `(x - 3) * 5` is `x * 5 - 15`. A cast to a type that holds every value changes none:
`u` of uint8 is `int8(u - 128) + 128`. A clip changes nothing in front of a narrower one:
`int8(clip(v, 0, 96))` is `int8(min(int8(clip(v, 0, 127)), 96))`, and an integer that a float holds
may be scaled by one there. `select(c, x * w, 0)` is `select(c, x, 0) * w`, as a condition is one or
zero; but where it guards a read that may leave its tensor, it stays around that. What `simplified`
makes of a value is that value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hwgen.constants import POLYNOMIAL_TERMS
from hwgen.polyhedral.simplify import simplified
from hwgen.polyhedral.tree.bind_expr import parts_to_bind
from hwgen.polyhedral.tree.defined import reads_inside
from hwgen.polyhedral.tree.edit import find_uncalled, refuse, value_dtype
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.polyhedral.value_range import value_range
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
    parts,
    replace_part,
    tensors_of,
    walk,
    with_children,
)
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import ExpressionTypeError, integer_range, is_float

_EXACT = {"float32": 1 << 24, "float64": 1 << 53}
"""Integers up to which a float holds all, either way."""

_Terms = Counter[tuple[str, ...]]
"""By the parts that are multiplied, as sorted text, how often a product is added."""


def rewrite_expr(state: LoopTree, tensor: str, part: Expr, new: Expr) -> LoopTree:
    """A part of a stage's value, wherever it stands there, replaced by an equal one.

    Raises:
        HwgenError: H413 where the value has no such part, or the other is not proved to be equal;
            H414 where there is no such stage.
    """
    stage = find_uncalled(state, tensor)
    known = parts_to_bind(stage)
    if part not in known:
        raise refuse(
            f"{part} is no part of {tensor}",
            str(stage),
            "; ".join(map(str, known)) or "none: its value is an element",
            "name one of the parts of the value, as the statement has it",
        )
    dtypes = {t.name: t.dtype for t in state.tensors}
    same = tensors_of(new) <= tensors_of(part) and equal(part, new, dtypes)
    plain = simplified(part, dtypes), simplified(new, dtypes)
    if not same or not reads_inside(state, *plain, dict(stage.iterators)):
        raise refuse(
            f"{new} is not known to be {part}",
            f"{stage}, with {new}",
            "the same sum of products of the same parts and numbers, of one integer type",
            "leave it as it is",
        )
    return state.with_stages(tensor, replace(stage, value=replace_part(stage.value, part, new)))


def equal(one: Expr, other: Expr, dtypes: Mapping[str, str]) -> bool:
    """Whether two values are proved to be the same number of the same type; `dtypes`: of the
    tensors in them."""
    proof = _Proof(dtypes)
    try:
        if proof.type_of(one) != proof.type_of(other):
            return False
        one, other = simplified(one, dtypes), simplified(other, dtypes)
        return one == other or proof.normal(one) == proof.normal(other)
    except (ExpressionTypeError, _TooLongError):
        return False


@dataclass(frozen=True)
class Clamped:
    """A value that is clipped to `low..high` and cast to an integer type that holds these."""

    value: Expr
    low: int
    high: int


def clamped(value: Expr) -> Clamped | None:
    """A value as one clip; None where it is none. Casts to integers cut off, which leaves what is
    in order in order, and integers as they are: they may be made before a clip or behind it."""
    match value:
        case Cast(dtype, Call("clip", (inner, Const(int(low)), Const(int(high))))):
            before = clamped(inner)
        case Cast(dtype, Call("min", (inner, Const(int(high))))) if before := clamped(inner):
            low = before.low
        case Cast(dtype, Call("max", (inner, Const(int(low))))) if before := clamped(inner):
            high = before.high
        case _:
            return None
    if is_float(dtype) or low > high or not within((low, high), integer_range(dtype)):
        return None
    if before is not None and before.low <= low and high <= before.high:
        return Clamped(before.value, low, high)
    return Clamped(inner, low, high)


def bounded(value: Expr, dtypes: Mapping[str, str]) -> Clamped | None:
    """A value as one clip to a part of an integer type's range, also where it is an extremum of
    that type; None where it is neither. `dtypes`: of the tensors in it."""
    match value:
        case Call("min" | "max" as function, (inner, Const(int(number)))):
            dtype = value_dtype(value, dtypes)
            if is_float(dtype):
                return None
            low, high = integer_range(dtype)
            ends = (number, high) if function == "max" else (low, number)
            return Clamped(inner, *ends)
        case _:
            return clamped(value)


def unscaled(value: Expr) -> Expr:
    """What a float is that an integer becomes and which is scaled by one and rounded: that integer,
    where the float holds it."""
    match value:
        case Call("round", (Binary("*", Cast(dtype, inner), Const(1.0)),)) if is_float(dtype):
            return inner
        case _:
            return value


def _is_by_place_alone(value: Expr) -> bool:
    """Whether a value is chosen by where it is alone, and what is not chosen has a number too: it
    divides and shifts by numbers."""
    steps = (n for n in walk(value) if isinstance(n, Binary) and n.op in ("//", "%", "<<", ">>"))
    return is_by_place(value) and all(isinstance(n.right, Const) for n in steps)


class _TooLongError(Exception):
    """A polynomial of too many terms."""


@dataclass(frozen=True)
class _Proof:
    dtypes: Mapping[str, str]

    def type_of(self, value: Expr) -> str:
        return value_dtype(value, self.dtypes)

    def normal(self, value: Expr) -> str:
        """The same text for values that are the same polynomial over the same parts."""
        if isinstance(value, Access | Const | Name):
            return str(value)
        dtype = self.type_of(value)
        if (clip := bounded(value, self.dtypes)) is not None:
            return f"{dtype}({self._number(clip.value)} in {clip.low}..{clip.high})"
        if is_float(dtype):
            return self._text(value)
        terms = self.terms(value, dtype)
        wrapped = {p: n % (1 << 8 * DTYPES[dtype]) for p, n in terms.items()}
        return f"{dtype}{sorted((p, n) for p, n in wrapped.items() if n)}"

    def terms(self, value: Expr, dtype: str) -> _Terms:
        """A value as a sum of products, which is formed in a type."""
        match value:
            case Const(int(number)):
                return _Terms({(): number})
            case Cast(to, inner) if to == dtype and self._widens(inner, dtype):
                return self.terms(inner, dtype)
            case Cast(to, inner) if self.type_of(inner) == dtype and self._keeps(inner, to):
                return self.terms(inner, dtype)
            case Call("select", (condition, yes, no)) if _is_by_place_alone(value):
                otherwise = self.terms(no, dtype)
                more = self._sum(self.terms(yes, dtype), otherwise, -1)
                chosen = self._product(_Terms({(f"<{condition}>",): 1}), more)
                return self._sum(otherwise, chosen, 1)
            case _ if isinstance(value, Access) or self.type_of(value) != dtype:
                return _Terms({(self.normal(value),): 1})
            case Unary("-", inner):
                return self._sum(_Terms(), self.terms(inner, dtype), -1)
            case Binary("+" | "-" as op, left, right):
                sign = 1 if op == "+" else -1
                return self._sum(self.terms(left, dtype), self.terms(right, dtype), sign)
            case Binary("*", left, right):
                return self._product(self.terms(left, dtype), self.terms(right, dtype))
            case Binary("<<", left, Const(int(by))) if 0 <= by < 8 * DTYPES[dtype] - 1:
                return self._product(self.terms(left, dtype), _Terms({(): 1 << by}))
            case _:
                return _Terms({(self._text(value),): 1})

    def _number(self, value: Expr) -> str:
        """The same text for values that are the same number, in whatever type."""
        inner = unscaled(value)
        held = value_range(inner, self.dtypes) if inner is not value else None
        exact = _EXACT.get(self.type_of(value), 0)
        kept = inner if held is not None and within(held, (-exact, exact)) else value
        while isinstance(kept, Cast) and self._keeps(kept.operand, kept.dtype):
            kept = kept.operand
        return self.normal(kept)

    def _widens(self, inner: Expr, dtype: str) -> bool:
        """Whether a cast to a type changes no number, and arithmetic inside has that type."""
        own = self.type_of(inner)
        narrow = not is_float(own) and DTYPES[own] < DTYPES[dtype] and isinstance(inner, Access)
        return own == dtype or (narrow and dtype in ("int32", "int64"))

    def _keeps(self, inner: Expr, dtype: str) -> bool:
        """Whether a cast to a narrower type changes no number."""
        held = None if is_float(dtype) else value_range(inner, self.dtypes)
        return held is not None and within(held, integer_range(dtype))

    def _text(self, value: Expr) -> str:
        """A value whose outermost step is none of sums and products, its parts in normal form."""
        inner = [Name(f"<{self.normal(p)}>") for p in parts(value)]
        return str(with_children(value, inner)) if inner else str(value)

    @staticmethod
    def _sum(one: _Terms, other: _Terms, sign: int) -> _Terms:
        found = _Terms(one)
        for product, count in other.items():
            found[product] += sign * count
        return found

    @staticmethod
    def _product(one: _Terms, other: _Terms) -> _Terms:
        if len(one) * len(other) > POLYNOMIAL_TERMS:
            raise _TooLongError
        found = _Terms()
        for a, n in one.items():
            for b, m in other.items():
                found[(*sorted((*a, *b)),)] += n * m
        return found
