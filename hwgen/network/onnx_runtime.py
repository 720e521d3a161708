"""The runtime of ONNX models: onnx's reference evaluator, one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.onnx_reader import converted, evaluated, load_package
from hwgen.network.steps import Plan, Step
from hwgen.spec.typecheck import is_float


class Evaluator:
    """The nodes of the model that a layer stands for. Floats are computed in float64, so that the
    evaluator's own rounding is far below a layer's.

    Raises:
        HwgenError: H046 without the package.
    """

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
