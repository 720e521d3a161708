"""Functions of libraries that loops in lanes compute by themselves: how exact, and in vectors."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.c_value import value_helpers
from hwgen.model.c_compiler import have_compiler, load_library
from hwgen.model.folders import FOLDER_VARIABLE
from hwgen.passes.nest_pipeline import compile_nest

ROOT = Path(__file__).parents[3]
SPECIAL = (
    np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1e-30, 3.4e38, -3.4e38,
    88.722839, 88.73, -87.33655, -103.27893, -103.97208, -103.98,
)  # fmt: skip


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("flags", [("-O0",), ("-O3", "-fopenmp-simd")])
def test_exponentials_are_within_a_unit_in_the_last_place(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    helpers = value_helpers("t")
    call = helpers.call("exp_float32", "from[i]")
    loop = f"for (long i = 0; i < n; ++i)\n    to[i] = {call};"
    head = "void run(long n, const float *restrict from, float *restrict to)"
    text = "\n".join(
        [
            "#include <math.h>\n#include <stdint.h>",
            *helpers.definitions(),
            f"{head}\n{{\n  {loop}\n}}",
        ]
    )
    library = load_library(text, "lanes", ("-std=c99", *flags, "-Wall", "-Wextra", "-Werror"))
    x = np.append(np.linspace(-110, 95, 1 << 18), SPECIAL).astype(np.float32)
    found = np.zeros_like(x)
    library.run(ctypes.c_long(x.size), *(ctypes.c_void_p(a.ctypes.data) for a in (x, found)))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = np.exp(x.astype(np.float64))
        wanted = exact.astype(np.float32)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    off = np.abs(found[finite] - exact[finite]) / np.spacing(wanted[finite])
    assert float(np.max(off)) < 1.0


def test_only_loops_in_lanes_have_them() -> None:
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    workload = hwgen.workload(
        "exponentials",
        tensors={"x": "float32[64, 64]", "y": "float32[64, 64]"},
        compute=["y[i, j] = exp(x[i, j])"],
    )
    assert "_exp_float32(x[" in compile_nest(workload, chip).source.c
    assert "expf(x[" in compile_nest(workload, chip, auto=False).source.c
