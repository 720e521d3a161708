"""The page of a kernel of a processor: its blocks with the text and the script, and its roofline.

The cycles are those of the closed form that the schedule was chosen by: block by block, no call is
timed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.report.figures import COLOURS, GREY, Figure, Json, axis, bars, in_rows
from hwgen.report.figures_roofline import Roofline, roofline_figure
from hwgen.report.highlight import highlighted
from hwgen.report.html import Headline, Table, rendered, speed
from hwgen.report.source_lines import nest_source, script_source

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel
    from hwgen.polyhedral.tree.cost import BlockCost

ARITHMETIC, MEMORY = "limited by arithmetic", "limited by the memory"
STARTS = "starts of parallel loops"
FIRST = "%{customdata[0]}"
"""What is told of a bar; the others are keys of its lines in the text and in the script."""
WIDE: dict[str, Json] = {"automargin": True}
"""Blocks have long names."""
_LANGUAGES = {"c": "C", "cuda": "CUDA"}


def nest_page(compilation: Kernel) -> str:
    """The HTML page of a kernel of a processor."""
    c = compilation
    processor = c.hardware.processor
    assert processor is not None
    placed = _roofline(c, processor.memory_bytes_per_cycle)
    blocks = {b.block: b.block for b in c.cost.blocks}
    return rendered(
        "nest_page.html",
        c,
        {"c": nest_source(c), "script": script_source(c.script, blocks)},
        nest_figures(c, placed),
        headlines=_headlines(c),
        language=_LANGUAGES.get(processor.language, processor.language),
        blocks=_blocks(c),
        roofline=placed,
        program=highlighted(str(c.schedule)),
        search=str(c.account.report or "none: the script was taken as it is"),
    )


def nest_figures(compilation: Kernel, placed: Roofline) -> dict[str, Figure]:
    """Every figure of the page, by name, in the page's order; plain data for plotly."""
    names = [b.block for b in compilation.cost.blocks]
    return {
        "blocks": _cycles_figure(compilation, names),
        "bytes": _bytes_figure(compilation, names),
        "roofline": roofline_figure(placed),
    }


def _cycles_figure(compilation: Kernel, names: list[str]) -> Figure:
    cost = compilation.cost
    traces: list[Json] = []
    begins: dict[str, float] = {}
    at = cost.start_cycles
    for b in cost.blocks:
        begins[b.block] = at
        at += b.cycles
    rows = [STARTS, *names] if cost.start_cycles else names
    for title, colour, of_memory in ((ARITHMETIC, COLOURS[0], False), (MEMORY, COLOURS[1], True)):
        mine = [b for b in cost.blocks if (b.memory_cycles > b.compute_cycles) == of_memory]
        if mine:
            told: list[Json] = [[_describe(b, begins[b.block]), b.block, b.block] for b in mine]
            blocks, starts = [b.block for b in mine], [begins[b.block] for b in mine]
            cycles = [b.cycles for b in mine]
            traces.append(bars(title, blocks, cycles, told, {"color": colour}, FIRST, base=starts))
    if cost.start_cycles:
        told = [[f"<b>{STARTS}</b><br>{round(cost.start_cycles):,} cycles", "", ""]]
        marker = {"color": GREY}
        traces.append(bars(STARTS, [STARTS], [cost.start_cycles], told, marker, FIRST, base=[0.0]))
    return in_rows(traces, rows, axis("cycles", range=[0, compilation.cycles]), WIDE)


def _bytes_figure(compilation: Kernel, names: list[str]) -> Figure:
    moved = [round(b.memory_bytes) for b in compilation.cost.blocks]
    told: list[Json] = [
        [f"<b>{name}</b><br>{count:,} bytes", name, name]
        for name, count in zip(names, moved, strict=True)
    ]
    begins = [0.0] * len(names)
    trace = bars("bytes", names, moved, told, {"color": COLOURS[5]}, FIRST, base=begins)
    across = axis("bytes", tickformat="~s", fixedrange=True, rangemode="tozero")
    return in_rows([trace], names, across, WIDE)


def _describe(block: BlockCost, begin: float) -> str:
    return (
        f"<b>{block.block}</b><br>{round(begin):,} to {round(begin + block.cycles):,}: "
        f"{round(block.cycles):,} cycles<br>arithmetic {round(block.compute_cycles):,}, "
        f"memory {round(block.memory_cycles):,} cycles<br>{round(block.memory_bytes):,} bytes"
    )


def _roofline(compilation: Kernel, bytes_per_cycle: float) -> Roofline:
    c = compilation
    operations = c.operations
    moved = max(1, c.cost.memory_bytes)
    return Roofline(
        operations,
        operations / moved,
        operations / c.cycles,
        operations / max(1, c.bound.cycles),
        "",
        0.0,
        float(bytes_per_cycle),
    )


def _headlines(compilation: Kernel) -> list[Headline]:
    c = compilation
    most = max(c.cost.blocks, key=lambda b: b.cycles)
    return [
        Headline("Cycles", f"{c.cycles:,}", "closed form"),
        *speed(c),
        Headline("Lower bound", f"{c.bound.cycles:,}", "no schedule takes fewer"),
        Headline("Ratio", f"{c.cycles / c.bound.cycles:.3f}", "cycles over the lower bound"),
        Headline("Longest block", most.block, f"{most.cycles / c.cycles:.1%} of all cycles"),
        Headline("Memory bytes", f"{c.cost.memory_bytes:,}", "to and from memory"),
    ]


def _blocks(compilation: Kernel) -> Table:
    rows = tuple(
        (
            b.block,
            f"{round(b.cycles):,}",
            f"{round(b.compute_cycles):,}",
            f"{round(b.memory_cycles):,}",
            f"{round(b.memory_bytes):,}",
        )
        for b in compilation.cost.blocks
    )
    numbers = ("cycles", "arithmetic", "memory", "bytes")
    return Table((("block", False), *((n, True) for n in numbers)), rows)
