"""A network against the model's own runtime, layer by layer: which layer differs first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.network.compiled import Network
from hwgen.network.packages import needed

RUNTIME = "tflite-micro"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`samples`: runs that were compared, each with all `layers`; `unbounded`: numbers that
    rounding may bring anywhere."""

    samples: int
    layers: int
    runtime: str = RUNTIME
    unbounded: int = 0

    def __str__(self) -> str:
        said = f"equal to {self.runtime}: {self.layers} layers on {self.samples} inputs"
        return f"{said}; {self.unbounded:,} numbers not compared" if self.unbounded else said


def compare(net: Network, samples: int = 4) -> Comparison:
    """Run a network and the model's runtime on drawn inputs, the second half of them the ends of
    the type's range, and compare the output of every layer.

    Raises:
        HwgenError: H805 naming the first layer that differs; H802 without the runtime's package; as
            a call of the network.
    """
    if net.plan.graph.format == "onnx":
        from hwgen.network.onnx_runtime import compare_onnx

        return compare_onnx(net, samples)
    interpreter = _Interpreter(net)
    for n in range(samples):
        inputs = net.draw(n, extremes=2 * n >= samples)
        different = _first_difference(net, interpreter, inputs)
        if different:
            raise HwgenError(
                "H805",
                f"a layer differs from {RUNTIME}",
                location=Location(net.plan.graph.file),
                found=f"{different}, on input {n} of {samples}",
                allowed="the same numbers in every layer",
                repair="report the model, the chip and this message",
            )
    return Comparison(samples, len(net.layers))


def _first_difference(net: Network, interpreter: _Interpreter, inputs: Mapping[str, Array]) -> str:
    """The first layer whose output differs, in words; "" where none does."""
    layers = interpreter.run(inputs)
    different: list[str] = []

    def watch(number: int, found: Array) -> None:
        if not different and not np.array_equal(found, layers[number]):
            different.append(_difference(net, number, found, layers[number]))

    outputs = net.run(inputs, watch)
    different += [
        f"output {name}"
        for name, wanted in interpreter.outputs().items()
        if not np.array_equal(outputs[name], wanted)
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

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The output of every layer."""
        for n, name in enumerate(self._graph.inputs):
            self._made.set_input(inputs[name], n)
        self._made.invoke()
        return [self._tensor(step.layer.output[1]) for step in self._net.layers]

    def outputs(self) -> dict[str, Array]:
        """Those of the model, by name."""
        found = enumerate(self._graph.outputs)
        return {name: np.array(self._made.get_output(n)) for n, name in found}

    def _tensor(self, name: str) -> Array:
        tensor = self._graph.tensor[name]
        given = cast("dict[str, Any]", self._made.GetTensor(tensor.number, 0))
        return np.reshape(np.array(given["tensor_data"]), tensor.shape)
