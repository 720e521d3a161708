"""Figures of a network, layer by layer and in total: text, and plain data for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from hwgen.model.c_compiler import user_flags
from hwgen.network.compiled import Network
from hwgen.network.steps import Step
from hwgen.report.records import Record
from hwgen.spec.table import Cell, table

_COLUMNS = 64
"""Of a picture of live ranges at most."""


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """A layer's figures, under the names that they have as plain data. `layer`: its number, -1 of
    all together; `macs_on_units`: those of its products that no host core does, which is all or
    none of a layer; None where the chip is a processor alone. `code_bytes`: of its kernel's object;
    None where that is not known. `host_reason`, `host_repair`: where it falls to the host core."""

    layer: int
    operator: str
    kernel: str
    cycles: int
    lower_bound_cycles: int
    macs: int
    macs_on_units: int | None
    host_cycles: int
    off_chip_bytes: int
    workspace_bytes: int
    code_bytes: int | None
    host_reason: str | None = None
    host_repair: str | None = None


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
    kernel, layer, made = step.kernel, step.layer, step.kernel.figures
    on_units = (0 if made.refused else layer.macs) if net.plan.hardware.units else None
    return LayerFigures(
        step.number, str(layer.operator), kernel.name, made.cycles, made.bound, layer.macs,
        on_units, made.host_cycles, made.offchip_bytes, kernel.workspace_bytes,
        (net.code_bytes or {}).get(kernel.name), *(made.refused or ()),
    )  # fmt: skip


def total_figures(net: Network) -> LayerFigures:
    """The sums over all layers; kernels and workspaces count once."""
    found = [layer_figures(net, step) for step in net.layers]
    on_units = [f.macs_on_units for f in found if f.macs_on_units is not None]
    code = net.code_bytes
    return LayerFigures(
        -1, "all", "", sum(f.cycles for f in found), sum(f.lower_bound_cycles for f in found),
        sum(f.macs for f in found), sum(on_units) if on_units else None,
        sum(f.host_cycles for f in found), sum(f.off_chip_bytes for f in found),
        max((f.workspace_bytes for f in found), default=0),
        None if code is None else sum(code.values()),
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
        name: list[Cell] = [f.layer, f.operator, f.kernel]
        if f.layer < 0:
            name = ["", f.operator, f"{len(net.kernels)} kernels"]
        room: list[Cell] = ["" if f.layer < 0 else f.workspace_bytes]
        room += ["-" if f.code_bytes is None else f.code_bytes]
        products = [f.cycles, f.lower_bound_cycles, f.macs]
        rows.append([*name, *products, *beside, f.off_chip_bytes, *room])
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


def buffer_rows(net: Network, label: Mapping[str, str]) -> list[list[Cell]]:
    """For each buffer of the arena its name, offset and bytes, and its first and last layer."""
    places = net.plan.arena.places
    return [[label[p.live.name], p.offset, p.live.bytes, *p.live.steps] for p in places]


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
        *_kept(net),
        f"weights: {net.weights.bytes:,} bytes",
    ]
    if code is not None:
        flags = " ".join(("-Os", *user_flags()))
        lines.append(f"code: {sum(code.values()):,} bytes, compiled here with {flags}")
    return lines


def _kept(net: Network) -> list[str]:
    steps = [step for step in net.layers if net.plan.buffer[step.layer.output[1]] in net.plan.kept]
    numbers = ", ".join(str(step.number) for step in steps)
    return [f"outputs that stay in the chip's layout: layers {numbers}"] if steps else []


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
        "layers": [asdict(layer_figures(net, step)) for step in net.layers],
        "total": asdict(total_figures(net)),
        "kernels": [kernel.name for kernel in net.kernels],
        "arena_bytes": arena.bytes,
        "arena_bound_bytes": arena.bound,
        "arena": [
            dict(zip(("buffer", "offset", "bytes", "first_layer", "last_layer"), row, strict=True))
            for row in buffer_rows(net, {p.live.name: p.live.name for p in arena.places})
        ],
        "weight_bytes": net.weights.bytes,
        "host_layers": sorted(step.number for f in fallen(net) for step in f.layers),
    }
