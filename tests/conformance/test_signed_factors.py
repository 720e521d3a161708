"""Bytes on chips whose units multiply those of the other sign alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).resolve().parents[2]
CHIPS = {"vta": "gemm", "gemmini": "matmul", "tpu_v1": "matrix_multiply"}

PRODUCTS = {
    "plain": ("uint8", "int8", "a[m, k] * b[n, k]"),
    "zero point": ("uint8", "int8", "(a[m, k] - 3) * b[n, k]"),
    "widened": ("uint8", "int8", "(int32(a[m, k]) - 3) * int32(b[n, k])"),
    "the other": ("int8", "uint8", "a[m, k] * (b[n, k] - 7)"),
    "both": ("uint8", "uint8", "(a[m, k] - 131) * (b[n, k] - 7)"),
    "middle": ("uint8", "int8", "(a[m, k] - 128) * b[n, k]"),
    "signed": ("int8", "int8", "a[m, k] * b[n, k]"),
    "signed, zero point": ("int8", "int8", "b[n, k] * (a[m, k] + 5)"),
}


def product(case: str) -> Workload:
    left, right, value = PRODUCTS[case]
    return parse_workload(
        {
            "name": "bytes",
            "tensors": {
                "a": f"{left}[19, 37]",
                "b": {"type": f"{right}[23, 37]", "constant": True},
                "acc": "int32[19, 23]",
                "y": "int8[19, 23]",
            },
            "compute": [
                f"acc[m, n] += {value}",
                "y[m, n] = int8(clip(acc[m, n] >> 9, -128, 127))",
            ],
        }
    )


# Weights of tpu_v1 come from a memory of constants, which what the host computes is not.
EVERY = [
    (chip, case)
    for chip in CHIPS
    for case, (left, right, _) in PRODUCTS.items()
    if (chip != "tpu_v1" or right == "int8") and "uint8" in (left, right)
]
FEW = [("vta", "plain"), ("gemmini", "both"), ("vta", "widened"), ("tpu_v1", "middle")]


@pytest.mark.parametrize(("chip", "case"), tiered(EVERY, FEW))
def test_units_multiply_unsigned_bytes(chip: str, case: str) -> None:
    workload, hardware = product(case), load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    kernel = compile_workload(workload, hardware, QUICK)
    assert CHIPS[chip] in kernel.main_intrinsic
    assert "rewrite_expr" in kernel.script
    for data in ("extremes", "random"):
        examine(kernel, draw_inputs(workload, 1, data))


@pytest.mark.parametrize("case", ["signed", "signed, zero point"])
def test_units_of_unsigned_bytes_multiply_signed_ones(case: str) -> None:
    """The activations become unsigned, and the constants stay as they are."""
    workload, hardware = product(case), load_hardware(ROOT / "hw_specs" / "x86_vnni.yaml")
    kernel = compile_workload(workload, hardware, QUICK)
    assert "dot" in kernel.main_intrinsic
    assert "uint8(a[" in kernel.script
    for data in ("extremes", "random"):
        examine(kernel, draw_inputs(workload, 1, data))


def test_a_chip_that_takes_them_is_left_alone() -> None:
    hardware = load_hardware(ROOT / "hw_specs" / "x86_vnni.yaml")
    kernel = compile_workload(product("plain"), hardware, QUICK)
    assert "rewrite_expr" not in kernel.script
