"""Softmax, by the statements of the shipped workload `quantised/softmax`.

Reference: tensorflow/lite/micro/kernels/softmax_common.cc (CalculateSoftmaxParams), and
PreprocessSoftmaxScaling and CalculateInputRadius of
tensorflow/lite/kernels/internal/quantization_util.cc, of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from functools import cache
from math import floor
from typing import Any, cast

from hwgen.network.graph import Graph, Operator, Tensor
from hwgen.network.operators.layer import (
    Computation,
    Layer,
    Loops,
    need,
    result,
    same_type,
    scale_of,
    stated,
    tensors,
    typed,
)
from hwgen.network.operators.rescaling import quantised_multiplier
from hwgen.spec.find import find_workload
from hwgen.spec.source import read_document

_INTEGER_BITS = 5
"""Of the distances from the maximum, in Q5.26."""


def softmax(graph: Graph, operator: Operator) -> Layer:
    """Softmax over the last dimension, from int8 to int8 of scale 1/256."""
    (x,), y = tensors(graph, operator, 1), result(graph, operator)
    dtype, columns = same_type(x, y), (0, *x.shape)[-1]
    need(x.shape == y.shape and bool(x.shape), "shapes that do not agree")
    beta = operator.attributes.get("beta")
    need(isinstance(beta, float) and 0.0 < beta < float("inf"), "no beta")
    assert isinstance(beta, float)
    if dtype == "float32":
        return _of_floats(operator, x, y, columns, beta)
    need(dtype == "int8", "int16, whose tables are beyond the statements")
    scale, _ = scale_of(x)
    need(scale_of(y) == (1 / 256, -128), "an output that is not of scale 1/256")
    need(columns < 500, "rows of 500 elements and more")
    real = min(beta * scale * (1 << (31 - _INTEGER_BITS)), (1 << 31) - 1.0)
    multiplier, shift = quantised_multiplier(real)
    need(0 <= shift <= 30, f"a factor of {real}")
    radius = floor(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / (1 << shift))
    rows = x.elements // columns
    sizes = {"M": rows, "N": columns, "MUL": multiplier, "SHIFT": shift, "MIN": -radius}
    shipped = _shipped()
    own = {**shipped["sizes"], **sizes}
    computation = Computation(
        operator.kind,
        tuple((name, int(value)) for name, value in own.items()),
        tuple((name, text) for name, text in shipped["tensors"].items()),
        (),
        tuple(map(_statement, shipped["compute"])),
    )
    return Layer(operator, computation, (("x", x.name),), ("y", y.name))


def _of_floats(operator: Operator, x: Tensor, y: Tensor, columns: int, beta: float) -> Layer:
    shape = (x.elements // columns, columns)
    scaled = (
        "e[i, j] = exp((x[i, j] - most[i]) * {beta!r})"
        if beta != 1.0
        else ("e[i, j] = exp(x[i, j] - most[i])")
    )
    types = {"most": shape[:1], "e": shape, "total": shape[:1]}
    return stated(
        operator,
        {"x": (x, shape)},
        {name: typed("float32", own) for name, own in types.items()},
        (y, shape),
        (
            "most[i] max= x[i, j]",
            scaled.format(beta=beta),
            "total[i] += e[i, j]",
            "y[i, j] = e[i, j] / total[i]",
        ),
    )


def _statement(given: Any) -> str | Loops:
    if isinstance(given, str):
        return given
    return Loops(given["do"], tuple((name, str(extent)) for name, extent in given["loops"].items()))


@cache
def _shipped() -> dict[str, Any]:
    return cast("dict[str, Any]", read_document(find_workload("quantised/softmax")).data)
