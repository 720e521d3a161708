"""The table of operators, and the layers of a graph by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwgen.errors import HwgenError, Location
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.from_onnx import ONNX
from hwgen.network.operators.from_tflite import OPERATORS
from hwgen.network.operators.layer import Layer, UnsupportedError
from hwgen.network.operators.statements import Statements
from hwgen.spec.expression import DTYPES

TABLES: Mapping[str, Mapping[str, Callable[[Statements], Layer]]] = {
    "onnx": ONNX,
    "tflite": OPERATORS,
}
"""By format: by operator, the template that it is, with its attributes."""
_SEVERAL = ("LayerNormalization", "Split", "split", "split_v")
"""Operators that have a layer for each output."""
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
    for operator in _parts(graph):
        entry = table.get(operator.kind)
        try:
            if entry is None:
                raise UnsupportedError("hwgen has no such operator")
            layers.append(entry(Statements(graph, operator)))
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


def _parts(graph: Graph) -> Iterator[Operator]:
    """The operators, one for each output that is read. `output`: its number; `before`: how many
    elements the outputs before it have."""
    read = Counter((*graph.outputs, *(n for o in graph.operators for n in o.inputs)))
    for operator in graph.operators:
        before = 0
        if operator.kind not in _SEVERAL:
            yield operator
            continue
        for number, name in enumerate(operator.outputs):
            if read[name]:
                found = {**operator.attributes, "output": number, "before": before}
                yield replace(operator, outputs=(name,), attributes=found)
            before += graph.tensor[name].elements if name else 0
