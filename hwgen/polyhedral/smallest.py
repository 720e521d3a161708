"""The tiling of a match that takes least: tiles and slots as small, loads as far in, as can be.

Where not even that fits the memories, nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.operations import Storage
from hwgen.polyhedral.resident import kept_entries, own_storages
from hwgen.polyhedral.search_shape import storage_entries
from hwgen.polyhedral.search_space import Restriction, Space
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True)
class Smallest:
    """`tiles`: by loop, in blocks; `places`: how many of the `loops` lie around each storage."""

    hardware: HardwareSpec
    match: Match
    loops: tuple[str, ...]
    tiles: Mapping[str, int]
    places: Mapping[str, int]

    def entries(self, storage: Storage) -> int:
        """Entries of a storage's buffer."""
        if storage.shape:
            return kept_entries(self.match, storage)
        inside = self.loops[: self.places[storage.name]]
        extents = {
            n: np.full(1, min(self.tiles[n], blocks) if n in inside else blocks, np.int64)
            for n, blocks in self.match.count.items()
        }
        return int(storage_entries(self.match, storage.name, extents)[0])

    def used(self) -> dict[str, int]:
        """Entries of each memory that the buffers take."""
        total: dict[str, int] = {}
        for storage in own_storages(self.match):
            total[storage.memory] = total.get(storage.memory, 0) + self.entries(storage)
        return total


def smallest(hardware: HardwareSpec, match: Match, fixed: Mapping[str, int]) -> Smallest:
    """The smallest of a match, with some tile sizes given."""
    space = Space(hardware, match, Restriction())
    loops = (*space.spatial, *space.reduction)
    options = space.depths(loops, len(space.spatial))
    places = {n: max(depths) for n, depths in options.items()}
    return Smallest(hardware, match, loops, {n: fixed.get(n, 1) for n in match.count}, places)
