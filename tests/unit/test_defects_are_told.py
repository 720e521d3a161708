"""Defects of hwgen are not taken for refusals, where another way is tried after one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen import nest_pipeline, script_refit, scripting
from hwgen.codegen import layout_order
from hwgen.errors import HwgenError
from hwgen.nest_pipeline import compile_nest
from hwgen.schedule import Schedule
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

    monkeypatch.setattr(nest_pipeline, "lower_nest", lower)
    hardware = load_hardware(ROOT / "hw_specs/cpu_generic.yaml")
    with pytest.raises(HwgenError) as raised:
        compile_nest(load_workload(ROOT / "workloads/relu.yaml"), hardware)
    assert raised.value.code == DEFECT
    assert len(calls) == 1


def test_of_a_schedule_that_is_made_to_fit() -> None:
    hardware = load_hardware(ROOT / "hw_specs/cpu_generic.yaml")
    tensors = {"a": "int32[8]", "b": "int32[8]"}
    workload = parse_workload({"name": "copy", "tensors": tensors, "compute": ["b[i] = a[i] + 1"]})
    with pytest.raises(HwgenError) as raised:
        script_refit._fits(  # pyright: ignore[reportPrivateUsage]
            Schedule(workload, hardware), {}, "", _fail
        )
    assert raised.value.code == DEFECT


def test_of_the_kernel_that_a_script_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripting, "compile_kernel", _fail)
    hardware = load_hardware(ROOT / "hw_specs/vta.yaml")
    workload = load_workload(ROOT / "workloads/gemm.yaml")
    with pytest.raises(HwgenError) as raised:
        scripting._automatic(  # pyright: ignore[reportPrivateUsage]
            Schedule(workload, hardware), scripting.DEFAULTS
        )
    assert raised.value.code == DEFECT


def test_of_the_calls_that_a_layout_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_order, "absorb", _fail)
    monkeypatch.setattr(layout_order, "_walks", lambda *_: ())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(HwgenError) as raised:
        layout_order.absorbed_call(*[_Any()] * 4)  # pyright: ignore[reportArgumentType]
    assert raised.value.code == DEFECT


class _Any:
    """Has whatever is asked of it."""

    def __getattr__(self, _: str) -> _Any:
        return self

    def __call__(self, *_: object) -> bool:
        return False
