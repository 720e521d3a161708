"""Sums of floats that read backwards: right at the flags that users compile with."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import hwgen
from hwgen.codegen.nodes import Assign, nodes
from hwgen.codegen.processor.workarounds import around_functions
from hwgen.model.c_compiler import have_compiler
from hwgen.model.folders import FOLDER_VARIABLE
from hwgen.model.native import compile_portable
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import Access
from hwgen.spec.grammar import parse_expression
from tests.unit.codegen_processor import samples

COMPILERS = [
    # The second may have no library for threads.
    (name, flags)
    for name, flags in (("gcc", ""), ("clang", "-fno-openmp"))
    if shutil.which(name)
]


def backwards(statement: str, dtype: str) -> Schedule:
    tensors = {"x": f"{dtype}[16]", "y": f"{dtype}[1]"}
    workload = hwgen.workload(
        "backwards", tensors=tensors, compute=[{"do": statement, "loops": {"k": 16}}]
    )
    s = Schedule(workload, samples.cpu())
    _, inner = s.split("k", factor=4)
    s.unroll(inner)
    return s


@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_a_sum_that_reads_backwards(
    compiler: tuple[str, str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler[0])
    monkeypatch.setenv("CFLAGS", f"{level} {compiler[1]}")
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    s = backwards("y[0] += x[15 - k]", "float32")
    x = np.exp2(np.arange(16)).astype(np.float32)
    outputs = compile_portable(samples.source(s), s.hardware).run({"x": x})
    assert outputs["y"][0] == 65535


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_tile_of_sums_that_read_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-O3")
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    workload = hwgen.workload(
        "tile",
        tensors={"x": "float32[16]", "w": "float32[4]", "y": "float32[4]"},
        compute=[{"do": "y[j] += x[15 - k] * w[j]", "loops": {"k": 16, "j": 4}}],
    )
    s = Schedule(workload, samples.cpu())
    s.split("k", factor=4)
    x, w = np.exp2(np.arange(16)).astype(np.float32), np.arange(4, dtype=np.float32)
    outputs = compile_portable(samples.source(s), s.hardware).run({"x": x, "w": w})
    np.testing.assert_array_equal(outputs["y"], 65535 * w)


@pytest.mark.parametrize(
    ("statement", "dtype", "guarded"),
    [
        ("y[0] += x[15 - k]", "float32", True),
        ("y[0] += x[15 - k] * x[k]", "float64", True),
        ("y[0] += x[k]", "float32", False),
        ("y[0] += x[15 - k]", "int32", False),
        ("y[0] max= x[15 - k]", "float32", False),
    ],
)
def test_only_such_sums_are_guarded(statement: str, dtype: str, guarded: bool) -> None:
    program = samples.program(backwards(statement, dtype))
    before, after = around_functions(program)
    assert bool(before) == bool(after) == guarded
    text = samples.source(backwards(statement, dtype)).c
    assert text.count("#pragma GCC push_options") == text.count("pop_options") == guarded
    assert text.count("#if") == text.count("#endif")


@pytest.mark.parametrize(("index", "guarded"), [("(k + 3) % 4", True), ("k % 4", False)])
def test_a_ring_ends_elsewhere(index: str, guarded: bool) -> None:
    program = samples.program(backwards("y[0] += x[k]", "float32"))
    start, step = (
        n for n in nodes(program.body) if isinstance(n, Assign) and n.target.tensor == "y"
    )
    ring = replace(step, value=Access("x", (parse_expression(index),)))
    before, _ = around_functions(replace(program, body=(start, ring)))
    assert bool(before) == guarded


PARAMETERS = re.compile(r"__launch_bounds__[^(]*\(\d+\) \w+\(([^)]*)\)")


def parameters(s: Schedule) -> list[list[str]]:
    """Those of each function that runs on the device."""
    return [found.split(", ") for found in PARAMETERS.findall(samples.source(s).c)]


@pytest.mark.parametrize("name", samples.WORKLOADS)
def test_no_thread_is_told_that_what_others_write_is_its_own(name: str) -> None:
    """A read of it would come before what waits for them."""
    found = [p for given in parameters(samples.schedule(name, samples.gpu())) for p in given]
    assert found
    assert all(("__restrict__" in p) == p.startswith("const ") for p in found)
    assert any(not p.startswith("const ") for p in found)


@pytest.mark.parametrize(
    ("values", "apart"),
    [
        (("x[i] * 3", "select(t[i] > 0, t[i], w[i])"), False),
        (("x[i] * 3", "select(t[i] > 0, x[i], w[i])"), True),
        (("x[i] * 3", "select(w[i] > 0, t[i], 0)"), True),
        (("x[i] * 3", "t[i] + w[i]"), True),
    ],
)
def test_reads_that_may_be_joined(values: tuple[str, str], apart: bool) -> None:
    """Of what a launch writes, and of what it only reads."""
    made, used = values
    workload = hwgen.workload(
        "choice",
        tensors=dict.fromkeys(("x", "w", "t", "y"), "float32[9]"),
        compute=[f"t[i] = {made}", f"y[i] = {used}"],
    )
    s = Schedule(workload, samples.gpu())
    s.merge("y_i", "i")
    (given,) = parameters(s)
    assert any("__restrict__" in p for p in given) == apart
    assert all(p.startswith("const ") for p in given if "*" in p and p[-1] in "xw")
