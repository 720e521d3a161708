"""Each stage of a tiny kernel, as text: the goldens show what the pipeline decides."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from tests.conftest import Golden

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "stages"
SIZES = {"M": 2, "N": 33, "K": 300}


@pytest.mark.parametrize(
    "stage", ["scop", "dependences", "match", "schedule", "layout", "allocate", "lower"]
)
def test_stage(stage: str, golden: Golden) -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm_requant.yaml", SIZES)
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    golden(HERE / f"{stage}.txt", hwgen.compile_kernel(workload, hardware).stage(stage))
