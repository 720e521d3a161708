"""A kernel as one picture without scripts: the timeline of its units over its memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from hwgen.report.figures import colours, memory_share, units_of
from hwgen.report.recording import Recording, SlotUse, record, slot_uses

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel

DRAWN_CALLS = 300
"""Calls drawn at most; of a longer kernel, the first."""

_LEFT, _WIDTH, _RIGHT = 110, 640, 24
_ROW, _BAR = 26, 18
_LETTER = 7
"""Pixels of one letter, about."""
_PANELS, _PANEL, _TITLE = 240, 84, 20
"""Height of all memories' panels, the least of one, and of the line above it."""

_STYLE = (
    "<style>"
    ".hwgen{font:12px sans-serif}.hwgen text{fill:currentColor}"
    ".hwgen .room{fill:#8795a1;fill-opacity:.14}.hwgen.alone{color:#1f2933;background:#fff}"
    "@media (prefers-color-scheme:dark){.hwgen.alone{color:#e4e8ed;background:#0d1117}}"
    "</style>"
)


def timeline_svg(compilation: Kernel, drawn: int = DRAWN_CALLS) -> str:
    """The timeline as one SVG element for a notebook; empty where the kernel has no call."""
    recording = record(compilation.program, compilation.hardware, compilation.timing, drawn)
    if not recording.calls:
        return ""
    parts, height = _timeline(compilation, recording, 0)
    return _svg(parts, height, _label(recording), alone=False)


def picture(compilation: Kernel, drawn: int = DRAWN_CALLS) -> str:
    """An SVG file: a row per unit, then a panel per on-chip memory at the scale of its capacity.

    A kernel that is code of a processor alone has no calls to draw; its picture says so.
    """
    c = compilation
    recording = record(c.program, c.hardware, c.timing, drawn)
    if not recording.calls:
        text = f"{c.workload.name} on {c.hardware.name}: {c.cycles:,} cycles, no calls of units"
        return _svg([_text(12, 20, text, "start")], 32, text, alone=True)
    parts, top = _timeline(c, recording, 8)
    uses = slot_uses(recording, c.program)
    paint = colours(dict.fromkeys(u.tensor for u in uses))
    used = [m for m in c.hardware.memories if any(u.memory == m.name for u in uses)]
    height = max(_PANEL, _PANELS // max(1, len(used)))
    for memory in used:
        mine = [u for u in uses if u.memory == memory.name]
        title = f"{memory.name}: {memory_share(memory, c.program)}"
        parts += _panel(title, memory.capacity_entries, mine, recording, paint, top, height)
        top += _TITLE + height + 8
    legend, top = _legend(paint, top)
    return _svg([*parts, *legend], top + 4, _label(recording), alone=True) + "\n"


def _label(recording: Recording) -> str:
    names = dict.fromkeys(call.name for call in recording.calls)
    return f"calls of each unit over time: {', '.join(names)}"


def _timeline(c: Kernel, recording: Recording, top: float) -> tuple[list[str], float]:
    """Rows of units with their calls, the axis and the legend; the height at which they end."""
    paint = colours(dict.fromkeys(call.name for call in recording.calls))
    row = {unit: top + n * _ROW for n, unit in enumerate(units_of(recording, c.hardware))}
    parts = [_text(_LEFT - 8, y + 17, unit, "end") for unit, y in row.items()]
    for call in recording.calls:
        title = f"{call.name}: cycles {call.start:,} to {call.end:,}"
        y = row[call.unit] + (_ROW - _BAR) / 2
        parts.append(_bar(recording, call.start, call.end, y, _BAR, paint[call.name], title))
    below = top + len(row) * _ROW
    whole = "" if recording.complete else f", of {c.cycles:,} cycles"
    parts.append(_text(_LEFT, below + 14, "0", "start"))
    parts.append(_text(_LEFT + _WIDTH, below + 14, f"cycle {recording.end:,}{whole}", "end"))
    legend, below = _legend(paint, below + 20)
    return [*parts, *legend], below


def _panel(
    title: str,
    capacity: int,
    uses: Sequence[SlotUse],
    recording: Recording,
    paint: Mapping[str, str],
    top: float,
    height: int,
) -> Iterator[str]:
    """One memory over time, entry 0 at the bottom: free room pale, a box from a slot's first fill
    to its last use."""
    scale = height / capacity
    yield _text(_LEFT, top + 14, title, "start")
    top += _TITLE
    yield f'<rect class="room" x="{_LEFT}" y="{top:g}" width="{_WIDTH}" height="{height}"/>'
    for use in uses:
        last = use.base + use.entries - 1
        title = f"{use.buffer} slot {use.slot}, {use.tensor}: entries {use.base:,} to {last:,}"
        thick = max(use.entries * scale, 1)
        y = top + height - use.base * scale - thick
        yield _bar(recording, use.start, use.end, y, thick, paint[use.tensor], title)


def _bar(
    recording: Recording, start: int, end: int, y: float, height: float, colour: str, title: str
) -> str:
    """A rectangle over some cycles, with its description on hover."""
    scale = _WIDTH / recording.end
    x, width = _LEFT + start * scale, max((end - start) * scale, 0.5)
    return (
        f'<rect x="{x:.1f}" y="{y:.4g}" width="{width:.1f}" height="{height:.4g}" '
        f'fill="{colour}"><title>{escape(title)}</title></rect>'
    )


def _legend(paint: Mapping[str, str], top: float) -> tuple[list[str], float]:
    """Names with their colours, in rows; the height at which they end."""
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
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, label: str, *, alone: bool) -> str:
    """The element. `alone`: a file of its own, which follows the reader's theme."""
    width = _LEFT + _WIDTH + _RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" '
        f'width="{width}" height="{height:g}" role="img" '
        f'class="hwgen{" alone" if alone else ""}" aria-label="{escape(label)}">'
        f"{_STYLE}{''.join(parts)}</svg>"
    )
