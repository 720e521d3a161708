"""Errors on the terminal: the line, a caret under what is meant, and colour where it is wanted."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.cli.shown_errors import WIDTH, shown
from hwgen.errors import Diagnostic, Location

ROOT = Path(__file__).resolve().parents[3]
SEVERAL = ROOT / "tests" / "error" / "spec_several_errors.yaml"


def told(path: Path, text: str, line: int, column: int, found: str = "") -> list[str]:
    """The quoted line and the caret of an error in a file of this text."""
    path.write_text(text, encoding="utf-8")
    diagnostic = Diagnostic("H101", "bad", Location(str(path), line, column), found=found)
    lines = shown([diagnostic]).split("\n")
    assert lines[0] == f"{path}:{line}:{column}: error[H101]: bad"
    return [x for x in lines[1:] if not x.startswith("  found:")]


def test_check_says_every_error_with_its_line_and_a_caret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", str(SEVERAL)]) == 1
    captured = capsys.readouterr()
    source = SEVERAL.read_text(encoding="utf-8").splitlines()
    lines = captured.err.splitlines()
    heads = [n for n, line in enumerate(lines) if ": error[H" in line]
    assert len(heads) == 7
    for head in heads:
        _, line, column = lines[head].split(": error[")[0].rsplit(":", 2)
        number, _, quoted = lines[head + 1].partition(" | ")
        assert int(number) == int(line)
        assert quoted == source[int(line) - 1].rstrip()
        caret = lines[head + 2].partition(" | ")[2]
        assert caret.strip("^ ") == ""
        assert caret.index("^") >= int(column) - 1
    assert lines[-1] == "7 errors"
    assert captured.out == ""


def test_the_caret_marks_the_whole_of_what_was_found(tmp_path: Path) -> None:
    assert told(tmp_path / "a.yaml", "x:\n  size: 4 KB\n", 2, 9, "4 KB") == [
        "     2 |   size: 4 KB",
        "       |         ^^^^",
    ]


def test_a_word_inside_the_text_at_the_column_is_marked(tmp_path: Path) -> None:
    assert told(tmp_path / "a.yaml", 'free: "put({{ bufer }});"\n', 1, 7, "bufer") == [
        '     1 | free: "put({{ bufer }});"',
        "       |               ^^^^^",
    ]


def test_of_a_word_that_stands_there_twice_the_column_is_marked(tmp_path: Path) -> None:
    shown_lines = told(tmp_path / "a.yaml", "free: (bufer, bufer)\n", 1, 7, "bufer")
    assert shown_lines[1] == "       |       ^"


def test_wide_characters_take_two_places(tmp_path: Path) -> None:
    assert told(tmp_path / "a.yaml", "漢字: x\n", 1, 5, "x")[1] == "       |       ^"


def test_what_a_terminal_would_act_on_is_not_sent_to_it(tmp_path: Path) -> None:
    quoted = told(tmp_path / "a.yaml", "a: \x1b[2J\x07b\tc\n", 1, 1)[0]
    assert quoted == "     1 | a: \ufffd[2J\ufffdb c"


@pytest.mark.parametrize("column", [1, 250, 999])
def test_a_long_line_is_cut_around_what_is_meant(column: int, tmp_path: Path) -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(1000))
    quoted, caret = told(tmp_path / "a.yaml", text + "\n", 1, column)
    body = quoted.partition(" | ")[2]
    assert len(body) <= WIDTH + 6
    assert body[caret.partition(" | ")[2].index("^")] == text[column - 1]


@pytest.mark.parametrize("where", [(9, 1), (0, 0), (1, 0)])
def test_a_line_that_is_not_there_is_not_quoted(where: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("x: 1\n", encoding="utf-8")
    diagnostic = Diagnostic("H101", "bad", Location(str(file), *where))
    assert shown([diagnostic]) == str(diagnostic)


def test_a_file_that_is_no_text_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xff\xfe\n")
    diagnostic = Diagnostic("H010", "bad", Location(str(file), 1, 1))
    assert shown([diagnostic]) == str(diagnostic)
    gone = Diagnostic("H010", "bad", Location(str(tmp_path / "gone.yaml"), 1, 1))
    assert shown([gone]) == str(gone)


def on_terminal(environment: dict[str, str]) -> str:
    """What `check` writes to standard error where that is a terminal."""
    master, slave = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hwgen", "check", str(SEVERAL)],
        stderr=slave,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env=kept | {"TERM": "xterm"} | environment,
    )
    os.close(slave)
    read = b""
    try:
        while part := os.read(master, 65536):
            read += part
    except OSError:  # Linux: the other end is closed.
        pass
    assert process.wait(60) == 1
    os.close(master)
    return read.decode().replace("\r\n", "\n")


def test_colour_on_a_terminal_and_none_where_the_user_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", str(SEVERAL)]) == 1
    plain = capsys.readouterr().err
    assert "\x1b" not in plain
    coloured = on_terminal({})
    assert "\x1b[31m" in coloured
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal(environment) == plain
