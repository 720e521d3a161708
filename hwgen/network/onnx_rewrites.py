"""Rewrites of ONNX graphs before the table of operators sees them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.elementwise import expression
from hwgen.network.operators.from_onnx import FUNCTIONS
from hwgen.network.operators.layer import UnsupportedError
from hwgen.network.operators.statements import Statements

Floats = npt.NDArray[np.float64]

FUSING = frozenset({
    "Add", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Div", "Gemm",
    "GlobalAveragePool", "MatMul", "Mul", "Sub", "Sum",
})  # fmt: skip
"""Operators whose statements end with an activation, if one follows."""


def rewritten(graph: Graph) -> Graph:
    """A graph with scales and shifts of channels folded into the weights before them, and
    activations fused into what they read."""
    return _fused(_scaled(graph))


def _readers(graph: Graph) -> Counter[str]:
    found = Counter(n for o in graph.operators for n in o.inputs)
    found.update(graph.outputs)
    return found


# --- scales and shifts of channels ----------------------------------------------------------------


def _scaled(graph: Graph) -> Graph:
    """Chains of operators `y = x * scale + shift` by channel, with constants, as one: part of the
    convolution's constants before them, or a normalisation that is `folded`: its inputs after the
    first are a scale and a shift. Constants are rounded once."""
    read = _readers(graph)
    made: list[Operator] = []
    tensors = list(graph.tensors)
    last: dict[str, int] = {}  # By tensor, the place of its operator in `made`.
    pending: dict[int, tuple[Floats, Floats]] = {}
    for operator in graph.operators:
        found = _affine(graph, operator)
        if found is None:
            last[operator.outputs[0]] = len(made)
            made.append(operator)
            continue
        x, scale, shift = found
        at = last.get(x, -1)
        if at < 0 or read[x] > 1 or not (at in pending or _takes_scales(graph, made[at])):
            at = len(made)
            made.append(replace(operator, kind="BatchNormalization", inputs=(x,), attributes={}))
            pending[at] = scale, shift
        else:
            s, t = pending.get(at, (np.ones_like(scale), np.zeros_like(scale)))
            pending[at] = s * scale, t * scale + shift
            made[at] = replace(made[at], outputs=operator.outputs)
        last[operator.outputs[0]] = at
    for at, (scale, shift) in pending.items():
        made[at] = _with_scales(graph, made[at], scale, shift, tensors)
    return replace(graph, operators=tuple(made), tensors=tuple(tensors))


def _affine(graph: Graph, operator: Operator) -> tuple[str, Floats, Floats] | None:
    """What an operator reads, and its scale and shift by channel; None of any other operator."""
    kind, given = operator.kind, [graph.tensor.get(n) for n in operator.inputs]
    y = graph.tensor[operator.outputs[0]]
    if kind not in ("BatchNormalization", "Mul", "Add") or y.dtype != "float32" or len(y.shape) < 2:
        return None
    channels = y.shape[1]
    data = [t.data if t is not None else None for t in given]
    if kind == "BatchNormalization":
        if any(d is None for d in data[1:]) or operator.attributes.get("training_mode", 0):
            return None
        gain, beta, mean, variance = (np.asarray(d, np.float64) for d in data[1:])
        epsilon = operator.attributes.get("epsilon", float(np.float32(1e-5)))
        assert isinstance(epsilon, float)
        scale = gain / np.sqrt(variance + epsilon)
        return operator.inputs[0], scale, beta - mean * scale
    for n in (0, 1):
        constant, other = data[1 - n], given[n]
        if constant is None or other is None or other.data is not None or other.shape != y.shape:
            continue
        shape = (1,) * (len(y.shape) - constant.ndim) + constant.shape
        if shape != (1, channels, *[1] * (len(y.shape) - 2)):
            continue
        values = np.reshape(constant.astype(np.float64), channels)
        if kind == "Mul":
            return other.name, values, np.zeros(channels)
        return other.name, np.ones(channels), values
    return None


def _takes_scales(graph: Graph, operator: Operator) -> bool:
    """Whether it is a convolution by constants."""
    return operator.kind == "Conv" and all(
        graph.tensor[n].data is not None for n in operator.inputs[1:] if n
    )


def _with_scales(
    graph: Graph, operator: Operator, scale: Floats, shift: Floats, tensors: list[Tensor]
) -> Operator:
    """The operator with its constants, which are added to the tensors."""
    names: list[str] = []

    def add(values: Floats) -> None:
        names.append(f"{operator.outputs[0]}#{len(names)}")
        data = values.astype(np.float32)
        tensors.append(Tensor(names[-1], data.shape, "float32", len(tensors), None, data))

    if operator.kind == "Conv":
        weights = graph.tensor[operator.inputs[1]].data
        assert weights is not None
        add(weights.astype(np.float64) * np.reshape(scale, (-1, *[1] * (weights.ndim - 1))))
        if len(operator.inputs) > 2 and operator.inputs[2]:
            bias = graph.tensor[operator.inputs[2]].data
            assert bias is not None
            shift = shift + bias.astype(np.float64) * scale
    else:
        add(scale)
    add(shift)
    attributes = {**operator.attributes, "folded": 1}
    return replace(operator, inputs=(*operator.inputs[:1], *names), attributes=attributes)


# --- activations ----------------------------------------------------------------------------------


def _fused(graph: Graph) -> Graph:
    """Activations as a part of the operator whose result they alone read."""
    read = _readers(graph)
    made: list[Operator] = []
    last: dict[str, int] = {}
    for operator in graph.operators:
        x = next(iter(operator.inputs), "")
        at = last.get(x, -1)
        if operator.kind in FUNCTIONS and at >= 0 and read[x] == 1:
            before = made[at]
            if before.kind in FUSING and "fused" not in before.attributes:
                try:
                    said = expression(Statements(graph, operator), FUNCTIONS[operator.kind])
                except UnsupportedError:
                    said = ""  # The table refuses it by itself.
                if said:
                    found = {**before.attributes, "fused": said}
                    made[at] = replace(before, outputs=operator.outputs, attributes=found)
                    last[operator.outputs[0]] = at
                    continue
        last.update(dict.fromkeys(operator.outputs, len(made)))
        made.append(operator)
    return replace(graph, operators=tuple(made))
