"""What `--json` prints: one object in ASCII on standard output, whatever becomes of the command.

docs/cli.md describes the keys. Keys are added, never renamed or taken away, while `hwgen` is 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import typer

from hwgen.errors import Diagnostic
from hwgen.report.records import Record, error_record

SHAPE = 1
"""Raised when a key changes its meaning."""


def print_record(
    command: str, results: Record | None = None, *, ok: bool, errors: Iterable[Diagnostic] = ()
) -> None:
    """Print the object of a command, with its results. `ok`: what exit status 0 says."""
    record: Record = {
        "hwgen": SHAPE,
        "command": command,
        "ok": ok,
        "errors": [error_record(e) for e in errors],
    }
    typer.echo(json.dumps(record | (results or {}), indent=2))
