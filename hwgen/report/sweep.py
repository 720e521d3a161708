"""A kernel with several sizes or parameters: a table, and cycles against off-chip bytes.

A point is on the front where no other of the same workload in the same sizes, so of another chip,
has fewer of one and no more of the other. What is alone in its sizes is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

from hwgen.errors import Diagnostic
from hwgen.report.figures import COLOURS
from hwgen.report.records import Record, error_record
from hwgen.spec.table import Cell, table

COLUMNS, ROWS = 60, 16
"""Characters of the picture in a terminal."""
WIDTH, HEIGHT, LEFT, BELOW = 720, 420, 90, 60
"""Pixels of the SVG, and of its margins with numbers."""
ROOM = 0.06
"""Of the span, free on each side of the points."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values of one workload; `error` instead of figures where there is no
    kernel. `parameters`: the chip's that were set, `sizes`: the workload's. `energy` (picojoules)
    and `area` (square millimetres): None if the chip's file has none. `layers`: of a network, the
    cycles of each; `refused`: how many have no kernel."""

    workload: str
    parameters: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    cycles: int = 0
    bound: int = 0
    off_chip_bytes: int = 0
    error: Diagnostic | None = None
    energy: float | None = None
    area: float | None = None
    layers: tuple[tuple[str, int], ...] = ()
    refused: int = 0

    @property
    def settings(self) -> tuple[tuple[str, int], ...]:
        """All that was set."""
        return (*self.parameters, *self.sizes)

    @property
    def problem(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What it computes: only what computes the same is compared."""
        return self.workload, self.sizes

    @property
    def label(self) -> str:
        """What was set."""
        return ", ".join(f"{n}={v}" for n, v in self.settings)


def front(points: Sequence[Point]) -> frozenset[Point]:
    """The points that no other one of the same problem beats, where it has others."""
    problems: dict[object, list[Point]] = {}
    for p in points:
        if p.error is None:
            problems.setdefault(p.problem, []).append(p)
    return frozenset(
        mine[n]
        for mine in problems.values()
        if len(mine) > 1
        for n in pareto([(p.cycles, p.off_chip_bytes) for p in mine])
    )


def pareto(values: Sequence[tuple[float, ...]]) -> tuple[int, ...]:
    """Numbers of those that no other one beats: no worse in all and better in one."""
    found: list[int] = []
    for n in sorted(range(len(values)), key=values.__getitem__):
        mine = values[n]
        beaten = any(
            values[m] != mine and all(a <= b for a, b in zip(values[m], mine, strict=True))
            for m in found
        )
        if not beaten:  # What would beat it comes before it in this order.
            found.append(n)
    return tuple(sorted(found))


def sweep_text(chip: str, points: Sequence[Point]) -> str:
    """The table, the pictures workload by workload, and the errors of what has no kernel."""
    best = front(points)
    workloads = list(dict.fromkeys(p.workload for p in points))
    names = list(dict.fromkeys(n for p in points for n, _ in p.settings))
    rows: list[tuple[Cell, ...]] = []
    for p in points:
        values = dict(p.settings)
        # A point may lack a size that only another workload has; a value is no count: no commas.
        set_to: list[Cell] = [str(values.get(n, "")) for n in names]
        figures: list[Cell] = ["-", "-", "-", "-", p.error.code if p.error else ""]
        if p.error is None:
            ratio = p.cycles / max(1, p.bound)
            figures = [p.cycles, p.bound, ratio, p.off_chip_bytes, "best" if p in best else ""]
        rows.append((p.workload, *set_to, *figures))
    header = ("workload", *names, "cycles", "bound", "ratio", "off-chip bytes", "")
    parts = [f"{chip}, {len(points)} points", table(header, rows)]
    for workload in workloads:
        mine = [p for p in points if p.workload == workload and p.error is None]
        if len(mine) > 1:
            parts.append(terminal_plot(workload, mine, best))
    parts += [_refused(p, p.error) for p in points if p.error is not None]
    return "\n\n".join(parts)


def _refused(point: Point, error: Diagnostic) -> str:
    lines = [f"{point.workload}, {point.label}: cannot run, [{error.code}] {error.message}"]
    told = (("found", error.found), ("allowed", error.allowed), ("repair", error.repair))
    return "\n".join([*lines, *(f"  {label}: {text}" for label, text in told if text)])


def sweep_records(points: Sequence[Point]) -> list[Record]:
    """The points as data, in order."""
    best = front(points)
    return [
        {
            "workload": p.workload,
            "set": dict(p.settings),
            "cycles": None if p.error else p.cycles,
            "lower_bound_cycles": None if p.error else p.bound,
            "off_chip_bytes": None if p.error else p.off_chip_bytes,
            "best": p in best,
            "error": None if p.error is None else error_record(p.error),
        }
        for p in points
    ]


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values on a line of some length; logarithmic where they span more than a decade."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Iterable[int]) -> _Axis:
        found = sorted(values)
        logarithmic = found[0] > 0 and found[-1] > 10 * found[0]
        low, high = (log10(v) if logarithmic else float(v) for v in (found[0], found[-1]))
        room = (high - low) * ROOM or 1.0
        return cls(low - room, high + room, logarithmic)

    def share(self, value: int) -> float:
        """Where a value lies, from 0 to 1."""
        place = log10(value) if self.logarithmic else float(value)
        return (place - self.low) / (self.high - self.low)


def _title(workload: str) -> str:
    return f"{workload}: cycles against off-chip bytes"


def terminal_plot(workload: str, points: Sequence[Point], best: frozenset[Point]) -> str:
    """The points of a workload in characters: `*` on the front, `o` else."""
    across = _Axis.of(p.off_chip_bytes for p in points)
    up = _Axis.of(p.cycles for p in points)
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    # The front last: it is drawn over what else falls into the same place.
    for p in sorted(points, key=lambda p: (p in best, p.cycles, p.off_chip_bytes)):
        row = ROWS - 1 - int(up.share(p.cycles) * ROWS)
        grid[row][int(across.share(p.off_chip_bytes) * COLUMNS)] = "*" if p in best else "o"
    highest, lowest = (f"{f(p.cycles for p in points):,}" for f in (max, min))
    width = max(len(highest), len(lowest))
    sides = [highest, *[""] * (ROWS - 2), lowest]
    lines = [
        f"{side:>{width}} |{''.join(row)}".rstrip() for side, row in zip(sides, grid, strict=True)
    ]
    least, most = (f"{f(p.off_chip_bytes for p in points):,}" for f in (min, max))
    gap = " " * max(2, COLUMNS - len(least) - len(most))
    return "\n".join(
        [
            _title(workload) + (" (* best of its sizes)" if best else ""),
            *lines,
            f"{'':>{width}} +{'-' * COLUMNS}",
            f"{'':>{width}}  {least}{gap}{most}",
        ]
    )


def sweep_svg(chip: str, points: Sequence[Point]) -> str:
    """The points of every workload as one SVG picture, a panel each; fronts joined by lines."""
    best = front(points)
    ran = [p for p in points if p.error is None]
    panels: list[str] = []
    for number, workload in enumerate(dict.fromkeys(p.workload for p in ran)):
        mine = [p for p in ran if p.workload == workload]
        moved = f'<g transform="translate(0 {number * HEIGHT})">'
        panels.append(f"{moved}{_panel(workload, chip, mine, best)}</g>")
    height = max(1, len(panels)) * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="cycles against off-chip bytes on {escape(chip)}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(panels)}</svg>\n'
    )


def _panel(workload: str, chip: str, points: Sequence[Point], best: frozenset[Point]) -> str:
    across = _Axis.of(p.off_chip_bytes for p in points)
    up = _Axis.of(p.cycles for p in points)
    top, right, bottom = 50, WIDTH - 24, HEIGHT - BELOW

    def place(p: Point) -> tuple[float, float]:
        x = LEFT + across.share(p.off_chip_bytes) * (right - LEFT)
        return x, bottom - up.share(p.cycles) * (bottom - top)

    parts = [
        _text(LEFT, 26, f"{_title(workload)}, on {chip}", "start", 15),
        f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="#9aa5b1"/>',
        _text((LEFT + right) / 2, HEIGHT - 16, f"off-chip bytes{_scale(across)}", "middle"),
        f'<g transform="rotate(-90 22 {(top + bottom) / 2:g})">'
        f"{_text(22, (top + bottom) / 2, f'cycles{_scale(up)}', 'middle')}</g>",
    ]
    for value in sorted({f(p.off_chip_bytes for p in points) for f in (min, max)}):
        x = LEFT + across.share(value) * (right - LEFT)
        parts.append(_text(x, bottom + 18, f"{value:,}", "middle"))
    for value in sorted({f(p.cycles for p in points) for f in (min, max)}):
        y = bottom - up.share(value) * (bottom - top)
        parts.append(_text(LEFT - 8, y + 4, f"{value:,}", "end"))
    for problem in dict.fromkeys(p.problem for p in points):
        joined = sorted({place(p) for p in points if p in best and p.problem == problem})
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in joined)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[4]}"/>')
    for p in sorted(points, key=lambda p: (p in best, p.off_chip_bytes, p.cycles)):
        x, y = place(p)
        told = f"{p.label}: {p.cycles:,} cycles, {p.off_chip_bytes:,} bytes"
        colour = COLOURS[4] if p in best else COLOURS[0]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">'
            f"<title>{escape(told)}</title></circle>"
        )
    return "".join(parts)


def _scale(axis: _Axis) -> str:
    return ", logarithmic" if axis.logarithmic else ""


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#1f2933">{escape(text)}</text>'
    )
