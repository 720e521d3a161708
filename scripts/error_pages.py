"""Write docs/errors: a page for each family of error codes, and one that lists them all.

`python -m scripts.error_pages` writes the pages from `docs/errors/H?.yaml`, what each code means,
and from the examples under `tests/error`, whose texts tests hold. `tests/error/test_pages.py` holds
that the pages are what this writes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, cast

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "errors"
EXAMPLES = ROOT / "tests" / "error"

DEFECT = (
    "This is a defect of hwgen; nothing in your chip or workload is wrong. Report the chip, the "
    "workload and the command. `hwgen simulate --schedule 1`, or other sizes, may give a kernel "
    "without it."
)
"""The repair of errors that no user can cause, unless the code has one of its own."""

WIDTH = 100
LANGUAGES = {".yaml": "yaml", ".json": "json", ".py": "python", ".sh": "sh"}


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect that `tests/planted` plants in a kernel for a chip."""

    chip: str
    defect: str
    seed: int


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is written by hand about a code. `example`: a file of `tests/error`, without its
    suffixes; `given`: what caused it, where no file beside the example is that."""

    code: str
    title: str
    cause: str
    repair: str
    example: str
    given: str
    planted: Planted | None


@dataclass(frozen=True, slots=True)
class Family:
    """The codes that begin alike."""

    name: str
    title: str
    codes: tuple[Meaning, ...]


def families() -> tuple[Family, ...]:
    """All that is written by hand, in order."""
    return tuple(_family(path) for path in sorted(PAGES.glob("H?.yaml")))


def _family(path: Path) -> Family:
    read = cast("Any", YAML(typ="safe"))
    data = cast("dict[str, Any]", read.load(path.read_text(encoding="utf-8")))
    title = data.pop("family")
    return Family(path.stem, title, tuple(_meaning(c, m) for c, m in sorted(data.items())))


def _meaning(code: str, given: Mapping[str, Any]) -> Meaning:
    repair = DEFECT if given.get("defect") and "repair" not in given else given["repair"]
    planted = Planted(**given["planted"]) if "planted" in given else None
    example = f"pages/{code}" if planted else given.get("example", "")
    return Meaning(
        code, given["title"], given["cause"], repair, example, given.get("input", ""), planted
    )


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    found = families()
    return {"index.md": _index(found), **{f"{f.name}.md": _page(f) for f in found}}


def _index(found: tuple[Family, ...]) -> str:
    lines = [
        "# Error codes", "",
        fill(
            "Every error has a stable code with one meaning. `hwgen help CODE` prints the section "
            "of a code in the terminal, `hwgen help H4` the titles of a family.", WIDTH,
        ),
    ]  # fmt: skip
    for family in found:
        lines += ["", f"## {family.name}: {family.title}", "", "| code | meaning |", "|---|---|"]
        lines += [
            f"| [{m.code}]({family.name}.md#{m.code.lower()}) | {m.title} |" for m in family.codes
        ]
    return "\n".join(lines) + "\n"


def _page(family: Family) -> str:
    head = f"# {family.name}: {family.title}\n\n[All codes](index.md)\n"
    return "\n".join([head, *(_section(m) for m in family.codes)])


def _section(meaning: Meaning) -> str:
    title = meaning.title[0].upper() + meaning.title[1:]
    parts = [
        f"## {meaning.code}", f"**{title}.**",
        _filled(meaning.cause), _filled(f"**Repair.** {meaning.repair}"),
    ]  # fmt: skip
    if meaning.example:
        parts += _example(meaning)
    return "\n\n".join(parts) + "\n"


def _filled(text: str) -> str:
    return fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _example(meaning: Meaning) -> Iterator[str]:
    printed = _printed(meaning)
    source = printed.with_suffix("") if printed.suffixes[:-1] else _beside(printed)
    if (planted := meaning.planted) is not None:
        yield _filled(
            f"**Example.** A kernel for `{planted.chip}` with a planted defect, {planted.defect},"
        )
    elif meaning.given:
        language = "sh" if meaning.given.startswith("hwgen ") else "python"
        if ".yaml" in meaning.given.partition("\n")[0]:
            language = "yaml"
        yield f"**Example.**\n\n```{language}\n{meaning.given.rstrip()}\n```"
    elif source is not None:
        text = source.read_text(encoding="utf-8").strip()
        if source.parent == EXAMPLES:
            text = _excerpt(source, printed.read_text(encoding="utf-8"))
        yield f"**Example.**\n\n```{LANGUAGES[source.suffix]}\n{text}\n```"
    text = _of(meaning.code, printed.read_text(encoding="utf-8"))
    yield f"gives\n\n```text\n{text}\n```"


def _printed(meaning: Meaning) -> Path:
    (found,) = (
        p
        for p in sorted(EXAMPLES.glob(f"{meaning.example}.*"))
        if p.suffix == ".txt" and p.name.split(".")[0] == Path(meaning.example).name.split(".")[0]
    )
    return found


def _beside(printed: Path) -> Path | None:
    """What a text is printed for, where that is a program or commands of the same name."""
    for suffix in (".py", ".sh"):
        if (source := printed.with_suffix(suffix)).is_file():
            return source
    return None


def _of(code: str, text: str) -> str:
    """Of the errors of a file, the first of a code."""
    errors = re.split(r"\n(?=\S)", text.rstrip())
    return next(e for e in errors if f"error[{code}]" in e)


def _excerpt(source: Path, printed: str) -> str:
    """Of a file with an error, what differs from the valid one, the line that the error names, and
    what these lines are in."""
    lines = source.read_text(encoding="utf-8").splitlines()
    marked = {int(n) - 1 for n in re.findall(rf"^{re.escape(source.name)}:(\d+)", printed, re.M)}
    marked |= _changed(source, lines)
    if not marked or len(lines) <= 12:
        return "\n".join(lines)
    shown = {a for n in marked if n < len(lines) for a in (n, *_around(lines, n))}
    result: list[str] = []
    for n, line in enumerate(lines):
        if n in shown:
            result.append(line)
        elif result and result[-1].strip() != "...":
            following = next((lines[m] for m in range(n, len(lines)) if m in shown), "")
            result.append(" " * _indent(following or line) + "...")
    if result[-1] == "...":
        result.pop()
    return "\n".join(result).replace("# set: ", "# read with --set ")


def _changed(source: Path, lines: list[str]) -> set[int]:
    names = {p.name: p for p in EXAMPLES.glob("*_valid*.yaml")}
    kind = source.name.split("_")[0]
    texts = [p.read_text(encoding="utf-8").splitlines() for n, p in names.items()
             if n.startswith(kind)]  # fmt: skip
    changes = [_inserted(valid, lines) for valid in texts]
    return min(changes, key=len) if changes else set()


def _inserted(valid: list[str], lines: list[str]) -> set[int]:
    found = difflib.SequenceMatcher(None, valid, lines, autojunk=False).get_opcodes()
    return {n for tag, *_, first, last in found if tag != "equal" for n in range(first, last)}


def _around(lines: list[str], number: int) -> Iterator[int]:
    """The keys that a line is under."""
    indent = _indent(lines[number])
    for n in range(number - 1, -1, -1):
        if lines[n].strip() and _indent(lines[n]) < indent:
            indent = _indent(lines[n])
            yield n


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
