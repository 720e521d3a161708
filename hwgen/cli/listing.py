"""`list`: the chips and workloads that a name reaches."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path

import typer

from hwgen.errors import HwgenError
from hwgen.spec.find import Kind, named_files
from hwgen.spec.shown import first_sentence
from hwgen.spec.source import read_document

WIDTH = 90
"""Of a name and a description, in characters."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that has a name; `error`: why it cannot be read, with its code."""

    name: str
    description: str
    file: Path
    error: str

    @property
    def where(self) -> str:
        """Its path from here, or that it came with hwgen."""
        return "with hwgen" if self.file.is_absolute() else str(self.file)

    def line(self, width: int) -> str:
        """What it is, in one line: the description's first sentence, without its asides."""
        sentence = self.error or first_sentence(self.description)
        return textwrap.shorten(sentence, width, placeholder=" ...")


def show(*, as_json: bool) -> None:
    """Print both lists, as text or as JSON."""
    chips, workloads = entries("spec"), entries("workload")
    if as_json:
        made = {"chips": _plain(chips), "workloads": _plain(workloads)}
        typer.echo(json.dumps(made, indent=2))
        return
    everything = (*chips, *workloads)
    names = max((len(e.name) for e in everything), default=0)
    width = WIDTH - names
    lines = max((len(e.line(width)) for e in everything), default=0)
    for title, found in (("chips", chips), ("workloads", workloads)):
        typer.echo(title)
        for e in found:
            typer.echo(f"  {e.name:<{names}}  {e.line(width):<{lines}}  {e.where}")


def entries(kind: Kind) -> tuple[Entry, ...]:
    """All files of a kind that a name reaches."""
    return tuple(_entry(name, path) for name, path in named_files(kind).items())


def _entry(name: str, path: Path) -> Entry:
    try:
        data = read_document(path).data
    except HwgenError as problem:
        first = problem.diagnostic
        return Entry(name, "", path, f"{first.code}: {first.message}")
    text = data.get("description") if isinstance(data, dict) else None
    return Entry(name, " ".join(text.split()) if isinstance(text, str) else "", path, "")


def _plain(found: tuple[Entry, ...]) -> list[dict[str, str]]:
    return [
        {
            "name": e.name,
            "description": e.description,
            "where": e.where,
            "file": str(e.file.resolve()),
            **({"error": e.error} if e.error else {}),
        }
        for e in found
    ]
