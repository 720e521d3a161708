"""Lines of a shell, run here where they are commands of hwgen or of its campaigns."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hwgen.cli import main
from tests.fuzz.__main__ import main as fuzz
from tests.fuzz.report import FUZZ

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a line printed, without this machine's paths, and its exit status."""

    status: int
    out: str
    err: str


def run(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Run `VARIABLE=VALUE hwgen ... > FILE`, a campaign of `python -m tests.fuzz`, another program,
    which must succeed, or a comment."""
    words = shlex.split(line, comments=True)
    if not words:
        return Ran(0, "", "")
    if tuple(words[:3]) == FUZZ:
        status = fuzz(words[3:])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)
    if "hwgen" not in words:
        # A shell's own line: redirections too.
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
        return Ran(0, done.stdout, done.stderr)
    at = words.index("hwgen")
    for word in words[:at]:
        monkeypatch.setenv(*word.split("=", 1))
    file = words[-1] if words[-2] == ">" else ""
    status = main(words[at + 1 : -2] if file else words[at + 1 :])
    captured = capsys.readouterr()
    if file:
        Path(file).write_text(captured.out, encoding="utf-8")
    out, err = (text.replace(f"{ROOT}/", "") for text in captured)
    return Ran(status, out, err)
