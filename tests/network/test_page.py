"""The page about networks: its commands run, in order, on a small model that is made here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hwgen.model.c_compiler import have_compiler
from tests.commands import ROOT
from tests.models import WITH_RUNTIME, small_network
from tests.pages import Page
from tests.sampling import THOROUGH

PAGE = ROOT / "docs" / "networks.md"


@THOROUGH
@WITH_RUNTIME
@pytest.mark.skipif(not (have_compiler() and shutil.which("cc")), reason="no C compiler")
def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.tflite").write_bytes(small_network())
    page = Page(PAGE, monkeypatch, capsys, outputs=("text",))
    page.run()
    assert page.commands == 3
