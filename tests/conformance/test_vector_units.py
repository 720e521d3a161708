"""A core's vector unit without a script: convolutions, and what its own code does beside it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.nodes import calls
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.inner_loops import disassembled, inner_loops, on_the_stack
from tests.sampling import THOROUGH, tiered

ROOT = Path(__file__).resolve().parents[2]
FLAGS = Path("/proc/cpuinfo")
NATIVE = have_compiler() and FLAGS.is_file() and {"avx2", "fma"} <= set(FLAGS.read_text().split())
STRICT = ("-std=c11", "-O3", "-march=native", "-Wall", "-Wextra", "-Werror", "-pedantic")
BUILD = (*STRICT, "-fopenmp", "-shared", "-fPIC", "-lm")
CONVOLUTIONS = (
    {"H": 9, "W": 9, "C": 20, "O": 28},
    {"H": 8, "W": 11, "C": 16, "O": 40, "S": 2},
    {"H": 6, "W": 5, "C": 24, "O": 36, "R": 1, "P": 0},
)


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "x86_avx2.yaml")


def workload(name: str, **sizes: int) -> Workload:
    folder = "benchmarks" if name == "conv2d_nhwc" else "workloads"
    return hwgen.load_workload(ROOT / folder / f"{name}.yaml", sizes)


def executed(kernel: Kernel, *inputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What is emitted for the chip, as strict compilers take it, on this machine."""
    function = getattr(
        load_library(kernel.source.c, kernel.source.function, BUILD), kernel.source.function
    )
    found = np.full(shape, 7.0, np.float32)
    given = (x.ctypes.data_as(ctypes.c_void_p) for x in (*inputs, found))
    assert function(*given) == 0
    return found


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def convolved(x: np.ndarray, w: np.ndarray, pad: int, stride: int) -> np.ndarray:
    padded = np.pad(x, np.array([(0, 0), (pad, pad), (pad, pad), (0, 0)]))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[:2], axis=(1, 2))
    return np.einsum("nijcrs,rsco->nijo", windows[:, ::stride, ::stride], w)


@pytest.mark.parametrize("sizes", tiered(CONVOLUTIONS, CONVOLUTIONS[2:]), ids=str)
def test_a_convolution_is_right(sizes: dict[str, int]) -> None:
    kernel = compile_workload(workload("conv2d_nhwc", **sizes), chip())
    examine(kernel, draw_inputs(kernel.workload, 1), "both" if have_compiler() else "python")
    if not NATIVE:
        return
    side, pad = sizes.get("R", 3), sizes.get("P", 1)
    channels, outputs = sizes["C"], sizes["O"]
    x, w = drawn((1, sizes["H"], sizes["W"], channels), (side, side, channels, outputs))
    expected = convolved(x, w, pad, sizes.get("S", 1))
    assert np.array_equal(executed(kernel, x, w, shape=expected.shape), expected)


def test_outputs_are_lanes_and_sums_fill_the_registers() -> None:
    kernel = hwgen.compile_kernel(workload("conv2d_nhwc", H=12, W=12, C=32, O=48), chip())
    tile = kernel.tiling.tile
    assert kernel.match.block["o"] == 8
    assert tile["i"] * tile["j"] * tile["o"] >= 8


@THOROUGH
@pytest.mark.skipif(not (NATIVE and shutil.which("objdump")), reason="no AVX2, or no objdump")
def test_strides_are_not_on_the_stack_in_the_inner_loop(tmp_path: Path) -> None:
    """Of all that stands there, at most the loop's bound."""
    source, made = tmp_path / "kernel.c", tmp_path / "kernel.o"
    kernel = compile_workload(workload("conv2d_nhwc", H=12, W=12, C=64, O=32), chip())
    source.write_text(kernel.source.c, encoding="utf-8")
    subprocess.run(["gcc", *STRICT, "-fPIC", "-c", str(source), "-o", str(made)], check=True)
    bodies = inner_loops(disassembled(made), "vfmadd", 6)
    assert bodies
    for body in bodies:
        assert len(on_the_stack(body)) <= 1


def test_sums_along_rows_are_the_cores_own_code() -> None:
    """One lane of a vector would take part in each call; its code adds up eight at once."""
    m, n = 6, 40
    kernel = compile_workload(workload("layernorm", M=m, N=n), chip())
    assert not list(calls(kernel.program.body))
    assert "#pragma omp simd" in kernel.source.c
    if not NATIVE:
        return
    x, gamma, beta = drawn((m, n), (n,), (n,))
    centred = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    found = executed(kernel, x, gamma, beta, shape=(m, n))
    assert np.allclose(found, centred * scale * gamma + beta, rtol=1e-5, atol=1e-5)


def test_attention_has_products_on_units_and_rows_in_code() -> None:
    rows, depth = 48, 16
    kernel = compile_workload(workload("attention", L=rows, D=depth), chip())
    names = [c.intrinsic for c in calls(kernel.program.body)]
    assert "add" not in names, "sums of rows"
    assert names.count("fma") + names.count("fma_direct") > 0
    if not NATIVE:
        return
    q, k, v = (np.divide(x, 4) for x in drawn((rows, depth), (rows, depth), (rows, depth)))
    scores: np.ndarray = np.einsum("id,jd->ij", q, k) / np.sqrt(depth)
    share: np.ndarray = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    expected = share / share.sum(axis=1, keepdims=True) @ v
    found = executed(kernel, q, k, v, shape=(rows, depth))
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
