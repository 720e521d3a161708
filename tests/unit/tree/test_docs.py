"""The page on schedules: its code runs, and the output on it is what comes out."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from hwgen import HwgenError
from hwgen.polyhedral.schedule.script import PRIMITIVES
from scripts.prose import pages
from tests.conftest import Golden
from tests.unit.tree.toy import ROOT

PAGE = ROOT / "docs" / "schedule.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
SHORT, SHORTENED = 2, "  # refused\n"
"""Lines of an error that a block shows whose code says that it is refused."""


def test_the_page_is_true(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        code, shown = block.groups()
        printed = io.StringIO()
        refused = ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(code, PAGE.name, "exec"), names)
            except HwgenError as error:
                lines = f"{error}\n".splitlines(keepends=True)
                refused = "".join(lines[:SHORT] if SHORTENED in code else lines)
        text = printed.getvalue() + refused
        assert shown is not None or not text, f"no place for the output of {code}"
        return f"```python\n{code}```\n" + (f"\n```text\n{text}```\n" if text else "")

    golden(PAGE, BLOCK.sub(run, PAGE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_primitive_has_its_section(primitive: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^### {primitive}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    body = section[1]
    assert "**Legal**" in body
    assert "**Meaning**" in body
    examples = [m.groups() for m in BLOCK.finditer(body)]
    assert any(f"s.{primitive}(" in code for code, _ in examples)
    assert any("error[H4" in (shown or "") for code, shown in examples if primitive in code)
    assert any("error[H" not in (shown or "") for _, shown in examples)


def test_counts_of_primitives_are_those_of_lists() -> None:
    """Pages count all primitives, or those that the question in `answers/primitives.md` names."""
    answer = (ROOT / "docs" / "answers" / "primitives.md").read_text(encoding="utf-8")
    question = answer.split(": ", 1)[1].split(". Nothing", 1)[0]
    asked = [word for word in re.findall(r"\w+", question) if word != "and"]
    assert set(asked) <= set(PRIMITIVES) & set(re.findall(r"\bs\.(\w+)\(", answer))
    assert len(set(asked)) == len(asked)
    assert f"# The {len(asked)} scheduling primitives" in answer
    assert [int(n) for n in re.findall(r"\b[Aa]ll (\d+)\b", answer)] == [len(asked)]
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for count in re.findall(r"\b(\d+) (?:\w+ )?primitives\b", text):
            assert int(count) in (len(asked), len(PRIMITIVES)), page
