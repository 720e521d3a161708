"""The page about a first chip: its blocks are put into the files, its commands run, in order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwgen.model.c_compiler import have_compiler
from tests.commands import ROOT, run

PAGE = ROOT / "docs" / "first-chip.md"


def blocks() -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def sections(text: str, indent: str = "") -> list[str]:
    """The keys of one level with what belongs to them; first what stands before them."""
    return re.split(rf"^(?={indent}\w+:)", text, flags=re.MULTILINE)


def key(section: str) -> str:
    return section.split(":", maxsplit=1)[0].strip()


def put(text: str, new: str, indent: str = "") -> str:
    """A file with the sections of a block in the place of its own of the same names; the entries of
    `intrinsics` one by one."""
    mine = {key(s): s for s in sections(new, indent)[1:]}
    parts = sections(text, indent)
    assert mine.keys() <= {key(p) for p in parts[1:]}
    for number, part in enumerate(parts[1:], 1):
        given = mine.get(key(part))
        if given is not None and key(part) == "intrinsics":
            parts[number] = put(part, given, "  ")
        elif given is not None:
            parts[number] = given if indent else given.rstrip() + "\n\n"
    return "".join(parts)


def test_sections_are_put_in_place() -> None:
    old = "# A\na: 1\nintrinsics: # all\n  x:\n    u: 1\n  y:\n    u: 2\nb: 3\n"
    assert put(old, "# f\nintrinsics:\n  y:\n    u: 9\n") == old.replace("u: 2", "u: 9")
    assert put(old, "b: 4\n") == old.replace("b: 3", "b: 4") + "\n"


@pytest.mark.skipif(not (have_compiler() and shutil.which("cc")), reason="no C compiler")
def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, commands = "", 0
    for language, text in blocks():
        if language == "yaml":
            file = Path(text.split("\n", 1)[0].removeprefix("# "))
            file.write_text(put(file.read_text("utf-8"), text), encoding="utf-8")
        elif language == "sh":
            printed = ""
            for line in text.splitlines():
                ran = run(line, monkeypatch, capsys)
                assert ran.status == ("# refused" in line), f"{line}\n{ran.err}"
                printed += ran.out + ran.err
                commands += 1
        else:
            assert language == "text"
            assert text in printed, printed
    assert commands > 8
    chip = Path("ex8.yaml").read_text("utf-8")
    assert chip.count("EX8") == 1
    assert "8192" not in chip
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "gemm_ex8.c", "gemm_ex8.h", "gemm_ex8_model.c",
    }  # fmt: skip
