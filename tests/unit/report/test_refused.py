"""Who prevents a kernel: the chip, hwgen, or the file; the words are held on real refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel
from hwgen.report.refused import CHIP, SEARCH, Refusal, refusal
from hwgen.report.text import refusals
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parents[3]
VTA = load_hardware(ROOT / "hw_specs" / "vta.yaml")
INDEX = (ROOT / "docs" / "errors" / "index.md").read_text("utf-8")
KNOWN = set(re.findall(r"^\| \[(H\d{3})\]", INDEX, re.MULTILINE))


def refused(tmp_path: Path, tensors: str, *compute: str) -> Refusal:
    path = tmp_path / "w.yaml"
    lines = "".join(f"  - {c}\n" for c in compute)
    path.write_text(
        f"hwgen: 1\nname: w\nsizes: {{M: 16, N: 32}}\ntensors: {tensors}\ncompute:\n{lines}",
        encoding="utf-8",
    )
    workload = load_workload(path)
    with pytest.raises(HwgenError) as caught:
        compile_kernel(workload, VTA)
    return refusal("w", caught.value, workload, VTA)


def test_a_data_type_that_no_call_moves_is_the_chip(tmp_path: Path) -> None:
    found = refused(tmp_path, "{x: 'float32[M]', y: 'float32[M]'}", "y[m] = max(x[m], 0)")
    assert found.verdict == "chip"
    assert found.text == (
        "the chip cannot: none of its calls moves float32 to or from off-chip memory"
    )


def test_a_function_that_no_call_has_is_the_chip(tmp_path: Path) -> None:
    found = refused(
        tmp_path,
        "{x: 'int32[M, N]', y: 'int8[M, N]'}",
        "y[m, n] = int8(round(float32(x[m, n]) * 0.5))",
    )
    assert (found.verdict, found.because) == ("chip", "none of its calls computes round")


def test_a_form_that_is_not_matched_is_not_the_chip(tmp_path: Path) -> None:
    """VTA has the addition and the types; that nothing was found is hwgen's."""
    found = refused(
        tmp_path, "{x: 'int8[M, N]', y: 'int8[M, N]'}", "y[m, n] = int8(x[m, n] * x[m, n])"
    )
    assert found.error.code == "H301"
    assert found.verdict == "search"
    assert found.text.startswith("not found: its calls have each operation and data type, but")


def test_the_verdict_is_told_with_the_reason(tmp_path: Path) -> None:
    found = refused(tmp_path, "{x: 'float32[M]', y: 'float32[M]'}", "y[m] = max(x[m], 0)")
    lines = refusals([found]).splitlines()
    assert lines[0].startswith("w: cannot run, [H301] ")
    assert lines[1] == f"  verdict: {found.text}"


@pytest.mark.parametrize(
    ("code", "verdict"),
    [("H405", "chip"), ("H611", "chip"), ("H407", "search"), ("H302", "search"), ("H513", "search"),
     ("H744", "defect"), ("H211", "file")],
)  # fmt: skip
def test_a_code_decides_where_it_says_enough(code: str, verdict: str) -> None:
    workload = load_workload(ROOT / "workloads" / "gemm.yaml")
    assert refusal("gemm", HwgenError(code, "x"), workload, VTA).verdict == verdict


def test_a_file_that_does_not_load_was_not_tried() -> None:
    found = refusal("gemm", HwgenError("H301", "x"), None, VTA)
    assert found.text == "not tried: the workload's file has an error"


def test_every_code_with_a_verdict_is_one_that_is_documented() -> None:
    assert CHIP.keys() | SEARCH.keys() <= KNOWN
    assert not CHIP.keys() & SEARCH.keys()
