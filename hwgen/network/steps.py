"""The plan of a network: its layers with their kernels, and where their tensors lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwgen.codegen.storages import Image
from hwgen.network.arena import Arena, Live, plan_arena, wrong_plan
from hwgen.network.graph import Graph
from hwgen.network.kept import kept_images
from hwgen.network.kernels import LayerKernel, keeping, written_over
from hwgen.network.operators.layer import Computation, Layer
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Brief


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step(Brief):
    """A layer with its kernel. `workspace`: the name of its buffer in the arena, "" without one."""

    number: int
    layer: Layer
    kernel: LayerKernel
    workspace: str

    def brief(self) -> str:
        cycles = self.kernel.figures.cycles
        return f"{self.number}: {self.layer.operator}, kernel {self.kernel.name}, {cycles:,} cycles"


@dataclass(frozen=True, eq=False)
class Plan:
    """`buffer`: by activation, the value that it is; `place`: by value, the buffer of the arena
    that holds it, which several have that layers write over each other; `kept`: values that stay in
    the chip's layout, with their images."""

    name: str
    graph: Graph
    hardware: HardwareSpec
    steps: tuple[Step, ...]
    arena: Arena
    buffer: Mapping[str, str]
    place: Mapping[str, str]
    kept: Mapping[str, Image] = field(default_factory=dict[str, Image])

    def bytes(self, tensor: str) -> int:
        """Of an activation, as it lies in the arena."""
        image = self.kept.get(self.buffer[tensor])
        return image.bytes if image else self.graph.tensor[tensor].bytes

    def offset(self, tensor: str) -> int:
        """Bytes from the arena's start to an activation."""
        return self.arena.offset(self.place[self.buffer[tensor]])


def plan_network(
    name: str,
    graph: Graph,
    hardware: HardwareSpec,
    layers: tuple[Layer, ...],
    kernels: Mapping[Computation, LayerKernel],
) -> Plan:
    """The steps of a network, and its arena: layers write over their inputs if that makes it
    smaller. Tensors stay in the chip's layout where the layers on both sides agree on it."""
    buffer = {name: name for name in graph.inputs}
    for layer in layers:
        made = layer.output[1]
        # Another name of a tensor has its bytes.
        buffer[made] = made if layer.computation else buffer[layer.inputs[0][1]]
    steps = _steps(layers, kernels)
    kept = kept_images(graph, steps, buffer)
    if kept:
        kernels = _keeping(steps, buffer, kept, kernels, hardware)
        steps = _steps(layers, kernels)
    size = {v: kept[v].bytes if v in kept else graph.tensor[v].bytes for v in buffer.values()}
    place = {value: value for value in buffer.values()}
    arena = plan_arena(_live(graph, steps, buffer, place, size))
    over, taken = _overwritten(graph, steps, buffer)
    smaller = plan_arena(_live(graph, steps, buffer, taken, size))
    if smaller.bytes < arena.bytes:
        made = {c: written_over(kernels[c], own, hardware) for c, own in over.items()}
        steps, place, arena = _steps(layers, {**kernels, **made}), taken, smaller
    plan = Plan(name, graph, hardware, tuple(steps), arena, buffer, place, kept)
    check_values(plan)
    return plan


def check_values(plan: Plan) -> None:
    """Hold, byte by byte, that each layer finds its inputs in the arena, and the caller its
    outputs.

    Raises:
        HwgenError: H804, a defect of hwgen.
    """
    held: dict[str, range] = {}
    found: list[str] = []

    def put(value: str, size: int, offset: int) -> None:
        """Write bytes; what was in them is gone."""
        own = range(offset, offset + size)
        for other, there in [*held.items()]:
            if max(own.start, there.start) < min(own.stop, there.stop):
                del held[other]
        held[value] = own

    def demand(tensor: str, who: str) -> None:
        offset, size = plan.offset(tensor), plan.bytes(tensor)
        if held.get(plan.buffer[tensor]) != range(offset, offset + size):
            found.append(f"{who} does not find {tensor}")

    def write(tensor: str) -> None:
        put(plan.buffer[tensor], plan.bytes(tensor), plan.offset(tensor))

    for name in plan.graph.inputs:
        write(name)
    for step in plan.steps:
        kernel, (made, tensor), who = step.kernel, step.layer.output, f"layer {step.number}"
        if step.workspace:
            put("workspace", kernel.workspace_bytes, plan.arena.offset(step.workspace))
        for _, given in step.layer.inputs:
            demand(given, who)
        write(tensor)
        used = [(own, given) for own, given in step.layer.inputs if own not in kernel.early]
        for own, given in used:
            over = {own, made} <= kernel.over and plan.offset(given) == plan.offset(tensor)
            if not over:
                demand(given, who)
        if step.workspace and "workspace" not in held:
            found.append(f"{who} writes its output into its workspace")
    for name in plan.graph.outputs:
        demand(name, "the caller")
    if found:
        raise wrong_plan(found)


def _steps(layers: Sequence[Layer], kernels: Mapping[Computation, LayerKernel]) -> list[Step]:
    steps: list[Step] = []
    for layer in layers:
        if layer.computation is not None:
            kernel, number = kernels[layer.computation], len(steps)
            room = f"workspace {number}" if kernel.workspace_bytes else ""
            steps.append(Step(number, layer, kernel, room))
    return steps


def _keeping(
    steps: Sequence[Step],
    buffer: Mapping[str, str],
    kept: Mapping[str, Image],
    kernels: Mapping[Computation, LayerKernel],
    hardware: HardwareSpec,
) -> dict[Computation, LayerKernel]:
    """The kernels, those of layers beside kept values for arrays of images."""
    found = dict(kernels)
    for layer in (step.layer for step in steps):
        own = {n for n, t in (*layer.inputs, layer.output) if buffer[t] in kept}
        assert layer.computation is not None
        if own:
            kernel = kernels[layer.computation]
            found[layer.computation] = keeping(kernel, frozenset(own), hardware)
    return found


def _overwritten(
    graph: Graph, steps: Sequence[Step], buffer: Mapping[str, str]
) -> tuple[dict[Computation, frozenset[str]], dict[str, str]]:
    """By computation, the tensors that have the same bytes in some of its layers; by value, the
    first of those that follow each other in the same bytes."""
    last = {buffer[tensor]: s.number for s in steps for _, tensor in s.layer.inputs}
    last |= {buffer[name]: len(steps) for name in graph.outputs}
    over: dict[Computation, frozenset[str]] = {}
    place = {value: value for value in buffer.values()}
    for step in steps:
        layer, kernel = step.layer, step.kernel
        given = {own: buffer[tensor] for own, tensor in layer.inputs}
        for value in dict.fromkeys(given.values()):
            names = {n for n, v in given.items() if v == value}
            if names <= kernel.overwritable and last[value] == step.number:
                made, tensor = layer.output
                place[buffer[tensor]] = place[value]
                assert layer.computation is not None
                before = over.get(layer.computation, frozenset())
                over[layer.computation] = before | names | {made}
                break
    return over, place


def _live(
    graph: Graph,
    steps: Sequence[Step],
    buffer: Mapping[str, str],
    place: Mapping[str, str],
    size: Mapping[str, int],
) -> list[Live]:
    """The activations and workspaces with the moments over which they are live: each step has one
    before its output is written, and one from then on."""
    first = {place[buffer[name]]: 0 for name in graph.inputs}
    last = dict(first)
    align: dict[str, int] = {}
    found: list[Live] = []
    for step in steps:
        kernel, layer, start, end = step.kernel, step.layer, 2 * step.number, 2 * step.number + 1
        names = {own: place[buffer[tensor]] for own, tensor in (*layer.inputs, layer.output)}
        first.setdefault(names[layer.output[0]], end)
        for argument in kernel.arguments:
            if argument.tensor in names:
                held = names[argument.tensor]
                align[held] = max(align.get(held, 1), argument.align)
        last |= {held: start for own, held in names.items() if own in kernel.early}
        last |= {held: end for own, held in names.items() if own not in kernel.early}
        if step.workspace:
            room, at = kernel.workspace_bytes, kernel.workspace_align
            found.append(Live(step.workspace, room, at, start, end))
    last |= {place[buffer[name]]: max(2 * len(steps) - 1, 0) for name in graph.outputs}
    for name, start in first.items():
        found.append(Live(name, size[name], align.get(name, 1), start, last[name]))
    return found
