"""`python -m tests.fuzz`: its usage, and campaigns in which nothing ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.chips import campaign
from tests.fuzz.chips.campaign import ChipReport
from tests.fuzz.chips.campaign import Tally as ChipTally
from tests.fuzz.report import chips_text, schedules_text, trees_text
from tests.fuzz.schedules import ScheduleReport
from tests.fuzz.schedules import Tally as ScheduleTally
from tests.fuzz.tree_campaign import TreeReport, TreeTally

SPEC = "cpu_generic.yaml"


def test_a_campaign_in_which_nothing_ran_says_so() -> None:
    tally = ChipTally(drawn=1)
    chips = ChipReport(None, 7, tally, ())
    schedules = ScheduleReport(Path(SPEC), 7, ScheduleTally(), ())
    trees = TreeReport(None, 7, 8, TreeTally(), ())
    texts = (chips_text(chips, Path("failures")), schedules_text(schedules), trees_text(trees))
    assert not any(r.ok for r in (chips, schedules, trees))
    for text in texts:
        assert text.endswith("\n\nNothing was run.")
    tally.verdicts["none", "equal"] += 1
    assert chips.ok
    assert "Nothing" not in chips_text(chips, Path("failures"))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["chips"],
        ["chips", "0"],
        ["chips", "2", "--workload", "gemm"],
        ["chips", "2", "-o", ""],
        ["schedules", "2", "--seed", "-1"],
        ["schedules", "2", "--set", "M=2"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage:" in "".join(capsys.readouterr())


def test_a_folder_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("compiled first")

    monkeypatch.setattr(campaign, "chip_campaign", worked)
    (tmp_path / "file").write_text("")
    assert main(["chips", "1", "-o", str(tmp_path / "file" / "out")]) == 1
    assert "error[H009]: cannot write the output" in capsys.readouterr().err
