"""The C for the vector unit of a Hexagon DSP, by user-mode emulation (`tests/hexagon.py`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hwgen.codegen.nodes import calls
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.verify.compare import unexplained
from hwgen.verify.data import Style, draw_inputs
from hwgen.verify.examine import examine
from tests.hexagon import built, compiled, executed, least, linear, missing
from tests.sampling import QUICK

UNSIGNED = {"a": "uint8"}
TO_INT32 = {"OUT": "int32"}
LAYER: dict[str, object] = {
    "name": "layer",
    "tensors": {
        "x": "uint8[5, 40]",
        "w": {"type": "int8[40, 149]", "constant": True},
        "b": {"type": "int32[149]", "constant": True},
        "acc": "int32[5, 149]",
        "h": "int32[5, 149]",
        "y": "int8[5, 149]",
    },
    "compute": [
        "acc[m, n] += x[m, k] * w[k, n]",
        "h[m, n] = max(acc[m, n] + b[n], 0)",
        "y[m, n] = int8(clip(h[m, n] >> 8, -128, 127))",
    ],
}
Case = tuple[str | dict[str, object], dict[str, int], dict[str, str], str]
KERNELS: dict[str, Case] = {
    "whole tiles": ("gemm", {"M": 4, "N": 256, "K": 64}, UNSIGNED | TO_INT32, "dot"),
    "tails": ("gemm", {"M": 5, "N": 37, "K": 19}, UNSIGNED | TO_INT32, "dot"),
    "signed": ("gemm", {"M": 5, "N": 37, "K": 19}, TO_INT32, "signed_dot"),
    "low bytes": ("gemm", {"M": 3, "N": 149, "K": 20}, {}, "store_low"),
    "vector": ("matvec", {"M": 35, "K": 22}, TO_INT32, "signed_dot"),
    "requantised": ("gemm_requant", {"M": 7, "N": 149, "K": 40}, UNSIGNED, "store_shifted"),
    "layer": (LAYER, {}, {}, "relu"),
    "sum of bytes": ("add", {"M": 3, "N": 149}, {}, "add_bytes"),
    "maximum of bytes": ("relu", {"M": 3, "N": 149}, {}, "relu_bytes"),
}
"""Workloads, their sizes and types, and an intrinsic that the kernel must use."""


executes = pytest.mark.skipif(bool(missing()), reason=f"no {missing()}")


@cache
def made(case: str) -> Kernel:
    workload, sizes, types, _ = KERNELS[case]
    return compiled(workload, sizes, types, QUICK)


@pytest.mark.parametrize("case", KERNELS)
def test_units_compute_it(case: str) -> None:
    kernel = made(case)
    assert not kernel.program.codes
    assert KERNELS[case][-1] in {call.intrinsic for call in calls(kernel.program.body)}
    examine(kernel, draw_inputs(kernel.workload, 0), "python")


@executes
@pytest.mark.parametrize("case", KERNELS)
def test_executed_c_is_equal(case: str, tmp_path: Path) -> None:
    kernel = made(case)
    program = built(kernel, tmp_path)
    styles: tuple[Style, ...] = ("random", "extremes")
    for seed, style in enumerate(styles):
        inputs = draw_inputs(kernel.workload, seed, style)
        expected = run_reference(kernel.workload, inputs)
        outputs = dict.fromkeys(expected, executed(kernel, program, inputs).output)
        assert unexplained(kernel.workload, inputs, outputs, expected) is None


@executes
@pytest.mark.parametrize("case", ["whole tiles", "tails", "signed", "requantised"])
def test_no_product_is_wasted(case: str, tmp_path: Path) -> None:
    kernel = made(case)
    sizes = KERNELS[case][1]
    found = executed(kernel, built(kernel, tmp_path), draw_inputs(kernel.workload, 0))
    assert found.products == least(sizes["M"], sizes["N"], sizes["K"])


@executes
def test_nearly_every_packet_has_a_product(tmp_path: Path) -> None:
    kernel = compiled(linear(4, 768, 1024), {}, {}, QUICK)
    found = executed(kernel, built(kernel, tmp_path), draw_inputs(kernel.workload, 0))
    assert found.products == least(4, 768, 1024)
    assert found.packets <= 1.10 * found.products


@executes
def test_requantisation_stays_in_registers(tmp_path: Path) -> None:
    sizes, counts = {"M": 8, "N": 256, "K": 256}, dict[str, int]()
    for name, types in (("gemm", UNSIGNED | TO_INT32), ("gemm_requant", UNSIGNED)):
        kernel = compiled(name, sizes, types, QUICK)
        (tmp_path / name).mkdir()
        inputs = draw_inputs(kernel.workload, 0)
        counts[name] = executed(kernel, built(kernel, tmp_path / name), inputs).packets
    assert counts["gemm_requant"] <= 1.02 * counts["gemm"]
