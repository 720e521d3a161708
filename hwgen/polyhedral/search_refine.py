"""Schedules beside a good one, for short kernels: what the closed form does not tell apart.

The closed form takes every tile to be full. Where a kernel has few tiles, a larger tile with a
shorter last one drains sooner, and a single slot can keep a transfer from delaying another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec


def neighbours(hardware: HardwareSpec, tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that fit the memories and differ in one thing: how many slots a buffer has, or how
    large a loop's tiles are for the same number of them."""
    for name, depth in tiling.depths:
        if depth:
            slots = tiling.slot | {name: tiling.slot[name] - 1 or 2}
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


def keepers(hardware: HardwareSpec, tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that differ in that what loops outside would load again stays: in all buffers where
    that fits, then in each alone."""
    more: dict[str, int] = {}
    for name, depth in tiling.depths:
        around = tiling.loops[:depth]
        names = {n for c in tiling.match.coordinate[name] for n in c.names}
        tiles = prod(x.count for x in around if x.loop in names)
        if len(around) > sum(x.loop in names for x in around) and not tiling.kept(name):
            more[name] = tiles
    kept: dict[str, int] = {}
    single: list[Tiling] = []
    for name, tiles in sorted(more.items(), key=lambda item: (item[1], item[0])):
        alone = _with_slots(tiling, {name: tiles})
        if not alone.kept(name):
            continue  # not only loaded
        if _fits(hardware, alone):
            single.append(alone)
        if _fits(hardware, _with_slots(tiling, kept | {name: tiles})):
            kept[name] = tiles
    if len(kept) > 1:
        yield _with_slots(tiling, kept)
    yield from single


def _with_slots(tiling: Tiling, slots: dict[str, int]) -> Tiling:
    return replace(tiling, slots=tuple((tiling.slot | slots).items()))


def _fits(hardware: HardwareSpec, tiling: Tiling) -> bool:
    used: dict[str, int] = {}
    selection = tiling.match.selection
    for storage in selection.storages:
        entries = tiling.slot[storage.name] * tiling.entries(storage.name)
        used[storage.memory] = used.get(storage.memory, 0) + entries
    return all(n <= selection.usable_entries(hardware, memory) for memory, n in used.items())
