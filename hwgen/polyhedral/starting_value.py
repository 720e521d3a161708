"""What a sum starts from: an input that is added to it afterwards, where order does not matter.

`acc += x * w; y = f(acc + bias)` is `acc = bias; acc += x * w; y = f(acc)` for integers, whose sums
wrap around and so may be formed in any order. Chips without an adder behind their accumulators
need the second form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, reference
from hwgen.polyhedral.unify import flatten, rebuild
from hwgen.spec.expression import Access, Binary, Call, Cast, Expr, Unary, walk


@dataclass(frozen=True, slots=True)
class Start:
    """The statements with the addend taken out, and the addend."""

    statements: tuple[ScopStatement, ...]
    value: Reference


def starting_value(scop: Scop) -> Start | None:
    """The first input that is added to all elements of the phase's sums and to nothing else."""
    sums = next((s for s in scop.statements if s.op == "+="), None)
    if sums is None or scop.dtype[sums.target.tensor] not in ("int32", "int64"):
        return None
    tensor = sums.target.tensor
    declared = scop.workload.tensor.get(tensor)
    if declared is not None and declared.role == "output":
        return None
    readers = [
        s
        for s in scop.statements
        for n in walk(s.value)
        if isinstance(n, Access) and n.tensor == tensor
    ]
    if len(readers) != 1:
        return None
    found = _take(scop, readers[0].value, sums)
    if found is None:
        return None
    value, addend = found
    statements = tuple(
        replace(s, value=value) if s.name == readers[0].name else s for s in scop.statements
    )
    return Start(statements, addend)


def _take(scop: Scop, value: Expr, sums: ScopStatement) -> tuple[Expr, Reference] | None:
    """The value with an addend of the sums taken out, and the addend."""
    match value:
        case Binary("+", _, _):
            terms = flatten("+", value)
            if any(_is_sum(scop, t, sums) for t in terms):
                for n, term in enumerate(terms):
                    addend = _addend(scop, term, sums)
                    if addend is not None:
                        return rebuild("+", (*terms[:n], *terms[n + 1 :])), addend
                return None
            return _within(scop, value, sums)
        case _:
            return _within(scop, value, sums)


def _within(scop: Scop, value: Expr, sums: ScopStatement) -> tuple[Expr, Reference] | None:
    """The same, in one of the parts of a value."""
    match value:
        case Binary(op, left, right):
            if (found := _take(scop, left, sums)) is not None:
                return Binary(op, found[0], right), found[1]
            if (found := _take(scop, right, sums)) is not None:
                return Binary(op, left, found[0]), found[1]
            return None
        case Unary(op, operand):
            found = _take(scop, operand, sums)
            return (Unary(op, found[0]), found[1]) if found else None
        case Cast(dtype, operand):
            found = _take(scop, operand, sums)
            return (Cast(dtype, found[0]), found[1]) if found else None
        case Call(function, arguments):
            for n, argument in enumerate(arguments):
                if (found := _take(scop, argument, sums)) is not None:
                    kept = (*arguments[:n], found[0], *arguments[n + 1 :])
                    return Call(function, kept), found[1]
            return None
        case _:
            return None


def _is_sum(scop: Scop, value: Expr, sums: ScopStatement) -> bool:
    """Whether a term is the sums' element of the same iteration."""
    if not isinstance(value, Access) or value.tensor != sums.target.tensor:
        return False
    return reference(value, _units(scop)).indices == sums.target.indices


def _addend(scop: Scop, value: Expr, sums: ScopStatement) -> Reference | None:
    """An input of the sums' type over their loops."""
    if not isinstance(value, Access) or value.tensor == sums.target.tensor:
        return None
    declared = scop.workload.tensor.get(value.tensor)
    is_input = declared is not None and declared.role == "input"
    if not is_input or scop.dtype[value.tensor] != scop.dtype[sums.target.tensor]:
        return None
    found = reference(value, _units(scop))
    over = {n for index in found.indices for n in index.names}
    return found if over <= set(sums.spatial) else None


def _units(scop: Scop) -> dict[str, int]:
    return {n: 0 for n, extent in scop.extents.items() if extent == 1}
