"""The first calls of a kernel as a picture without scripts: a row per unit, a bar per call."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from hwgen.report.figures import colours, units_of
from hwgen.report.recording import record

if TYPE_CHECKING:
    from hwgen.compiled import Compiled

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
