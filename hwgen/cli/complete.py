"""What the shell completes: names of chips and workloads, stages, and codes of errors.

Only names of files are looked at, never their texts: an answer is there before the next key. Where
nothing begins so, the shell completes files, as everything that is named may be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.spec.find import files_in, shipped, spec_folders, workload_folders


def chips(incomplete: str) -> list[str]:
    """Names of chips that begin so."""
    return _beginning(incomplete, (p.stem for p in files_in(spec_folders())))


def workloads(incomplete: str) -> list[str]:
    """Names of workloads that begin so, those in folders with their folder."""
    folders = workload_folders()
    inner = sorted({f for folder in folders for f in folder.iterdir() if f.is_dir()})
    named = (f"{folder.name}/{p.stem}" for folder in inner for p in files_in([folder]))
    return _beginning(incomplete, [*(p.stem for p in files_in(folders)), *named])


def stages(incomplete: str) -> list[str]:
    """Stages of either kind of chip that begin so."""
    return _beginning(incomplete, dict.fromkeys((*STAGES, *NEST_STAGES)))


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """What `help` explains: codes of errors, and commands."""
    return _beginning(incomplete, [*_commands(context), *_codes()])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _commands(context: typer.Context) -> Iterator[str]:
    from typer.core import TyperGroup

    group = context.parent
    if group is not None and isinstance(group.command, TyperGroup):
        yield from group.command.list_commands(group)


def _codes() -> Iterator[str]:
    """The codes of errors, from the page that lists them."""
    import re

    index: Path = shipped("docs/errors") / "index.md"
    yield from re.findall(r"^\| \[(H\d{3})\]", index.read_text(encoding="utf-8"), re.MULTILINE)
