"""Modelled cycles below the lower bound are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.reference import random_inputs
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.examine import examine
from tests.planted.kernels import with_timing

ROOT = Path(__file__).resolve().parents[3]


def test_a_timing_model_that_forgets_cycles() -> None:
    hardware = load_hardware(ROOT / "hw_specs/vta.yaml")
    workload = load_workload(ROOT / "workloads/gemm.yaml", {"M": 1, "N": 32, "K": 32})
    c = compile_kernel(workload, hardware)
    given = random_inputs(workload, 0)
    bound = lower_bound(c.program, hardware).cycles
    assert examine(c, given).timing.cycles >= bound
    fewer = replace(c.timing, cycles=bound - 1)
    with pytest.raises(HwgenError) as raised:
        examine(with_timing(c, fewer), given)
    assert raised.value.code == "H791"
