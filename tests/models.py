"""Small TensorFlow Lite models, written with the schema's own builders; and their runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]

HAVE_READER = find_spec("tflite") is not None
WITH_READER = pytest.mark.skipif(not HAVE_READER, reason="package tflite is not installed")
WITH_RUNTIME = pytest.mark.skipif(
    not HAVE_READER or find_spec("tflite_micro") is None,
    reason="packages tflite and tflite-micro are not installed",
)


@dataclass(frozen=True)
class TensorOf:
    """A tensor; `scales`: none for one without quantisation; `data`: of a constant."""

    shape: Sequence[int]
    dtype: str = "int8"
    scales: Sequence[float] = ()
    zero: int = 0
    axis: int = 0
    data: Array | None = None


@dataclass(frozen=True)
class OperatorOf:
    """An operator. `options`: the fields of its table, by the schema's names."""

    code: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def model(
    tensors: Sequence[TensorOf],
    operators: Sequence[OperatorOf],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> bytes:
    """The file."""
    s: Any = import_module("tflite")
    b: Any = import_module("flatbuffers").Builder(1024)

    def numbers(start: Any, values: Sequence[float], prepend: Any) -> Any:
        start(b, len(values))
        for value in reversed(values):
            prepend(value)
        return b.EndVector()

    def offsets(start: Any, made: Sequence[Any]) -> Any:
        return numbers(start, made, b.PrependUOffsetTRelative)

    empty = _table(s, b, "Buffer", {})
    buffers = [empty]
    made: list[Any] = []
    for n, t in enumerate(tensors):
        place = 0
        if t.data is not None:
            stored = b.CreateByteVector(np.ascontiguousarray(t.data).tobytes())
            place = len(buffers)
            buffers.append(_table(s, b, "Buffer", {"Data": stored}))
        quantisation: dict[str, Any] = {}
        if t.scales:
            start = s.QuantizationParametersStartScaleVector
            scales = numbers(start, list(t.scales), b.PrependFloat32)
            start = s.QuantizationParametersStartZeroPointVector
            zeros = numbers(start, [t.zero] * len(t.scales), b.PrependInt64)
            given = {"Scale": scales, "ZeroPoint": zeros, "QuantizedDimension": t.axis}
            quantisation = {"Quantization": _table(s, b, "QuantizationParameters", given)}
        fields = {
            "Shape": numbers(s.TensorStartShapeVector, list(t.shape), b.PrependInt32),
            "Type": getattr(s.TensorType, t.dtype.upper()),
            "Buffer": place,
            "Name": b.CreateString(f"tensor_{n}"),
            **quantisation,
        }
        made.append(_table(s, b, "Tensor", fields))
    words = list(dict.fromkeys(o.code for o in operators))
    codes = [_code(s, b, word) for word in words]
    steps: list[Any] = []
    for o in operators:
        fields = {
            "OpcodeIndex": words.index(o.code),
            "Inputs": numbers(s.OperatorStartInputsVector, list(o.inputs), b.PrependInt32),
            "Outputs": numbers(s.OperatorStartOutputsVector, list(o.outputs), b.PrependInt32),
        }
        if o.table:
            fields["BuiltinOptions"] = _table(s, b, o.table, o.options)
            fields["BuiltinOptionsType"] = getattr(s.BuiltinOptions, o.table)
        steps.append(_table(s, b, "Operator", fields))
    fields = {
        "Tensors": offsets(s.SubGraphStartTensorsVector, made),
        "Inputs": numbers(s.SubGraphStartInputsVector, list(inputs), b.PrependInt32),
        "Outputs": numbers(s.SubGraphStartOutputsVector, list(outputs), b.PrependInt32),
        "Operators": offsets(s.SubGraphStartOperatorsVector, steps),
    }
    part = _table(s, b, "SubGraph", fields)
    fields = {
        "Subgraphs": offsets(s.ModelStartSubgraphsVector, [part]),
        "OperatorCodes": offsets(s.ModelStartOperatorCodesVector, codes),
        "Buffers": offsets(s.ModelStartBuffersVector, buffers),
        "Version": 3,
    }
    b.Finish(_table(s, b, "Model", fields), b"TFL3")
    return bytes(b.Output())


def _table(schema: Any, builder: Any, name: str, fields: Mapping[str, Any]) -> Any:
    getattr(schema, f"{name}Start")(builder)
    for key, value in fields.items():
        getattr(schema, f"{name}Add{key}")(builder, value)
    return getattr(schema, f"{name}End")(builder)


def _code(schema: Any, builder: Any, word: str) -> Any:
    number = getattr(schema.BuiltinOperator, word)
    fields = {"BuiltinCode": number, "DeprecatedBuiltinCode": min(number, 127), "Version": 1}
    return _table(schema, builder, "OperatorCode", fields)


class Runtime:
    """TFLite Micro's interpreter for a model."""

    def __init__(self, content: bytes) -> None:
        runtime: Any = import_module("tflite_micro").runtime
        self._made: Any = runtime.Interpreter.from_bytes(content)

    def __call__(self, *inputs: Array) -> Array:
        """The first output."""
        for n, values in enumerate(inputs):
            self._made.set_input(values, n)
        self._made.invoke()
        return np.array(self._made.get_output(0))


# --- layers with random numbers -------------------------------------------------------------------


def drawn(rng: np.random.Generator, shape: Sequence[int], low: int, high: int, kind: str) -> Array:
    """Integers from `low` to `high`, both included."""
    return rng.integers(low, high, shape, endpoint=True).astype(kind)


def convolution(
    rng: np.random.Generator,
    image: tuple[int, int, int],
    kernel: tuple[int, int],
    channels: int,
    *,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    same: bool = True,
    activation: int = 0,
    per_channel: bool = True,
    bias: bool = True,
    batch: int = 1,
    multiplier: int = 0,
) -> bytes:
    """A convolution; with a `multiplier`, a depthwise one of so many channels for each."""
    h, w, c = image
    depthwise = multiplier > 0
    if depthwise:
        channels = c * multiplier
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [
        -(-n // s) if same else (n - r) // s + 1
        for n, s, r in zip((h, w), strides, reach, strict=True)
    ]
    shape = (1, *kernel, channels) if depthwise else (channels, *kernel, c)
    axis = 3 if depthwise else 0
    scales = rng.uniform(0.002, 0.02, channels if per_channel else 1)
    taps = kernel[0] * kernel[1] * (1 if depthwise else c)
    output = float(np.mean(scales)) * 0.05 * 70 * 40 * np.sqrt(taps) / 100
    tensors = [
        TensorOf((batch, h, w, c), scales=[0.05], zero=int(rng.integers(-128, 128))),
        TensorOf(shape, scales=list(scales), axis=axis, data=drawn(rng, shape, -127, 127, "int8")),
        TensorOf((batch, *out, channels), scales=[output], zero=int(rng.integers(-60, 60))),
    ]
    inputs = [0, 1]
    if bias:
        sums = drawn(rng, (channels,), -5000, 5000, "int32")
        biases = [0.05 * s for s in scales]
        tensors.append(TensorOf((channels,), "int32", scales=biases, data=sums))
        inputs.append(3)
    options = {
        "Padding": 0 if same else 1, "StrideH": strides[0], "StrideW": strides[1],
        "DilationHFactor": dilations[0], "DilationWFactor": dilations[1],
        "FusedActivationFunction": activation,
    }  # fmt: skip
    if depthwise:
        options["DepthMultiplier"] = multiplier
    word, table = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else (
        "CONV_2D", "Conv2DOptions")  # fmt: skip
    return model(tensors, [OperatorOf(word, inputs, [2], table, options)], [0], [2])


def fully_connected(
    rng: np.random.Generator,
    rows: int,
    depth: int,
    outputs: int,
    *,
    activation: int = 0,
    per_channel: bool = False,
    bias: bool = True,
) -> bytes:
    """A fully connected layer."""
    scales = list(rng.uniform(0.002, 0.02, outputs if per_channel else 1))
    weights = drawn(rng, (outputs, depth), -127, 127, "int8")
    tensors = [
        TensorOf((rows, depth), scales=[0.05], zero=int(rng.integers(-128, 128))),
        TensorOf((outputs, depth), scales=scales, data=weights),
        TensorOf((rows, outputs), scales=[0.01 * float(np.sqrt(depth))], zero=3),
    ]
    inputs = [0, 1]
    if bias:
        sums = drawn(rng, (outputs,), -5000, 5000, "int32")
        tensors.append(TensorOf((outputs,), "int32", scales=[0.05 * s for s in scales], data=sums))
        inputs.append(3)
    options = {"FusedActivationFunction": activation}
    made = OperatorOf("FULLY_CONNECTED", inputs, [2], "FullyConnectedOptions", options)
    return model(tensors, [made], [0], [2])


def pool(
    image: tuple[int, int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    *,
    same: bool,
    average: bool,
    activation: int = 0,
) -> bytes:
    """A pooling layer."""
    out = [
        -(-n // s) if same else (n - k) // s + 1
        for n, k, s in zip(image[:2], window, strides, strict=True)
    ]
    tensors = [
        TensorOf((1, *image), scales=[0.1], zero=-7),
        TensorOf((1, *out, image[2]), scales=[0.1], zero=-7),
    ]
    options = {
        "Padding": 0 if same else 1, "StrideH": strides[0], "StrideW": strides[1],
        "FilterHeight": window[0], "FilterWidth": window[1], "FusedActivationFunction": activation,
    }  # fmt: skip
    word = "AVERAGE_POOL_2D" if average else "MAX_POOL_2D"
    return model(tensors, [OperatorOf(word, [0], [1], "Pool2DOptions", options)], [0], [1])


def add(scales: tuple[float, float, float], zeros: tuple[int, int, int], activation: int) -> bytes:
    """A sum of two tensors: scales and zero points of both and of the output."""
    shape = (1, 5, 3, 4)
    tensors = [TensorOf(shape, scales=[s], zero=z) for s, z in zip(scales, zeros, strict=True)]
    options = {"FusedActivationFunction": activation}
    return model(tensors, [OperatorOf("ADD", [0, 1], [2], "AddOptions", options)], [0, 1], [2])


def softmax(rows: int, columns: int, scale: float, beta: float) -> bytes:
    """A softmax."""
    tensors = [
        TensorOf((rows, columns), scales=[scale], zero=5),
        TensorOf((rows, columns), scales=[1 / 256], zero=-128),
    ]
    made = OperatorOf("SOFTMAX", [0], [1], "SoftmaxOptions", {"Beta": beta})
    return model(tensors, [made], [0], [1])


def small_network(seed: int = 0) -> bytes:
    """A convolution and a depthwise one, added to what it reads; their average, a fully connected
    layer and a softmax: every kind of layer, in some thousand products."""
    rng = np.random.default_rng(seed)
    scales = [list(rng.uniform(0.002, 0.01, 8)) for _ in range(2)]
    tensors = [
        TensorOf((1, 8, 8, 3), scales=[0.05], zero=-11),
        TensorOf((8, 3, 3, 3), scales=scales[0], data=drawn(rng, (8, 3, 3, 3), -127, 127, "int8")),
        TensorOf(
            (8,), "int32", scales=[0.05 * s for s in scales[0]],
            data=drawn(rng, (8,), -3000, 3000, "int32"),
        ),
        TensorOf((1, 4, 4, 8), scales=[0.1], zero=-128),
        TensorOf(
            (1, 3, 3, 8), scales=scales[1], axis=3, data=drawn(rng, (1, 3, 3, 8), -127, 127, "int8")
        ),
        TensorOf(
            (8,), "int32", scales=[0.1 * s for s in scales[1]],
            data=drawn(rng, (8,), -3000, 3000, "int32"),
        ),
        TensorOf((1, 4, 4, 8), scales=[0.08], zero=4),
        TensorOf((1, 4, 4, 8), scales=[0.12], zero=-3),
        TensorOf((1, 1, 1, 8), scales=[0.12], zero=-3),
        TensorOf((1, 8), scales=[0.12], zero=-3),
        TensorOf((4, 8), scales=[0.01], data=drawn(rng, (4, 8), -127, 127, "int8")),
        TensorOf((4,), "int32", scales=[0.0012], data=drawn(rng, (4,), -300, 300, "int32")),
        TensorOf((1, 4), scales=[0.1], zero=2),
        TensorOf((1, 4), scales=[1 / 256], zero=-128),
        TensorOf((2,), "int32", data=np.array([1, 8], np.int32)),
    ]  # fmt: skip
    window = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    deep = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DepthMultiplier": 1}
    ones = {"DilationHFactor": 1, "DilationWFactor": 1}
    average = {"Padding": 1, "StrideH": 4, "StrideW": 4, "FilterHeight": 4, "FilterWidth": 4}
    operators = [
        OperatorOf("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", window | ones),
        OperatorOf("DEPTHWISE_CONV_2D", [3, 4, 5], [6], "DepthwiseConv2DOptions", deep | ones),
        OperatorOf("ADD", [6, 3], [7], "AddOptions"),
        OperatorOf("AVERAGE_POOL_2D", [7], [8], "Pool2DOptions", average),
        OperatorOf("RESHAPE", [8, 14], [9], "ReshapeOptions"),
        OperatorOf("FULLY_CONNECTED", [9, 10, 11], [12], "FullyConnectedOptions"),
        OperatorOf("SOFTMAX", [12], [13], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return model(tensors, operators, [0], [13])
