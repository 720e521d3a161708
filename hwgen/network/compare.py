"""A network against the model's own runtime, layer by layer: which layer differs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.network.bounds import layer_bound
from hwgen.network.compiled import Network
from hwgen.network.packages import needed
from hwgen.network.steps import Plan, Step
from hwgen.polyhedral.schedule.requested import unfit
from hwgen.spec.typecheck import is_float
from hwgen.verify.compare import outside
from hwgen.verify.rounding import Bounded

Arrays = Mapping[str, Array]
Runtime = Callable[[Arrays], Arrays]
RUNTIME = "tflite-micro"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`samples`: runs that were compared, each with `layers` whose outputs `runtime` gives;
    `unbounded`: numbers that rounding may bring anywhere."""

    samples: int
    layers: int
    runtime: str = RUNTIME
    unbounded: int = 0

    def __str__(self) -> str:
        said = f"equal to {self.runtime}: {self.layers} layers on {self.samples} inputs"
        return f"{said}; {self.unbounded:,} numbers not compared" if self.unbounded else said


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
    if runtime is None and net.plan.graph.format == "onnx":
        from hwgen.network.onnx_runtime import compare_onnx

        return compare_onnx(net, samples)
    run, name = (runtime, "the runtime") if runtime else (_Interpreter(net).run, RUNTIME)
    compared: set[str] = set()
    for n in range(samples):
        inputs = net.draw(n, extremes=2 * n >= samples)
        wanted = run(inputs)
        compared |= wanted.keys()
        different = _first_difference(net, wanted, inputs)
        if different:
            found = f"{different}, on input {n} of {samples}"
            raise differs(net, name, found, "the same numbers in every layer")
    if not compared & net.plan.graph.tensor.keys():
        known = ", ".join(net.plan.graph.outputs)
        raise unfit("runtime", "a result without a tensor of the model", known)
    layers = sum(step.layer.output[1] in compared for step in net.layers)
    return Comparison(samples, layers, name)


def differs(net: Network, runtime: str, found: str, allowed: str) -> HwgenError:
    """H805, about a layer."""
    return HwgenError(
        "H805",
        f"a layer differs from {runtime}",
        location=Location(net.plan.graph.file),
        found=found,
        allowed=allowed,
        repair="report the model, the chip and this message",
    )


def _first_difference(net: Network, wanted: Arrays, inputs: Arrays) -> str:
    """The first layer whose output differs, in words; "" where none does.

    The numbers are the same; from the first float on, both the runtime and the network give what
    the layers' statements give of their own inputs, but for rounding.
    """
    graph, ours, exact, different = net.plan.graph, dict(inputs), True, list[str]()
    theirs = {**inputs, **{n: x for n, x in wanted.items() if n in graph.tensor}}

    def watch(number: int, found: Array) -> None:
        nonlocal exact
        step = net.layers[number]
        name = step.layer.output[1]
        ours[name] = found
        touched = (*(t for _, t in step.layer.inputs), name)
        exact &= not any(is_float(graph.tensor[t].dtype) for t in touched)
        if different or name not in wanted:
            return
        wrong: NDArray[np.bool_] = np.not_equal(found, wanted[name])
        if not exact:
            wrong = _outside(net.plan, step, ours) | _outside(net.plan, step, theirs)
        if wrong.any():
            different.append(_difference(net, number, found, wanted[name], wrong))

    outputs = net.run(inputs, watch)
    different += [
        f"output {name}"
        for name, values in outputs.items()
        if exact and name in wanted and not np.array_equal(values, wanted[name])
    ]
    return different[0] if different else ""


def _outside(plan: Plan, step: Step, held: Arrays) -> NDArray[np.bool_]:
    """Where a layer's output is not what its statements give of its inputs, but for rounding;
    nowhere if an input is not known."""
    shapes, (own, name) = step.kernel.workload.tensor, step.layer.output
    found = held[name]
    known = {plan.buffer[n]: x for n, x in held.items()}
    if any(plan.buffer[t] not in known for _, t in step.layer.inputs):
        return np.zeros(found.shape, np.bool_)
    given = {n: np.reshape(known[plan.buffer[t]], shapes[n].shape) for n, t in step.layer.inputs}
    bound = layer_bound(step, given)
    if bound is None:
        wanted = run_reference(step.kernel.workload, {**given, **step.layer.constants})[own]
        return np.not_equal(found, np.reshape(wanted, found.shape))
    value, error = (np.reshape(n, found.shape) for n in (bound.value, bound.error))
    return outside(found, str(found.dtype), Bounded(value, error))


def _difference(net: Network, number: int, found: Array, wanted: Array, at: Array) -> str:
    step = net.layers[number]
    wrong = np.argwhere(at)
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
