"""Random schedules near those that the search makes, on given chips and on chips that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.codegen.lower import program
from hwgen.errors import HwgenError
from tests.fuzz import tree_campaign as tree_campaign_module
from tests.fuzz.__main__ import main
from tests.fuzz.report import trees_text
from tests.fuzz.tree_campaign import TREES, TreeReport, TreeTally, tree_campaign
from tests.fuzz.tree_schedules import LACKING, PHYSICAL
from tests.sampling import EVERYTHING, THOROUGH

COUNT = 2 * TREES if EVERYTHING else TREES
DRAWS = 14, 7
"""Seeds of drawn chips that follow each other: with those named apart, 200 schedules."""
CHIPS = Path(__file__).resolve().parents[2] / "hw_specs"


def no_nodes(*_: object) -> tuple[()]:
    """Stands in for the synchronisation of a program."""
    return ()


@pytest.mark.parametrize(
    ("chip", "seed", "draws"),
    [
        pytest.param("npu_shared_buffer", 0, 1, marks=THOROUGH),
        ("gemmini", 3, 1),
        pytest.param("", 40, DRAWS[0], marks=THOROUGH),
        pytest.param("", 116, DRAWS[1], marks=THOROUGH),
        pytest.param("", 5024, 1, marks=THOROUGH),
        ("", 101094, 1),
        pytest.param("", 700074, 1, marks=THOROUGH),
        pytest.param("", 1400103, 1, marks=THOROUGH),
        pytest.param("", 1410022, 1, marks=THOROUGH),
        pytest.param("", 1505067, 1, marks=THOROUGH),
        pytest.param("", 1514044, 1, marks=THOROUGH),
        pytest.param("", 1541158, 1, marks=THOROUGH),
        pytest.param("", 1571048, 1, marks=THOROUGH),
        pytest.param("", 1573116, 1, marks=THOROUGH),
    ],
)
def test_variants_are_right_or_refused_for_a_known_reason(chip: str, seed: int, draws: int) -> None:
    path = CHIPS / f"{chip}.yaml" if chip else None
    report = tree_campaign(path, draws * COUNT, seed)
    assert report.ok, report.failures
    assert report.tally.trees >= draws * COUNT
    assert report.tally.right + report.tally.refused.total() == report.tally.trees
    assert set(report.tally.refused) <= {*PHYSICAL, *LACKING}


@THOROUGH
def test_what_is_missing_is_found_and_reduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "synchronise", no_nodes)
    # To reduce one is enough.
    monkeypatch.setattr(tree_campaign_module, "SHOWN_FAILURES", 1)
    arguments = ["schedules", "4", "--spec", "npu_shared_buffer", "--seed", "6"]
    assert main([*arguments, "--jobs", "1"]) == 1
    out, told = capsys.readouterr()
    assert "fuzz: the draw of seed " in told
    assert "WRONG" in out
    assert "H760" in out
    assert "drawn by: python -m tests.fuzz schedules 8 --seed" in out


@pytest.mark.parametrize(
    ("error", "kind"),
    [(HwgenError("H717", "a defect"), "compiling"), (ValueError("a defect"), "crash")],
)
def test_a_compiler_that_fails_is_found(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(tree_campaign_module, "compile_case", failing)
    (number, failure), *_ = tree_campaign(CHIPS / "npu_shared_buffer.yaml", TREES, 0).failures
    assert (number, failure.kind) == (0, kind)
    assert "a defect" in failure.message


def test_the_same_seed_is_the_same_campaign() -> None:
    one, again = (tree_campaign(None, TREES // 2, 7).tally for _ in range(2))
    assert one == again


def test_what_has_been_counted_survives_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_campaign_module, "BATCH", 1)

    def step(done: int, *_: object) -> None:
        if done:
            raise KeyboardInterrupt

    report = tree_campaign(None, 10 * TREES, 101094, progress=step)
    assert report.interrupted
    assert 0 < report.tally.trees < report.count
    assert trees_text(report).startswith("interrupted before 80 schedules: ")


def test_an_interrupt_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(*_: object, **__: object) -> TreeReport:
        return TreeReport(None, 0, 8, TreeTally(trees=4, right=4), (), interrupted=True)

    monkeypatch.setattr(tree_campaign_module, "tree_campaign", cut)
    assert main(["schedules", "8"]) == 130
    out, told = capsys.readouterr()
    assert "run, equal to the reference       4" in out
    assert told == "interrupted\n"
