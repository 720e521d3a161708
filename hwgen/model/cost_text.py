"""What a kernel costs as formulas, as text: `--stage cost`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hwgen.model.formulas import Cost
from hwgen.model.symbolic import shown
from hwgen.model.turns import PROCESSOR
from hwgen.spec.table import Cell, table


def cost_text(cost: Cost) -> str:
    """Parameters, calls, cycles by unit and bytes by tensor; each formula with its number."""
    trips: list[tuple[Cell, ...]] = [(name, n, "size") for name, n in cost.sizes]
    trips += [(t.name, t.number, t.origin) for t in cost.parameters]
    calls: list[tuple[Cell, ...]] = [
        (
            *(c.unit, c.name, shown(c.rule), ", ".join(f"{n} = {v:,}" for n, v in c.given)),
            *(c.cycles, shown(c.times), c.number),
        )
        for c in cost.calls
    ]
    units: list[tuple[Cell, ...]] = [
        (u.unit, shown(u.formula), u.number, u.waits, u.busy) for u in cost.units
    ]
    moved: list[tuple[Cell, ...]] = [
        (t.memory or PROCESSOR, t.tensor, t.way or "both", shown(t.formula), t.number)
        for t in cost.tensors
    ]
    parts = [
        _section(
            "parameters", ("name", "value", "trips"), trips, "none: no loop has two iterations"
        ),
        _section(
            "calls", ("unit", "call", "cycles", "of", "each", "times", "number"), calls, "none"
        ),
        _section("cycles", ("unit", "formula", "value", "waits", "busy"), units, "none"),
        _section("bytes", ("memory", "tensor", "way", "formula", "value"), moved, "none"),
    ]
    return "\n".join([*parts, *_notes(cost)])


def _section(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], nothing: str
) -> str:
    lines: Iterable[str] = table(header, rows).splitlines() if rows else [nothing]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _notes(cost: Cost) -> Iterator[str]:
    yield f"The kernel takes {cost.cycles:,} cycles, in which units wait for each other too."
    yield "Waits are for other readers of the bus, while an operation runs: no formula has them."
    if posting := ", ".join(u.unit for u in cost.units if u.posts):
        yield f"Those of {posting} are for room in the buffer of posted writes too."
    if cost.shared:
        yield "Cycles are those of the worker that has most to do, bytes those of all."
    if not cost.exact:
        yield "Calls that differ by the alignment of their bursts alone are counted at a mean rate."
    if not cost.timed:
        yield (
            "The timing model takes iterations at their mean rate: waits are what that leaves, "
            "below 0 where it is too low."
        )
