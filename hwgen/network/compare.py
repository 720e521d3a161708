"""A network against its model's own runtime, layer by layer: which layer differs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.network.bounds import layer_bound
from hwgen.network.compiled import Network
from hwgen.network.steps import Step
from hwgen.packages import needed
from hwgen.polyhedral.schedule.requested import unfit
from hwgen.spec.typecheck import is_float
from hwgen.verify.compare import outside
from hwgen.verify.rounding import Bounded

Arrays = Mapping[str, Array]
Runtime = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`samples`: runs that were compared, each with `layers` whose outputs `runtime` gives;
    `unbounded`: numbers that rounding may bring anywhere."""

    samples: int
    layers: int
    runtime: str
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
        HwgenError: H805 naming the first layer that differs; H046 without the runtime's package; as
            a call of the network; H050 a runtime that gives no tensor of the model.
    """
    graph = net.plan.graph
    begin, name = _beside(net, runtime)
    compared: set[str] = set()
    unbounded = 0
    for n in range(samples):
        run = begin(net.draw(n, extremes=2 * n >= samples))
        run.compare()
        if run.different:
            raise HwgenError(
                "H805",
                f"a layer differs from {name}",
                location=Location(graph.file),
                found=f"{run.different}, on input {n} of {samples}",
                allowed="the same integers in every layer, and floats as near as rounding explains",
                repair="report the model, the chip and this message",
            )
        compared |= run.compared
        unbounded += run.unbounded
    if runtime is not None and not compared:
        raise unfit("runtime", "a result without a tensor of the model", ", ".join(graph.outputs))
    layers = sum(step.layer.output[1] in compared for step in net.layers)
    return Comparison(samples, layers, name, unbounded)


def _beside(net: Network, runtime: Runtime | None) -> tuple[Callable[[Arrays], _Run], str]:
    """What begins a run on inputs, and the runtime's name."""
    if runtime is None and net.plan.graph.format == "onnx":
        from hwgen.network.onnx_runtime import Evaluator

        evaluator = Evaluator(net.plan)
        return lambda inputs: _Run(net, inputs, evaluator.output), "onnx's reference evaluator"
    run, name = (runtime, "the runtime") if runtime else (_Interpreter(net).run, "tflite-micro")

    def begin(inputs: Arrays) -> _Run:
        found = {n: x for n, x in run(inputs).items() if n in net.plan.graph.tensor}
        return _Run(net, inputs, lambda step, _: found.get(step.layer.output[1]), found)

    return begin, name


@dataclass(eq=False)
class _Run:
    """One run of a network beside a runtime. `wanted`: the runtime's output of a layer, for what
    the network computed before it; `theirs`: all that the runtime computed, from the same inputs,
    where it does not go on from the network's numbers. `different`: the first layer that differs,
    in words; `unbounded`: how many numbers rounding may bring anywhere."""

    net: Network
    inputs: Arrays
    wanted: Callable[[Step, Arrays], Array | None]
    theirs: Arrays | None = None
    different: str = ""
    unbounded: int = 0
    compared: set[str] = field(default_factory=set[str])

    def compare(self) -> None:
        """Run both."""
        self._ours, self._exact = dict(self.inputs), True
        outputs, theirs = self.net.run(self.inputs, self._layer), self.theirs or {}
        for name in outputs.keys() & theirs.keys():
            self.compared.add(name)
            same = np.array_equal(outputs[name], theirs[name]) or not self._exact
            self.different = self.different or ("" if same else f"output {name}")

    def _layer(self, number: int, found: Array) -> None:
        """Compare the output of a layer, until one differs.

        Integers are the same. From the first float on, both the runtime and the network give what
        the layer's statements give of their own inputs, but for rounding: a runtime that does not
        would show that the statements are wrong.
        """
        step, tensor = self.net.layers[number], self.net.plan.graph.tensor
        name = step.layer.output[1]
        wanted = None if self.different else self.wanted(step, self._ours)
        self._ours[name] = found
        touched = [name] if self.theirs is None else [*(t for _, t in step.layer.inputs), name]
        floats = any(is_float(tensor[t].dtype) for t in touched)
        self._exact = not floats and (self._exact or self.theirs is None)
        if wanted is None:
            return
        self.compared.add(name)
        wanted, near = np.reshape(wanted, found.shape), ""
        wrong: NDArray[np.bool_] = np.not_equal(found, wanted)
        if not self._exact:
            known = None if self.theirs is None else {**self.inputs, **self.theirs}
            wrong, bound = self._outside(step, found, self._ours)
            wrong |= self._outside(step, wanted, known)[0] if known else _far(wanted, bound)
            if bound is not None:
                near = f" +- {bound.error[wrong][0]:.3g}" if wrong.any() else ""
                self.unbounded += int(np.isinf(bound.error).sum())
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            self.different = (
                f"layer {number}, {step.layer.operator}, kernel {step.kernel.name}: {wrong.sum()} "
                f"of {found.size} numbers; at {list(at)} {found[at]} for {wanted[at]}{near}"
            )

    def _outside(
        self, step: Step, found: Array, held: Arrays
    ) -> tuple[NDArray[np.bool_], Bounded | None]:
        """Where a layer's output is not what its statements give of its inputs, but for rounding,
        which is bounded where floats come into it; nowhere if an input is not known."""
        buffer, workload, inputs = self.net.plan.buffer, step.kernel.workload, step.layer.inputs
        known = {buffer[n]: x for n, x in held.items() if n in buffer}
        if any(buffer[t] not in known for _, t in inputs):
            return _far(found, None), None
        given = {n: np.reshape(known[buffer[t]], workload.tensor[n].shape) for n, t in inputs}
        bound = layer_bound(step, given)
        if bound is None:
            made = run_reference(workload, {**given, **step.layer.constants})
            return np.not_equal(found, np.reshape(made[step.layer.output[0]], found.shape)), None
        bound = Bounded(*(np.reshape(n, found.shape) for n in (bound.value, bound.error)))
        return _far(found, bound), bound


def _far(found: Array, bound: Bounded | None) -> NDArray[np.bool_]:
    if bound is None:
        return np.zeros(found.shape, np.bool_)
    return outside(found, str(found.dtype), bound)


class _Interpreter:
    """TFLite Micro's interpreter, which keeps every tensor."""

    def __init__(self, net: Network) -> None:
        package = needed("tflite_micro", "runs TensorFlow Lite models", "tflite")
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
