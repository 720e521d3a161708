"""The page about explorations: its commands print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.cli import main
from tests.commands import ROOT
from tests.pages import Page, blocks, put
from tests.sampling import THOROUGH

PAGE = ROOT / "docs" / "explore.md"


def test_the_chip_of_the_page_has_the_figures_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_chip", "--like", "npu_shared_buffer"]) == 0
    (sections,) = (text for language, text in blocks(PAGE) if language == "yaml")
    chip = Path("my_chip.yaml")
    chip.write_text(put(chip.read_text(encoding="utf-8"), sections), encoding="utf-8")
    sizes = [f"--set={name}=128" for name in "MNK"]
    command = ["explore", "--spec", "my_chip", "--workload", "gemm", *sizes, "--jobs", "1"]
    capsys.readouterr()
    chosen = ["--set", "KIB=64", "--set", "T=16", "--objective", "cycles,energy,area"]
    assert main([*command, *chosen]) == 0
    row = capsys.readouterr().out.splitlines()[4].split()
    shown = [line.split() for line in PAGE.read_text(encoding="utf-8").splitlines()]
    assert row in shown


@THOROUGH
def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(PAGE, monkeypatch, capsys, outputs=("text",))
    page.run()
    assert page.commands == 3
    assert Path("chips.html").exists()
