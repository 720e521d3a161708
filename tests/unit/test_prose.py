"""The pages are in plain English, as far as a program can tell (`scripts/prose.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.prose import ROOT, findings, pages

PLANTED = {
    "Of these, two are used.": "begins with",
    "It runs. What remains is text.": "begins with",
    "A core beside the units runs it.": "beside",
    "The cycles of what is left add up.": "of what",
    "This is " + "very " * 30 + "long.": "33 words",
    "- The bytes are weighed.": "weigh",
}


@pytest.mark.parametrize("text", PLANTED)
def test_a_habit_is_found(text: str) -> None:
    assert any(PLANTED[text] in f.advice for f in findings(text, "page"))


@pytest.mark.parametrize(
    "text",
    [
        "What is an entry?",
        "| Of | What |",
        "```\nOf what\n```",
        "# What it is",
        "Besides, it runs.",
    ],
)
def test_questions_tables_headings_and_code_are_left_alone(text: str) -> None:
    assert [*findings(text, "page")] == []


def test_a_finding_names_its_line() -> None:
    (found,) = findings("One.\n\n```\ncode\n```\n\nOf two.\n", "page.md")
    assert str(found).startswith("page.md:7: begins with")


LEFT = {
    "answers/one-buffer.md": 1,
    "answers/primitives.md": 1,
    "answers/two-banks.md": 1,
    "chips.md": 9,
    "cli.md": 35,
    "design/banks.md": 12,
    "design/host-cores.md": 18,
    "design/lanes-and-hardware-loops.md": 8,
    "design/phases.md": 17,
    "design/report.md": 5,
    "design/runs-of-calls.md": 6,
    "design/schedule.md": 15,
    "design/synchronisation.md": 7,
    "design/trees.md": 43,
    "emitted_c.md": 21,
    "errors/H0.md": 18,
    "errors/H1.md": 20,
    "errors/H2.md": 5,
    "errors/H3.md": 5,
    "errors/H4.md": 12,
    "errors/H5.md": 3,
    "errors/H6.md": 5,
    "errors/H7.md": 8,
    "pipeline.md": 9,
    "schedule.md": 39,
    "spec.md": 41,
    "timing.md": 19,
    "verify.md": 37,
    "workload.md": 12,
}
"""Findings of pages that are still to be edited: these only become fewer."""


@pytest.mark.parametrize("path", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_has_no_habit(path: Path) -> None:
    found = [*findings(path.read_text(encoding="utf-8"), path.name)]
    most = LEFT.get(path.relative_to(ROOT / "docs").as_posix(), 0) if "docs" in path.parts else 0
    assert len(found) <= most, [str(f) for f in found]


def test_pages_that_are_done_are_not_left() -> None:
    counts = {n: len([*findings((ROOT / "docs" / n).read_text("utf-8"), n)]) for n in LEFT}
    assert {n: c for n, c in counts.items() if c} == LEFT
