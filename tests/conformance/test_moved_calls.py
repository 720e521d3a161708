"""Kernels of chips behind a host whose calls move: regressions that random variants found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import hwgen
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).parents[2]

RESIDUAL = {
    "mvin_res": {
        "unit": "load",
        "iterators": {"c": "DIM"},
        "semantics": "dst[c] = src[c]",
        "operands": {
            "dst": {"memory": "residual"},
            "src": {"memory": "dram", "dtype": "int32", "address": "0..268435455"},
        },
        "loops": {"r": {"extent": "1..DIM", "strides": {"dst": 1, "src": "0..16777215"}}},
        "software_loops": 8,
        "cycles": "2 + transfer",
        "emit": "mvin_res({{ src.address }}, {{ dst.address }}, {{ r.extent }});",
    },
    "mvout_add": {
        "unit": "store",
        "iterators": {"c": "DIM"},
        "semantics": "dst[c] = int8(clip(src[c] + res[c], -128, 127))",
        "operands": {
            "dst": {"memory": "dram", "dtype": "int8", "address": "0..268435455"},
            "src": {"memory": "acc"},
            "res": {"memory": "residual"},
        },
        "loops": {"r": {"extent": "1..DIM", "strides": {"src": 1, "res": 1, "dst": "0..16777215"}}},
        "software_loops": 8,
        "cycles": "2 + transfer",
        "emit": "mvout_add({{ src.address }}, {{ res.address }}, {{ r.extent }});",
    },
}


def array() -> dict[str, Any]:
    """The shipped chip that a host issues calls to."""
    return cast(dict[str, Any], read_document(ROOT / "hw_specs" / "gemmini.yaml").data)


def check(kernel: Kernel) -> None:
    """All checks, the comparison with the reference among them."""
    for seed in (0, 1):
        inputs = draw_inputs(kernel.workload, seed)
        for engine in ("python", "c"):
            examine(kernel, inputs, engine)


@pytest.mark.parametrize("rows", tiered([16, 48, 64, 100, 1000], [48, 1000]))
def test_a_store_that_reads_a_loaded_buffer_too(rows: int) -> None:
    """An iteration later, the load of the one after next has taken its slot."""
    spec = array()
    spec["memories"]["residual"] = {
        "kind": "scratchpad", "dtype": "int32", "entry": ["DIM"], "size": f"{rows} * 4 * DIM",
    }  # fmt: skip
    spec["intrinsics"] |= RESIDUAL
    workload = hwgen.workload(
        "residual",
        tensors={
            "a": "int8[96, 64]", "b": "int8[64, 96]", "r": "int32[96, 96]",
            "acc": "int32[96, 96]", "c": "int8[96, 96]",
        },
        compute=[
            "acc[m, n] += a[m, k] * b[k, n]",
            "c[m, n] = int8(clip(acc[m, n] + r[m, n], -128, 127))",
        ],
    )  # fmt: skip
    check(compile_kernel(workload, parse_hardware(spec), options=QUICK))


@pytest.mark.parametrize("sizes", [{"M": 1, "K": 64, "N": 16}, {"M": 5, "K": 160, "N": 256}])
def test_runs_keep_the_distance_that_results_need(sizes: dict[str, int]) -> None:
    spec = array()
    spec["intrinsics"]["matmul"]["result_latency_iterations"] = 8
    spec["intrinsics"]["matmul_first"]["result_latency_iterations"] = 8
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm_scaled.yaml", sizes)
    check(compile_kernel(workload, parse_hardware(spec), options=QUICK))


def test_a_short_simulation_ends_all_loops() -> None:
    """It ended the innermost one only, and waited for a token that was never pushed."""
    workload = hwgen.workload(
        "product",
        tensors={"a": "int8[64, 128]", "b": "int8[128, 64]", "c": "int32[64, 64]"},
        compute=["c[m, n] += a[m, k] * b[k, n]"],
    )
    chip = hwgen.load_hardware(ROOT / "tests" / "specs" / "token_rows.yaml")
    check(compile_kernel(workload, chip, options=QUICK))
