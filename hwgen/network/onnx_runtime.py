"""A network of an ONNX model against onnx's reference evaluator, layer by layer.

Each layer is compared on what the network itself computed before it. The evaluator computes floats
in float64, so that its own rounding is far below a layer's; a result may be as far from it as the
error analysis of the layer's statements explains. Integers must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.bounds import layer_bound
from hwgen.network.compare import Comparison, differs
from hwgen.network.compiled import Network
from hwgen.network.onnx_reader import converted, evaluated, load_package
from hwgen.network.steps import Plan, Step
from hwgen.spec.typecheck import is_float
from hwgen.verify.compare import outside
from hwgen.verify.rounding import Bounded

RUNTIME = "onnx's reference evaluator"
ALLOWED = "the same integers, and floats as near as rounding explains"


def compare_onnx(net: Network, samples: int) -> Comparison:
    """As `compare`.

    Raises:
        HwgenError: H805 naming the first layer that differs; H802 without the package; as a call of
            the network.
    """
    evaluator = _Evaluator(net.plan)
    unbounded = 0
    for n in range(samples):
        inputs = net.draw(n, extremes=2 * n >= samples)
        watch = _Watch(net, evaluator, inputs)
        net.run(inputs, watch.layer)
        unbounded += watch.unbounded
        if watch.different:
            found = f"{watch.different}, on input {n} of {samples}"
            raise differs(net, RUNTIME, found, ALLOWED)
    return Comparison(samples, len(net.layers), RUNTIME, unbounded)


class _Evaluator:
    """The nodes of the model that a layer stands for."""

    def __init__(self, plan: Plan) -> None:
        self._onnx, self._graph = load_package(), plan.graph
        self._model = converted(Path(plan.graph.file))
        self._nodes = list(self._model.graph.node)
        self._maker = {n: at for at, node in enumerate(self._nodes) for n in node.output if n}

    def output(self, layer: Step, held: Mapping[str, Array]) -> Array:
        """The output of a layer for the tensors of the network that are held."""
        name = layer.layer.output[1]
        wide = is_float(self._graph.tensor[name].dtype)
        feeds: dict[str, Array] = {}
        needed: set[int] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            tensor = self._graph.tensor.get(one)
            known = held.get(one, None if tensor is None else tensor.data)
            if known is not None:
                feeds[one] = known.astype(np.float64) if wide and known.dtype.kind == "f" else known
            elif self._maker[one] not in needed:
                needed.add(self._maker[one])
                waiting += [n for n in self._nodes[self._maker[one]].input if n]
        nodes = [self._nodes[at] for at in sorted(needed)]
        return evaluated(self._onnx, self._model, nodes, feeds, [name])[name]


class _Watch:
    """One run of a network beside the evaluator. `different`: the first layer that differs, in
    words; `unbounded`: how many numbers rounding may bring anywhere."""

    def __init__(self, net: Network, evaluator: _Evaluator, inputs: Mapping[str, Array]) -> None:
        self._net, self._evaluator, self._held = net, evaluator, dict(inputs)
        self.different = ""
        self.unbounded = 0

    def layer(self, number: int, found: Array) -> None:
        """Compare an output, until one differs."""
        if self.different:
            return
        step = self._net.layers[number]
        wanted = np.reshape(self._evaluator.output(step, self._held), found.shape)
        bound = self._bound(step, found.shape) if found.dtype.kind == "f" else None
        if bound is None:
            wrong = np.not_equal(found, wanted)
        else:
            self.unbounded += int(np.count_nonzero(np.isinf(bound.error)))
            # A runtime outside of the bound would show that the statements are wrong.
            exact = wanted.astype(np.float64)
            wrong = outside(found, str(found.dtype), bound) | outside(exact, "float64", bound)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            near = f" +- {bound.error[first]:.3g}" if bound is not None else ""
            self.different = (
                f"layer {number}, {step.layer.operator}, kernel {step.kernel.name}: "
                f"{np.count_nonzero(wrong)} of {found.size} numbers; at {list(first)} "
                f"{found[first]} for {wanted[first]}{near}"
            )
        self._held[step.layer.output[1]] = found

    def _bound(self, step: Step, shape: tuple[int, ...]) -> Bounded | None:
        buffer, shapes = self._net.plan.buffer, step.kernel.workload.tensor
        given = {
            own: np.reshape(self._held[buffer[of]], shapes[own].shape)
            for own, of in step.layer.inputs
        }
        found = layer_bound(step, given)
        if found is None:
            return None
        return Bounded(np.reshape(found.value, shape), np.reshape(found.error, shape))
