"""A network against the model's own runtime, layer by layer: which layer differs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.network.compiled import Network
from hwgen.network.packages import needed
from hwgen.polyhedral.schedule.requested import unfit

Arrays = Mapping[str, Array]
Runtime = Callable[[Arrays], Arrays]
RUNTIME = "tflite-micro"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`samples`: runs that were compared, each with `layers` whose outputs `runtime` gives."""

    samples: int
    layers: int
    runtime: str = RUNTIME

    def __str__(self) -> str:
        return f"equal to {self.runtime}: {self.layers} layers on {self.samples} inputs"


def compare(net: Network, samples: int = 4, runtime: Runtime | None = None) -> Comparison:
    """Run a network and a runtime on drawn inputs, the second half of them the ends of the type's
    range, and compare the output of every layer that the runtime gives.

    Args:
        net: the network.
        samples: how many inputs are drawn.
        runtime: the model's tensors by name, those that it knows, for inputs by name; the model's
            own runtime where there is none.

    Raises:
        HwgenError: H805 naming the first layer that differs; H802 without the runtime's package; as
            a call of the network; H050 a runtime that gives no tensor of the model.
    """
    run, name = (runtime, "the runtime") if runtime else (_Interpreter(net).run, RUNTIME)
    compared: set[str] = set()
    for n in range(samples):
        inputs = net.draw(n, extremes=2 * n >= samples)
        wanted = run(inputs)
        compared |= wanted.keys()
        different = _first_difference(net, wanted, inputs)
        if different:
            raise HwgenError(
                "H805",
                f"a layer differs from {name}",
                location=Location(net.plan.graph.file),
                found=f"{different}, on input {n} of {samples}",
                allowed="the same numbers in every layer",
                repair="report the model, the chip and this message",
            )
    if not compared & net.plan.graph.tensor.keys():
        known = ", ".join(net.plan.graph.outputs)
        raise unfit("runtime", "a result without a tensor of the model", known)
    layers = sum(step.layer.output[1] in compared for step in net.layers)
    return Comparison(samples, layers, name)


def _first_difference(net: Network, wanted: Arrays, inputs: Arrays) -> str:
    """The first layer whose output differs, in words; "" where none does."""
    different: list[str] = []

    def watch(number: int, found: Array) -> None:
        made = net.layers[number].layer.output[1]
        if not different and made in wanted and not np.array_equal(found, wanted[made]):
            different.append(_difference(net, number, found, wanted[made]))

    outputs = net.run(inputs, watch)
    different += [
        f"output {name}"
        for name, values in outputs.items()
        if name in wanted and not np.array_equal(values, wanted[name])
    ]
    return different[0] if different else ""


def _difference(net: Network, number: int, found: Array, wanted: Array) -> str:
    step = net.layers[number]
    wrong = np.argwhere(found != wanted)
    first = tuple(int(i) for i in wrong[0])
    return (
        f"layer {number}, {step.layer.operator}, kernel {step.kernel.name}: {len(wrong)} of "
        f"{found.size} numbers; at {list(first)} {found[first]} for {wanted[first]}"
    )


class _Interpreter:
    """TFLite Micro's interpreter, which keeps every tensor."""

    def __init__(self, net: Network) -> None:
        package = needed("tflite_micro", "runs TensorFlow Lite models", "hwgen[tflite]")
        runtime = package.runtime
        graph = net.plan.graph
        self._graph, self._net = graph, net
        room = 4 * sum(t.bytes for t in graph.tensors if t.data is None) + (1 << 20)
        content = Path(graph.file).read_bytes()
        keep = runtime.InterpreterConfig.kPreserveAllTensors
        self._made = runtime.Interpreter.from_bytes(
            content, arena_size=room + 2 * len(content), intrepreter_config=keep
        )

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs of all layers, and of the model, by name."""
        for n, name in enumerate(self._graph.inputs):
            self._made.set_input(inputs[name], n)
        self._made.invoke()
        made = [step.layer.output[1] for step in self._net.layers]
        outputs = enumerate(self._graph.outputs)
        given = {name: np.array(self._made.get_output(n)) for n, name in outputs}
        return {name: self._tensor(name) for name in made} | given

    def _tensor(self, name: str) -> Array:
        tensor = self._graph.tensor[name]
        given = cast("dict[str, Any]", self._made.GetTensor(tensor.number, 0))
        return np.reshape(np.array(given["tensor_data"]), tensor.shape)
