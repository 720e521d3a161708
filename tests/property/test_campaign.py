"""Campaigns find what is wrong, reduce it, and count only what really passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify import examine
from hwgen.verify.campaign import MAX_POINTS, Runner, campaign
from hwgen.verify.compare import Comparison
from hwgen.verify.data import STYLES, draw_inputs, first_difference
from hwgen.verify.strategies import Case
from tests.samples import CHIPS_WITH_UNITS

ROOT = Path(__file__).resolve().parents[2]
SPEC = next(p for p in CHIPS_WITH_UNITS if p.stem == "vta")
GEMM = ROOT / "workloads" / "gemm.yaml"
CONVOLUTION = ROOT / "workloads" / "conv2d_requant.yaml"

Check = Callable[[Workload, HardwareSpec, int], None]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Check], list[tuple[str, ...]]]:
    """Replace compilation and checks by a function; returns the list of what it was called with."""

    def install(check: Check) -> list[tuple[str, ...]]:
        seen: list[tuple[str, ...]] = []

        def compiled(workload: Workload, hardware: HardwareSpec, rank: int) -> Workload:
            seen.append((str(workload.sizes), str(hardware.parameters), str(rank)))
            check(workload, hardware, rank)
            return workload

        def examined(workload: Workload, *_: Any) -> SimpleNamespace:
            sizes = dict(workload.sizes)
            if sizes.get("BROKEN"):
                raise AssertionError("unreachable")
            return SimpleNamespace(comparison=Comparison())

        monkeypatch.setattr(examine, "compile_case", compiled)
        monkeypatch.setattr(examine, "examine", examined)
        return seen

    return install


def passing(workload: Workload, hardware: HardwareSpec, rank: int) -> None:
    del workload, hardware, rank


def failing_from(**limits: int) -> Check:
    def check(workload: Workload, hardware: HardwareSpec, rank: int) -> None:
        del hardware, rank
        sizes = dict(workload.sizes)
        if all(sizes[name] >= limit for name, limit in limits.items()):
            raise ZeroDivisionError("a crash")

    return check


def test_everything_passes(checked: Callable[[Check], list[tuple[str, ...]]]) -> None:
    seen = checked(passing)
    report = campaign(SPEC, [GEMM], 20, seed=3)
    assert report.ok
    assert report.results[0].passed == len(seen)
    assert report.results[0].passed >= 15


def test_the_seed_decides_every_draw(checked: Callable[[Check], list[tuple[str, ...]]]) -> None:
    runs: list[list[tuple[str, ...]]] = []
    for seed in (1, 1, 2):
        seen = checked(passing)
        campaign(SPEC, [GEMM], 15, seed=seed)
        runs.append(seen)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_failure_shrinks_to_one_small_command(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    checked(failing_from(M=5, K=17))
    report = campaign(SPEC, [GEMM], 50, seed=0)
    assert not report.ok
    failure = report.results[0].failure
    assert failure is not None
    sizes = dict(failure.case.sizes)
    assert sizes == {"M": 5, "N": 1, "K": 17}
    assert failure.case.seed == 0
    assert not failure.case.parameters
    assert failure.case.schedule == 0
    assert "ZeroDivisionError: a crash" in failure.message
    assert failure.command.startswith("hwgen simulate --spec ")
    assert " --set workload.K=17 " in failure.command
    assert failure.command.endswith("--seed 0")


def test_a_failure_of_the_workload_as_it_stands_is_found_with_one_example(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    checked(failing_from(N=100))
    failure = campaign(SPEC, [GEMM], 1, seed=0).results[0].failure
    assert failure is not None
    assert dict(failure.case.sizes) == {"M": 1, "N": 100, "K": 1}


def test_a_refusal_is_reported_and_not_counted_as_passed(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    def refuse(workload: Workload, hardware: HardwareSpec, rank: int) -> None:
        del workload, hardware, rank
        raise HwgenError("H301", "no intrinsic does this")

    checked(refuse)
    report = campaign(SPEC, [GEMM], 10, seed=0)
    (result,) = report.results
    assert not report.ok
    assert (result.passed, result.refused, result.runnable) == (0, 1, False)
    assert "H301" in result.reason


def test_a_compiler_error_that_only_a_defect_can_cause_is_a_failure(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    def defect(workload: Workload, hardware: HardwareSpec, rank: int) -> None:
        del workload, hardware, rank
        raise HwgenError("H303", "a match that is none")

    checked(defect)
    assert campaign(SPEC, [GEMM], 5, seed=0).results[0].failure is not None


def test_sizes_that_were_set_are_not_drawn(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    seen = checked(passing)
    campaign(SPEC, [GEMM], 10, seed=0, sizes={GEMM: {"K": 48}})
    assert seen
    assert all("('K', 48)" in sizes for sizes, _, _ in seen)


def test_strides_padding_and_scalars_are_drawn(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    drawn: dict[str, set[int]] = {}

    def note(workload: Workload, hardware: HardwareSpec, rank: int) -> None:
        del hardware
        for name, value in (*workload.sizes, ("rank", rank)):
            drawn.setdefault(name, set()).add(value)

    checked(note)
    campaign(SPEC, [CONVOLUTION], 40, seed=0)
    for name in ("S", "P", "R", "SHIFT", "C", "H", "rank"):
        assert len(drawn[name]) > 2, name


def test_examples_are_bounded() -> None:
    runner = Runner(SPEC, GEMM)
    sizes = (("M", 257), ("N", 257), ("K", 257))
    fitted = runner.fit(Case(sizes=sizes), runner.choices())
    assert fitted is not None
    m, n, k = (v for _, v in fitted.sizes)
    assert MAX_POINTS / 4 < m * n * k <= MAX_POINTS


def test_sizes_that_a_workload_cannot_have_are_drawn_again() -> None:
    runner = Runner(SPEC, CONVOLUTION)
    assert runner.fit(Case(sizes=(("S", 0),)), runner.choices()) is None


def test_progress_reaches_the_number_of_examples(
    checked: Callable[[Check], list[tuple[str, ...]]],
) -> None:
    checked(passing)
    calls: list[tuple[str, int, int]] = []
    campaign(SPEC, [GEMM], 8, seed=0, progress=lambda w, n, of: calls.append((w, n, of)))
    assert calls[0] == ("gemm", 1, 8)
    assert calls[-1] == ("gemm", 8, 8)
    assert [n for _, n, _ in calls] == sorted(n for _, n, _ in calls)


def test_the_command_line_exits_with_1_and_prints_the_command(
    checked: Callable[[Check], list[tuple[str, ...]]], capsys: pytest.CaptureFixture[str]
) -> None:
    checked(failing_from(K=3))
    arguments = ["verify", "--spec", str(SPEC), "--workload", str(GEMM), "--examples", "5"]
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "FAILED" in text
    assert "  reproduce: hwgen simulate " in text
    checked(passing)
    assert main(arguments) == 0
    assert "passed" in capsys.readouterr().out


@pytest.mark.parametrize("style", STYLES)
def test_data_depend_on_the_seed_alone(style: Any) -> None:
    workload = Runner(SPEC, CONVOLUTION).load_workload(())
    one, again, other = (draw_inputs(workload, seed, style) for seed in (1, 1, 2))
    assert first_difference(one, again) is None
    assert first_difference(one, other) is not None
    assert {name: a.shape for name, a in one.items()} == {t.name: t.shape for t in workload.inputs}
