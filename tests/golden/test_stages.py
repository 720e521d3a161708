"""Each stage of a tiny kernel, as text: the goldens show what the pipeline decides."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.passes.kernel import Kernel
from tests.conftest import Golden

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "stages"
SIZES = {"M": 2, "N": 33, "K": 300}


@cache
def kernel() -> Kernel:
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm_requant.yaml", SIZES)
    return hwgen.compile_kernel(workload, hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml"))


@pytest.mark.parametrize(
    "stage", ["scop", "dependences", "match", "schedule", "layout", "allocate", "lower"]
)
def test_stage(stage: str, golden: Golden) -> None:
    golden(HERE / f"{stage}.txt", kernel().stage(stage))


def test_the_cost_of_loops(golden: Golden) -> None:
    """The page about time shows it too."""
    sizes = {"M": 256, "N": 256, "K": 256}
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", sizes)
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    text = hwgen.compile_kernel(workload, chip).stage("cost")
    golden(HERE / "cost.txt", text)
    page = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8")
    assert f"```\n{text.rstrip()}\n```" in page
