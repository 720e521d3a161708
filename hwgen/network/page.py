"""A network as a single HTML page that needs no network: its layers and its arena."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.network.arena import Place
from hwgen.network.compiled import Network
from hwgen.network.report import (
    buffer_labels,
    buffer_rows,
    fallen,
    layer_table,
    summary_lines,
    total_figures,
)
from hwgen.report.figures import COLOURS, Figure, Json, axis, bars, boxes, colours, in_rows, layout
from hwgen.report.html import Headline, Table, page_of
from hwgen.spec.shown import seconds_text
from hwgen.spec.table import Cell

_BUFFER = ("buffer", "offset", "bytes", "first layer", "last layer")
"""Titles of the table of buffers."""
_ROW = 26
"""Pixels of a layer's bar."""


def network_page(net: Network) -> str:
    """The HTML page of a network."""
    return page_of(
        "network_page.html",
        {"layers": _layers_figure(net), "arena": _arena_figure(net)},
        {},
        name=net.name,
        chip=net.plan.hardware.name,
        sizes="",
        statements=(),
        parameters=", ".join(f"{n} = {v:,}" for n, v in net.plan.hardware.parameters),
        headlines=_headlines(net),
        layers=_table(*layer_table(net)),
        arena=_table(_BUFFER, buffer_rows(net, buffer_labels(net))),
        fallen=fallen(net),
        summary=summary_lines(net),
        notes=[(k.name, k.figures.notes) for k in net.kernels if k.figures.notes],
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    numbers = [all(not isinstance(r[n], str) or r[n] in ("", "-") for r in rows)
               for n in range(len(header))]  # fmt: skip
    texts = tuple(tuple(f"{c:,}" if isinstance(c, int) else str(c) for c in row) for row in rows)
    return Table(tuple(zip(header, numbers, strict=True)), texts)


def _headlines(net: Network) -> list[Headline]:
    total, arena, clock = total_figures(net), net.plan.arena, net.plan.hardware.clock_hz
    found = [Headline("Cycles", f"{total.cycles:,}", f"{len(net.layers)} layers in turn")]
    if clock:
        found.append(Headline("Time", seconds_text(total.cycles / clock), "by the chip's clock"))
    if total.macs_on_units is not None:
        share = total.macs_on_units / max(total.macs, 1)
        found.append(Headline("MACs on units", f"{share:.1%}", f"of {total.macs:,}"))
        share = total.host_cycles / max(total.cycles, 1)
        found.append(Headline("Host core", f"{share:.1%}", f"{total.host_cycles:,} cycles"))
    else:
        found.append(Headline("MACs", f"{total.macs:,}", "weights times activations"))
    ratio = f"{total.cycles / max(total.lower_bound_cycles, 1):.3f} times that are modelled"
    return [
        *found,
        Headline("Lower bound", f"{total.lower_bound_cycles:,}", ratio),
        Headline("Off-chip bytes", f"{total.off_chip_bytes:,}", "of all layers"),
        Headline("Arena", f"{arena.bytes:,}", f"bytes, {arena.gap:,} above the bound"),
        Headline("Weights", f"{net.weights.bytes:,}", "bytes"),
    ]


def _layers_figure(net: Network) -> Figure:
    """The cycles of each layer, those of the host core apart."""
    rows = [f"{s.number} {s.layer.operator.kind}" for s in net.layers]
    made = [s.kernel.figures for s in net.layers]
    alone = not net.plan.hardware.units
    own = "cycles" if alone else "units"
    parts = [(own, COLOURS[0], [f.cycles - f.host_cycles for f in made], [0 for _ in made])]
    if not alone:
        hosts = [f.host_cycles for f in made]
        parts.append(("host core", COLOURS[1], hosts, [f.cycles - f.host_cycles for f in made]))
    traces: list[Json] = [
        bars(
            name, rows, lengths,
            [f"<b>layer {row}</b><br>{length:,} cycles of {f.cycles:,}, bound {f.bound:,}"
             for row, length, f in zip(rows, lengths, made, strict=True)],
            {"color": colour}, base=begins,
        )
        for name, colour, lengths, begins in parts
    ]  # fmt: skip
    wide: dict[str, Json] = {"automargin": True}
    return in_rows(traces, rows, axis("cycles", rangemode="tozero"), wide, _ROW)


def _arena_figure(net: Network) -> Figure:
    """A box for each buffer: its bytes of the arena, over the layers in which it is live."""
    places, label = net.plan.arena.places, buffer_labels(net)

    def told(place: Place) -> str:
        live = place.live
        return (
            f"<b>{label[live.name]}</b><br>bytes {place.offset:,} to {place.end - 1:,}: "
            f"{live.bytes:,}<br>layers {live.steps[0]} to {live.steps[1]}"
        )

    role = {p.live.name: _role(net, p.live.name) for p in places}
    paint = colours(["inputs and outputs", "tensors between layers", "workspaces"])
    traces: list[Json] = []
    for name, colour in paint.items():
        lives = [
            (
                p.live.first / 2 - 0.5,
                (p.live.last - p.live.first + 1) / 2,
                p.offset,
                p.live.bytes,
                told(p),
            )
            for p in places
            if role[p.live.name] == name
        ]
        if lives:
            traces.append(boxes(name, lives, colour))
    last = max(len(net.layers) - 1, 0)
    across = axis("layer", range=[-0.5, last + 0.5])
    down = axis("bytes from the arena's start", range=[0, max(net.plan.arena.bytes, 1)])
    return {"data": traces, "layout": layout(420, xaxis=across, yaxis=down)}


def _role(net: Network, buffer: str) -> str:
    plan = net.plan
    ends = {plan.place[plan.buffer[name]] for name in (*plan.graph.inputs, *plan.graph.outputs)}
    if buffer in {step.workspace for step in plan.steps}:
        return "workspaces"
    return "inputs and outputs" if buffer in ends else "tensors between layers"
