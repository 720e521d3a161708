"""README and pages show what the files say and the compiler prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.cli import main
from tests.pages import Page, parts_in
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
_OUTPUT = re.compile(r"^<!-- output: hwgen (.*) -->\n```\w*\n(.*?\n)```$", re.MULTILINE | re.DOTALL)
OUTPUTS = [
    pytest.param(command, text, id=f"{page.name}-{command.split()[-1]}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for command, text in _OUTPUT.findall(page.read_text(encoding="utf-8"))
]


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert len(text.splitlines()) <= 170


@THOROUGH
def test_the_chip_of_the_readme_compiles_to_its_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(README, monkeypatch, capsys)
    page.run()
    assert page.commands == 1
    simulate = ["simulate", "--spec", "npu.yaml", "--workload", "gemm"]
    assert main(simulate) == 0
    assert "equal to the reference, bit for bit" in capsys.readouterr().out


@THOROUGH
def test_the_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "kernel.svg"
    kernel = ["--spec", "npu_shared_buffer", "--workload", "mlp", "--set", "M=160"]
    assert main(["generate", *kernel, "--report", str(drawn)]) == 0
    assert drawn.read_bytes() == (ROOT / "docs" / "images" / "kernel.svg").read_bytes()


@pytest.mark.parametrize(("command", "text"), OUTPUTS)
def test_pages_show_what_commands_print(
    command: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    parts_in(capsys.readouterr().out, text)


def test_five_pages_show_output() -> None:
    assert len(OUTPUTS) == 5


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("nothing", 2, "unknown section nothing; there are: cycles, "),
        pytest.param("cycle", 2, "unknown section cycle; did you mean 'cycles'?", marks=THOROUGH),
        ("--help", 0, "\n  networks      Several stages as the search has them"),
        pytest.param("-h", 0, "usage: python benchmarks/run.py [SECTION ...]\n", marks=THOROUGH),
    ],
)
def test_the_benchmarks_know_their_sections(name: str, status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert said in (done.stderr if status else done.stdout)
