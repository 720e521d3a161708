"""The pages that answer a question: their files, commands and output, as they stand there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hwgen.model.c_compiler import have_compiler
from tests.commands import ROOT
from tests.pages import Page
from tests.sampling import tiered

ANSWERS = sorted(p for p in (ROOT / "docs" / "answers").glob("*.md") if p.stem != "index")

pytestmark = pytest.mark.skipif(
    not (have_compiler() and all(map(shutil.which, ("cc", "make", "nm")))), reason="no C compiler"
)


@pytest.mark.parametrize(
    "path",
    tiered(
        ANSWERS,
        [
            p
            for p in ANSWERS
            if p.stem not in ("unit-loops", "addresses", "two-banks", "one-buffer")
        ],
    ),
    ids=lambda p: p.stem,
)
def test_a_page_is_true(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # As a user has it: a search is done once.
    monkeypatch.setenv("HWGEN_CACHE_DIR", str(tmp_path / "cache"))
    page = Page(path, monkeypatch, capsys)
    page.run()
    assert page.commands > 1


def test_there_is_one_for_each_question() -> None:
    assert len(ANSWERS) == 5
    index = (ROOT / "docs" / "answers" / "index.md").read_text("utf-8")
    assert all(f"({p.name})" in index for p in ANSWERS)


def test_output_that_is_none_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    for shown in ("b\n", "a\n...\nc\n", "c\n...\na\n", "d\n"):
        path.write_text(f"```python\nprint('a\\nb\\nc')\n```\n\n```text\n{shown}```\n", "utf-8")
        page = Page(path, monkeypatch, capsys)
        if shown[0] < "c":
            page.run()
            continue
        with pytest.raises(AssertionError, match="is not in"):
            page.run()
