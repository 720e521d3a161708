"""A kernel of a processor as text: its schedule, what it was chosen from, cycles and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwgen.report.table import Cell, table

if TYPE_CHECKING:
    from hwgen.nest_pipeline import NestCompilation


def describe_nest(compilation: NestCompilation) -> str:
    """The schedule, what it was chosen from, and what it costs."""
    c = compilation
    parts = [f"{c.workload.name} on {c.hardware.name}", "", str(c.schedule), ""]
    if c.report is not None:
        parts += ["search", *(f"  {x}" for x in str(c.report).splitlines()), ""]
    parts += ["cycles", *(f"  {x}" for x in cycles_text(c).splitlines())]
    return "\n".join([*parts, *c.notes])


def cycles_text(compilation: NestCompilation) -> str:
    """Cycles and bound, then block by block."""
    c = compilation
    rows: list[tuple[Cell, ...]] = [
        (b.block, round(b.cycles), round(b.compute_cycles), round(b.memory_bytes))
        for b in c.cost.blocks
    ]
    bound = c.bound.cycles
    head = f"{c.cycles:,}, lower bound {bound:,}, ratio {c.cycles / bound:.3f} (closed form)"
    return f"{head}\n{table(('block', 'cycles', 'arithmetic', 'memory bytes'), rows)}"


def nest_results(compiled: Sequence[NestCompilation]) -> str:
    """The table of `generate`: one line per kernel."""
    rows: list[tuple[Cell, ...]] = [
        (
            c.workload.name,
            c.cycles,
            c.bound.cycles,
            c.cycles / c.bound.cycles,
            len(c.script.splitlines()),
            c.cost.memory_bytes,
        )
        for c in compiled
    ]
    header = ("workload", "cycles", "bound", "ratio", "edits", "memory bytes")
    return table(header, rows)
