"""The table of operators, and the layers of a graph by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.errors import HwgenError, Location
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators import elementwise, moving, pooling, products, tables
from hwgen.network.operators.layer import Layer, UnsupportedError, alias, need
from hwgen.network.operators.onnx_table import ONNX
from hwgen.network.operators.softmax import softmax
from hwgen.spec.expression import DTYPES

Entry = Callable[[Graph, Operator], Layer | tuple[Layer, ...]]
"""A layer for each output."""

OPERATORS: Mapping[str, Entry] = {
    "add": elementwise.add,
    "average_pool2d": pooling.average_pool2d,
    "concatenation": moving.concatenation,
    "conv2d": products.conv2d,
    "depthwise_conv2d": products.depthwise_conv2d,
    "dequantize": elementwise.dequantize,
    "fully_connected": products.fully_connected,
    "leaky_relu": elementwise.leaky_relu,
    "logistic": tables.logistic,
    "max_pool2d": pooling.max_pool2d,
    "maximum": elementwise.maximum,
    "mean": pooling.mean,
    "minimum": elementwise.minimum,
    "mul": elementwise.mul,
    "pad": moving.pad,
    "prelu": elementwise.prelu,
    "quantize": elementwise.quantize,
    "reduce_max": pooling.reduce_max,
    "reduce_min": pooling.reduce_min,
    "relu": elementwise.relu,
    "reshape": alias,
    "resize_nearest_neighbor": moving.resize_nearest_neighbor,
    "slice": moving.slice_,
    "softmax": softmax,
    "split": moving.split,
    "split_v": moving.split_v,
    "strided_slice": moving.strided_slice,
    "sub": elementwise.sub,
    "sum": pooling.sum_,
    "tanh": tables.tanh,
    "transpose_conv": products.transpose_conv,
}
"""A new operator is one function and one line here."""
TABLES: Mapping[str, Mapping[str, Entry]] = {"onnx": ONNX, "tflite": OPERATORS}
"""By format."""
_TYPES = tuple(t for t in DTYPES if t not in ("float16", "bfloat16"))
"""Types of models' inputs and outputs."""


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
        if graph.tensor[name].dtype not in _TYPES
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
            for layer in made if isinstance(made, tuple) else (made,):
                computed = all(graph.tensor[name].data is None for _, name in layer.inputs)
                need(computed and bool(layer.inputs), "a constant input")
                layers.append(layer)
        except UnsupportedError as error:
            refused.append(f"{operator}: {error}")
    if refused:
        types = ", on int8, int16 and float32" * (graph.format == "tflite")
        raise HwgenError(
            "H803",
            f"{graph.name} has parts that cannot be compiled",
            location=Location(graph.file),
            found="\n".join(refused),
            allowed=", ".join(sorted(table)) + types,
            repair="replace these parts of the model, or add entries to the table of operators",
        )
    return tuple(layers)
