"""Pages of the documentation whose commands run: their blocks, in order, in an empty folder.

`sh`: commands, one a line; those of hwgen run here, `# refused` says that one fails. A block whose
first line is a comment with a file's name is that file: YAML goes into the file that is there,
section by section. Other Python runs, and prints or is refused. `text`, and `c` where no file is
named, is what the commands before it printed; `...` stands for any lines between.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hwgen import HwgenError
from tests.commands import run

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:# |/\* )([\w.]+\.(?:yaml|py|c))(?: \*/)?")


@dataclass
class Page:
    """A page as it runs. `outputs`: languages of blocks that were printed; `printed`: since the
    last of them; `commands`: of hwgen."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    outputs: tuple[str, ...] = ("text", "c")
    printed: str = ""
    commands: int = 0
    names: dict[str, object] = field(default_factory=dict[str, object])
    fresh: bool = False

    def run(self) -> None:
        """All blocks; what they say holds."""
        for language, text in blocks(self.path):
            named = _FILE.fullmatch(text.split("\n", 1)[0])
            if named:
                self._file(Path(named[1]), text)
            elif language == "sh":
                self._commands(text)
            elif language == "python":
                self._python(text)
            elif language in self.outputs:
                self._shown(text)

    def _file(self, path: Path, text: str) -> None:
        known = path.read_text("utf-8") if path.exists() else ""
        path.write_text(put(known, text) if known else text, encoding="utf-8")

    def _commands(self, text: str) -> None:
        self._begin()
        for line in text.splitlines():
            if line.startswith("cd "):
                self.monkeypatch.chdir(line.removeprefix("cd "))
                continue
            ran = run(line, self.monkeypatch, self.capsys)
            assert ran.status == ("# refused" in line), f"{line}\n{ran.err}"
            self.printed += ran.out + ran.err
            self.commands += line.startswith("hwgen ")

    def _python(self, text: str) -> None:
        self._begin()
        out, refused = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(text, self.path.name, "exec"), self.names)
            except HwgenError as error:
                refused = f"{error}\n"
        assert not refused or "error[" in self._next(text), refused
        self.printed += out.getvalue() + refused

    def _next(self, text: str) -> str:
        """The block after one of Python."""
        found = [body for _, body in blocks(self.path)]
        return "".join(found[found.index(text) + 1 :][:1])

    def _begin(self) -> None:
        """What follows prints for blocks of its own."""
        if not self.fresh:
            self.printed = ""
        self.fresh = True

    def _shown(self, text: str) -> None:
        self.fresh = False
        parts_in(self.printed, text)


def parts_in(printed: str, text: str) -> None:
    """Hold that a block was printed; `...` on a line of its own stands for any lines."""
    place = 0
    for part in re.split(r"^\.\.\.\n", text, flags=re.MULTILINE):
        place = printed.find(part, place)
        assert place >= 0, f"{part}\nis not in\n{printed}"
        place += len(part)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Languages and texts of a page's blocks."""
    yield from _BLOCK.findall(page.read_text("utf-8"))


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
