"""What a sum starts from: an input that is added to it afterwards, where order does not matter.

`acc += x * w; y = f(acc + bias)` is `acc = bias; acc += x * w; y = f(acc)` for integers, whose sums
wrap around and so may be formed in any order. Chips without an adder behind their accumulators
need the second form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwgen.polyhedral.scop import Reference, Scop, ScopStatement, reference
from hwgen.polyhedral.unify import flatten, rebuild
from hwgen.spec.expression import Access, Expr, taken_out, walk


@dataclass(frozen=True, slots=True)
class Start:
    """The statements with the addend taken out, and the addend."""

    statements: tuple[ScopStatement, ...]
    value: Reference


@dataclass(frozen=True, slots=True)
class _Sums:
    """A phase's sums; `taken`: inputs that are on the chip already."""

    scop: Scop
    statement: ScopStatement
    taken: tuple[str, ...]

    @property
    def target(self) -> Reference:
        return self.statement.target

    @property
    def units(self) -> dict[str, int]:
        """Loops that run once, and their value."""
        return {n: 0 for n, extent in self.scop.extents.items() if extent == 1}


def starting_value(scop: Scop, taken: Sequence[str] = ()) -> Start | None:
    """The first input that is added to all elements of the phase's sums and to nothing else.

    `taken`: inputs that are on the chip already; a sum starts from what a copy brings from off-chip
    memory.
    """
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
    found = _take(_Sums(scop, sums, tuple(taken)), readers[0].value)
    if found is None:
        return None
    value, addend = found
    statements = tuple(
        replace(s, value=value) if s.name == readers[0].name else s for s in scop.statements
    )
    return Start(statements, addend)


def _take(sums: _Sums, value: Expr) -> tuple[Expr, Reference] | None:
    """The value with an addend of the sums taken out, and the addend."""
    terms = flatten("+", value)
    if len(terms) == 1 or not any(_is_sum(sums, t) for t in terms):
        return taken_out(value, lambda part: _take(sums, part))
    for n, term in enumerate(terms):
        addend = _addend(sums, term)
        if addend is not None:
            return rebuild("+", (*terms[:n], *terms[n + 1 :])), addend
    return None


def _is_sum(sums: _Sums, value: Expr) -> bool:
    """Whether a term is the sums' element of the same iteration."""
    if not isinstance(value, Access) or value.tensor != sums.target.tensor:
        return False
    return reference(value, sums.units).indices == sums.target.indices


def _addend(sums: _Sums, value: Expr) -> Reference | None:
    """An input of the sums' type over their loops."""
    if not isinstance(value, Access) or value.tensor in (sums.target.tensor, *sums.taken):
        return None
    scop = sums.scop
    declared = scop.workload.tensor.get(value.tensor)
    is_input = declared is not None and declared.role == "input"
    if not is_input or scop.dtype[value.tensor] != scop.dtype[sums.target.tensor]:
        return None
    found = reference(value, sums.units)
    over = {n for index in found.indices for n in index.names}
    return found if over <= set(sums.statement.spatial) else None
