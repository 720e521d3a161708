"""Schedules kept on disk by content, as plain JSON.

A key is the hash of everything that a search's result depends on: the resolved chip and workload
without their places in files, hwgen's version and every source file of the package, so that a
changed compiler reads nothing stale. What is read is checked like a schedule from anywhere else;
a file that is damaged or not ours counts as absent and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field

from hwgen.errors import Location
from hwgen.model.folders import trim, used
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.search.levels import contains_levels
from hwgen.polyhedral.search.search import Candidate, SearchResult
from hwgen.polyhedral.search.space import Space, choose_space
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

FORMAT = 3
_PACKAGE = Path(__file__).resolve().parents[1]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Counts(_Strict):
    """The search's account of itself; fields as in `SearchResult`."""

    points: int
    evaluated: int
    too_large: int
    too_slow: int
    cuts: list[str]
    matches: int
    matches_too_slow: int
    simulated: int
    beside: int
    refused: int
    cycles: int


class Entry(_Strict):
    """A chosen tiling: which match of which group, and what the search decided about it."""

    format: int
    key: str
    group: Annotated[int, Field(ge=0, lt=100)]
    match: Annotated[int, Field(ge=0, lt=100)]
    match_text: str
    tiles: list[tuple[str, int]]
    order: list[str]
    depths: list[tuple[str, int]]
    slots: list[tuple[str, int]]
    outer: list[tuple[str, int]]
    parts: bool
    estimate: float
    unseen: float
    counts: Counts

    def restore(
        self, hardware: HardwareSpec, groups: Sequence[Sequence[Match]]
    ) -> SearchResult | None:
        """The search's result; None where it does not fit the matches, the last group's."""
        if len(groups) != self.group + 1 or self.match >= len(groups[-1]):
            return None
        match = groups[-1][self.match]
        if str(match) != self.match_text:
            return None
        tiling = Tiling(
            match, tuple(self.tiles), tuple(self.order), tuple(self.depths), tuple(self.slots),
            tuple(self.outer), self.parts,
        )  # fmt: skip
        whole, _ = choose_space(hardware, match)
        space = Space(hardware, match, whole.restriction)
        if not space.contains(tiling) and not contains_levels(space, tiling):
            return None
        c = self.counts
        return SearchResult(
            (Candidate(tiling, self.estimate, unseen=self.unseen),),
            points=c.points,
            evaluated=c.evaluated,
            too_large=c.too_large,
            too_slow=c.too_slow,
            cuts=tuple(c.cuts),
            matches=c.matches,
            matches_too_slow=c.matches_too_slow,
            simulated=c.simulated,
            beside=c.beside,
            refused=c.refused,
            cycles=c.cycles,
        )


@dataclass(frozen=True, slots=True)
class ScheduleCache:
    """Results of searches in a folder, one file each."""

    folder: Path

    def read(self, key: str) -> Entry | None:
        """What is kept under a key; None where nothing is, or not what was written."""
        try:
            data: object = json.loads(self._path(key).read_bytes())
            if not isinstance(data, dict):
                return None
            content = cast("dict[str, object]", data)
            body = _text(content.get("entry"))
            if content.get("check") != _digest(body):
                return None
            entry = Entry.model_validate_json(body)
        except (OSError, ValueError, RecursionError):
            return None  # ValidationError is a ValueError, as are bad JSON and bad UTF-8.
        if (entry.format, entry.key) != (FORMAT, key):
            return None
        used(self._path(key))
        return entry

    def write(self, key: str, group: int, match: int, found: SearchResult, tiling: Tiling) -> None:
        """Keep a result; where the folder cannot be written there is simply none."""
        chosen = next((c for c in found.candidates if c.tiling is tiling), found.candidates[0])
        counts: dict[str, object] = {name: getattr(found, name) for name in Counts.model_fields}
        entry = Entry(
            format=FORMAT,
            key=key,
            group=group,
            match=match,
            match_text=str(tiling.match),
            tiles=list(tiling.tiles),
            order=list(tiling.order),
            depths=list(tiling.depths),
            slots=list(tiling.slots),
            outer=list(tiling.outer),
            parts=tiling.parts,
            estimate=chosen.cycles,
            unseen=chosen.unseen,
            counts=Counts.model_validate(counts | {"cuts": list(found.cuts)}),
        )
        body = entry.model_dump(mode="json")
        _replace(self._path(key), _text({"check": _digest(_text(body)), "entry": body}))
        if key.startswith("0"):  # Now and then: it reads the whole folder.
            trim(self.folder)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def content_key(workload: Workload, hardware: HardwareSpec, *options: object) -> str:
    """The name of a result: a hash of all that it depends on."""
    parts = (version(), package_hash(), canonical(hardware), canonical(workload))
    text = "\n".join((*parts, *map(repr, options)))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: object) -> str:
    """Frozen data as text that is the same wherever it was read from: places are left out."""
    match value:
        case Location():
            return ""
        case None | bool() | int() | float() | str():
            return repr(value)
        case tuple():
            return f"({','.join(canonical(v) for v in cast('tuple[object, ...]', value))})"
        case list():
            return f"[{','.join(canonical(v) for v in cast('list[object]', value))}]"
        case dict():
            items = cast("dict[object, object]", value).items()
            return f"{{{','.join(sorted(f'{canonical(k)}:{canonical(v)}' for k, v in items))}}}"
        case frozenset():
            return f"{{{','.join(sorted(map(canonical, cast('frozenset[object]', value))))}}}"
        case _ if is_dataclass(value):
            compared = [f for f in fields(value) if f.compare]
            named = (f"{f.name}={canonical(getattr(value, f.name))}" for f in compared)
            return f"{type(value).__name__}({','.join(named)})"
        case _:
            raise AssertionError(f"{type(value).__name__} has no canonical text")


@cache
def version() -> str:
    """hwgen's version, and those of what its numbers come from."""
    return " ".join((metadata.version("hwgen"), metadata.version("numpy"), sys.version))


@cache
def package_hash() -> str:
    """A hash of every source file of the package."""
    total = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(_PACKAGE).as_posix()}\n".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    scratch: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=".hwgen-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(scratch).replace(path)
    except OSError:
        if scratch is not None:
            with suppress(OSError):
                Path(scratch).unlink()
