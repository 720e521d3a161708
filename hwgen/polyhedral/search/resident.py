"""The buffers of a phase: what takes room in its memories, and how much where it stays whole."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Storage


def own_storages(match: Match) -> Iterator[Storage]:
    """The storages that have a buffer each: a tensor that stays whole has one for all its names."""
    seen: set[tuple[str, str]] = set()
    for storage in match.selection.storages:
        key = (storage.tensor, storage.memory)
        if not storage.shape or key not in seen:
            yield storage
        if storage.shape:
            seen.add(key)


def kept_entries(match: Match, storage: Storage) -> int:
    """Entries of a tensor that stays whole."""
    blocks = prod(-(-e // match.cut(storage, d)[1]) for d, e in enumerate(storage.shape))
    return blocks * match.span(storage.name)
