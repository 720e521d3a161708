"""Dot products of bytes: what the search finds for them, executed by both compilers."""

from __future__ import annotations

import ctypes
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.nodes import calls
from hwgen.model.c_compiler import load_library
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

FLAGS = Path("/proc/cpuinfo")
NATIVE = FLAGS.is_file() and " avx512_vnni " in FLAGS.read_text()
"""Whether this machine runs what is emitted."""
STRICT = ("-std=c11", "-O3", "-march=native", "-Wall", "-Wextra", "-Werror", "-pedantic",
          "-fopenmp-simd", "-shared", "-fPIC")  # fmt: skip
TYPES = {"a": "uint8", "OUT": "int32"}
SIZES = [(6, 64, 32), (5, 37, 19)]
"""M, N and K: whole tiles, and tails of all three."""


@cache
def product(m: int, n: int, k: int) -> Kernel:
    workload = hwgen.load_workload("gemm", {"M": m, "N": n, "K": k}, TYPES)
    return compile_workload(workload, hwgen.load_hardware("x86_vnni"), QUICK)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_search_takes_dot_products(sizes: tuple[int, int, int]) -> None:
    kernel = product(*sizes)
    made = {call.intrinsic for call in calls(kernel.program.body)}
    assert made >= {"dot", "load_four", "load_weights"}
    examine(kernel, draw_inputs(kernel.workload, 0), "python")


@pytest.mark.skipif(not NATIVE, reason="no AVX-512 VNNI")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_native_c_is_equal(
    sizes: tuple[int, int, int], compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("CC", compiler)
    m, n, k = sizes
    kernel = product(m, n, k)
    a = np.full((m, k), 255, np.uint8)
    a[::2] = np.random.default_rng(0).integers(0, 256, a[::2].shape)
    b = np.random.default_rng(1).integers(-128, 128, (n, k), np.int8)
    c = np.full((m, n), -1, np.int32)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    library = load_library(kernel.source.c, kernel.source.function, STRICT)
    assert getattr(library, kernel.source.function)(*pointers) == 0
    assert np.array_equal(c, np.einsum("mk,nk->mn", a, b, dtype=np.int32))


def test_weights_of_channels_stay_in_registers() -> None:
    """A load into registers stands outside of all loops that do not move it."""
    workload = parse_workload(
        {
            "name": "channels",
            "tensors": {
                "x": "int8[12, 14, 16]",
                "w": {"type": "int8[3, 3, 16]", "constant": True},
                "y": "int32[10, 12, 16]",
            },
            "compute": ["y[i, j, o] += int32(x[i + r, j + s, o]) * int32(w[r, s, o])"],
        }
    )
    kernel = compile_workload(workload, hwgen.load_hardware("x86_vnni"), QUICK)
    assert kernel.bound.resource == "unit dot"
    assert kernel.cycles <= 1.02 * kernel.bound.cycles


def test_a_single_register_of_sums_is_enough() -> None:
    """No tile of several sums fits, so that the search has no levels to look at."""
    hardware = hwgen.load_hardware("x86_vnni", {"SUMS": 1})
    workload = hwgen.load_workload("gemm", {"M": 2, "N": 1, "K": 5}, {"a": "uint8", "OUT": "int32"})
    examine(compile_workload(workload, hardware), draw_inputs(workload, 0), "python")
