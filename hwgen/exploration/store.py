"""Outcomes in one SQLite file, each under the hash of all that it depends on.

An outcome is written as soon as it is there, so that a run that ends early loses nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from hwgen.errors import HwgenError, Location
from hwgen.exploration.work import Outcome, Work

R = TypeVar("R")

OURS = 0x68776578
"""`PRAGMA application_id` of our files: `hwex`."""
_TABLE = """CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY, chip TEXT, parameters TEXT, workload TEXT, sizes TEXT, outcome TEXT
) WITHOUT ROWID"""
_WAIT_SECONDS = 60
"""Another run may write to the same file."""


class Store:
    """The file; without a path, outcomes of this run alone.

    Raises:
        HwgenError: H047 where the file cannot be used, by each method too.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._open: sqlite3.Connection | None = None
        self._try(self._connect)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sql.close()

    def read(self, key: str) -> Outcome | None:
        """What is kept under a key; None where nothing is."""

        def one() -> Outcome | None:
            asked = self._sql.execute("SELECT outcome FROM outcomes WHERE key = ?", (key,))
            row: tuple[str] | None = asked.fetchone()
            return None if row is None else Outcome.model_validate_json(row[0])

        return self._try(one)

    def write(self, key: str, work: Work, outcome: Outcome) -> None:
        """Keep an outcome."""
        chip, workload = work.hardware, work.workload
        row = (
            key, chip.name, _assigned(chip.parameters), workload.name, _assigned(workload.sizes),
            outcome.model_dump_json(exclude_defaults=True),
        )  # fmt: skip
        self._try(lambda: self._sql.execute("REPLACE INTO outcomes VALUES (?,?,?,?,?,?)", row))

    @property
    def _sql(self) -> sqlite3.Connection:
        assert self._open is not None
        return self._open

    def _connect(self) -> None:
        name = ":memory:" if self._path is None else str(self._path)
        self._open = sqlite3.connect(name, timeout=_WAIT_SECONDS, isolation_level=None)
        (owner,) = self._open.execute("PRAGMA application_id").fetchone()
        (tables,) = self._open.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != OURS and (owner or tables):
            raise ValueError("a database of another program")
        self._open.execute(f"PRAGMA application_id = {OURS}")
        self._open.execute(_TABLE)

    def _try(self, call: Callable[[], R]) -> R:
        try:
            return call()
        except (sqlite3.Error, ValueError) as error:  # ValidationError is a ValueError.
            raise HwgenError(
                "H047", "the results cannot be read or written",
                location=Location(str(self._path)), field="--db", found=str(error).split("\n")[0],
                allowed="a file that `hwgen explore --db` made, or none yet",
                repair="name another file",
            ) from error  # fmt: skip


def _assigned(values: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values)
