"""Expression matching: an intrinsic's semantics against a statement's value.

Modulo commutativity of `+ * min max`, and associativity of min, max and the others of integers:
sums and products of floats round otherwise in another order.
What changes nothing may be supplied: a shift by 0, a product with 1, a bound that the value meets
anyway, a cast to a type that holds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import frexp

import numpy as np

from hwgen.constants import SPLIT_TERMS
from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, Unary, parts
from hwgen.spec.hardware import Immediate
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import integer_range, is_float


@dataclass(frozen=True, slots=True)
class Unification:
    """Operands bound to values and immediates bound to numbers, by name."""

    operands: tuple[tuple[str, Expr], ...] = ()
    immediates: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides whether a part fits: a call's fields, and the types of tensors."""

    immediates: Mapping[str, Immediate]
    dtypes: Mapping[str, str]


def unify(
    pattern: Expr,
    value: Expr,
    immediates: Mapping[str, Immediate],
    dtypes: Mapping[str, str] | None = None,
    *,
    whole: bool = False,
) -> Iterator[Unification]:
    """Every way in which `value` is an instance of `pattern`.

    `dtypes`: of the value's tensors, where what changes nothing may be supplied in parts of it, and
    with `whole` around all of it.
    """
    facts = _Facts(immediates, dtypes or {})
    yield from _unify(pattern, value, Unification(), facts)
    if whole:
        yield from _supplied(pattern, value, Unification(), facts)


def as_immediate(field: Immediate, number: int | float) -> int | float | None:
    """A written number as an immediate holds it: a float rounded once, to nearest and even, as
    the reference does; None where the field does not take it."""
    if not field.is_float:
        return number if field.admits(number) else None
    written = np.asarray(number, np.int64 if isinstance(number, int) else np.float64)
    with np.errstate(over="ignore"):
        match field.dtype:
            case "float16" | "float32" | "float64":
                held = float(written.astype(field.dtype))
            case _:
                held = _bfloat16(float(written.astype(np.float32)))
    if field.exact and held != number:
        return None
    return held if field.admits(held) else None


def _bfloat16(number: float) -> float:
    """The upper half of a float32's bits: right for what a bfloat16 holds exactly, and no other
    constant may stand for one."""
    bits = int.from_bytes(struct.pack("<f", number), "little") & 0xFFFF0000
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def _unify(pattern: Expr, value: Expr, known: Unification, facts: _Facts) -> Iterator[Unification]:
    match pattern, value:
        case Access(operand, _), _:
            bound = dict(known.operands).get(operand)
            if bound is None:
                yield Unification((*known.operands, (operand, value)), known.immediates)
            elif bound == value:
                yield known
        case Name(name), Const(number) if name in facts.immediates:
            field = facts.immediates[name]
            bound = dict(known.immediates).get(name)
            held = as_immediate(field, number)
            if held is not None and bound in (None, held):
                kept = dict(known.immediates) | {name: held}
                yield Unification(known.operands, tuple(kept.items()))
        case Cast(dtype, Name(name) as field), Const(int(number)) if name in facts.immediates:
            if not is_float(dtype) and within((number, number), integer_range(dtype)):
                yield from _unify(field, value, known, facts)
        case Const(a), Const(b):
            if a == b:
                yield known
        case Binary(op, left, right), Binary(other, _, _) if op == other:
            if op in ("+", "*"):
                yield from _commutative(op, left, right, value, known, facts)
            else:
                assert isinstance(value, Binary)
                yield from _pairwise((left, right), (value.left, value.right), known, facts)
        case Binary("*" | "+" as op, left, right), _ if (said := _reworded(op, value)) is not None:
            yield from _commutative(op, left, right, said, known, facts)
        case Call("min" | "max" as op, (left, right)), Call(other, _) if op == other:
            yield from _commutative(op, left, right, value, known, facts)
        case Call(function, mine), Call(other, theirs) if function == other:
            yield from _pairwise(mine, theirs, known, facts)
        case Cast(dtype, inner), Cast(other, operand) if dtype == other:
            yield from _part(inner, operand, known, facts)
        case Unary(op, inner), Unary(other, operand) if op == other:
            yield from _part(inner, operand, known, facts)
        case _:
            return


def _reworded(op: str, value: Expr) -> Binary | None:
    """A value as a product or a sum with a constant, where it is the same to the last bit."""
    match op, value:
        case "*", Unary("-", operand):
            return Binary("*", operand, Const(-1))
        case "*", Binary("/", operand, Const(number)) if _is_power_of_two(number):
            return Binary("*", operand, Const(1 / number))
        case "+", Binary("-", operand, Const(float(number))):
            return Binary("+", operand, Const(-number))
        case _:
            return None


def _is_power_of_two(number: float) -> bool:
    """Whether a number is one, and so is its inverse in all types of floats, a normal number."""
    mantissa, exponent = frexp(abs(number))
    return mantissa == 0.5 and abs(exponent - 1) <= 14


def _part(pattern: Expr, value: Expr, known: Unification, facts: _Facts) -> Iterator[Unification]:
    """Every way in which a part of a value is an instance of a part of the pattern."""
    yield from _unify(pattern, value, known, facts)
    yield from _supplied(pattern, value, known, facts)


def _supplied(
    pattern: Expr, value: Expr, known: Unification, facts: _Facts
) -> Iterator[Unification]:
    """Every way in which a value is an instance of what the outermost operation of a pattern is
    applied to, where that operation leaves it as it is."""
    if isinstance(value, Const) or not isinstance(pattern, Cast | Call | Binary):
        return
    held = value_range(value, facts.dtypes) if facts.dtypes else None
    match pattern:
        case Cast(dtype, inner) if held is not None and not is_float(dtype):
            same = isinstance(value, Cast) and value.dtype == dtype
            if not same and within(held, integer_range(dtype)):
                yield from _part(inner, value, known, facts)
        case Call("min" | "max" as function, (inner, Const(int(bound)))) if held is not None:
            if bound <= held[0] if function == "max" else bound >= held[1]:
                yield from _part(inner, value, known, facts)
        case Call("min" | "max" as function, (inner, Name() as field)) if held is not None:
            bound = held[0] if function == "max" else held[1]
            for first in _unify(field, Const(bound), known, facts):
                yield from _part(inner, value, first, facts)
        case Binary("*", inner, Name() as field):
            for first in _unify(field, Const(1), known, facts):
                yield from _part(inner, value, first, facts)
        case Binary(">>" | "<<" | "+", inner, Name() as field) if held is not None:
            for first in _unify(field, Const(0), known, facts):
                yield from _part(inner, value, first, facts)
        case _:
            return


def _pairwise(
    patterns: tuple[Expr, ...],
    values: tuple[Expr, ...],
    known: Unification,
    facts: _Facts,
) -> Iterator[Unification]:
    if not patterns:
        yield known
        return
    for first in _part(patterns[0], values[0], known, facts):
        yield from _pairwise(patterns[1:], values[1:], first, facts)


def _commutative(
    op: str,
    left: Expr,
    right: Expr,
    value: Expr,
    known: Unification,
    facts: _Facts,
) -> Iterator[Unification]:
    terms = grouped(op, value, facts.dtypes)
    if len(terms) > SPLIT_TERMS:
        terms = (terms[0], rebuild(op, terms[1:]))
    indices = range(len(terms))
    seen: set[tuple[Expr, Expr]] = set()  # Of equal terms, it does not matter which.
    for size in range(1, len(terms)):
        for chosen in combinations(indices, size):
            mine = rebuild(op, tuple(terms[i] for i in chosen))
            rest = rebuild(op, tuple(terms[i] for i in indices if i not in chosen))
            if (mine, rest) in seen:
                continue
            seen.add((mine, rest))
            for first in _part(left, mine, known, facts):
                yield from _part(right, rest, first, facts)


def grouped(op: str, value: Expr, dtypes: Mapping[str, str]) -> tuple[Expr, ...]:
    """The operands of nested applications of an operation that may be put together in any way: of
    sums and products of floats, those of the outermost one. `dtypes`: of tensors."""
    terms = flatten(op, value)
    fixed = len(terms) > 2 and op not in ("min", "max") and _is_real(value, dtypes)
    return parts(value) if fixed else terms


def _is_real(value: Expr, dtypes: Mapping[str, str]) -> bool:
    """Whether a value is a float; tensors without a type are integers."""
    match value:
        case Const(number):
            return isinstance(number, float)
        case Access(tensor, _):
            return is_float(dtypes.get(tensor, "int32"))
        case Cast(dtype, _):
            return is_float(dtype)
        case _:
            return any(_is_real(part, dtypes) for part in parts(value))


def flatten(op: str, value: Expr) -> tuple[Expr, ...]:
    """The operands of nested applications of one associative operation."""
    match value:
        case Binary(other, left, right) if other == op:
            return (*flatten(op, left), *flatten(op, right))
        case Call(other, (left, right)) if other == op:
            return (*flatten(op, left), *flatten(op, right))
        case _:
            return (value,)


def rebuild(op: str, terms: tuple[Expr, ...]) -> Expr:
    """The left-associated application of an operation to its operands."""
    result = terms[0]
    for term in terms[1:]:
        match op:
            case "+" | "*":
                result = Binary(op, result, term)
            case _:
                result = Call(op, (result, term))
    return result
