"""Figures of a network, layer by layer and in total: text, and plain data for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.model.c_compiler import user_flags
from hwgen.network.compiled import Network
from hwgen.network.steps import Step
from hwgen.report.records import Record
from hwgen.spec.table import Cell, table

_COLUMNS = 64
"""Of a picture of live ranges at most."""


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """A layer's figures. `macs_on_units`: those of its products that no host core does, which is
    all or none of a layer; None where the chip is a processor alone. `code_bytes`: of its kernel's
    object; None where that is not known. `refused`: where it falls to the host core, the reason
    and the nearest repair."""

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
    code_bytes: int | None
    refused: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Fallen:
    """Layers of one kernel that fall to the host core, with the reason and the nearest repair."""

    layers: Sequence[Step]
    host_cycles: int
    reason: str
    repair: str

    def __str__(self) -> str:
        numbers = ", ".join(str(step.number) for step in self.layers)
        layers = f"layer{'s' if len(self.layers) > 1 else ''} {numbers}"
        kind = self.layers[0].layer.operator.kind
        return f"the host core computes {layers}, {kind}, in {self.host_cycles:,} cycles"


def layer_figures(net: Network, step: Step) -> LayerFigures:
    """The figures of a layer of a network."""
    made, layer = step.kernel.figures, step.layer
    on_units: int | None = None
    if net.plan.hardware.units:
        on_units = 0 if made.refused else layer.macs
    return LayerFigures(
        step.number, str(layer.operator), step.kernel.name, made.cycles, made.bound, layer.macs,
        on_units, made.host_cycles, made.offchip_bytes, step.kernel.workspace_bytes,
        (net.code_bytes or {}).get(step.kernel.name), made.refused,
    )  # fmt: skip


def total_figures(net: Network) -> LayerFigures:
    """The sums over all layers; kernels and workspaces count once."""
    found = [layer_figures(net, step) for step in net.layers]
    on_units = [f.macs_on_units for f in found if f.macs_on_units is not None]
    return LayerFigures(
        -1, "all", "", sum(f.cycles for f in found), sum(f.bound for f in found),
        sum(f.macs for f in found), sum(on_units) if on_units else None,
        sum(f.host_cycles for f in found), sum(f.offchip_bytes for f in found),
        max((f.workspace_bytes for f in found), default=0),
        None if net.code_bytes is None else sum(net.code_bytes.values()),
    )  # fmt: skip


def fallen(net: Network) -> list[Fallen]:
    """Layers that no unit works on, or whose products the host core computes."""
    found: list[Fallen] = []
    for kernel in net.kernels:
        if kernel.figures.refused is not None:
            steps = tuple(s for s in net.layers if s.kernel is kernel)
            cycles = len(steps) * kernel.figures.host_cycles
            found.append(Fallen(steps, cycles, *kernel.figures.refused))
    return sorted(found, key=lambda f: f.layers[0].number)


def layer_table(net: Network) -> tuple[list[str], list[list[Cell]]]:
    """Titles, a row for each layer, and one of totals."""
    units = bool(net.plan.hardware.units)
    header = ["layer", "operator", "kernel", "cycles", "bound", "MACs"]
    header += ["% on units", "host cycles"] if units else []
    header += ["off-chip bytes", "workspace", "code bytes"]
    rows: list[list[Cell]] = []
    for f in (*(layer_figures(net, step) for step in net.layers), total_figures(net)):
        share = round(100 * (f.macs_on_units or 0) / f.macs) if f.macs else "-"
        beside: list[Cell] = [share, f.host_cycles] if units else []
        every = f.number < 0
        rows.append([
            "" if every else f.number, f.operator, f"{len(net.kernels)} kernels" if every
            else f.kernel, f.cycles, f.bound, f.macs, *beside, f.offchip_bytes,
            "" if every else f.workspace_bytes, "-" if f.code_bytes is None else f.code_bytes,
        ])  # fmt: skip
    return header, rows


def buffer_labels(net: Network) -> Mapping[str, str]:
    """Short names of the arena's buffers: models have long ones."""
    plan = net.plan
    found = {step.workspace: step.workspace for step in plan.steps}
    values = {plan.buffer[name]: f"input {n}" for n, name in enumerate(plan.graph.inputs)}
    for step in plan.steps:
        values.setdefault(plan.buffer[step.layer.output[1]], f"output of layer {step.number}")
    for value, label in values.items():
        place = plan.place[value]
        found[place] = f"{found[place]}, {label}" if place in found else label
    return found


def arena_table(net: Network) -> tuple[list[str], list[list[Cell]]]:
    """Titles and a row for each buffer of the arena, with a picture of its live range."""
    last = max(len(net.layers) - 1, 0)
    width = min(last + 1, _COLUMNS)
    label = buffer_labels(net)
    rows: list[list[Cell]] = []
    for place in net.plan.arena.places:
        live = place.live
        first, end = (n * width // (last + 1) for n in live.steps)
        bar = "." * first + "#" * (end - first + 1) + "." * (width - 1 - end)
        rows.append([place.offset, live.bytes, label[live.name], bar])
    return ["offset", "bytes", "buffer", f"live in layers 0 to {last}"], rows


def summary_lines(net: Network) -> list[str]:
    """The bytes of the arena, the weights and the code."""
    arena, code = net.plan.arena, net.code_bytes
    lines = [
        f"arena: {arena.bytes:,} bytes, {arena.gap:,} above the {arena.bound:,} that are live at "
        "one step",
        f"weights: {net.weights.bytes:,} bytes",
    ]
    if code is not None:
        flags = " ".join(("-Os", *user_flags()))
        lines.append(f"code: {sum(code.values()):,} bytes, compiled here with {flags}")
    return lines


def report_text(net: Network) -> str:
    """A table of the layers, the totals, the arena, and what to look at."""
    warnings = [
        f"warning: {f}\n  reason: {f.reason}" + (f"\n  repair: {f.repair}" if f.repair else "")
        for f in fallen(net)
    ]
    parts = [
        f"{net.name} on {net.plan.hardware.name}",
        table(*layer_table(net)),
        table(*arena_table(net)),
        "\n".join([*summary_lines(net), *warnings]),
    ]
    return "\n\n".join(parts)


def report_record(net: Network) -> Record:
    """The same as plain data."""
    arena, graph = net.plan.arena, net.plan.graph
    return {
        "model": graph.file,
        "chip": net.plan.hardware.name,
        "function": net.name,
        "layers": [_record(layer_figures(net, step)) for step in net.layers],
        "total": _record(total_figures(net)),
        "kernels": [kernel.name for kernel in net.kernels],
        "arena_bytes": arena.bytes,
        "arena_bound_bytes": arena.bound,
        "arena": [
            {
                "buffer": place.live.name,
                "offset": place.offset,
                "bytes": place.live.bytes,
                "first_layer": place.live.steps[0],
                "last_layer": place.live.steps[1],
            }
            for place in arena.places
        ],
        "weight_bytes": net.weights.bytes,
        "host_layers": sorted(step.number for f in fallen(net) for step in f.layers),
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
        "code_bytes": f.code_bytes,
        "host_reason": f.refused and f.refused[0],
        "host_repair": f.refused and f.refused[1],
    }
