"""One kernel as a single HTML page that needs no network: figures and tables.

`page(compile_kernel(workload, hardware))` is the page's text. The same kernel gives the same bytes:
the JavaScript that draws the figures, plotly's basic bundle, is part of this package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from hwgen.report.banks import (
    CONFLICT_HEADER,
    bank_uses,
    banked,
    banks_figure,
    conflict_cycles,
    conflict_rows,
)
from hwgen.report.figures import (
    Figure,
    Json,
    breakdown,
    colours,
    memory_map,
    memory_traffic,
    tensor_traffic,
    timeline,
)
from hwgen.report.figures_roofline import Roofline, roofline, roofline_figure
from hwgen.report.highlight import highlighted, source_lines, with_code
from hwgen.report.movement import compulsory_bytes
from hwgen.report.movement import memory_traffic as count_memory_traffic
from hwgen.report.recording import Recording, record, slot_uses
from hwgen.report.source_lines import Source, c_source, script_source
from hwgen.report.text import Measured, measure
from hwgen.spec.shown import clock_text, rate_text, seconds_text

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel

DRAWN_CALLS = 2000
"""Calls that a page draws one by one at most; the rest is aggregated."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the figures at the top: what it is, its value, and what to read it with."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Table:
    """Columns (title, whether numbers) and rows of text."""

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]


def page(compilation: Kernel, drawn: int = DRAWN_CALLS) -> str:
    """The HTML page of a kernel; at most `drawn` calls are drawn one by one.

    Raises:
        HwgenError: as `estimate_cycles`, for chips with units.
    """
    c = compilation
    if c.nest:
        from hwgen.report.nest_page import nest_page

        return nest_page(c)
    measured = measure(c)
    recording = record(c.program, c.hardware, c.timing, drawn)
    placed = _roofline(measured)
    sources = {
        "c": c_source(c),
        "script": script_source(c.script, {n: n for n, _ in c.timing.calls}),
    }
    return rendered(
        "page.html",
        c,
        sources,
        _figures(measured, recording, placed),
        headlines=_headlines(measured),
        exact=c.timing.exact,
        recording=recording,
        roofline=placed,
        tensors=_tensors(measured),
        memories=_memories(measured),
        units=_units(measured),
        buffers=_buffers(c),
        conflicts=_conflicts(measured),
        conflict_cycles=conflict_cycles(measured.timing, measured.shared_banks),
        program=highlighted(str(c.program)),
        explanations=_explanations(c),
    )


def rendered(
    template: str,
    c: Kernel,
    sources: Mapping[str, Source],
    figures: Mapping[str, Figure],
    **values: object,
) -> str:
    """The page of a kernel from its template. `sources`: the C (`c`) and the script, with the lines
    of bars."""
    return page_of(
        template,
        figures,
        {name: dict(s.lines) for name, s in sources.items()},
        name=c.workload.name,
        chip=c.hardware.name,
        sizes=", ".join(f"{n} = {v:,}" for n, v in c.workload.sizes),
        parameters=", ".join(f"{n} = {v:,}" for n, v in c.hardware.parameters),
        statements=[str(s) for s in c.workload.statements],
        c_source=sources["c"],
        script_source=sources["script"],
        **values,
    )


def page_of(
    template: str, figures: Mapping[str, Figure], places: Mapping[str, Json], **values: object
) -> str:
    """A page from its template. `places`: the lines of bars, by text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=PackageLoader("hwgen.report", ""),
    )
    return environment.get_template(template).render(
        values,
        places=embedded(places),
        figures=embedded(figures),
        plotly=_plotly(),
        source_lines=source_lines,
        with_code=with_code,
    )


def _plotly() -> str:
    """The JavaScript that draws bars and scatters, under its own licence."""
    return (files("hwgen.report") / "plotly-basic.min.js").read_text(encoding="utf-8")


def embedded(data: Mapping[str, Json]) -> str:
    """Data as JSON that may stand inside a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def figures_of(compilation: Kernel, drawn: int = DRAWN_CALLS) -> dict[str, Figure]:
    """Every figure of the page, by name, in the page's order; plain data for plotly.

    Raises:
        HwgenError: as `estimate_cycles`.
    """
    c = compilation
    measured = measure(c)
    recording = record(c.program, c.hardware, c.timing, drawn)
    return _figures(measured, recording, _roofline(measured))


def _figures(measured: Measured, recording: Recording, placed: Roofline) -> dict[str, Figure]:
    c = measured.compilation
    paint = colours(c.program.tensors(c.workload))
    # Tensors that the compiler made, such as accumulators, come after the workload's own.
    paint = colours([*paint, *sorted(b.tensor for b in c.program.buffers)])
    compulsory = compulsory_bytes(c.program, c.hardware)
    uses = slot_uses(recording, c.program)
    banks: dict[str, Figure] = {}
    if banked(c.hardware):
        held = bank_uses(recording, c.program, c.hardware)
        banks["banks"] = banks_figure(recording, held, c.hardware)
    return {
        "timeline": timeline(recording, c.hardware),
        "breakdown": breakdown(recording.timing),
        **banks,
        "memory": memory_map(recording, uses, c.program, c.hardware, paint),
        "roofline": roofline_figure(placed),
        "tensors": tensor_traffic(
            [(t.tensor, t.loaded, t.stored, compulsory.get(t.tensor, 0)) for t in measured.traffic]
        ),
        "memories": memory_traffic(count_memory_traffic(c.program, c.hardware), paint),
    }


def _roofline(measured: Measured) -> Roofline:
    c = measured.compilation
    return roofline(
        c.operations,
        sum(t.loaded for t in measured.traffic),
        sum(t.stored for t in measured.traffic),
        measured.timing.cycles,
        measured.bound,
        c.hardware,
    )


def _headlines(measured: Measured) -> list[Headline]:
    c, timing, bound = measured.compilation, measured.timing, measured.bound
    busiest = max(timing.units, key=lambda u: u.busy)
    least = sum(compulsory_bytes(c.program, c.hardware).values())
    moved = measured.off_chip_bytes
    return [
        Headline("Cycles", f"{timing.cycles:,}", f"{timing.operations:,} calls"),
        *speed(c),
        Headline("Lower bound", f"{bound.cycles:,}", f"set by {bound.resource or 'nothing'}"),
        Headline("Ratio", f"{measured.ratio:.3f}", "cycles over the lower bound"),
        Headline(
            "Utilisation",
            f"{busiest.busy / timing.cycles:.1%}",
            f"{busiest.unit} busy, share of all cycles",
        ),
        Headline(
            "Off-chip bytes",
            f"{moved:,}",
            f"{moved / least:.2f} times the compulsory" if least else "none compulsory",
        ),
    ]


def speed(c: Kernel) -> list[Headline]:
    """Seconds and operations per second, where the chip's file has a clock."""
    if not c.seconds:
        return []
    rate = rate_text(c.operations / c.seconds)
    note = f"{rate} at {clock_text(c.hardware)}"
    return [Headline("Time", seconds_text(c.seconds), note)]


def _tensors(measured: Measured) -> Table:
    c = measured.compilation
    compulsory = compulsory_bytes(c.program, c.hardware)
    rows: list[tuple[str, ...]] = []
    for t in measured.traffic:
        least = compulsory.get(t.tensor, 0)
        times = f"{(t.loaded + t.stored) / least:.2f}" if least else "-"
        rows.append(
            (t.tensor, t.role, f"{t.loaded:,}", f"{t.stored:,}", f"{least:,}", times, f"{t.size:,}")
        )
    header = ("loaded", "stored", "compulsory", "moved / compulsory", "in the caller's memory")
    return Table((("tensor", False), ("role", False), *((h, True) for h in header)), tuple(rows))


def _memories(measured: Measured) -> Table:
    c = measured.compilation
    rows = tuple(
        (t.memory, t.tensor, f"{t.read:,}", f"{t.written:,}")
        for t in count_memory_traffic(c.program, c.hardware)
    )
    header = (("memory", False), ("tensor", False), ("bytes read", True), ("bytes written", True))
    return Table(header, rows)


def _units(measured: Measured) -> Table:
    cycles = measured.timing.cycles
    with_banks = banked(measured.compilation.hardware)
    rows = tuple(
        (
            u.unit,
            f"{u.busy:,}",
            f"{u.busy / cycles:.1%}",
            f"{u.tokens:,}",
            f"{u.bus:,}",
            f"{u.fetch:,}",
            f"{u.queue:,}",
            *([f"{u.banks:,}"] if with_banks else []),
        )
        for u in measured.timing.units
    )
    header = ["busy", "share", "waits for units", "bus shared", "fetch", "queue full"]
    header += ["banks taken"] if with_banks else []
    return Table((("unit", False), *((h, True) for h in header)), rows)


def _conflicts(measured: Measured) -> Table | None:
    """Bank conflicts; None where no memory has banks."""
    if not banked(measured.compilation.hardware):
        return None
    rows = tuple(
        tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
        for row in conflict_rows(measured.timing, measured.shared_banks)
    )
    texts = tuple((name, name in ("times", "cycles")) for name in CONFLICT_HEADER)
    return Table(texts, rows)


def _buffers(c: Kernel) -> Table:
    memory = c.hardware.memory
    with_banks = banked(c.hardware)
    rows = tuple(
        (
            b.memory,
            f"{b.base:,} to {b.end - 1:,}",
            b.name,
            b.tensor,
            f"{b.slots:,}",
            *([", ".join(map(str, b.banks)) or "-"] if with_banks else []),
            f"{b.entries * memory[b.memory].entry_bytes:,}",
            f"{b.entries / memory[b.memory].capacity_entries:.1%}",
        )
        for b in c.program.buffers
    )
    header = (("memory", False), ("entries", False), ("buffer", False), ("tensor", False))
    slots = [("slots", True), *([("in banks", False)] if with_banks else [])]
    return Table((*header, *slots, ("bytes", True), ("share of the memory", True)), rows)


def _explanations(c: Kernel) -> Sequence[tuple[str, Sequence[tuple[str, str, str, str]]]]:
    """Per statement: intrinsic, binding, reason, repair; those that match first."""
    return [
        (
            str(statement),
            [
                (e.intrinsic, e.binding, e.reason, e.repair)
                for e in sorted(phase.explanations, key=lambda e: not e.binding)
                if e.statement == statement.name
            ],
        )
        for phase in c.parts
        for statement in phase.scop.statements
    ]
