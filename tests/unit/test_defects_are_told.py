"""Defects of hwgen are not taken for refusals, where another way is tried after one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen import completing
from hwgen.codegen.lower import trials
from hwgen.codegen.processor import lower as lowering
from hwgen.errors import HwgenError
from hwgen.passes import script_refit
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.script_refit import exceeds
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import load_hardware, load_workload, parse_workload

ROOT = Path(__file__).resolve().parents[2]
DEFECT = "H602"


def _fail(*arguments: object, **keywords: object) -> object:
    del arguments, keywords
    raise HwgenError(DEFECT, "a program that does not fit")


def test_of_a_processors_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """No edit of the automatic scheduler is taken back for it."""
    calls: list[int] = []

    def lower(*arguments: object) -> object:
        calls.append(len(arguments))
        return _fail()

    monkeypatch.setattr(lowering, "lower_nest", lower)
    hardware = load_hardware(ROOT / "hw_specs/cpu_generic.yaml")
    with pytest.raises(HwgenError) as raised:
        compile_nest(load_workload(ROOT / "workloads/relu.yaml"), hardware)
    assert raised.value.code == DEFECT
    assert len(calls) == 1


def test_of_a_schedule_that_is_made_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_refit, "compile_tree", _fail)
    hardware = load_hardware(ROOT / "hw_specs/cpu_generic.yaml")
    tensors = {"a": "int32[8]", "b": "int32[8]"}
    workload = parse_workload({"name": "copy", "tensors": tensors, "compute": ["b[i] = a[i] + 1"]})
    schedule = Schedule(workload, hardware)
    schedule.split("i", factor=4)
    with pytest.raises(HwgenError) as raised:
        exceeds(schedule, schedule.trace(), "", HwgenError("H502", "too large"))
    assert raised.value.code == DEFECT


def test_of_the_kernel_that_a_script_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "compile_workload", _fail)
    hardware = load_hardware(ROOT / "hw_specs/vta.yaml")
    workload = load_workload(ROOT / "workloads/gemm.yaml")
    with pytest.raises(HwgenError) as raised:
        completing._automatic(  # pyright: ignore[reportPrivateUsage]
            Schedule(workload, hardware), completing.DEFAULTS
        )
    assert raised.value.code == DEFECT


def test_of_the_calls_that_a_layout_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "sites_of", _fail)
    hardware = load_hardware(ROOT / "hw_specs/gemmini.yaml")
    with pytest.raises(HwgenError) as raised:
        compile_kernel(load_workload(ROOT / "workloads/gemm_scaled.yaml"), hardware)
    assert raised.value.code == DEFECT
