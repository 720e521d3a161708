"""Products and convolutions of a core's dot products, their results, and who else computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import cpu_rivals as rivals
from benchmarks.cpu_rivals import Rival, Scaled
from benchmarks.mkl import ROOT
from hwgen.model.numeric import Value, store
from hwgen.spec.load import load_workload
from hwgen.spec.workload import Workload

Array = npt.NDArray[Any]

SMALL = ((64, 64, 64), (128, 128, 128), (256, 256, 256), (1, 1024, 1024))
LARGE = (
    (512, 512, 512), (1024, 1024, 1024), (127, 513, 255), (64, 3072, 768), (64, 4096, 1024),
)  # fmt: skip
"""M, N and K."""

CONVOLUTIONS = (
    (56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3), (56, 64, 256, 1),
)  # fmt: skip
"""Of ResNet-50: height and width, channels, outputs, and the side of the window."""

SPREAD = 40.0
"""Standard deviation of results that are bytes."""


@dataclass(frozen=True)
class Case:
    """One computation. `expected`: the kernel's result, bit for bit; `others`: libraries by name,
    `wanted`: their result, from which they may be `off` by so much."""

    chip: str
    label: str
    workload: Workload
    inputs: Mapping[str, Array]
    expected: Array
    macs: int
    others: Mapping[str, Callable[[], Rival]]
    wanted: Array
    off: int = 0


def _integers(shape: tuple[int, ...], dtype: str) -> Array:
    """Of the whole range of a type; the same for equal shapes and types."""
    info = np.iinfo(dtype)
    draw = np.random.default_rng(len(shape) + shape[0])
    return draw.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _halves(array: Array) -> Array:
    """Numbers as the bits of bfloat16."""
    return store(Value(array.astype(np.float64), "float64"), "bfloat16")


def _halved(rival: Rival) -> Rival:
    """The same, whose result is compared after rounding."""
    return Rival(rival.run, lambda: _halves(rival.result()))


def _singles(array: Array) -> Array:
    """Numbers as float32."""
    return array.astype(np.float32)


def _small(shape: tuple[int, ...]) -> Array:
    """Whole numbers whose sums float32 holds exactly, so that every order gives the same."""
    draw = np.random.default_rng(shape[0])
    return draw.integers(-8, 8, shape, endpoint=True).astype(np.float64)


def _sums(a: Array, b: Array) -> Array:
    """`a[m, k]` by `b[n, k]`; float64 holds these sums."""
    return a.astype(np.float64) @ np.transpose(b).astype(np.float64)


def _convolved(x: Array, w: Array, pad: int) -> Array:
    """NHWC by HWIO with stride 1, as large as the image."""
    _, h, v, channels = x.shape
    padded = np.zeros((1, h + 2 * pad, v + 2 * pad, channels))
    padded[:, pad : pad + h, pad : pad + v] = x
    made = np.zeros((1, h, v, w.shape[3]))
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            made += padded[:, i : i + h, j : j + v] @ w[i, j].astype(np.float64)
    return made


def _multiplied(sums: Array, mul: int, right: int) -> Array:
    """As TFLite narrows sums: the upper half of a product, doubled and rounded; a rounding shift
    with ties away from zero."""
    high = (sums.astype(np.int64) * mul + (1 << 30)) >> 31
    rounded = high + ((1 << right) >> 1) - (high < 0)
    return _narrow(rounded >> right)


def _narrow(array: Array) -> Array:
    """As the nearest numbers of int8."""
    return np.minimum(np.maximum(array, -128), 127).astype(np.int8)


def _shift(depth: int) -> int:
    """By how much sums of products of bytes are shifted, for results of a usual size."""
    return round(np.log2(147.0 * 74.0 * np.sqrt(depth) / SPREAD))


def bytes_product(left: str, size: tuple[int, int, int]) -> Case:
    """Bytes, the first factor of a type, into int32."""
    m, n, k = size
    a, b = _integers((m, k), left), _integers((n, k), "int8")
    sizes, types = {"M": m, "N": n, "K": k}, {"a": left, "OUT": "int32"}
    sums = _sums(a, b)
    others = {
        "ONNX Runtime": lambda: rivals.onnx_product(a, b, None),
        "oneDNN": lambda: rivals.onednn_product(a, b, None),
        "NumPy float32": lambda: rivals.openblas(a, b),
    }
    if np.abs(sums).max() >= 1 << 24:
        raise SystemExit(f"{size}: float32 does not hold the sums")
    return Case(
        "x86_vnni", _named(size), load_workload("gemm", sizes, types), {"a": a, "b": b},
        sums.astype(np.int32), m * n * k, others, sums,
    )  # fmt: skip


def shifted_product(size: tuple[int, int, int]) -> Case:
    """Bytes, shifted into bytes: others round what is cut off here."""
    m, n, k = size
    a, b, shift = _integers((m, k), "uint8"), _integers((n, k), "int8"), _shift(k)
    bias = np.random.default_rng(1).integers(-5000, 5000, n).astype(np.int32)
    sizes = {"M": m, "N": n, "K": k, "SHIFT": shift}
    sums = _sums(a, b) + bias
    expected = _narrow(sums.astype(np.int64) >> shift)
    scaled = Scaled(bias, 2.0**-shift)
    others = {
        "ONNX Runtime": lambda: rivals.onnx_product(a, b, scaled),
        "oneDNN": lambda: rivals.onednn_product(a, b, scaled),
    }
    workload = load_workload("gemm_requant", sizes, {"a": "uint8"})
    inputs = {"a": a, "b": b, "bias": bias}
    return Case(
        "x86_vnni", _named(size), workload, inputs, expected, m * n * k, others, expected, 1
    )


MUL = 1518500250


def tflite_product(size: tuple[int, int, int]) -> Case:
    """Fully connected as TFLite has it."""
    m, n, k = size
    x, w, right = _integers((m, k), "int8"), _integers((n, k), "int8"), _shift(k)
    bias = np.random.default_rng(1).integers(-5000, 5000, n).astype(np.int32)
    sizes = {"M": m, "N": n, "K": k, "MUL": MUL, "SHIFT": -right, "ZY": 0}
    expected = _multiplied(_sums(x, w) + bias, MUL, right)
    scaled = Scaled(bias, MUL / 2.0**31 / 2.0**right)
    others = {
        "ONNX Runtime": lambda: rivals.onnx_product(x, w, scaled),
        "oneDNN": lambda: rivals.onednn_product(x, w, scaled),
        "XNNPACK": lambda: rivals.xnnpack_product(x, w, scaled),
    }
    workload = load_workload(ROOT / "workloads" / "quantised" / "fully_connected.yaml", sizes)
    inputs = {"x": x, "w": w, "bias": bias}
    return Case(
        "x86_vnni", _named(size), workload, inputs, expected, m * n * k, others, expected, 1
    )


def floats_product(half: bool, size: tuple[int, int, int]) -> Case:
    """bfloat16, or float32."""
    m, n, k = size
    a, b = _small((m, k)), _small((n, k))
    sums = _sums(a, b)
    name = "bfloat16" if half else "float32"
    types = {"T": name, "ACC": "float32", "OUT": name}
    workload = load_workload("gemm", {"M": m, "N": n, "K": k}, types)
    kept = _halves if half else _singles
    left, right = kept(a), kept(b)
    others: dict[str, Callable[[], Rival]] = {"oneDNN": lambda: rivals.onednn_floats(left, right)}
    if half:
        others["NumPy float32"] = lambda: _halved(rivals.openblas(a, b))
    else:
        others["MKL"] = lambda: rivals.mkl(left, right)
        others["NumPy float32"] = lambda: rivals.openblas(left, right)
    chip = "x86_bf16" if half else "x86_avx512"
    expected = kept(sums)
    given = {"a": left, "b": right}
    return Case(chip, _named(size), workload, given, expected, m * n * k, others, expected)


def bytes_convolution(left: str, size: tuple[int, int, int, int]) -> Case:
    """Bytes, the image of a type, into int32."""
    h, c, o, r = size
    x, w = _integers((1, h, h, c), left), _integers((r, r, c, o), "int8")
    sizes = {"H": h, "W": h, "C": c, "O": o, "R": r, "P": r // 2}
    sums = _convolved(x, w, r // 2)
    if np.abs(sums).max() >= 1 << 24:
        raise SystemExit(f"{size}: float32 does not hold the sums")
    others = {
        "ONNX Runtime": lambda: rivals.onnx_convolution(x, w, r // 2, None),
        "oneDNN": lambda: rivals.onednn_convolution(x, w, r // 2, None),
    }
    types = {"A": left, "B": "int8", "ACC": "int32", "OUT": "int32"}
    workload = load_workload(ROOT / "benchmarks" / "conv2d_types.yaml", sizes, types)
    macs = h * h * c * o * r * r
    return Case(
        "x86_vnni", _convolution(size), workload, {"x": x, "w": w}, sums.astype(np.int32), macs,
        others, sums,
    )  # fmt: skip


def tflite_convolution(size: tuple[int, int, int, int]) -> Case:
    """A convolution as TFLite has it."""
    h, c, o, r = size
    x, w, right = (
        _integers((1, h, h, c), "int8"),
        _integers((r, r, c, o), "int8"),
        _shift(r * r * c),
    )
    bias = np.random.default_rng(1).integers(-5000, 5000, o).astype(np.int32)
    expected = _multiplied(_convolved(x, w, r // 2) + bias, MUL, right)
    scaled = Scaled(bias, MUL / 2.0**31 / 2.0**right)
    others = {
        "ONNX Runtime": lambda: rivals.onnx_convolution(x, w, r // 2, scaled),
        "oneDNN": lambda: rivals.onednn_convolution(x, w, r // 2, scaled),
        "XNNPACK": lambda: rivals.xnnpack_convolution(x, w, scaled),
    }
    sizes = {"H": h, "W": h, "C": c, "O": o, "R": r, "ZX": 0, "ZY": 0}
    workload = load_workload(ROOT / "workloads" / "quantised" / "conv2d.yaml", sizes)
    inputs = {
        "x": x[0],
        "w": np.ascontiguousarray(np.transpose(w, (3, 0, 1, 2))),
        "bias": bias,
        "mul": np.full(o, MUL, np.int32),
        "shift": np.full(o, -right, np.int32),
    }
    macs = h * h * c * o * r * r
    return Case(
        "x86_vnni", _convolution(size), workload, inputs, expected[0], macs, others, expected, 1
    )


def half_convolution(size: tuple[int, int, int, int]) -> Case:
    """bfloat16."""
    h, c, o, r = size
    plain = _small((1, h, h, c)), _small((r, r, c, o))
    x, w = map(_halves, plain)
    sizes = {"H": h, "W": h, "C": c, "O": o, "R": r, "P": r // 2}
    types = {"A": "bfloat16", "B": "bfloat16", "ACC": "float32", "OUT": "bfloat16"}
    workload = load_workload(ROOT / "benchmarks" / "conv2d_types.yaml", sizes, types)
    expected = _halves(_convolved(*plain, r // 2))
    others = {"oneDNN": lambda: rivals.onednn_half_convolution(x, w, r // 2)}
    macs = h * h * c * o * r * r
    return Case(
        "x86_bf16", _convolution(size), workload, {"x": x, "w": w}, expected, macs, others, expected
    )


def _named(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))


def _convolution(size: tuple[int, int, int, int]) -> str:
    h, c, o, r = size
    return f"{h}x{h}x{c} -> {o}, {r}x{r}"


PRODUCTS: dict[str, Callable[[tuple[int, int, int]], Case]] = {
    "u8s8": lambda size: bytes_product("uint8", size),
    "s8s8": lambda size: bytes_product("int8", size),
    "shifted": shifted_product,
    "tflite": tflite_product,
    "bf16": lambda size: floats_product(True, size),
    "f32": lambda size: floats_product(False, size),
}
IMAGES: dict[str, Callable[[tuple[int, int, int, int]], Case]] = {
    "conv-u8s8": lambda size: bytes_convolution("uint8", size),
    "conv-s8s8": lambda size: bytes_convolution("int8", size),
    "conv-tflite": tflite_convolution,
    "conv-bf16": half_convolution,
}
KINDS = (*PRODUCTS, *IMAGES)


def cases(kind: str) -> Iterator[Case]:
    """Those of a kind."""
    if kind in PRODUCTS:
        yield from map(PRODUCTS[kind], (*SMALL, *LARGE))
    else:
        yield from map(IMAGES[kind], CONVOLUTIONS)
