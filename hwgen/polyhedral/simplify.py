"""Simpler forms of values: fewer steps for the same number, bit by bit.

`select(x > y, x, y)` is `max(x, y)`, `(x >> 3) >> 5` is `x >> 8`, and `x // 4` is `x >> 2`. Of
floats, `x / 4.0` is `x * 0.25`. `x + -y` is `x - y`, `a * b - 5 * b` is `(a - 5) * b`, and
`max(int8(clip(x, -128, 127)), 0)` is `int8(clip(x, 0, 127))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import frexp, inf

from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    rewrite,
    tensors_of,
)
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import ExpressionTypeError, integer_range, is_float, own_dtype

_OPPOSITE: Mapping[str, BinaryOp] = {">": "<=", "<=": ">", ">=": "<", "<": ">="}
_GREATER = {">": True, ">=": True, "<": False, "<=": False}


def simplified(value: Expr, dtypes: Mapping[str, str]) -> Expr:
    """A value in its simplest form, of its own type; `dtypes`: of its tensors."""
    types = _Types(dtypes)

    def changed(part: Expr) -> Expr:
        for rule in _RULES:
            made = rule(part, types)
            if made is not None and types.of(made) == types.of(part):
                part = made
        return part

    return rewrite(value, changed)


@dataclass(frozen=True)
class _Types:
    """The types of values, and the integers that they can be."""

    dtypes: Mapping[str, str]

    def of(self, value: Expr) -> str:
        """The type of a value: "" where it takes that of what it meets, or is ill typed."""

        def type_of(node: Access | Name) -> str:
            return self.dtypes.get(node.tensor, "") if isinstance(node, Access) else "int32"

        try:
            return own_dtype(value, type_of)
        except ExpressionTypeError:
            return ""

    def wraps_alike(self, whole: Expr, *parts: Expr) -> bool:
        """Whether parts of a value wrap around where it does itself, or nowhere."""
        wide = [value_range(p, self.dtypes) for p in parts if self.of(p) != self.of(whole)]
        return all(w is not None and within(w, integer_range("int32")) for w in wide)

    def integer(self, *values: Expr) -> bool:
        """Whether values are integers that do not wrap around at zero."""
        return all(value_range(v, self.dtypes) is not None for v in values)


_Rule = Callable[[Expr, _Types], Expr | None]


def _extremum(value: Expr, types: _Types) -> Expr | None:
    """The greater or the smaller of two integers."""
    match value:
        case Call("select", (Binary(op, a, b), yes, no)) if op in _GREATER:
            if {yes, no} != {a, b} or not types.integer(a, b):
                return None
            return Call("max" if _GREATER[op] == (yes == a) else "min", (a, b))
        case _:
            return None


def _shift(value: Expr, types: _Types) -> Expr | None:
    """One shift to the right of an integer."""
    match value:
        case Binary(">>", Binary(">>", inner, Const(int(one))), Const(int(other))):
            total = one + other
            small = min(one, other) >= 0 and total < 8 * DTYPES["int32"]
            return Binary(">>", inner, Const(total)) if small else None
        case Binary("//", inner, Const(int(by))) if by > 0 and by & (by - 1) == 0:
            bits = by.bit_length() - 1
            return Binary(">>", inner, Const(bits)) if types.integer(inner) else None
        case _:
            return None


def _factor(value: Expr, types: _Types) -> Expr | None:
    """One factor, a power of two."""
    match value:
        case Binary("/", inner, Const() as by) if is_float(types.of(inner)):
            if _power(by.value, types.of(inner)):
                return Binary("*", inner, Const(1.0 / by.value))
        case Binary("*", Binary("*", Cast(dtype, whole) as inner, Const(one)), Const(other)):
            if is_float(dtype) and dtype != "float16" and types.integer(whole):
                factors = (one, other, one * other)
                if all(_power(f, dtype) for f in factors):
                    return Binary("*", inner, Const(float(one) * float(other)))
        case _:
            pass
    return None


def _power(number: float, dtype: str) -> bool:
    """Whether a number is a power of two, and so is its inverse in a type: neither is so small that
    a product of integers with two of them loses a bit."""
    mantissa, exponent = frexp(number)
    most = {"float16": 14, "float32": 60, "float64": 60}.get(dtype, -1)
    return mantissa == 0.5 and abs(exponent - 1) <= most


def _difference(value: Expr, types: _Types) -> Expr | None:
    """A difference of two values."""
    match value:
        case Binary("-", Const(0), inner) if types.integer(inner):
            return Unary("-", inner)
        case Binary("*", inner, Const(-1 | -1.0)) | Binary("*", Const(-1 | -1.0), inner):
            return Unary("-", inner)
        case Binary("+" | "-" as op, left, Unary("-", right) as negative):
            made = Binary("-" if op == "+" else "+", left, right)
        case Binary("+", Unary("-", right) as negative, left):
            made = Binary("-", left, right)
        case Binary("+", left, right) if left == right and types.integer(left):
            return Binary("*", left, Const(2))
        case _:
            return None
    same = not isinstance(right, Const) and types.wraps_alike(value, negative)
    return made if same else None


def _shared_factor(value: Expr, types: _Types) -> Expr | None:
    """A product with a number in one factor: of two products that share the other."""
    match value:
        case Binary("+" | "-" as op, Binary("*", a, b), Binary("*", c, d)):
            pass
        case _:
            return None
    for factor, rest in ((a, b), (b, a)):
        for shared, number in ((c, d), (d, c)):
            if factor == shared and isinstance(number, Const) and types.integer(a, b, number):
                both = Binary(op, rest, number)
                if types.wraps_alike(value, value.left, value.right, both):
                    return Binary("*", both, factor)
    return None


def _cast(value: Expr, _: _Types) -> Expr | None:
    """A value that has its type already."""
    match value:
        case Cast(dtype, Cast() as inner) if inner.dtype == dtype:
            return inner
        case _:
            return None


def _inside_first(value: Expr, _: _Types) -> Expr | None:
    """Elements where a condition of loops holds, and a number elsewhere."""
    match value:
        case Call("select", (condition, Const() as number, inner)) if not isinstance(inner, Const):
            opposite = _opposite(condition)
            return None if opposite is None else Call("select", (opposite, inner, number))
        case _:
            return None


def _opposite(condition: Expr) -> Expr | None:
    """A condition of loops that holds where another does not."""
    match condition:
        case Binary("and" | "or" as op, left, right):
            sides = _opposite(left), _opposite(right)
            if sides[0] is None or sides[1] is None:
                return None
            return Binary("or" if op == "and" else "and", sides[0], sides[1])
        case Binary(op, _, _) if op in _OPPOSITE and not tensors_of(condition):
            return replace(condition, op=_OPPOSITE[op])
        case _:
            return None


def _clamp(value: Expr, types: _Types) -> Expr | None:
    """A clip of a value that is not clipped."""
    found = _Clamp.of(value, types)
    return None if found is None or found.steps < 2 or found.zeros else found.expression()


@dataclass(frozen=True)
class _Clamp:
    """A value between two numbers, cast to a type where `dtype` is one; `steps`: how many clips.
    `zeros`: a zero may have another sign, which only a cast to an integer forgets."""

    value: Expr
    low: float = -inf
    high: float = inf
    dtype: str = ""
    steps: int = 0
    zeros: bool = False

    @staticmethod
    def of(value: Expr, types: _Types) -> _Clamp | None:
        match value:
            case Call("clip", (inner, Const(low), Const(high))) if low <= high:
                pass
            case Call("max", (inner, Const(low))) | Call("max", (Const(low), inner)):
                high = inf
            case Call("min", (inner, Const(high))) | Call("min", (Const(high), inner)):
                low = -inf
            case Cast(dtype, inner) if not is_float(dtype):
                found = _Clamp.of(inner, types)
                if found is None or not (found.low % 1 == 0 and found.high % 1 == 0):
                    return None
                if not within((int(found.low), int(found.high)), integer_range(dtype)):
                    return None
                again = found.steps + (found.dtype != "")
                return replace(found, dtype=dtype, steps=again, zeros=False)
            case _:
                return _outer(value, types)
        found = _Clamp.of(inner, types) or _Clamp(inner)
        # Bounds of integers are integers: others make no type.
        least, most = (min(max(b, low), high) for b in (found.low, found.high))
        return replace(found, low=least, high=most, steps=found.steps + 1)

    def expression(self) -> Expr:
        low, high = self.low, self.high
        if low == -inf:
            made: Expr = Call("min", (self.value, Const(high)))
        elif high == inf:
            made = Call("max", (self.value, Const(low)))
        else:
            made = Call("clip", (self.value, Const(low), Const(high)))
        return Cast(self.dtype, made) if self.dtype else made


def _outer(value: Expr, types: _Types) -> _Clamp | None:
    """A value with a bound of zero behind steps that keep the order and zero."""
    match value:
        case Call("round", (Binary("*", Cast(dtype, inner), Const(scale)),)) if scale > 0:
            found = _Clamp.of(inner, types)
            step = Call("round", (Binary("*", Cast(dtype, _inside(found)), Const(scale)),))
        case Binary(">>", inner, Const(int(by)) as shift) if by >= 0:
            found = _Clamp.of(inner, types)
            step = Binary(">>", _inside(found), shift)
        case _:
            return None
    if found is None or found.dtype or (found.low, found.high) != (0, inf):
        return None
    return replace(found, value=step, zeros=isinstance(step, Call))


def _inside(found: _Clamp | None) -> Expr:
    return Const(0) if found is None else found.value


_RULES: tuple[_Rule, ...] = (
    _extremum,
    _inside_first,
    _shift,
    _factor,
    _difference,
    _shared_factor,
    _cast,
    _clamp,
)
