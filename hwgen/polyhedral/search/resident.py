"""The buffers of a phase: what takes room in its memories, and how much where it stays whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Storage
from hwgen.spec.hardware import HardwareSpec


def own_storages(match: Match) -> Iterator[Storage]:
    """The storages that have a buffer each: a tensor that stays whole has one for all its names."""
    seen: set[tuple[str, str]] = set()
    for storage in match.selection.storages:
        key = (storage.tensor, storage.memory)
        if not storage.shape or key not in seen:
            yield storage
        if storage.shape:
            seen.add(key)


def fitting(
    hardware: HardwareSpec, match: Match, entries: Callable[[str], int | NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """Where buffers fit the memories, of each storage with so many entries."""
    used: dict[str, NDArray[np.int64]] = {}
    for storage in own_storages(match):
        before = used.get(storage.memory, np.zeros(1, np.int64))
        used[storage.memory] = before + entries(storage.name)
    result = np.ones(1, np.bool_)
    for memory, wanted in used.items():
        result = result & (wanted <= match.selection.usable_entries(hardware, memory))
    return result


def kept_entries(match: Match, storage: Storage) -> int:
    """Entries of a tensor that stays whole."""
    blocks = prod(-(-e // match.cut(storage, d)[1]) for d, e in enumerate(storage.shape))
    return blocks * match.span(storage.name)
