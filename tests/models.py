"""Small TensorFlow Lite models, written with the schema's own builders; and their runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        return self.outputs(inputs, 1)[0]

    def outputs(self, inputs: Sequence[Array], count: int) -> list[Array]:
        """The first outputs."""
        for n, values in enumerate(inputs):
            self._made.set_input(values, n)
        self._made.invoke()
        return [np.array(self._made.get_output(n)) for n in range(count)]


# --- layers with random numbers -------------------------------------------------------------------


def drawn(rng: np.random.Generator, shape: Sequence[int], low: int, high: int, kind: str) -> Array:
    """Integers from `low` to `high`, both included."""
    return rng.integers(low, high, shape, endpoint=True).astype(kind)


def single(
    code: str,
    given: Sequence[TensorOf],
    made: Sequence[TensorOf],
    table: str = "",
    **options: Any,
) -> bytes:
    """A model of one operator; the inputs without data are the model's."""
    places = range(len(given), len(given) + len(made))
    operator = OperatorOf(code, range(len(given)), places, table, options)
    inputs = [n for n, t in enumerate(given) if t.data is None]
    return model([*given, *made], [operator], inputs, places)


def number(*values: int) -> TensorOf:
    """A constant row of integers."""
    return TensorOf((len(values),), "int32", data=np.array(values, np.int32))


def scaled(shape: Sequence[int], scale: float, zero: int = 0, dtype: str = "int8") -> TensorOf:
    """A computed tensor; a float has no scale."""
    if dtype == "float32":
        return TensorOf(shape, dtype)
    return TensorOf(shape, dtype, [scale], 0 if dtype == "int16" else zero)


def weights_of(rng: np.random.Generator, shape: Sequence[int], scales: Sequence[float],
               axis: int, dtype: str) -> TensorOf:  # fmt: skip
    """Weights for activations of a type."""
    if dtype == "float32":
        return TensorOf(shape, dtype, data=rng.normal(size=shape).astype(np.float32))
    data = drawn(rng, shape, -127, 127, "int8")
    return TensorOf(shape, scales=scales, axis=axis, data=data)


def biases_of(rng: np.random.Generator, scales: Sequence[float], count: int,
              dtype: str) -> TensorOf:  # fmt: skip
    """Biases; `scales`: those of the sums."""
    if dtype == "float32":
        return TensorOf((count,), dtype, data=rng.normal(size=count).astype(np.float32))
    kind = "int64" if dtype == "int16" else "int32"
    data = drawn(rng, (count,), -5000, 5000, kind)
    return TensorOf((count,), kind, scales=scales, data=data)


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
    dtype: str = "int8",
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
    scales = list(rng.uniform(0.002, 0.02, channels if per_channel else 1))
    taps = kernel[0] * kernel[1] * (1 if depthwise else c)
    output = float(np.mean(scales)) * 0.05 * 70 * 40 * np.sqrt(taps) / 100
    tensors = [
        scaled((batch, h, w, c), 0.05, int(rng.integers(-128, 128)), dtype),
        weights_of(rng, shape, scales, axis, dtype),
        scaled((batch, *out, channels), output, int(rng.integers(-60, 60)), dtype),
    ]
    inputs = [0, 1]
    if bias:
        tensors.append(biases_of(rng, [0.05 * s for s in scales], channels, dtype))
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
    dtype: str = "int8",
) -> bytes:
    """A fully connected layer."""
    scales = list(rng.uniform(0.002, 0.02, outputs if per_channel else 1))
    tensors = [
        scaled((rows, depth), 0.05, int(rng.integers(-128, 128)), dtype),
        weights_of(rng, (outputs, depth), scales, 0, dtype),
        scaled((rows, outputs), 0.01 * float(np.sqrt(depth)), 3, dtype),
    ]
    inputs = [0, 1]
    if bias:
        tensors.append(biases_of(rng, [0.05 * s for s in scales], outputs, dtype))
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
    dtype: str = "int8",
    batch: int = 1,
) -> bytes:
    """A pooling layer."""
    out = [
        -(-n // s) if same else (n - k) // s + 1
        for n, k, s in zip(image[:2], window, strides, strict=True)
    ]
    tensors = [
        scaled((batch, *image), 0.1, -7, dtype),
        scaled((batch, *out, image[2]), 0.1, -7, dtype),
    ]
    options = {
        "Padding": 0 if same else 1, "StrideH": strides[0], "StrideW": strides[1],
        "FilterHeight": window[0], "FilterWidth": window[1], "FusedActivationFunction": activation,
    }  # fmt: skip
    word = "AVERAGE_POOL_2D" if average else "MAX_POOL_2D"
    return model(tensors, [OperatorOf(word, [0], [1], "Pool2DOptions", options)], [0], [1])


def binary(
    code: str,
    scales: tuple[float, float, float],
    zeros: tuple[int, int, int] = (0, 0, 0),
    *,
    activation: int | None = 0,
    shapes: tuple[Sequence[int], Sequence[int]] = ((1, 5, 3, 4), (1, 5, 3, 4)),
    constant: int | None = None,
    dtype: str = "int8",
) -> bytes:
    """An operator on two tensors: scales and zero points of both and of the output. `constant`:
    which of them is one; `activation`: none for an operator without."""
    both = np.broadcast_shapes(*map(tuple, shapes))
    tensors = [scaled(*t, dtype) for t in zip((*shapes, both), scales, zeros, strict=True)]
    if constant is not None:
        rng, t = np.random.default_rng(9), tensors[constant]
        data = rng.normal(size=t.shape) if dtype == "float32" else rng.integers(-128, 128, t.shape)
        tensors[constant] = replace(t, data=data.astype(dtype))
    given, made = tensors[:2], tensors[2:]
    if activation is None:
        return single(code, given, made)
    table = f"{code.capitalize()}Options"
    return single(code, given, made, table, FusedActivationFunction=activation)


def softmax(rows: int, columns: int, scale: float, beta: float, dtype: str = "int8") -> bytes:
    """A softmax."""
    x, y = (scaled((rows, columns), *s, dtype) for s in ((scale, 5), (1 / 256, -128)))
    return single("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=beta)


def transposed(
    rng: np.random.Generator,
    image: tuple[int, int, int],
    kernel: tuple[int, int],
    channels: int,
    strides: tuple[int, int],
    *,
    same: bool = True,
    batch: int = 1,
    dtype: str = "int8",
) -> bytes:
    """A transposed convolution."""
    h, w, c = image
    out = [
        n * s if same else (n - 1) * s + max(k, s)
        for n, s, k in zip((h, w), strides, kernel, strict=True)
    ]
    scales = list(rng.uniform(0.002, 0.02, channels))
    shape = (channels, *kernel, c)
    given = [
        number(batch, *out, channels),
        weights_of(rng, shape, scales, 0, dtype),
        scaled((batch, h, w, c), 0.05, int(rng.integers(-128, 128)), dtype),
        biases_of(rng, [0.05 * s for s in scales], channels, dtype),
    ]
    made = scaled((batch, *out, channels), 0.02 * np.sqrt(kernel[0] * kernel[1] * c), 5, dtype)
    options = {"Padding": 0 if same else 1, "StrideH": strides[0], "StrideW": strides[1]}
    return single("TRANSPOSE_CONV", given, [made], "TransposeConvOptions", **options)


def strided(
    shape: Sequence[int],
    rows: Sequence[Sequence[int]],
    made: Sequence[int],
    masks: tuple[int, int, int] = (0, 0, 0),
    dtype: str = "int8",
) -> bytes:
    """A strided slice: beginnings, ends and strides; masks of beginnings, ends and shrinking."""
    given = [scaled(shape, 0.1, 3, dtype), *(number(*row) for row in rows)]
    words = ("BeginMask", "EndMask", "ShrinkAxisMask")
    options = dict(zip(words, masks, strict=True))
    y = scaled(made, 0.1, 3, dtype)
    return single("STRIDED_SLICE", given, [y], "StridedSliceOptions", **options)


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
