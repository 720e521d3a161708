"""Schedules beside a good one, for short kernels: what the closed form does not tell apart.

The closed form takes every tile to be full. Where a kernel has few tiles, a larger tile with a
shorter last one drains sooner, and a single slot can keep a transfer from delaying another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec


def neighbours(hardware: HardwareSpec, tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that fit the memories and differ in one thing: how many slots a buffer has, or how
    large a loop's tiles are for the same number of them."""
    for name, depth in tiling.depths:
        if depth:
            slots = tiling.slot | {name: 3 - tiling.slot[name]}
            other = replace(tiling, slots=tuple(slots.items()))
            if _fits(hardware, other):
                yield other
    for loop in tiling.loops:
        blocks = tiling.match.count[loop.loop]
        least, most = -(-blocks // loop.count), (blocks - 1) // (loop.count - 1)
        for size in ((loop.tile + most) // 2, (loop.tile + least) // 2):
            if size != loop.tile:
                tiles = tiling.tile | {loop.loop: size}
                other = replace(tiling, tiles=tuple(tiles.items()))
                if _fits(hardware, other):
                    yield other


def _fits(hardware: HardwareSpec, tiling: Tiling) -> bool:
    used: dict[str, int] = {}
    selection = tiling.match.selection
    for storage in selection.storages:
        entries = tiling.slot[storage.name] * tiling.entries(storage.name)
        used[storage.memory] = used.get(storage.memory, 0) + entries
    return all(n <= selection.usable_entries(hardware, memory) for memory, n in used.items())
