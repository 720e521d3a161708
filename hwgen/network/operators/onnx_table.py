"""The table of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators import (
    onnx_elementwise,
    onnx_moves,
    onnx_quantised,
    onnx_sums,
    onnx_windows,
)
from hwgen.network.operators.layer import Layer, alias, constant, need

_ALIASES = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def dropout(graph: Graph, operator: Operator) -> Layer:
    """The input as it is: nothing is left out where nothing is learnt."""
    training = operator.inputs[2] if len(operator.inputs) > 2 else ""
    if training:
        need(not constant(graph.tensor[training], "modes").any(), "training")
    return alias(graph, operator)


ONNX: Mapping[str, Callable[[Graph, Operator], Layer]] = {
    **onnx_elementwise.ENTRIES,
    **onnx_moves.ENTRIES,
    **onnx_quantised.ENTRIES,
    **onnx_sums.ENTRIES,
    **onnx_windows.ENTRIES,
    **dict.fromkeys(_ALIASES, alias),
    "Dropout": dropout,
}
"""A new operator is one function and one line in its file's entries."""
