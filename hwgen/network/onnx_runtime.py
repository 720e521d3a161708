"""Layers by onnx's reference evaluator, on what the network itself computed before them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.onnx_reader import converted, evaluated, load_package
from hwgen.network.steps import Plan, Step
from hwgen.spec.typecheck import is_float


class OnnxRuntime:
    """The nodes of the model that a layer stands for. Floats are computed in float64, so that the
    evaluator's own rounding is far below that of a layer; a layer of integers is computed in the
    model's types, bit for bit."""

    name = "onnx's reference evaluator"
    allowed = "numbers as near as rounding explains, by the error analysis of the layer's statements"

    def __init__(self, plan: Plan) -> None:
        self._onnx, self._graph = load_package(), plan.graph
        self._model = converted(Path(plan.graph.file))
        self._maker = {n: node for node in self._model.graph.node for n in node.output if n}

    def start(self, inputs: Mapping[str, Array]) -> None:
        """Nothing is computed before the first layer."""

    def layer(self, step: Step, held: Mapping[str, Array]) -> Array:
        """The output of a layer for the tensors of the network that are held."""
        name = step.layer.output[1]
        real = is_float(self._graph.tensor[name].dtype)
        feeds: dict[str, Array] = {}
        nodes: dict[int, None] = {}
        waiting = [name]
        places = {id(node): n for n, node in enumerate(self._model.graph.node)}
        while waiting:
            one = waiting.pop()
            tensor = self._graph.tensor.get(one)
            known = held.get(one) if one != name else None
            if known is None and tensor is not None:
                known = tensor.data
            if known is not None:
                wide = real and known.dtype == np.float32
                feeds[one] = known.astype(np.float64) if wide else known
            elif places[id(self._maker[one])] not in nodes:
                nodes[places[id(self._maker[one])]] = None
                waiting += [n for n in self._maker[one].input if n]
        made = [self._model.graph.node[n] for n in sorted(nodes)]
        return evaluated(self._onnx, self._model, made, feeds, [name])[name]

    def outputs(self) -> Mapping[str, Array]:
        """Outputs are those of layers."""
        return {}
