"""A compiled kernel as text and as HTML for a notebook, whatever kind of chip it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.report.svg import timeline_svg
from hwgen.report.text import BLOCKS, block_rows, describe, measure
from hwgen.spec.shown import Cell, Table, assigned, card

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel


def kernel_text(compilation: Kernel) -> str:
    """What `hwgen generate` reports of a kernel."""
    return describe(measure(compilation))


def kernel_html(compilation: Kernel) -> str:
    """Cycles with their bound, what takes them, and a picture of the first calls."""

    c = compilation
    return _nest(c) if c.nest else _units(c)


def _units(c: Kernel) -> str:
    measured = measure(c)
    bound, cycles = measured.bound, measured.timing.cycles
    facts = [
        *_common(c, bound.cycles),
        ("bound by", bound.resource),
        ("off-chip bytes", f"{measured.off_chip_bytes:,}"),
    ]
    units: list[tuple[Cell, ...]] = [
        (u.unit, u.busy, f"{u.busy / cycles:.1%}") for u in measured.timing.units
    ]
    memory = c.hardware.memory
    buffers: list[tuple[Cell, ...]] = [
        (b.memory, b.name, b.tensor, b.slots, b.entries * memory[b.memory].entry_bytes)
        for b in c.program.buffers
    ]
    tables = [
        Table(("unit", "busy cycles", "of all"), units),
        Table(("memory", "buffer", "tensor", "slots", "bytes"), buffers),
    ]
    return card(_title(c), "", facts, tables) + timeline_svg(c)


def _nest(c: Kernel) -> str:
    facts = [*_common(c, c.bound.cycles), ("memory bytes", f"{c.cost.memory_bytes:,}")]
    return card(_title(c), "", facts, [Table(BLOCKS, block_rows(c))])


def _title(c: Kernel) -> str:
    return f"{c.workload.name} on {c.hardware.name}"


def _common(c: Kernel, bound: int) -> list[tuple[str, str]]:
    ratio = f"{c.cycles / bound:.3f}" if bound else "-"
    return [
        ("sizes", assigned(c.workload.sizes)),
        ("cycles", f"{c.cycles:,}, lower bound {bound:,}, ratio {ratio}"),
        ("time", c.speed),
    ]
