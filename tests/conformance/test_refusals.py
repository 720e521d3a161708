"""What no kernel can do right is refused before there is a program, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import hwgen
from hwgen.codegen.nodes import calls
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from tests.samples import REFUSED, SMALLER

ROOT = Path(__file__).parents[2]


def refusal(workload: Workload, hardware: HardwareSpec) -> str:
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(workload, hardware)
    assert caught.value.code == "H301"
    return caught.value.diagnostic.found


@pytest.mark.parametrize(
    ("dtype", "compute", "reason"),
    [
        ("int32", "y[i] = x[i] + z[i]", "x and z are int8, operands x and y are float32"),
        ("int8", "y[i] = max(x[i], 0)", "x is int8, operand x is float32"),
        ("int8", "y[i] = x[i]", "no store writes y as int8"),
        ("int32", "y[i] += x[i] * z[r]", "x and z are int8, operands a and b are float32"),
    ],
)
def test_a_float_chip_computes_no_integers(dtype: str, compute: str, reason: str) -> None:
    """Its arithmetic rounds where theirs wraps around, and its images hold other bytes than the
    host reads in the tensor's declared type."""
    used = {n: f"int8[{e}]" for n, e in (("x", 5), ("z", 5)) if f"{n}[" in compute}
    workload = hwgen.workload("whole", tensors={**used, "y": f"{dtype}[5]"}, compute=[compute])
    hardware = hwgen.load_hardware(ROOT / "tests" / "specs" / "two_stage.yaml")
    assert reason in refusal(workload, hardware)


def test_a_writer_that_a_store_does_not_accept() -> None:
    """A value repeated over a loop needs an entry of its own, for which a chip without a reset
    has no operation."""
    spec = cast(dict[str, Any], read_document(ROOT / "hw_specs" / "vta.yaml").data)
    del spec["intrinsics"]["reset"]
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if "written_by" in operand:
                operand["written_by"] = [n for n in operand["written_by"] if n != "reset"]
    workload = hwgen.workload(
        "rows", tensors={"x": "int32[5]", "y": "int8[5, 4]"}, compute=["y[i, j] = int8(x[i])"]
    )
    found = refusal(workload, parse_hardware(spec))
    assert "store_out comes nearest, but it reads src only after add" in found


@pytest.mark.parametrize(("pair", "code"), REFUSED.items(), ids=str)
def test_what_shipped_chips_cannot_compute(pair: tuple[str, str], code: str) -> None:
    """The table of shipped workloads that shipped chips have no calls for is true."""
    chip, name = pair
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", SMALLER.get(pair))
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(workload, hardware)
    assert caught.value.code == code


@pytest.mark.parametrize(("scale", "stored"), [("0.25", True), ("-0.25", False)])
def test_relu_before_the_scale_or_after_it(scale: str, stored: bool) -> None:
    """Where the scale is negative, two implementations differ: no kernel has one."""
    workload = hwgen.workload(
        "scaled",
        tensors={
            "a": "int8[16, 16]",
            "b": "int8[16, 16]",
            "s": "int32[16, 16]",
            "y": "int8[16, 16]",
        },
        compute=[
            "s[m, n] += a[m, k] * b[k, n]",
            f"y[m, n] = int8(clip(round(float32(s[m, n]) * {scale}), 0, 127))",
        ],
    )
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    if not stored:
        assert "-0.25" in refusal(workload, hardware)
        return
    found = {c.intrinsic for c in calls(hwgen.compile_kernel(workload, hardware).program.body)}
    assert "mvout_relu" in found
