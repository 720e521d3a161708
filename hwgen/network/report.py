"""Figures of a network, layer by layer and in total: text, and plain data for `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.network.compiled import Network
from hwgen.network.steps import Step
from hwgen.report.records import Record


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """A layer's figures. `macs_on_units`: those of its products that no host core does, which is
    all or none of a layer; None where the chip is a processor alone."""

    number: int
    operator: str
    kernel: str
    cycles: int
    bound: int
    macs: int
    macs_on_units: int | None
    host_cycles: int
    offchip_bytes: int
    workspace_bytes: int


def layer_figures(net: Network, step: Step) -> LayerFigures:
    """The figures of a layer of a network."""
    made, layer = step.kernel.figures, step.layer
    on_units: int | None = None
    if net.plan.hardware.units:
        on_units = 0 if "w" in made.host_reads else layer.macs
    return LayerFigures(
        step.number, str(layer.operator), step.kernel.name, made.cycles, made.bound, layer.macs,
        on_units, made.host_cycles, made.offchip_bytes, step.kernel.workspace_bytes,
    )  # fmt: skip


def fallen(net: Network) -> list[LayerFigures]:
    """Layers with products whose work falls to the host core of a chip with units."""
    found = (layer_figures(net, step) for step in net.layers)
    return [f for f in found if f.macs and f.macs_on_units == 0]


def report_text(net: Network) -> str:
    """A table of the layers, the totals, and what to look at."""
    found = [layer_figures(net, step) for step in net.layers]
    units = bool(net.plan.hardware.units)
    header = ["layer", "operator", "kernel", "cycles", "bound", "MACs"]
    header += ["on units", "host cycles"] if units else []
    header += ["off-chip bytes", "workspace"]
    rows = [header]
    for f in found:
        beside = [_share(f.macs_on_units or 0, f.macs), f"{f.host_cycles:,}"] if units else []
        rows.append([
            str(f.number), f.operator, f.kernel, f"{f.cycles:,}", f"{f.bound:,}", f"{f.macs:,}",
            *beside, f"{f.offchip_bytes:,}", f"{f.workspace_bytes:,}",
        ])  # fmt: skip
    total = _total(found)
    beside = [_share(total.macs_on_units or 0, total.macs), f"{total.host_cycles:,}"]
    rows.append([
        "", "all", f"{len(net.kernels)} kernels", f"{total.cycles:,}", f"{total.bound:,}",
        f"{total.macs:,}", *(beside if units else []), f"{total.offchip_bytes:,}", "",
    ])  # fmt: skip
    arena = net.plan.arena
    lines = [f"{net.name} on {net.plan.hardware.name}", "", *_aligned(rows), ""]
    lines.append(
        f"arena: {arena.bytes:,} bytes, {arena.gap:,} above the {arena.bound:,} that are live at "
        "one step"
    )
    lines.append(f"weights: {net.weights.bytes:,} bytes")
    lines += [
        f"warning: the host core computes layer {f.number}, {f.operator}, in {f.host_cycles:,} "
        f"cycles"
        for f in fallen(net)
    ]
    return "\n".join(lines)


def report_record(net: Network) -> Record:
    """The same as plain data."""
    found = [layer_figures(net, step) for step in net.layers]
    arena, graph = net.plan.arena, net.plan.graph
    return {
        "model": graph.file,
        "chip": net.plan.hardware.name,
        "function": net.name,
        "layers": [_record(f) for f in found],
        "total": _record(_total(found)),
        "kernels": [kernel.name for kernel in net.kernels],
        "arena_bytes": arena.bytes,
        "arena_bound_bytes": arena.bound,
        "arena": [
            {
                "buffer": place.live.name,
                "offset": place.offset,
                "bytes": place.live.bytes,
                "first_layer": place.live.first,
                "last_layer": place.live.last,
            }
            for place in arena.places
        ],
        "weight_bytes": net.weights.bytes,
        "host_layers": [f.number for f in fallen(net)],
    }


def _record(f: LayerFigures) -> Record:
    return {
        "layer": f.number,
        "operator": f.operator,
        "kernel": f.kernel,
        "cycles": f.cycles,
        "lower_bound_cycles": f.bound,
        "macs": f.macs,
        "macs_on_units": f.macs_on_units,
        "host_cycles": f.host_cycles,
        "off_chip_bytes": f.offchip_bytes,
        "workspace_bytes": f.workspace_bytes,
    }


def _total(found: Sequence[LayerFigures]) -> LayerFigures:
    on_units = [f.macs_on_units for f in found if f.macs_on_units is not None]
    return LayerFigures(
        -1, "all", "", sum(f.cycles for f in found), sum(f.bound for f in found),
        sum(f.macs for f in found), sum(on_units) if on_units else None,
        sum(f.host_cycles for f in found), sum(f.offchip_bytes for f in found),
        max((f.workspace_bytes for f in found), default=0),
    )  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %" if whole else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns; the first three to the left, numbers to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if n in (1, 2) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
