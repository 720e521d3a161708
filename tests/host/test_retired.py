"""What the code of a host core retires is what it is modelled to, within 15 %: kernels of shipped
chips and workloads, compiled for RISC-V and run in an emulator. `python -m benchmarks.host` prints
all of them."""

from __future__ import annotations

import pytest

from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, load_workload
from tests.host.kernels import ROOT, counted
from tests.host.retired import MISSING, can_count
from tests.sampling import tiered

pytestmark = pytest.mark.skipif(not can_count(), reason=MISSING)

LIMIT = 0.15
KERNELS = [
    ("gemmini", "layernorm"),
    ("gemmini", "relu"),
    ("gemmini", "depthwise_conv2d"),
    ("gemmini", "gemm_requant"),
    ("gemmini", "quantised/add"),
    ("gemmini", "quantised/average_pool"),
    ("gemmini", "quantised/conv2d_single_rounding"),
    ("vta", "conv2d_scaled"),
    ("vta", "quantised/fully_connected"),
    ("tpu_v1", "mlp"),
    ("davinci_core", "quantised/conv2d"),
]
QUICK = [KERNELS[1], KERNELS[8]]


@pytest.mark.parametrize(("chip", "workload"), tiered(KERNELS, QUICK))
def test_kernels(chip: str, workload: str) -> None:
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    compiled = compile_workload(load_workload(ROOT / f"workloads/{workload}.yaml"), hardware)
    works = list(counted(compiled))
    assert works
    for work in works:
        assert work.modelled == pytest.approx(work.retired, rel=LIMIT), work.name
