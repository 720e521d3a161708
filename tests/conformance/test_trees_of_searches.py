"""What the search finds: right, on every chip with units, at sizes that end within lanes and tiles.
That scripts make the same programs, `test_scripts.py` and `test_kernels.py` hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.model.compiled import have_compiler
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).resolve().parents[2]

PAIRS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("gemmini", "conv2d_scaled", {"C": 7, "O": 5, "H": 9}),
    ("gemmini", "gemm_scaled", {"M": 70, "N": 90, "K": 150}),
    ("gemmini", "gemm_scaled", {"M": 256, "N": 256, "K": 256}),
    ("npu_shared_buffer", "attention", {"L": 64}),
    ("npu_shared_buffer", "layernorm", {"M": 9}),
    ("npu_shared_buffer", "matmul", {"M": 33, "N": 45, "K": 29}),
    ("tpu_v1", "add", {"M": 3, "N": 300}),
    ("tpu_v1", "conv2d", {"C": 5, "O": 7, "H": 9}),
    ("tpu_v1", "depthwise_conv2d", {"C": 20, "H": 9}),
    ("tpu_v1", "gemm_requant", {"M": 3, "N": 40, "K": 50}),
    ("vta", "add", {"M": 7, "N": 19}),
    ("vta", "conv2d_requant", {"C": 20, "O": 24, "H": 9}),
    ("vta", "depthwise_conv2d", {"C": 20, "H": 9}),
    ("vta", "gemm", {"M": 3, "N": 40, "K": 50}),
    ("vta", "gemm_requant", {"M": 5, "N": 33, "K": 17}),
    ("vta", "relu", {"M": 7, "N": 19}),
    ("vtcm_two_banks", "matmul", {"M": 33, "N": 45, "K": 29}),
)


@pytest.mark.parametrize(("chip", "name", "sizes"), tiered(PAIRS, PAIRS[::4]), ids=str)
def test_the_tree_of_a_search_is_right(chip: str, name: str, sizes: dict[str, int]) -> None:
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    path = ROOT / "workloads" / f"{name}.yaml"
    known = dict(load_workload(path).sizes)
    workload = load_workload(path, {n: v for n, v in sizes.items() if n in known})
    found = compile_kernel(workload, hardware, options=QUICK)
    examine(found, draw_inputs(workload, 2), "both" if have_compiler() else "python")
