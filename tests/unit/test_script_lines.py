"""Lines of a script that are written otherwise read as they did, whatever Python it is."""

from __future__ import annotations

import pytest

from hwgen.polyhedral.schedule.script_lines import edited


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("s.split('i', 4)", "s.split('i', 8)"),
        ("a = s.split('i', 4)", "a = s.split('i', 8)"),
        ("a, b = s.split('i', factor=4)", "a, b = s.split('i', factor=8)"),
        ("(a, b) = s.split('i')", "a, b = s.split('i', 8)"),
        ("a, = s.split('i', 4)", "a, = s.split('i', 8)"),
        ("a, b = s['c'].split('i', 4)", "a, b = s['c'].split('i', 8)"),
    ],
)
def test_an_edit_is_written_with_another_number(line: str, wanted: str) -> None:
    assert edited(line, 1, {(1, "factor"): 8}) == wanted


def test_a_stage_stands_before_the_word() -> None:
    for line in ("s.double_buffer('c', 2)", "s['c'].double_buffer(2)", "s['c'].double_buffer()"):
        text = edited(f"\n{line}", 2, {(1, "slots"): 4})
        assert text == line.replace("2)", "4)").replace("()", "(4)")
