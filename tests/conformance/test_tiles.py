"""Products of bytes on tiles of an x86 core: in the C model, and compiled by its compilers."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.codegen.nodes import calls
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.verify.data import Style, draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

CHIP = Path(__file__).resolve().parents[1] / "specs" / "x86_amx.yaml"
STRICT = ("-std=c11", "-O2", "-mamx-int8", "-mamx-tile", "-Wall", "-Wextra", "-Werror", "-pedantic")
SIZES = [(32, 64, 128), (33, 20, 128), (5, 37, 64), (1, 9, 64)]
"""M, N and K: whole tiles, and tails of rows and of columns."""
STYLES: tuple[Style, ...] = ("random", "extremes")


@cache
def product(m: int, n: int, k: int) -> Kernel:
    workload = hwgen.load_workload("gemm", {"M": m, "N": n, "K": k}, {"OUT": "int32"})
    return compile_workload(workload, hwgen.load_hardware(CHIP), QUICK)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_tiles_compute_it(sizes: tuple[int, int, int]) -> None:
    kernel = product(*sizes)
    assert {c.intrinsic for c in calls(kernel.program.body)} == {
        "load_rows", "load_weights", "zero", "product", "store",
    }  # fmt: skip
    for seed, style in enumerate(STYLES):
        examine(kernel, draw_inputs(kernel.workload, seed, style))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_its_c_compiles(sizes: tuple[int, int, int], compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    (tmp_path / "kernel.c").write_text(product(*sizes).source.c)
    command = [compiler, *STRICT, "-c", "kernel.c", "-o", "kernel.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
