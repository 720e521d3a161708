"""TensorFlow Lite models as graphs, by the schema's own reader (package `tflite`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hwgen.errors import HwgenError
from hwgen.network.byte_order import from_little_endian
from hwgen.network.graph import Attribute, Graph, Operator, Quantisation, Tensor, damaged
from hwgen.packages import needed
from hwgen.spec.expression import DTYPES

_DAMAGED = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    KeyError,
)
"""Errors of the schema's reader where offsets lead nowhere."""
_MOST_ELEMENTS = 1 << 31

Attributes = dict[str, Attribute]
R = TypeVar("R")


def read_tflite(path: Path, name: str) -> Graph:
    """The graph of a `.tflite` file.

    Raises:
        HwgenError: H801 no such model, a damaged one, or one of several subgraphs; H046 without the
            package `tflite`.
    """
    schema = needed("tflite", "reads TensorFlow Lite models", "tflite")
    content = path.read_bytes()
    if len(content) < 8 or content[4:8] != b"TFL3":
        raise _damaged(path, "no TensorFlow Lite identifier (TFL3) at byte 4")
    try:
        model = schema.Model.GetRootAsModel(content, 0)
        if model.SubgraphsLength() != 1:
            raise _damaged(path, f"{model.SubgraphsLength()} subgraphs", "models of one subgraph")
        graph = _Reader(schema, model, path, len(content) // 4).graph(name)
    except _DAMAGED as error:
        raise _damaged(path, "offsets that lead nowhere") from error
    graph.check()
    return graph


def _damaged(path: Path, found: str, allowed: str = "") -> HwgenError:
    said = "this TensorFlow Lite model cannot be read"
    return damaged(path, said, found, allowed or "a whole file as converters write it")


class _Reader:
    """The one subgraph of a model. `most`: the longest vector that a file of its size can have."""

    def __init__(self, schema: Any, model: Any, path: Path, most: int) -> None:
        self.schema, self.model, self.path, self.most = schema, model, path, most
        self.part = model.Subgraphs(0)

    def _each(self, length: int, at: Callable[[int], R]) -> list[R]:
        """The elements of a vector."""
        if length > self.most:
            raise _damaged(self.path, f"a vector of {length} elements in a file that is shorter")
        return [at(n) for n in range(length)]

    def graph(self, name: str) -> Graph:
        tensors = self._tensors()
        names = [t.name for t in tensors]

        def named(numbers: list[int]) -> tuple[str, ...]:
            return tuple(names[n] if n >= 0 else "" for n in numbers)

        operators: list[Operator] = []
        part = self.part
        for n, made in enumerate(self._each(part.OperatorsLength(), part.Operators)):
            inputs = named(self._each(made.InputsLength(), made.Inputs))
            outputs = named(self._each(made.OutputsLength(), made.Outputs))
            kind, attributes = self._kind(made)
            operators.append(Operator(kind, n, inputs, outputs, attributes))
        return Graph(
            name,
            str(self.path),
            tuple(tensors),
            tuple(operators),
            named(self._each(part.InputsLength(), part.Inputs)),
            named(self._each(part.OutputsLength(), part.Outputs)),
        )

    def _tensors(self) -> list[Tensor]:
        types = _names_of(self.schema.TensorType)
        found: list[Tensor] = []
        taken: set[str] = {""}
        made_all = self._each(self.part.TensorsLength(), self.part.Tensors)
        for number, made in enumerate(made_all):
            said = (made.Name() or b"").decode("utf-8", "replace")
            name = said if said not in taken else f"{said}#{number}"
            taken.add(name)
            shape = tuple(self._each(made.ShapeLength(), made.Shape))
            if any(n < 1 for n in shape) or prod(shape) > _MOST_ELEMENTS:
                raise _damaged(self.path, f"tensor {name} of shape {list(shape)}", "known shapes")
            dtype = types.get(made.Type(), "?").lower()
            data = self._data(made, name, shape, dtype)
            found.append(Tensor(name, shape, dtype, number, self._quantisation(made), data))
        return found

    def _data(self, made: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        buffer = self.model.Buffers(made.Buffer())
        if not buffer.DataLength() or dtype not in DTYPES:
            return None
        size = DTYPES[dtype]
        raw = buffer.DataAsNumpy()
        if raw.size != prod(shape) * size:
            said = f"tensor {name}: {raw.size} bytes of data for {dtype}{list(shape)}"
            raise _damaged(self.path, said)
        return np.reshape(from_little_endian(raw.tobytes(), dtype), shape)

    def _kind(self, made: Any) -> tuple[str, Attributes]:
        """The kind of an operator and its attributes."""
        code = self.model.OperatorCodes(made.OpcodeIndex())
        if code.CustomCode():
            return f"custom {code.CustomCode().decode('utf-8', 'replace')}", {}
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        word = _names_of(self.schema.BuiltinOperator).get(number, f"operator_{number}")
        kind = _KINDS.get(word, word.lower())
        found: Attributes = {"activation": word.lower()} if kind == "relu" else {}
        given = made.BuiltinOptions()
        if given is None:
            return kind, found
        table = _names_of(self.schema.BuiltinOptions)[made.BuiltinOptionsType()]
        options = getattr(self.schema, table)()
        options.Init(given.Bytes, given.Pos)
        if kind in _ATTRIBUTES:
            found |= _ATTRIBUTES[kind](options)
        if hasattr(options, "FusedActivationFunction"):
            words = _names_of(self.schema.ActivationFunctionType)
            found["activation"] = words.get(options.FusedActivationFunction(), "?").lower()
        return kind, found

    def _quantisation(self, made: Any) -> Quantisation | None:
        given = made.Quantization()
        if given is None or not given.ScaleLength():
            return None
        scales: list[float] = self._each(given.ScaleLength(), given.Scale)
        zeros: list[int] = self._each(given.ZeroPointLength(), given.ZeroPoint)
        if len(zeros) < len(scales):
            zeros = (zeros or [0]) * len(scales)
        return Quantisation(
            tuple(scales), tuple(zeros[: len(scales)]), int(given.QuantizedDimension())
        )


@cache
def _names_of(enumeration: Any) -> dict[int, str]:
    """The words of an enumeration of the schema, by number."""
    members = cast("dict[str, object]", vars(enumeration))
    return {v: k for k, v in members.items() if isinstance(v, int)}


# --- attributes ----------------------------------------------------------------------------------


def _windows(options: Any) -> Attributes:
    """Strides, padding, and what else windows over an image have: dilations, a pool's extents."""
    found: Attributes = {
        "strides": (int(options.StrideH()), int(options.StrideW())),
        "auto_pad": "VALID" if options.Padding() == 1 else "SAME_UPPER",
    }
    if hasattr(options, "DilationHFactor"):
        found["dilations"] = int(options.DilationHFactor()), int(options.DilationWFactor())
    if hasattr(options, "FilterHeight"):
        found["window"] = int(options.FilterHeight()), int(options.FilterWidth())
    return found


def _masks(options: Any) -> Attributes:
    masks = options.EllipsisMask() | options.NewAxisMask() | int(options.Offset())
    return {
        "begin_mask": int(options.BeginMask()),
        "end_mask": int(options.EndMask()),
        "shrink_mask": int(options.ShrinkAxisMask()),
        "other_masks": int(masks),
    }


def _resized(options: Any) -> Attributes:
    corners, centres = options.AlignCorners(), options.HalfPixelCenters()
    return {"align_corners": int(corners), "centres": int(centres)}


_KINDS: Mapping[str, str] = {
    "AVERAGE_POOL_2D": "average_pool2d",
    "CONV_2D": "conv2d",
    "DEPTHWISE_CONV_2D": "depthwise_conv2d",
    "EXPAND_DIMS": "reshape",
    "MAX_POOL_2D": "max_pool2d",
    "PADV2": "pad",
    "RELU6": "relu",
    "RELU_0_TO_1": "relu",
    "RELU_N1_TO_1": "relu",
    "SQUEEZE": "reshape",
}
"""By the schema's word, where the kind is not the same word in small letters."""

_ATTRIBUTES: Mapping[str, Callable[[Any], Attributes]] = {
    "average_pool2d": _windows,
    "concatenation": lambda options: {"axis": int(options.Axis())},
    "conv2d": _windows,
    "depthwise_conv2d": _windows,
    "leaky_relu": lambda options: {"alpha": float(options.Alpha())},
    "max_pool2d": _windows,
    "resize_nearest_neighbor": _resized,
    "softmax": lambda options: {"beta": float(options.Beta())},
    "strided_slice": _masks,
    "transpose_conv": _windows,
}
"""By the kind, how its attributes are read; activations are read of every kind."""
