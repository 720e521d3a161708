"""Where a value departs from the form that an intrinsic computes: constants, casts, operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from hwgen.polyhedral.unify import Unification, as_immediate, unify
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    children,
    map_accesses,
    rewrite,
    substitute,
    walk,
)
from hwgen.spec.hardware import Immediate
from hwgen.spec.ranges import Range

ANY_INTEGER = Range(-(1 << 62), 1 << 62)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a value where the pattern has another: `wanted`, or what `field` takes."""

    found: int | float
    wanted: int | float | None = None
    field: Immediate | None = None


def alike(pattern: Expr, value: Expr) -> bool:
    """Whether the outermost operation agrees."""
    match pattern, value:
        case Binary(op, _, _), Binary(other, _, _):
            return op == other
        case Unary(op, _), Unary(other, _):
            return op == other
        case Call(function, mine), Call(other, theirs):
            return function == other and len(mine) == len(theirs)
        case Cast(dtype, _), Cast(other, _):
            return dtype == other
        case Const(), Const():
            return pattern == value
        case _:
            return False


def other_constants(
    pattern: Expr, value: Expr, fields: Mapping[str, Immediate]
) -> tuple[Unification, tuple[Constant, ...]] | None:
    """The unification that holds but for the fewest constants, and these."""
    wanted: dict[str, int | float] = {}
    numbers = count()

    def freed(node: Expr) -> Expr:
        if isinstance(node, Const):
            name = f"constant {next(numbers)}"
            wanted[name] = node.value
            return Name(name)
        return node

    loose = rewrite(pattern, freed)
    written = {float(n.value): n.value for n in walk(value) if isinstance(n, Const)}
    free = {n: wider(f) for n, f in fields.items()}
    free |= {n: Immediate(n, "float64", None) for n in wanted}
    best: tuple[Unification, tuple[Constant, ...]] | None = None
    for found in unify(loose, value, free):
        others: list[Constant] = []
        for name, held in found.immediates:
            if name in wanted and held != wanted[name]:
                others.append(Constant(written.get(float(held), held), wanted[name]))
            elif name in fields and as_immediate(fields[name], held) is None:
                others.append(Constant(held, None, fields[name]))
        if best is None or len(others) < len(best[1]):
            best = found, tuple(others)
    return best


def wider(field: Immediate) -> Immediate:
    """An immediate that takes any constant of its kind."""
    if field.is_float:
        return replace(field, dtype="float64", range=None, exact=False)
    return replace(field, range=ANY_INTEGER)


def other_casts(
    pattern: Expr, value: Expr, fields: Mapping[str, Immediate]
) -> tuple[Unification, Expr] | None:
    """The unification that holds but for casts, and the value as the pattern has it."""
    found = next(iter(unify(_bare(pattern), _bare(value), fields)), None)
    if found is None:
        return None
    operands = dict(found.operands)
    immediates = {n: Const(v) for n, v in found.immediates}
    return found, map_accesses(substitute(pattern, immediates), lambda a: operands[a.tensor])


def _bare(value: Expr) -> Expr:
    """A value without its casts."""
    return rewrite(value, lambda part: part.operand if isinstance(part, Cast) else part)


def departure(pattern: Expr, value: Expr, fields: Mapping[str, Immediate]) -> tuple[Expr, Expr]:
    """The smallest part of a pattern, and that of a value which stands in its place, such that all
    around them agrees."""
    if not alike(pattern, value):
        return pattern, value
    mine, theirs = children(pattern), children(value)
    swaps = [theirs]
    if len(mine) == 2 and _commutes(pattern):
        swaps.append(theirs[::-1])
    for order in swaps:
        wrong = [
            (p, v)
            for p, v in zip(mine, order, strict=True)
            if other_constants(p, v, fields) is None
        ]
        if len(wrong) == 1:
            return departure(*wrong[0], fields)
    return pattern, value


def _commutes(node: Expr) -> bool:
    match node:
        case Binary(op, _, _):
            return op in ("+", "*")
        case Call(function, _):
            return function in ("min", "max")
        case _:
            return False


def size(node: Expr) -> int:
    """Operations, operands and constants of a value."""
    if isinstance(node, Access):
        return 1
    return 1 + sum(size(c) for c in children(node))


def outline(node: Expr) -> str:
    """A value's outermost operation, on anything."""
    match node:
        case Binary(op, _, _):
            return f"x {op} y"
        case Call(function, arguments):
            return f"{function}({', '.join('xyz'[: len(arguments)])})"
        case Cast(dtype, _):
            return f"{dtype}(x)"
        case Access():
            return "x"
        case _:
            return str(node)
