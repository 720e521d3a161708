"""The page about a first chip: its blocks are put into the files, its commands run, in order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hwgen.model.c_compiler import have_compiler
from tests.commands import ROOT
from tests.pages import Page, put

PAGE = ROOT / "docs" / "first-chip.md"


def test_sections_are_put_in_place() -> None:
    old = "# A\na: 1\nintrinsics: # all\n  x:\n    u: 1\n  y:\n    u: 2\nb: 3\n"
    assert put(old, "# f\nintrinsics:\n  y:\n    u: 9\n") == old.replace("u: 2", "u: 9")
    assert put(old, "b: 4\n") == old.replace("b: 3", "b: 4") + "\n"


@pytest.mark.skipif(not (have_compiler() and shutil.which("cc")), reason="no C compiler")
def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(PAGE, monkeypatch, capsys)
    page.run()
    assert page.commands > 8
    chip = Path("ex8.yaml").read_text("utf-8")
    assert chip.count("EX8") == 1
    assert "8192" not in chip
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "gemm_ex8.c", "gemm_ex8.h", "gemm_ex8_model.c",
    }  # fmt: skip
