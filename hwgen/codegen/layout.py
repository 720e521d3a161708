"""Layouts of on-chip buffers: where each tensor element lies.

A buffer slot holds the box of coordinates that one tile touches, in the order that suits the
intrinsics' fields, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


def dense(extents: Sequence[int]) -> tuple[int, ...]:
    """Steps of a dense array, last dimension fastest."""
    return tuple(prod(extents[i + 1 :]) for i in range(len(extents)))


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A storage's slots: `slot_entries` from the first of one to the next, padding included, `box`
    extents and `strides` of the coordinates, `rows`: extents of the consecutive entries of a block,
    `granule`: entries of which every slot has a multiple, and the isl map from tensor index to
    (slot, entry, lanes), parametric in the tile counters."""

    storage: str
    memory: str
    slots: int
    slot_entries: int
    box: tuple[int, ...]
    strides: tuple[int, ...]
    text: str
    rows: tuple[int, ...] = ()
    granule: int = 1

    @property
    def padding(self) -> int:
        """Entries of a slot that hold nothing."""
        return self.slot_entries - prod(self.box) * prod(self.rows)

    def __str__(self) -> str:
        size = f"{self.slots} x {self.slot_entries} entries of {self.memory}"
        size += f", {self.padding} of padding" if self.padding else ""
        return f"{self.storage}: {size}\n  {self.text}"
