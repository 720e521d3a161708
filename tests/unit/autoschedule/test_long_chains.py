"""Statements that read their predecessor more than once: work grows with them, not with 2^n."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import hwgen
from hwgen.autoschedule import search
from hwgen.autoschedule.options import Options
from hwgen.autoschedule.report import Choice
from hwgen.constants import WRITTEN_NODES
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.spec.expression import walk
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

ROOT = Path(__file__).parents[3]


def chain(statements: int, length: int = 300) -> Workload:
    """Each statement reads the one before it twice."""
    names = ["x", *(f"t{n}" for n in range(1, statements)), "y"]
    return hwgen.workload(
        "chain",
        tensors=dict.fromkeys(names, f"int32[{length}]"),
        compute=[
            f"{now}[i] = select({before}[i] < 0, 1, {before}[i])" for before, now in pairwise(names)
        ],
    )


@cache
def compiled(chip: str, statements: int) -> Kernel:
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    return compile_nest(chain(statements), hardware)


@pytest.mark.parametrize("chip", ["cpu_generic", "cuda_generic"])
def test_the_text_grows_with_the_statements(chip: str) -> None:
    some, twice = compiled(chip, 12), compiled(chip, 24)
    assert len(twice.source.c) < 2.2 * len(some.source.c)
    for stage in twice.schedule.state.stages:
        assert sum(1 for _ in walk(stage.value)) <= WRITTEN_NODES
    assert len(twice.schedule.loops()) == len(some.schedule.loops()), "one nest for all of them"


def test_what_is_not_written_out_stays_with_one_worker() -> None:
    found = compiled("cpu_generic", 24)
    kept = [t.name for t in found.schedule.state.tensors if t.role == "intermediate"]
    assert kept
    for tensor in kept:
        assert found.schedule.state.storage[tensor].memory == "stack"
        assert found.schedule.homes[tensor] == found.schedule.loops("y")
    assert "alloc" not in found.source.c


def test_the_result_is_the_same() -> None:
    found = compile_nest(chain(13, 9), hwgen.load_hardware(ROOT / "hw_specs/cpu_generic.yaml"))
    assert len(found.schedule.state.stages) > 1
    assert examine(found, draw_inputs(found.workload, 1), "python").outputs


def test_a_short_chain_is_one_statement() -> None:
    found = compiled("cpu_generic", 4)
    assert [s.tensor for s in found.schedule.state.stages] == ["y"]


def test_inlining_by_hand_is_bounded_too() -> None:
    schedule = hwgen.Schedule(chain(40), hwgen.load_hardware(ROOT / "hw_specs/cpu_generic.yaml"))

    def inline_all() -> None:
        for n in range(1, 40):
            schedule.compute_inline(f"t{n}")

    with pytest.raises(HwgenError) as caught:
        inline_all()
    assert caught.value.code == "H413"
    assert "terms and operations with it, where 10,000 are allowed" in str(caught.value)
    assert len(schedule.edits()) > 5


@pytest.mark.parametrize(
    ("chip", "code", "seconds"),
    [
        ("cpu_generic", "H407", None),
        ("cuda_generic", "H407", None),
        ("cpu_generic", "H411", 0.0),
        ("cuda_generic", "H411", 0.0),
    ],
)
def test_a_search_among_refusals_ends(
    chip: str, code: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where isl gives up, or the time that somebody allowed is over."""
    attempts: list[object] = []

    def refuse(_: hwgen.Schedule, edits: object) -> HwgenError:
        attempts.append(edits)
        return HwgenError(code, "refused")

    def left(*_: object) -> Choice:
        return Choice("acc", "left as it is", 0.0)

    monkeypatch.setattr(search, "attempt", refuse)
    monkeypatch.setattr(search, "_simple", left)
    workload = hwgen.load_workload(ROOT / "workloads" / "matvec.yaml", {"M": 64, "K": 64})
    schedule = hwgen.Schedule(workload, hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml"))
    report = search.autoschedule(schedule, Options(seconds=seconds))
    assert len(attempts) == 1
    assert not report.exhausted
    assert ("search cut short, time limit of 0 s reached" in report.notes) is (seconds is not None)
