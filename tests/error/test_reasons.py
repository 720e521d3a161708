"""Errors that blame what is wrong, and nothing that stands beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.scripting import compile_script
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

ROOT = Path(__file__).parents[2]

SCRIPT = """\
c_n_o, c_n_i = s.split('c_n', factor=16)
s.set_scope('acc', 'acc')
n_o, n_i = s.split('n', factor=16)
k_o, k_i = s.split('k', factor=16)
s.reorder('m', n_o, k_o, n_i, k_i)
acc_init = s.decompose_reduction('acc', 'm')
{caches}s.tensorize('n_i_init', 'reset')
s.tensorize(n_i, 'gemm')
s.tensorize(c_n_i, 'store_out')
s.tensorize(a_inp_1_i, 'load_inp')
s.tensorize(b_wgt_0_i, 'load_wgt')
"""
A = """\
a_inp = s.cache_read('a', 'inp')
a_inp_1_o, a_inp_1_i = s.split('a_inp_1', factor=16)
"""
B = """\
b_wgt = s.cache_read('b', 'wgt')
b_wgt_0_o, b_wgt_0_i = s.split('b_wgt_0', factor=16)
b_wgt_1_o, b_wgt_1_i = s.split('b_wgt_1', factor=16)
s.reorder(b_wgt_0_o, b_wgt_1_o, b_wgt_0_i, b_wgt_1_i)
"""


def refused(chip: str, tensors: dict[str, str], *compute: str | dict[str, Any]) -> HwgenError:
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(
            hwgen.workload("refused", tensors=tensors, compute=list(compute)), hardware
        )
    return caught.value


@pytest.mark.parametrize(
    ("chip", "dtype", "wide"),
    [("vta", "int8", "int32"), ("npu_shared_buffer", "float32", "float32")],
)
def test_padding_inside_a_sum_is_what_no_call_computes(chip: str, dtype: str, wide: str) -> None:
    """Nothing is wrong with the weight beside it."""
    tensors = {"x": f"{dtype}[8, 16]", "w": f"{dtype}[3, 16]", "y": f"{wide}[8, 16]"}
    padding = "select(i + r >= 1 and i + r < 9, x[i + r - 1, c], 0)"
    error = refused(chip, tensors, f"y[i, c] += {padding} * w[r, c]")
    found, repair = error.diagnostic.found, error.diagnostic.repair
    assert error.code == "H301"
    assert f"`{padding}` depends on where its loops stand" in found
    assert "x_padded[...] = select(..., x[...], ...)" in repair
    assert "w[r, c]" not in repair


def test_cases_that_loops_decide_become_statements() -> None:
    tensors = {"x": "float32[8]", "z": "float32[8]", "y": "float32[8]"}
    error = refused("npu_shared_buffer", tensors, "y[i] = select(i < 4, x[i], z[i])")
    assert "a statement for each case" in error.diagnostic.repair


def test_a_store_that_is_not_what_is_missing() -> None:
    same = "int8[16, 32]"
    tensors = {"x": same, "b": same, "y1": same, "y2": same}
    error = refused(
        "vta", tensors, "y1[m, n] = int8(x[m, n] + b[m, n])", "y2[m, n] = int8(max(y1[m, n], 0))",
        {"do": "y1[m, n] = int8(max(y1[m, n], 1))", "loops": {"m": 8, "n": 32}},
    )  # fmt: skip
    assert error.code == "H301"
    assert "a store writes y1 from `int8(x[m, n] + b[m, n])`, but y1 is read again" in str(error)


def test_independent_lines_may_stand_in_any_order() -> None:
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 2, "N": 32, "K": 32})
    for caches in (A + B, B + A):
        kernel = compile_script(workload, hardware, SCRIPT.format(caches=caches))
        examine(kernel, draw_inputs(workload, 1))
