"""Schedules beside a good one, for short kernels: what the cost does not tell apart.

To the cost all tiles but the last are as long as on average. Where a kernel has few tiles, larger
ones with a shorter last one drain sooner. A single slot can keep a transfer from delaying another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hwgen.polyhedral.search.resident import fitting
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec

Change = tuple[str, int]
"""A buffer or a loop, and its slots or the size of its tiles."""


def neighbours(hardware: HardwareSpec, tiling: Tiling) -> Iterator[tuple[Change, Tiling]]:
    """Tilings that fit the memories and differ in one thing, with that: how many slots a buffer
    has, or how large a loop's tiles are for the same number of them."""
    for name, depth in _own(tiling):
        if depth and not tiling.kept(name):
            slots = tiling.slot | {name: tiling.slot[name] - 1 or 2}
            other = replace(tiling, slots=tuple(slots.items()))
            if _fits(hardware, other):
                yield (name, slots[name]), other
    for loop in tiling.loops:
        blocks = tiling.match.count[loop.loop]
        least, most = -(-blocks // loop.count), (blocks - 1) // (loop.count - 1)
        for size in ((loop.tile + most) // 2, (loop.tile + least) // 2):
            if size != loop.tile:
                tiles = tiling.tile | {loop.loop: size}
                other = replace(tiling, tiles=tuple(tiles.items()))
                if _fits(hardware, other):
                    yield (loop.loop, size), other


def _own(tiling: Tiling) -> Iterator[tuple[str, int]]:
    """The depths of storages that hold tiles; tensors that stay whole for other phases lie where
    these expect them, once."""
    selection = tiling.match.selection
    return ((name, depth) for name, depth in tiling.depths if not selection.storage(name).shape)


def _fits(hardware: HardwareSpec, tiling: Tiling) -> bool:
    fits = fitting(hardware, tiling.match, tiling.taken)
    return bool(fits.all())
