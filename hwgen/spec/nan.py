"""What an instruction's `max` and `min` give where an operand is NaN, written into its semantics.

The language's own let a NaN win, from either side. An instruction that does otherwise says so by
`nan:`, and its `max(a, b)` becomes the `select` that it is, such as `select(a > b, a, b)` where a
comparison that fails gives the second operand. Where the operand that would be lost is never NaN,
as in `max(0, x)`, that is the same, and the `max` stays. So an instruction computes a workload's
`max` exactly where it agrees with it for NaN too.
"""

from __future__ import annotations

from typing import Literal

from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    UpdateOp,
    parts,
    walk,
    with_children,
)
from hwgen.spec.typecheck import TypeOf, dtype_of, is_float

NanRule = Literal["propagate", "second", "number", "any"]

_SIGNS: dict[str, BinaryOp] = {"max": ">", "min": "<"}
_UPDATES: dict[UpdateOp, str] = {"max=": "max", "min=": "min"}


def has_extreme(statement: Assign, type_of: TypeOf) -> bool:
    """Whether a statement takes the greater or lesser of floats."""
    if statement.op in _UPDATES:
        return is_float(type_of(statement.target))
    return _has_extreme(statement.value, type_of)


def with_nan(statement: Assign, rule: NanRule, type_of: TypeOf) -> Assign:
    """The statement as an instruction of that rule executes it."""
    if rule in ("propagate", "any"):
        return statement
    value = _lowered(statement.value, rule, type_of)
    function = _UPDATES.get(statement.op, "")
    if not function or not is_float(type_of(statement.target)):
        return Assign(statement.target, statement.op, value)
    updated = _selected(function, statement.target, value, rule, type_of)
    return Assign(statement.target, "=", updated)


def loses_nan(statement: Assign) -> bool:
    """Whether a rule made a `select` of a statement's maximum or minimum."""
    return any(_is_made(node) for node in walk(statement.value))


def _is_made(node: Expr) -> bool:
    match node:
        case Call("select", (Binary("or", Binary((">" | "<"), a, b), _), *chosen)):
            return [a, b] == chosen
        case Call("select", (Binary((">" | "<"), a, b), *chosen)):
            return [a, b] == chosen
        case _:
            return False


def _has_extreme(value: Expr, type_of: TypeOf) -> bool:
    own = isinstance(value, Call) and value.function in ("max", "min", "clip")
    return (own and is_float(dtype_of(value, type_of))) or any(
        _has_extreme(part, type_of) for part in parts(value)
    )


def _lowered(value: Expr, rule: NanRule, type_of: TypeOf) -> Expr:
    match value:
        case Call("clip", (inner, low, high)) if is_float(dtype_of(value, type_of)):
            return _lowered(Call("min", (Call("max", (inner, low)), high)), rule, type_of)
        case Call("max" | "min" as function, (a, b)) if is_float(dtype_of(value, type_of)):
            a, b = (_lowered(x, rule, type_of) for x in (a, b))
            return _selected(function, a, b, rule, type_of)
        case Access():
            return value
        case _:
            return with_children(value, [_lowered(x, rule, type_of) for x in parts(value)])


def _selected(function: str, a: Expr, b: Expr, rule: NanRule, type_of: TypeOf) -> Expr:
    sign = _SIGNS[function]
    second = Call("select", (Binary(sign, a, b), a, b))
    safe, other = _is_number(a, type_of), _is_number(b, type_of)
    if safe and (other or rule == "second"):
        return Call(function, (a, b))
    if rule == "second" or other:
        return second
    if safe:
        return Call("select", (Binary(sign, b, a), b, a))
    wins = Binary("or", Binary(sign, a, b), Binary("!=", b, b))
    return Call("select", (wins, a, b))


def _is_number(value: Expr, type_of: TypeOf) -> bool:
    """Whether a value is never NaN: a constant, an immediate, an integer, or chosen from these."""
    match value:
        case Const() | Name():
            return True
        case Access():
            return not is_float(type_of(value))
        case Cast(_, operand):
            return _is_number(operand, type_of)
        case Call("max" | "min" | "clip", arguments) | Call("select", (_, *arguments)):
            return all(_is_number(x, type_of) for x in arguments)
        case _:
            return not is_float(dtype_of(value, type_of))
