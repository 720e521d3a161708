"""float16 and bfloat16: rounded once, to nearest and even, by NumPy and by C alike."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import hwgen
from hwgen.codegen.c_value import HALVES, value_helpers
from hwgen.model.c_compiler import have_compiler, load_library
from hwgen.model.folders import FOLDER_VARIABLE
from hwgen.model.numeric import Array, Value, load, store
from hwgen.model.reference import random_inputs, run_reference
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.sampling import QUICK
from tests.unit.codegen_processor import samples

Doubles = npt.NDArray[np.float64]

ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)
INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80}
needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def finite(dtype: str) -> Doubles:
    """Every number from 0 on that the type holds, and what comes after the largest."""
    bits = np.arange(INFINITE[dtype], dtype=np.uint16)
    if dtype == "float16":
        held = np.frombuffer(bits.tobytes(), np.float16).astype(np.float64)
    else:
        wide = np.left_shift(bits.astype(np.uint32), 16)
        held = np.frombuffer(wide.tobytes(), np.float32).astype(np.float64)
    return np.append(held, 2 * held[-1] - held[-2])


def bits_of(array: Array) -> Array:
    return np.frombuffer(array.tobytes(), np.uint16)


def numbers(dtype: str) -> Doubles:
    """Each of them, the middle between two, and what is next to the middle."""
    held = finite(dtype)
    middle = (held[1:] + held[:-1]) / 2
    near = np.concatenate(
        [held, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [1e300, 5e-324]]
    )
    return np.concatenate([near, -near, [np.inf, -np.inf]])


def rounded(values: Doubles, dtype: str) -> npt.NDArray[np.uint16]:
    """The nearer of two neighbours, the even one of two that are as near."""
    held = finite(dtype)
    size = np.minimum(np.abs(values), held[-1])
    above = np.minimum(np.searchsorted(held, size), len(held) - 1)
    below = np.maximum(above - 1, 0)
    up, down = held[above] - size, size - held[below]
    nearest = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return (nearest | np.where(np.signbit(values), 0x8000, 0)).astype(np.uint16)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_are_rounded_once(dtype: str) -> None:
    values = numbers(dtype)
    found = store(Value(values, "float64"), dtype)
    np.testing.assert_array_equal(bits_of(found), rounded(values, dtype))


@needs_compiler
@pytest.mark.parametrize("dtype", HALVES)
def test_c_rounds_as_numpy_does(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    helpers = value_helpers("t")
    down, up = helpers.call(f"{dtype}_bits", "from[i]"), helpers.call(dtype, "to[i]")
    body = f"for (long i = 0; i < n; ++i) {{\n    to[i] = {down};\n    back[i] = {up};\n  }}"
    text = "\n".join(
        [
            "#include <math.h>\n#include <stdint.h>",
            *helpers.definitions(),
            f"void run(long n, const double *from, uint16_t *to, float *back)\n{{\n  {body}\n}}",
        ]
    )
    library = load_library(text, "halves", ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"))
    values = np.append(numbers(dtype), np.nan)
    bits, back = np.zeros(values.shape, np.uint16), np.zeros(values.shape, np.float32)
    library.run(
        ctypes.c_long(values.size), *(ctypes.c_void_p(a.ctypes.data) for a in (values, bits, back))
    )
    expected = store(Value(values, "float64"), dtype)
    np.testing.assert_array_equal(bits, bits_of(expected))
    np.testing.assert_array_equal(back, load(expected, dtype).array)


def layer(dtype: str) -> Workload:
    """Statements whose results are the same in any order of their sums."""
    return hwgen.Workload(
        "halves",
        tensors={
            "x": f"{dtype}[7, 9]", "z": f"{dtype}[7, 9]", "d": "float64[7, 9]", "i": "int32[7]",
            "y": f"{dtype}[7, 9]", "e": f"{dtype}[7, 9]", "n": f"{dtype}[7]", "c": f"{dtype}[7]",
            "s": f"{dtype}[7]", "m": f"{dtype}[7]", "w": "float32[7]",
        },
        compute=[
            "y[a, b] = x[a, b] * z[a, b] + 0.1",
            f"e[a, b] = {dtype}(d[a, b])",
            f"n[a] = {dtype}(i[a])",
            f"c[a] = {dtype}(x[a, 0] * 0.3) - z[a, 1]",
            "s[a] += x[a, b]",
            "m[a] min= z[a, b]",
            "w[a] += float32(x[a, b]) * z[a, b]",
        ],
    )  # fmt: skip


def layer_inputs(workload: Workload) -> dict[str, Array]:
    drawn, small = random_inputs(workload, 1), draw_inputs(workload, 1, "small")
    return {**small, "d": drawn["d"], "i": drawn["i"]}


@needs_compiler
@pytest.mark.parametrize("auto", [True, False], ids=["scheduled", "as written"])
@pytest.mark.parametrize("dtype", HALVES)
def test_processors_compute_the_same_bits(dtype: str, auto: bool) -> None:
    workload = layer(dtype)
    kernel = hwgen.compile_nest(workload, samples.cpu(), auto=auto)
    inputs = layer_inputs(workload)
    expected = run_reference(workload, inputs)
    for engine in ENGINES:
        found = examine(kernel, inputs, engine).outputs
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{name} by {engine}")


def test_long_sums_are_kept_in_floats() -> None:
    workload = hwgen.Workload(
        "ones", tensors={"x": "bfloat16[1000]", "y": "bfloat16[1]"}, compute=["y[0] += x[k]"]
    )
    kernel = hwgen.compile_nest(workload, samples.cpu(), auto=False)
    inputs = {"x": np.full(1000, 0x3F80, np.uint16)}
    for engine in ENGINES:
        assert examine(kernel, inputs, engine).outputs["y"] == 0x447A


@pytest.fixture(scope="module", params=HALVES)
def cube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HardwareSpec:
    """A chip of units that computes in either type."""
    text = (samples.ROOT / "hw_specs" / "davinci_core.yaml").read_text()
    path: Path = tmp_path_factory.mktemp("chip") / "cube.yaml"
    path.write_text(text.replace("float16", request.param))
    return load_hardware(path)


def test_units_compute_the_same_bits(cube: HardwareSpec) -> None:
    dtype = cube.memory["l1"].dtype
    workload = hwgen.Workload(
        "half",
        sizes={"M": 20, "N": 17, "K": 33},
        tensors={
            "a": f"{dtype}[M, K]", "b": f"{dtype}[K, N]", "acc": "float32[M, N]",
            "c": f"{dtype}[M, N]",
        },
        compute=[
            "acc[m, n] += float32(a[m, k]) * float32(b[k, n])",
            f"c[m, n] = {dtype}(acc[m, n])",
        ],
    )  # fmt: skip
    kernel = hwgen.compile_kernel(workload, cube, options=QUICK)
    inputs = draw_inputs(workload, 1, "small")
    expected = run_reference(workload, inputs)["c"]
    for engine in ENGINES:
        np.testing.assert_array_equal(examine(kernel, inputs, engine).outputs["c"], expected)
