"""A compiled kernel as text and as HTML for a notebook, whatever kind of chip it is for."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from hwgen.report.figures import colours, units_of
from hwgen.report.recording import record
from hwgen.report.text import BLOCKS, block_rows, describe, measure
from hwgen.spec.shown import Cell, Table, assigned, card

if TYPE_CHECKING:
    from hwgen.passes.compiled import Compiled
    from hwgen.passes.nest_pipeline import NestCompilation


def kernel_text(compilation: Compiled) -> str:
    """What `hwgen generate` reports of a kernel."""
    return describe(measure(compilation))


def kernel_html(compilation: Compiled) -> str:
    """Cycles with their bound, what takes them, and a picture of the first calls."""
    from hwgen.passes.nest_pipeline import NestCompilation

    c = compilation
    return _nest(c) if isinstance(c, NestCompilation) else _units(c)


def _units(c: Compiled) -> str:
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


def _nest(c: NestCompilation) -> str:
    facts = [*_common(c, c.bound.cycles), ("memory bytes", f"{c.cost.memory_bytes:,}")]
    return card(_title(c), "", facts, [Table(BLOCKS, block_rows(c))])


def _title(c: Compiled) -> str:
    return f"{c.workload.name} on {c.hardware.name}"


def _common(c: Compiled, bound: int) -> list[tuple[str, str]]:
    ratio = f"{c.cycles / bound:.3f}" if bound else "-"
    return [
        ("sizes", assigned(c.workload.sizes)),
        ("cycles", f"{c.cycles:,}, lower bound {bound:,}, ratio {ratio}"),
    ]


# The first calls as a picture without scripts: a row per unit, a bar per call

DRAWN_CALLS = 300
"""Calls that are drawn at most: of a longer kernel, the first."""

_LEFT, _WIDTH, _ROW, _BAR, _LETTER = 110, 640, 26, 18, 7


def timeline_svg(compilation: Compiled, drawn: int = DRAWN_CALLS) -> str:
    """The picture, as one SVG element; nothing where there is no call."""
    c = compilation
    recording = record(c.program, c.hardware, c.timing, drawn)
    if not recording.calls:
        return ""
    paint = colours(dict.fromkeys(call.name for call in recording.calls))
    row = {unit: n * _ROW for n, unit in enumerate(units_of(recording, c.hardware))}
    scale = _WIDTH / recording.end
    parts = [_text(_LEFT - 8, y + 17, unit, "end") for unit, y in row.items()]
    for call in recording.calls:
        x, width = _LEFT + call.start * scale, max(call.cycles * scale, 0.5)
        told = f"{call.name}: cycles {call.start:,} to {call.end:,}"
        parts.append(
            f'<rect x="{x:.1f}" y="{row[call.unit] + 4}" width="{width:.1f}" height="{_BAR}" '
            f'fill="{paint[call.name]}"><title>{escape(told)}</title></rect>'
        )
    height = len(row) * _ROW
    whole = "" if recording.complete else f", of {c.cycles:,} cycles"
    parts.append(_text(_LEFT, height + 18, "0", "start"))
    parts.append(_text(_LEFT + _WIDTH, height + 18, f"cycle {recording.end:,}{whole}", "end"))
    legend, below = _legend(paint, height + 26)
    parts += legend
    label = f"calls of each unit over time: {', '.join(paint)}"
    size = f'width="{_LEFT + _WIDTH + 10}" height="{below:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _legend(paint: Mapping[str, str], top: float) -> tuple[list[str], float]:
    """The calls' names with their colours, in rows; where they end."""
    parts: list[str] = []
    x, y = float(_LEFT), top
    for name, colour in paint.items():
        width = 40 + _LETTER * len(name)
        if x + width > _LEFT + _WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + 18
        parts.append(f'<rect x="{x:g}" y="{y + 2:g}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 15, y + 11, name, "start"))
        x += width
    return parts, y + 20


def _text(x: float, y: float, text: str, anchor: str) -> str:
    style = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{escape(text)}</text>'
