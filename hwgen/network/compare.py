"""A network against the model's own runtime, layer by layer: which layer differs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.network.bounds import layer_bound
from hwgen.network.compiled import Network
from hwgen.network.onnx_runtime import OnnxRuntime
from hwgen.network.packages import needed
from hwgen.network.steps import Plan, Step
from hwgen.verify.compare import outside
from hwgen.verify.rounding import Bounded


class Runtime(Protocol):
    """A model's own runtime. `allowed`: what its numbers are to those of a network."""

    name: str
    allowed: str

    def start(self, inputs: Mapping[str, Array]) -> None:
        """Take inputs."""

    def layer(self, step: Step, held: Mapping[str, Array]) -> Array:
        """The output of a layer. `held`: inputs and outputs of layers before it, as the network
        has them, by name."""
        ...

    def outputs(self) -> Mapping[str, Array]:
        """Outputs of the model that are compared besides those of layers."""
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """`samples`: runs that were compared, each with all `layers`; `unbounded`: numbers that rounding
    may bring anywhere."""

    samples: int
    layers: int
    runtime: str
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
    runtime = RUNTIMES[net.plan.graph.format](net.plan)
    unbounded = 0
    for n in range(samples):
        inputs = net.draw(n, extremes=2 * n >= samples)
        watch = _Watch(net, runtime, inputs)
        different = watch.first_difference()
        unbounded += watch.unbounded
        if different:
            raise HwgenError(
                "H805",
                f"a layer differs from {runtime.name}",
                location=Location(net.plan.graph.file),
                found=f"{different}, on input {n} of {samples}",
                allowed=runtime.allowed,
                repair="report the model, the chip and this message",
            )
    return Comparison(samples, len(net.layers), runtime.name, unbounded)


class _Watch:
    """One run of a network beside its runtime."""

    def __init__(self, net: Network, runtime: Runtime, inputs: Mapping[str, Array]) -> None:
        self._net, self._runtime, self._inputs = net, runtime, inputs
        self._held = dict(inputs)
        self._different: list[str] = []
        self.unbounded = 0

    def first_difference(self) -> str:
        """The first layer whose output differs, in words; "" where none does."""
        self._runtime.start(self._inputs)
        outputs = self._net.run(self._inputs, self._layer)
        self._different += [
            f"output {name}"
            for name, wanted in self._runtime.outputs().items()
            if not np.array_equal(outputs[name], wanted)
        ]
        return self._different[0] if self._different else ""

    def _layer(self, number: int, found: Array) -> None:
        if self._different:
            return
        step = self._net.layers[number]
        wanted = np.reshape(self._runtime.layer(step, self._held), found.shape)
        bound = self._bound(step) if np.issubdtype(found.dtype, np.floating) else None
        if bound is None:
            wrong = found != wanted
        else:
            bound = Bounded(*(np.reshape(x, found.shape) for x in (bound.value, bound.error)))
            self.unbounded += int(np.count_nonzero(np.isinf(bound.error)))
            # A runtime outside of the bound would show that the statements are wrong.
            wide = wanted.astype(np.float64)
            wrong = outside(found, str(found.dtype), bound) | outside(wide, "float64", bound)
        if wrong.any():
            self._different.append(_difference(step, found, wanted, wrong, bound))
        self._held[step.layer.output[1]] = found

    def _bound(self, step: Step) -> Bounded | None:
        buffer, shapes = self._net.plan.buffer, step.kernel.workload.tensor
        given = {
            own: np.reshape(self._held[buffer[of]], shapes[own].shape)
            for own, of in step.layer.inputs
        }
        return layer_bound(step, given)


def _difference(
    step: Step, found: Array, wanted: Array, wrong: Array, bound: Bounded | None
) -> str:
    places = np.argwhere(wrong)
    first = tuple(int(i) for i in places[0])
    near = f" +- {bound.error[first]:.3g}" if bound is not None else ""
    return (
        f"layer {step.number}, {step.layer.operator}, kernel {step.kernel.name}: {len(places)} of "
        f"{found.size} numbers; at {list(first)} {found[first]} for {wanted[first]}{near}"
    )


class _Interpreter:
    """TFLite Micro's interpreter, which keeps every tensor."""

    name = "tflite-micro"
    allowed = "the same numbers in every layer"

    def __init__(self, plan: Plan) -> None:
        package = needed("tflite_micro", "runs TensorFlow Lite models", "hwgen[tflite]")
        runtime = package.runtime
        self._graph = graph = plan.graph
        room = 4 * sum(t.bytes for t in graph.tensors if t.data is None) + (1 << 20)
        content = Path(graph.file).read_bytes()
        keep = runtime.InterpreterConfig.kPreserveAllTensors
        self._made = runtime.Interpreter.from_bytes(
            content, arena_size=room + 2 * len(content), intrepreter_config=keep
        )

    def start(self, inputs: Mapping[str, Array]) -> None:
        """Run all of the model."""
        for n, name in enumerate(self._graph.inputs):
            self._made.set_input(inputs[name], n)
        self._made.invoke()

    def layer(self, step: Step, held: Mapping[str, Array]) -> Array:
        """The output of a layer of that run."""
        return self._tensor(step.layer.output[1])

    def outputs(self) -> dict[str, Array]:
        """Those of the model, by name."""
        found = enumerate(self._graph.outputs)
        return {name: np.array(self._made.get_output(n)) for n, name in found}

    def _tensor(self, name: str) -> Array:
        tensor = self._graph.tensor[name]
        given = cast("dict[str, Any]", self._made.GetTensor(tensor.number, 0))
        return np.reshape(np.array(given["tensor_data"]), tensor.shape)


RUNTIMES: Mapping[str, Callable[[Plan], Runtime]] = {"onnx": OnnxRuntime, "tflite": _Interpreter}
"""By format of the model."""
