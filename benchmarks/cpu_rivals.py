"""Products and convolutions by the libraries that people run on CPUs, on one thread, with weights
that these have packed before.

ONNX Runtime packs constants of a model when it loads it, XNNPACK (through LiteRT) too. oneDNN is
called through PyTorch's operators for weights that were reordered before; MKL is `torch.mm`.
Factors of int8 are given to ONNX Runtime and oneDNN as uint8 with zero point 128, as their users
quantise for these processors: with int8 both are 20 to 10,000 times slower, or refuse.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from tests.models import OperatorOf, TensorOf, model

Array = npt.NDArray[Any]
Run = Callable[[], object]
Result = Callable[[], Array]


@dataclass(frozen=True)
class Rival:
    """A library's function, and its last result as the reference has it."""

    run: Run
    result: Result


@dataclass(frozen=True)
class Scaled:
    """How sums become bytes: `sum * scale`, rounded, after `bias` is added."""

    bias: Array
    scale: float


@cache
def torch() -> Any:
    """PyTorch on one thread."""
    made: Any = importlib.import_module("torch")
    made.set_num_threads(1)
    return made


def _ready(run: Callable[[], Any], read: Callable[[Any], Array]) -> Rival:
    return Rival(run, lambda: read(run()))


# --- ONNX Runtime ---------------------------------------------------------------------------------

_ONNX = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}


def _session(
    operator: str, domain: str, x: Array, constants: Sequence[tuple[str, Any]], out: str,
    shape: Sequence[int], **attributes: Any,
) -> Rival:  # fmt: skip
    """One node whose other inputs are constants; `x` stands where a constant is None. It reads and
    writes arrays in place, without copies."""
    names = [name for name, _ in constants]
    stored = [
        helper.make_tensor(
            name, _ONNX.get(str(v.dtype), TensorProto.FLOAT), v.shape, v.tobytes(), True
        )
        for name, value in constants
        if value is not None
        for v in [np.ascontiguousarray(value)]
    ]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    given = helper.make_tensor_value_info("x", _ONNX[str(x.dtype)], x.shape)
    made = helper.make_tensor_value_info("y", _ONNX[out], shape)
    graph = helper.make_graph([node], "rival", [given], [made], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    package: Any = importlib.import_module("onnxruntime")
    options = package.SessionOptions()
    options.intra_op_num_threads = 1
    session = package.InferenceSession(content, options)
    result, bound = np.empty(shape, out), session.io_binding()
    for bind, name, array in ((bound.bind_input, "x", x), (bound.bind_output, "y", result)):
        bind(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def run() -> Array:
        session.run_with_iobinding(bound)
        assert x.size  # What is bound is not copied: it must stay.
        return result

    return _ready(run, lambda y: y)


def _numbers(dtype: str, scale: float, zero: int = 0) -> tuple[Array, Array]:
    return np.array(scale, np.float32), np.array(zero, dtype)


def _unsigned(x: Array) -> tuple[Array, int]:
    """As bytes from 0 on, and their zero point."""
    return (x, 0) if x.dtype == np.uint8 else ((x.astype(np.int16) + 128).astype(np.uint8), 128)


def _signed(made: Rival) -> Rival:
    """Of bytes with zero point 128."""
    return Rival(made.run, lambda: (made.result().astype(np.int16) - 128).astype(np.int8))


def onnx_product(a: Array, b: Array, scaled: Scaled | None) -> Rival:
    """`a[m, k]` by `b[n, k]` of bytes."""
    shape, (x, zero) = (len(a), len(b)), _unsigned(a)
    sx, zx = _numbers("uint8", 1, zero)
    sw, zw = _numbers("int8", 1)
    if scaled is None:
        constants = [("x", None), ("w", np.transpose(b)), ("zx", zx), ("zw", zw)]
        return _session("MatMulInteger", "", x, constants, "int32", shape)
    sy, zy = _numbers("uint8", 1 / scaled.scale, 128)
    constants = [
        ("x", None), ("sx", sx), ("zx", zx), ("w", b), ("sw", sw), ("zw", zw), ("c", scaled.bias),
        ("sy", sy), ("zy", zy),
    ]  # fmt: skip
    domain = "com.microsoft"
    return _signed(_session("QGemm", domain, x, constants, "uint8", shape, transB=1))


def onnx_convolution(x: Array, w: Array, pad: int, scaled: Scaled | None) -> Rival:
    """NHWC by HWIO with stride 1, of bytes; without a scale NCHW, since there is nothing else."""
    weights, (image, zero) = np.transpose(w, (3, 2, 0, 1)), _unsigned(x)
    pads, (_, h, v, _), outputs = [pad] * 4, x.shape, w.shape[3]
    sx, zx = _numbers("uint8", 1, zero)
    sw, zw = _numbers("int8", 1)
    if scaled is None:
        image = np.ascontiguousarray(np.transpose(image, (0, 3, 1, 2)))
        constants = [("x", None), ("w", weights), ("zx", zx), ("zw", zw)]
        shape = (1, outputs, h, v)
        made = _session("ConvInteger", "", image, constants, "int32", shape, pads=pads)
        return Rival(made.run, lambda: np.transpose(made.result(), (0, 2, 3, 1)))
    sy, zy = _numbers("uint8", 1 / scaled.scale, 128)
    constants = [
        ("x", None), ("sx", sx), ("zx", zx), ("w", weights), ("sw", sw), ("zw", zw), ("sy", sy),
        ("zy", zy), ("c", scaled.bias),
    ]  # fmt: skip
    made = _session(
        "QLinearConv", "com.microsoft", image, constants, "uint8", (1, h, v, outputs), pads=pads,
        channels_last=1,
    )  # fmt: skip
    return _signed(made)


# --- oneDNN and MKL -------------------------------------------------------------------------------


def onednn_product(a: Array, b: Array, scaled: Scaled | None) -> Rival:
    """`a[m, k]` by `b[n, k]` of bytes; without a scale float32, which is as large as int32."""
    t, (left, zero), operators = torch(), _unsigned(a), torch().ops.onednn
    x = t.from_numpy(left)
    packed = operators.qlinear_prepack(t.from_numpy(b), list(a.shape))
    ones, zeros = t.ones(1), t.zeros(1, dtype=t.int32)
    bias = None if scaled is None else t.from_numpy(scaled.bias.astype(np.float32))
    kind, scale = (t.float32, 1.0) if scaled is None else (t.int8, 1 / scaled.scale)

    def run() -> Any:
        return operators.qlinear_pointwise(
            x, 1.0, zero, packed, ones, zeros, bias, scale, 0, kind, "none", [], ""
        )

    return _ready(run, lambda y: y.numpy())


def onednn_convolution(x: Array, w: Array, pad: int, scaled: Scaled | None) -> Rival:
    """NHWC by HWIO with stride 1, of bytes."""
    t, operators = torch(), torch().ops.onednn
    plain, zero = _unsigned(x)
    image = t.from_numpy(plain).permute(0, 3, 1, 2)
    weights = t.from_numpy(np.ascontiguousarray(np.transpose(w, (3, 2, 0, 1))))
    pads, steps, outputs = [pad, pad], [1, 1], w.shape[3]
    scales, zeros = t.ones(outputs), t.zeros(outputs, dtype=t.int32)
    packed = operators.qconv_prepack(
        weights, scales, 1.0, zero, steps, pads, steps, 1, list(image.shape)
    )
    bias = None if scaled is None else t.from_numpy(scaled.bias.astype(np.float32))
    kind, scale = (t.float32, 1.0) if scaled is None else (t.int8, 1 / scaled.scale)

    def run() -> Any:
        return operators.qconv_pointwise(
            image, 1.0, zero, packed, scales, zeros, bias, steps, pads, steps, 1, scale, 0, kind,
            "none", [], "",
        )  # fmt: skip

    return _ready(run, lambda y: y.permute(0, 2, 3, 1).numpy())


def _halves(bits: Array) -> Any:
    return torch().from_numpy(bits).view(torch().bfloat16)


def _bits(made: Any) -> Array:
    return made.contiguous().view(torch().int16).numpy().view(np.uint16)


def onednn_floats(a: Array, b: Array) -> Rival:
    """`a[m, k]` by `b[n, k]`, float32 or bfloat16 as its bits."""
    half, operators = a.dtype == np.uint16, torch().ops.mkldnn
    x, w = (_halves(y) if half else torch().from_numpy(y) for y in (a, b))
    packed = operators._reorder_linear_weight(w, len(a))
    return _ready(
        lambda: operators._linear_pointwise(x, packed, None, "none", [], ""),
        _bits if half else lambda y: y.numpy(),
    )


def onednn_half_convolution(x: Array, w: Array, pad: int) -> Rival:
    """NHWC by HWIO with stride 1, bfloat16 as its bits."""
    t, operators = torch(), torch().ops.mkldnn
    image = _halves(x).permute(0, 3, 1, 2)
    weights = _halves(np.ascontiguousarray(np.transpose(w, (3, 2, 0, 1))))
    weights = weights.contiguous(memory_format=t.channels_last)
    pads, ones = [pad, pad], [1, 1]
    packed = operators._reorder_convolution_weight(weights, pads, ones, ones, 1, list(image.shape))

    def run() -> Any:
        return operators._convolution_pointwise(
            image, packed, None, pads, ones, ones, 1, "none", [], ""
        )

    return _ready(run, lambda y: _bits(y.permute(0, 2, 3, 1)))


def mkl(a: Array, b: Array) -> Rival:
    """`a[m, k]` by `b[n, k]` in float32: MKL has no weights that are packed before."""
    x, w = (torch().from_numpy(y) for y in (a, np.ascontiguousarray(np.transpose(b))))
    out = torch().empty(len(a), len(b))
    return _ready(lambda: torch().mm(x, w, out=out), lambda _: out.numpy())


@cache
def one_thread() -> Path | None:
    """Keep NumPy's OpenBLAS to one thread; its file, or None where NumPy has another library."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    file = next(iter(sorted(folder.glob("libscipy_openblas64_*"))), None)
    if file is not None:
        ctypes.CDLL(str(file)).scipy_openblas_set_num_threads64_(1)
    return file


def openblas(a: Array, b: Array) -> Rival:
    """`a[m, k]` by `b[n, k]` in float32, by NumPy: for bytes, what is left without a library."""
    x, w = (y.astype(np.float32) for y in (a, np.ascontiguousarray(np.transpose(b))))
    out = np.empty((len(a), len(b)), np.float32)
    return _ready(lambda: np.matmul(x, w, out=out), lambda _: out)


# --- XNNPACK --------------------------------------------------------------------------------------


def _lite(
    code: str, options: str, x: Array, w: TensorOf, made: TensorOf, bias: Array, **values: int
) -> Rival:
    """One operator of int8, as a model."""
    one = TensorOf(x.shape, "int8", [1.0])
    tensors = [one, w, TensorOf(bias.shape, "int32", w.scales, data=bias), made]
    content = model(tensors, [OperatorOf(code, [0, 1, 2], [3], options, values)], [0], [3])
    package: Any = importlib.import_module("ai_edge_litert.interpreter")
    kind = package.OpResolverType.AUTO
    lite = package.Interpreter(
        model_content=content, num_threads=1, experimental_op_resolver_type=kind
    )
    lite.allocate_tensors()
    lite.set_tensor(lite.get_input_details()[0]["index"], x)
    place = lite.get_output_details()[0]["index"]

    def result() -> Array:
        lite.invoke()
        return lite.get_tensor(place)

    return Rival(lite.invoke, result)


def xnnpack_product(a: Array, b: Array, scaled: Scaled) -> Rival:
    """`a[m, k]` by `b[n, k]` of int8."""
    w = TensorOf(b.shape, "int8", [1.0], data=b)
    made = TensorOf((len(a), len(b)), "int8", [1 / scaled.scale])
    return _lite("FULLY_CONNECTED", "FullyConnectedOptions", a, w, made, scaled.bias)


def xnnpack_convolution(x: Array, w: Array, scaled: Scaled) -> Rival:
    """NHWC by HWIO of int8 with stride 1, the result as large as the image."""
    _, h, v, _ = x.shape
    outputs = w.shape[3]
    data = np.ascontiguousarray(np.transpose(w, (3, 0, 1, 2)))
    weights = TensorOf(data.shape, "int8", [1.0] * outputs, data=data)
    made = TensorOf((1, h, v, outputs), "int8", [1 / scaled.scale])
    return _lite(
        "CONV_2D", "Conv2DOptions", x, weights, made, scaled.bias, StrideH=1, StrideW=1,
        DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
