"""Errors as a terminal shows them: the line of the file quoted, a caret under what is meant, colour
where standard error is a terminal that wants some."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from hwgen.errors import Diagnostic, HwgenError, Location

WIDTH = 100
"""Characters of a quoted line; a longer one is cut on both sides of what is meant."""
MAX_BYTES = 1 << 20
"""A larger file is not read again for one of its lines."""

_LABELS = {"found": "red", "allowed": "cyan", "repair": "green", "field": "blue"}


def wants_colour() -> bool:
    """Whether standard error is a terminal that shows colours, and the user has not said no
    (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr.isatty()


def shown(diagnostics: Sequence[Diagnostic], *, colour: bool = False) -> str:
    """The text of errors, each with the line that it is about; after several, how many."""
    lines: dict[str, list[str]] = {}
    texts = [_one(d, lines, colour) for d in diagnostics]
    if len(texts) > 1:
        texts.append(f"{len(texts)} errors")
    return "\n".join(texts)


def _one(diagnostic: Diagnostic, read: dict[str, list[str]], colour: bool) -> str:
    first, *rest = str(diagnostic).split("\n")
    quoted = _quoted(diagnostic, read)
    if not colour:
        return "\n".join([first, *quoted, *rest])
    said = f"error[{diagnostic.code}]"
    first = first.replace(said, typer.style(said, fg="red", bold=True), 1)
    quoted = [*quoted[:-1], *(typer.style(line, fg="red") for line in quoted[-1:])]
    return "\n".join([first, *quoted, *map(_labelled, rest)])


def _labelled(line: str) -> str:
    """A line of a diagnostic with its label coloured."""
    found = re.match(r"  (field|found|allowed|repair):", line)
    if found is None:
        return line
    return typer.style(found[0], fg=_LABELS[found[1]]) + line[found.end() :]


def _quoted(diagnostic: Diagnostic, read: dict[str, list[str]]) -> list[str]:
    """The line that is meant and a caret below it; nothing where there is none to show."""
    where = diagnostic.location
    if where is None or not where.line or not where.column:
        return []
    lines = _lines(where, read)
    if where.line > len(lines):
        return []
    # Before the column's characters are counted: what a terminal would act on becomes a sign.
    text = "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in
                   lines[where.line - 1])  # fmt: skip
    column, length = _meant(text, min(where.column - 1, len(text)), diagnostic.found)
    text, column = _cut(text, column)
    marked = text[column : column + max(1, length)]
    from rich.cells import cell_len  # A wide character takes two places.

    number = f"{where.line:>6}"
    pointer = " " * cell_len(text[:column]) + "^" * max(1, cell_len(marked))
    return [f"{number} | {text}".rstrip(), f"{'':>{len(number)}} | {pointer}"]


def _meant(text: str, column: int, found: str) -> tuple[int, int]:
    """Where what was found begins, and its characters: at the column, or, of a text that begins
    there, the one place that has this word."""
    if text.startswith(found, column):
        return column, max(1, len(found))
    places = [
        m.start() for m in re.finditer(rf"\b{re.escape(found)}\b", text) if m.start() > column
    ]
    if re.fullmatch(r"\w{3,}", found) and len(places) == 1:
        return places[0], len(found)
    return column, 1


def _cut(text: str, column: int) -> tuple[str, int]:
    """At most `WIDTH` characters of a line around a column, and where that is in them."""
    text = text.rstrip()
    if len(text) <= WIDTH:
        return text, column
    begin = max(0, min(column - WIDTH // 2, len(text) - WIDTH))
    before = "..." if begin else ""
    after = "..." if begin + WIDTH < len(text) else ""
    return f"{before}{text[begin : begin + WIDTH]}{after}", column - begin + len(before)


def _lines(where: Location, read: dict[str, list[str]]) -> list[str]:
    """The lines of a file; none where it is no text that can be read again."""
    if where.file not in read:
        from hwgen.spec.regular_file import read_regular

        try:
            text = read_regular(Path(where.file), MAX_BYTES).decode("utf-8-sig")
        except (HwgenError, ValueError):
            read[where.file] = []
        else:
            read[where.file] = re.split(r"\r\n|\r|\n", text)
    return read[where.file]
