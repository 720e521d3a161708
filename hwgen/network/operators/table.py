"""The table of operators, and the layers of a graph by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.errors import HwgenError, Location
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.elementwise import add
from hwgen.network.operators.layer import Layer, UnsupportedError, alias, need
from hwgen.network.operators.onnx_table import ONNX
from hwgen.network.operators.pooling import average_pool2d, max_pool2d
from hwgen.network.operators.products import conv2d, depthwise_conv2d, fully_connected
from hwgen.network.operators.softmax import softmax
from hwgen.spec.expression import DTYPES

Entry = Callable[[Graph, Operator], Layer]

OPERATORS: Mapping[str, Entry] = {
    "add": add,
    "average_pool2d": average_pool2d,
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "fully_connected": fully_connected,
    "max_pool2d": max_pool2d,
    "reshape": alias,
    "softmax": softmax,
}
"""A new operator is one function and one line here."""
TABLES: Mapping[str, Mapping[str, Entry]] = {"onnx": ONNX, "tflite": OPERATORS}
"""By format."""
_TYPES = tuple(t for t in DTYPES if t not in ("float16", "bfloat16"))
"""Types of ONNX models' inputs and outputs."""


def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """A layer for each operator, in the graph's order.

    Raises:
        HwgenError: H803 with every operator, input and output that has no statements here.
    """
    layers: list[Layer] = []
    table = TABLES[graph.format]
    refused = [
        f"{role} {name}: {graph.tensor[name].dtype}"
        for role, names in (("input", graph.inputs), ("output", graph.outputs))
        for name in names
        if graph.tensor[name].dtype not in (_TYPES if graph.format == "onnx" else ("int8",))
    ]
    refused += [
        f"output {n}: a constant" for n in graph.outputs if graph.tensor[n].data is not None
    ]
    for operator in graph.operators:
        entry = table.get(operator.kind)
        try:
            if entry is None:
                raise UnsupportedError("hwgen has no such operator")
            made = entry(graph, operator)
            computed = all(graph.tensor[name].data is None for _, name in made.inputs)
            need(computed, "a constant input")
            layers.append(made)
        except UnsupportedError as error:
            refused.append(f"{operator}: {error}")
    if refused:
        raise HwgenError(
            "H803",
            f"{graph.name} has parts that cannot be compiled",
            location=Location(graph.file),
            found="\n".join(refused),
            allowed=f"{', '.join(sorted(table))}{', on int8' * (graph.format == 'tflite')}",
            repair="replace the others in the model"
            if graph.format == "onnx"
            else "convert the model with full int8 quantisation, and replace the others in it",
        )
    return tuple(layers)
