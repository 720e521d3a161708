"""What the shell completes: names of chips and workloads, stages, codes of errors, and what `--set`
and `--dtype` set in the files that the line names before.

For names only folders are looked at, and of files here which sections they have; nothing is
validated: an answer is there before the next key. Where nothing begins so, the shell completes
files, as everything that is named may be one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, cast

import typer

from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.spec.find import find_spec, find_workload, named_files, shipped


def chips(incomplete: str) -> list[str]:
    """Names of chips that begin so."""
    return _beginning(incomplete, named_files("spec"))


def workloads(incomplete: str) -> list[str]:
    """Names of workloads that begin so, those in folders with their folder."""
    return _beginning(incomplete, named_files("workload"))


def stages(incomplete: str) -> list[str]:
    """Stages of either kind of chip that begin so."""
    return _beginning(incomplete, dict.fromkeys((*STAGES, *NEST_STAGES)))


def objectives(incomplete: str) -> list[str]:
    """Objectives of an exploration, after those that are there with a comma."""
    before, comma, _ = incomplete.rpartition(",")
    names = ("cycles", "traffic", "energy", "area")
    left = (n for n in names if n not in before.split(","))
    return _beginning(incomplete, [f"{before}{comma}{n}" for n in left])


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """What `help` explains: codes of errors, primitives of schedules, and commands."""
    from hwgen.polyhedral.schedule.script import PRIMITIVES

    return _beginning(incomplete, [*_commands(context), *PRIMITIVES, *_codes()])


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """What `--set` sets: parameters and sizes of the files that the line names before, with their
    values where one is left."""
    found: dict[str, list[str]] = {}
    for path in (*_chips(context), *_workloads(context)):
        section = "parameters" if path in _chips(context) else "sizes"
        for name, value in _section(path, section).items():
            written = isinstance(value, dict)
            number = cast("dict[str, object]", value).get("value") if written else value
            if isinstance(number, int):
                found.setdefault(name, []).append(str(number))
    return _assignments(incomplete, found)


def dtypes(context: typer.Context, incomplete: str) -> list[str]:
    """What `--dtype` sets: types that the workloads before it name, then their tensors; with each
    type where one is left."""
    from hwgen.spec.expression import DTYPES

    paths = _workloads(context)
    names = [n for p in paths for n in _section(p, "dtypes")]
    names += [n for p in paths for n in _section(p, "tensors")]
    return _assignments(incomplete, {name: list(DTYPES) for name in names})


AFTER = "_HWGEN_COMPLETE_AFTER"
"""Of the word that bash completes, what stands before its `=`."""


def rejoin(environment: MutableMapping[str, str]) -> None:
    """Make one word again of what bash has as three, `T`, `=` and `fl`; it completes the last one,
    so what stands before that is kept apart."""
    words = environment.get("COMP_WORDS", "").split("\n")
    at = environment.get("COMP_CWORD", "")
    if (
        environment.get("_HWGEN_COMPLETE") != "complete_bash"
        or "=" not in words
        or not at.isdigit()
    ):
        return
    words = [*words, ""][: int(at) + 1]
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    last = words[-1].removeprefix("=")
    before = joined.pop().removesuffix(last)
    if before.startswith("-"):
        joined.append(before.removesuffix("="))
    else:
        environment[AFTER] = before
    environment["COMP_WORDS"] = "\n".join([*joined, last])
    environment["COMP_CWORD"] = str(len(joined))


def _assignments(incomplete: str, values: dict[str, list[str]]) -> list[str]:
    """`NAME=` of each name that begins so, or `NAME=VALUE` of the only one."""
    before = os.environ.get(AFTER, "")
    left = [n for n in values if n.startswith((before + incomplete).partition("=")[0])]
    found = [f"{n}=" for n in left]
    if "=" in before + incomplete or len(left) == 1:
        found = [f"{n}={v}" for n in left for v in dict.fromkeys(values[n])]
    return [f.removeprefix(before) for f in found if f.startswith(before + incomplete)]


def _chips(context: typer.Context) -> list[Path]:
    # An argument is not read yet where the line ends in an option.
    return _found(find_spec, context.params.get("spec") or list(context.args))


def _workloads(context: typer.Context) -> list[Path]:
    given = context.params.get("workloads") or context.params.get("workload")
    return _found(find_workload, given)


def _found(find: Callable[[str], Path], given: object) -> list[Path]:
    """The files that a line names, of those that there are."""
    from hwgen.errors import HwgenError

    several = isinstance(given, list | tuple)
    paths: list[Path] = []
    for text in cast("list[object]", given) if several else [given]:
        try:
            paths += [find(text)] if isinstance(text, str) else []
        except HwgenError:
            continue  # The command will say so.
    return paths


def _section(path: Path, name: str) -> dict[str, Any]:
    """A mapping of a file; empty where there is none."""
    from hwgen.errors import HwgenError
    from hwgen.spec.source import read_document

    try:
        data = read_document(path).data
    except HwgenError:
        return {}
    section = data.get(name) if isinstance(data, dict) else None
    return cast("dict[str, Any]", section) if isinstance(section, dict) else {}


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _commands(context: typer.Context) -> Iterator[str]:
    from typer.core import TyperGroup

    group = context.parent
    if group is not None and isinstance(group.command, TyperGroup):
        yield from group.command.list_commands(group)


def _codes() -> Iterator[str]:
    """The codes of errors, from the page that lists them."""
    index: Path = shipped("docs/errors") / "index.md"
    yield from re.findall(r"^\| \[(H\d{3})\]", index.read_text(encoding="utf-8"), re.MULTILINE)
