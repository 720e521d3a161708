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


@pytest.mark.parametrize("path", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_has_no_habit(path: Path) -> None:
    assert [*findings(path.read_text(encoding="utf-8"), path.name)] == []
