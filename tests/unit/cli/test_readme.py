"""What the README shows is what the files say and the compiler prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.cli import main
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
UPDATE = "run `python benchmarks/readme.py --excerpts`"


def shown(part: str) -> str:
    found = re.search(
        rf"<!-- {part}:begin -->\n```\w*\n(.*?)\n```\n<!-- {part}:end -->", TEXT, re.S
    )
    assert found is not None, part
    return found[1]


@pytest.mark.parametrize("file", ["hw_specs/vta.yaml", "workloads/gemm.yaml"])
def test_the_excerpts_of_files_are_real(file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8").splitlines()
    block = TEXT.split(f"[{file}]({file}):\n\n```yaml\n")[1].split("```")[0]
    lines = [line for line in block.splitlines() if line]
    assert len(lines) > 3
    assert [line for line in lines if line not in source] == []


def printed(part: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the last command before a part of the README prints, run in the current folder."""
    before = TEXT.split(f"<!-- {part}:begin -->")[0]
    command = re.findall(r"\bhwgen (generate .*?)[`\n]", before)[-1]
    assert main(command.split()) == 0, command
    return capsys.readouterr().out


@pytest.mark.parametrize("part", ["report", "kernel", "script", "array"])
def test_what_the_readme_shows_is_what_its_command_gives(
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = printed(part, capsys)
    match part:
        case "report":
            assert shown(part) == out.split("\n\nwrote ")[0], UPDATE
        case "kernel":
            file = re.findall(r"writes `(out/\w+\.c)`", TEXT)[0]
            assert f"\n{shown(part)}\n" in Path(file).read_text(encoding="utf-8"), UPDATE
        case "script":
            assert shown(part) == out.rstrip("\n"), UPDATE
        case _:
            assert f"\n{shown(part)}\n" in out, UPDATE


def test_links_lead_to_files() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []


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
