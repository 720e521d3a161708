"""The plan of a network: its layers with their kernels, and where their tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwgen.network.arena import Arena, Live, plan_arena
from hwgen.network.graph import Graph
from hwgen.network.kernels import LayerKernel
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
    """`buffer`: by activation, the buffer of the arena that holds it."""

    name: str
    graph: Graph
    hardware: HardwareSpec
    steps: tuple[Step, ...]
    arena: Arena
    buffer: Mapping[str, str]

    def offset(self, tensor: str) -> int:
        """Bytes from the arena's start to an activation."""
        return self.arena.offset(self.buffer[tensor])


def plan_network(
    name: str,
    graph: Graph,
    hardware: HardwareSpec,
    layers: tuple[Layer, ...],
    kernels: Mapping[Computation, LayerKernel],
) -> Plan:
    """The steps of a network, and its arena."""
    steps: list[Step] = []
    for layer in layers:
        if layer.computation is not None:
            kernel, number = kernels[layer.computation], len(steps)
            room = f"workspace {number}" if kernel.workspace_bytes else ""
            steps.append(Step(number, layer, kernel, room))
    buffer = {name: name for name in graph.inputs}
    for layer in layers:
        made = layer.output[1]
        # Another name of a tensor has its bytes.
        buffer[made] = made if layer.computation else buffer[layer.inputs[0][1]]
    arena = plan_arena(_live(graph, steps, buffer))
    return Plan(name, graph, hardware, tuple(steps), arena, buffer)


def _live(graph: Graph, steps: list[Step], buffer: Mapping[str, str]) -> list[Live]:
    """The activations and workspaces with the steps over which they are live."""
    first = {buffer[name]: 0 for name in graph.inputs}
    last = dict(first)
    align: dict[str, int] = {}
    found: list[Live] = []
    for step in steps:
        kernel, layer = step.kernel, step.layer
        names = {own: buffer[tensor] for own, tensor in (*layer.inputs, layer.output)}
        first.setdefault(names[layer.output[0]], step.number)
        for argument in kernel.arguments:
            if argument.tensor in names:
                held = names[argument.tensor]
                align[held] = max(align.get(held, 1), argument.align)
        last |= dict.fromkeys(names.values(), step.number)
        if step.workspace:
            size, at = kernel.workspace_bytes, kernel.workspace_align
            found.append(Live(step.workspace, size, at, step.number, step.number))
    last |= {buffer[name]: max(len(steps) - 1, 0) for name in graph.outputs}
    for name, start in first.items():
        size = graph.tensor[name].bytes
        found.append(Live(name, size, align.get(name, 1), start, last[name]))
    return found
