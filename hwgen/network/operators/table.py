"""The table of operators, and the layers of a graph by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.errors import HwgenError, Location
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.elementwise import add
from hwgen.network.operators.layer import Layer, UnsupportedError, alias, need
from hwgen.network.operators.pooling import average_pool2d, max_pool2d
from hwgen.network.operators.products import conv2d, depthwise_conv2d, fully_connected
from hwgen.network.operators.softmax import softmax

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


def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """A layer for each operator, in the graph's order.

    Raises:
        HwgenError: H803 with every operator, input and output that has no statements here.
    """
    layers: list[Layer] = []
    refused = [
        f"{role} {name}: {graph.tensor[name].dtype}"
        for role, names in (("input", graph.inputs), ("output", graph.outputs))
        for name in names
        if graph.tensor[name].dtype != "int8"
    ]
    refused += [
        f"output {n}: a constant" for n in graph.outputs if graph.tensor[n].data is not None
    ]
    for operator in graph.operators:
        entry = OPERATORS.get(operator.kind)
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
            allowed=f"{', '.join(sorted(OPERATORS))}, on int8",
            repair="convert the model with full int8 quantisation, and replace the others in it",
        )
    return tuple(layers)
