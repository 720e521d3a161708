"""Operands that stand still along lanes of calls, and loops of extent 1 where calls have lanes:
trees, with what the host or a call of the chip fills in."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.model.reference import random_inputs
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.examine import examine
from tests.sampling import QUICK

ROOT = Path(__file__).parents[2]
LAYERS = ROOT / "tests" / "gemmini" / "workloads"

Sizes = dict[str, int]

CASES: dict[str, tuple[str, str, Sizes, Sizes]] = {
    "a bias along the rows of a block": ("vta", "gemm_requant", {"BATCH": 2}, {"M": 8, "N": 32}),
    "a bias along columns that are lanes": ("vta", "gemm_requant", {}, {"M": 17, "N": 7, "K": 40}),
    "one column": ("gemmini", "gemm_scaled", {}, {"M": 70, "N": 1, "K": 7}),
    "one column without bias": ("gemmini", "gemm_unbiased", {}, {"M": 70, "N": 1, "K": 7}),
    "one product in each sum": ("gemmini", "gemm_full_biased", {}, {"M": 18, "N": 33, "K": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_they_are_lowered_as_trees(case: str) -> None:
    chip, name, parameters, sizes = CASES[case]
    own = LAYERS / f"{name}.yaml"
    file = own if own.exists() else ROOT / "workloads" / f"{name}.yaml"
    workload = load_workload(file, sizes)
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml", parameters)
    found = compile_kernel(workload, hardware, options=QUICK)
    examine(found, random_inputs(workload, 1))
    again = compile_script(workload, hardware, found.script)
    assert again.source.c == found.source.c


def test_the_host_fills_what_stands_still() -> None:
    """One image of the bias: the same number in every row of an entry."""
    workload = load_workload(ROOT / "workloads" / "gemm_requant.yaml", {"M": 8, "N": 32})
    hardware = load_hardware(ROOT / "hw_specs" / "vta.yaml", {"BATCH": 2})
    found = compile_kernel(workload, hardware, options=QUICK)
    (bias,) = (i for i in found.program.images if i.tensor == "bias")
    assert bias.lanes == (2, 16)
    assert str(bias.index[0]) == "p0 * 16 + p3"
