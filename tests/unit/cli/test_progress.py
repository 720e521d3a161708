"""Progress only goes forward, whatever the work behind it reports."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.cli import progress
from hwgen.cli.progress import Bar, Forward, campaign_progress

REPORTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)))


@given(REPORTS)
def test_a_share_never_falls_and_never_passes_the_end(reports: list[tuple[int, int]]) -> None:
    forward = Forward()
    shares = [forward(done, steps) for done, steps in reports]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


def test_a_search_after_another_still_moves_the_bar() -> None:
    forward = Forward()
    first = [forward(done, 4) for done in range(5)]
    second = [forward(done, 8) for done in range(9)]
    assert first == sorted(set(first))
    assert second[1:] == sorted(set(second[1:]))
    assert first[-1] == second[0] < second[-1] < 1


def test_more_work_found_does_not_take_the_bar_back() -> None:
    forward = Forward()
    half = forward(5, 10)
    assert forward(6, 100) == half
    assert forward(90, 100) > half


class Terminal(io.StringIO):
    """Standard error that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The shares that rich is given from now on, by any bar."""
    from rich.progress import Progress, TaskID

    shares: list[float] = []
    monkeypatch.setattr(sys, "stderr", Terminal())

    def update(self: Progress, task: TaskID, *, completed: float, **_: object) -> None:
        total = self.tasks[task].total
        assert total is not None
        shares.append(completed / total)

    monkeypatch.setattr(Progress, "update", update)
    return shares


def test_the_bar_of_a_kernel_of_several_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = drawn(monkeypatch)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with ExitStack() as stack:
        bar = Bar("attention", stack)
        for steps in (10, 30, 20):
            for done in range(steps + 1):
                bar(done, steps)
    assert len(shares) == 63
    assert shares == sorted(shares)
    assert shares[-1] > 0.9


def test_the_bar_of_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = drawn(monkeypatch)
    with campaign_progress("verify", 20) as report:
        for name, done in (("a", 1), ("a", 10), ("b", 3), ("a", 2), ("b", 10)):
            report(name, done, 10)
    assert shares == [1 / 20, 10 / 20, 13 / 20, 13 / 20, 1]


def test_lines_without_a_terminal_count_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with campaign_progress("verify", 10) as report:
        for done in (1, 4, 3):
            report("gemm", done, 10)
    assert capsys.readouterr().err == ("verify: gemm 1/10\nverify: gemm 4/10\nverify: gemm 4/10\n")
