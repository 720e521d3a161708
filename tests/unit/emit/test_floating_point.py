"""The same bits with every compiler and whatever flags users have: no product and sum become one
operation where results are promised, and flags that change results are refused."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import Build
from hwgen.model.native import compile_portable
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs, first_difference
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, tiered

COMPILERS = ("gcc", "clang")
FLAGS = [
    (*level, standard)
    for level in (("-O2",), ("-O3", "-march=native"))
    for standard in ("-std=gnu17", "-std=c11")
]
"""Of gcc and clang, gnu17 is what they take where nothing is said."""

VECTOR: dict[str, str] = dict.fromkeys(("x", "z", "y"), "float32[1003]")
EXACT: dict[str, tuple[dict[str, str], list[str]]] = {
    "product and sum": (VECTOR, ["y[i] = x[i] * z[i] + x[i]"]),
    "two products": (VECTOR, ["y[i] = x[i] * z[i] - z[i] * z[i]"]),
    "two statements": (VECTOR | {"t": VECTOR["x"]}, ["t[i] = x[i] * z[i]", "y[i] = t[i] + x[i]"]),
    "quotient": (VECTOR, ["y[i] = x[i] / 3 + z[i]"]),
    "greatest": (
        {"x": "float32[17, 61]", "z": "float32[17, 61]", "y": "float32[17]"},
        ["y[i] max= x[i, r] * z[i, r] + x[i, r]"],
    ),
    "sum in order": (
        {"x": "float32[17, 61]", "z": "float32[17, 61]", "y": "float32[17]"},
        ["y[i] = 0", "y[i] = y[i] + x[i, r] * z[i, r]"],
    ),
    "doubles": (
        dict.fromkeys(("x", "z", "y"), "float64[1003]"), ["y[i] = x[i] * z[i] + x[i]"],
    ),
    "halves": (
        {"x": "float16[1003]", "z": "float16[1003]", "y": "float32[1003]"},
        ["y[i] = float32(x[i]) * float32(z[i]) * 0.1 + 0.3"],
    ),
}  # fmt: skip
"""Values that contain a product and a sum: each operation is rounded by itself."""
CHIPS = ("cpu_generic", "x86_avx2", "davinci_core")
"""A processor's C; host code in a vendor's file of C and beside the C model of units."""


BUILDS = [*product(CHIPS, FLAGS, COMPILERS)]


def builds() -> list[Build]:
    plain = ("-fno-openmp", "-fopenmp-simd")
    found = [c for c in COMPILERS if shutil.which(c)]
    return [Build(c, (*flags, *plain)) for c, flags in product(found, FLAGS)]


@cache
def kernel(name: str, chip: str) -> Kernel:
    tensors, compute = EXACT[name]
    workload = hwgen.workload(name.replace(" ", "_"), tensors=tensors, compute=compute)
    return compile_workload(workload, hwgen.load_hardware(chip), QUICK)


@pytest.mark.parametrize(("chip", "flags", "compiler"), tiered(BUILDS, BUILDS[::13]), ids=str)
def test_each_operation_is_rounded_by_itself(
    chip: str, flags: tuple[str, ...], compiler: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    build = Build(compiler, (*flags, "-fno-openmp", "-fopenmp-simd"))
    wrong: dict[str, str] = {}
    for name in EXACT:
        made = kernel(name, chip)
        inputs = draw_inputs(made.workload, 3)
        found = compile_portable(made.source, made.hardware, build).run(inputs)
        difference = first_difference(found, run_reference(made.workload, inputs))
        if difference is not None:
            wrong[name] = str(difference)
    assert not wrong


def small_layernorm() -> tuple[Workload, dict[str, Array]]:
    """Rows of 16 small integers: their sums are exact in every order, so that all else is."""
    workload = hwgen.load_workload("layernorm", {"M": 5, "N": 16})
    return workload, draw_inputs(workload, 1, "small")


@pytest.mark.parametrize("chip", tiered(CHIPS[:2], CHIPS[:1]))
def test_layers_have_the_same_bits(chip: str) -> None:
    workload, inputs = small_layernorm()
    made = compile_workload(workload, hwgen.load_hardware(chip), QUICK)
    expected = run_reference(workload, inputs)
    for build in builds():
        found = compile_portable(made.source, made.hardware, build).run(inputs)
        assert first_difference(found, expected) is None, build


@THOROUGH
@pytest.mark.parametrize("chip", tiered(CHIPS[:2], CHIPS[:1]))
def test_attention_is_as_near_with_every_compiler(chip: str) -> None:
    workload = hwgen.load_workload("attention", {"L": 12, "D": 16})
    made = compile_workload(workload, hwgen.load_hardware(chip), QUICK)
    for build in builds():
        examine(made, draw_inputs(workload, 2), "c", build)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_files_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    strict = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-fopenmp-simd", "-mavx2", "-mfma")
    for chip, standard in product(CHIPS[:2], ("-std=c11", "-std=gnu17")):
        source = kernel("two statements", chip).source
        for name, text in source.files.items():
            (tmp_path / name).write_text(text)
        command = [compiler, *strict, standard, "-c", f"{source.function}.c", "-o", "made.o"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-ffinite-math-only"])
def test_flags_that_change_results_are_refused(flag: str, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    made = kernel("product and sum", "cpu_generic")
    with pytest.raises(HwgenError) as caught:
        compile_portable(made.source, made.hardware, Build(compiler, (flag,)))
    assert caught.value.code == "H704"
    assert "compile without -ffast-math" in str(caught.value)


def test_sums_of_products_may_become_one_operation() -> None:
    """They are rounded in any order anyway; and integers have nothing to do with any of this."""
    hardware = hwgen.load_hardware("cpu_generic")
    floats = compile_workload(hwgen.load_workload("matmul", {"M": 4}), hardware, QUICK).source.c
    assert "FP_CONTRACT" not in floats
    assert "__FAST_MATH__" in floats
    integers = compile_workload(hwgen.load_workload("gemm", {"M": 4}), hardware, QUICK).source.c
    assert "__FAST_MATH__" not in integers


def test_bits_would_differ() -> None:
    """The data shows it: one operation in place of two gives other bits."""
    made = kernel("product and sum", "cpu_generic")
    inputs = draw_inputs(made.workload, 3)
    x, z = (inputs[n].astype(np.float64) for n in ("x", "z"))
    fused = {"y": (x * z + x).astype(np.float32)}
    assert first_difference(fused, run_reference(made.workload, inputs)) is not None
