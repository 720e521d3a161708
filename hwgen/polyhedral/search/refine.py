"""Schedules beside a good one, for short kernels: what the closed form does not tell apart.

The closed form takes every tile to be full. Where a kernel has few tiles, a larger tile with a
shorter last one drains sooner, and a single slot can keep a transfer from delaying another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

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


def thinner(tiling: Tiling) -> Tiling | None:
    """The same with a slot less of each buffer that has several; None where there is none."""
    slots = {
        name: tiling.slot[name] - 1
        for name, depth in _own(tiling)
        if depth and tiling.slot[name] > 1 and not tiling.kept(name)
    }
    return replace(tiling, slots=tuple((tiling.slot | slots).items())) if slots else None


def keepers(hardware: HardwareSpec, tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that differ in that what loops outside would load again stays, or comes tile by tile
    instead of all before them: in all buffers where that fits, then in each alone."""
    together: Tiling | None = None
    single: list[Tiling] = []
    for name, _ in _own(tiling):
        for depth in _deeper(tiling, name):
            alone = _keeping(tiling, name, depth)
            if not alone.kept(name) or not _fits(hardware, alone):
                continue
            single.append(alone)
            both = _keeping(together or tiling, name, depth)
            if _fits(hardware, both):
                together = both
    if together is not None and len(single) > 1:
        yield together
    yield from single


def _own(tiling: Tiling) -> Iterator[tuple[str, int]]:
    """The depths of storages that hold tiles; tensors that stay whole for other phases lie where
    these expect them, once."""
    selection = tiling.match.selection
    return ((name, depth) for name, depth in tiling.depths if not selection.storage(name).shape)


def _deeper(tiling: Tiling, storage: str) -> Iterator[int]:
    """Depths from a storage's own on, right inside a loop that moves it, at which others do not."""
    names = tiling.match.moving(storage)
    inside = any(
        tiling.match.selection.inner(o)
        for o in tiling.match.selection.operations
        if storage in o.storages
    )
    deepest = len(tiling.loops) if inside else tiling.spatial_depth
    for depth in range(max(1, tiling.depth[storage]), deepest + 1):
        around = tiling.loops[:depth]
        if around[-1].loop in names and any(x.loop not in names for x in around):
            yield depth


def _keeping(tiling: Tiling, storage: str, depth: int) -> Tiling:
    """A slot for every tile that a storage has at a depth."""
    names = tiling.match.moving(storage)
    tiles = prod(x.count for x in tiling.loops[:depth] if x.loop in names)
    return replace(
        tiling,
        depths=tuple((tiling.depth | {storage: depth}).items()),
        slots=tuple((tiling.slot | {storage: tiles}).items()),
    )


def _fits(hardware: HardwareSpec, tiling: Tiling) -> bool:
    fits = fitting(hardware, tiling.match, tiling.taken)
    return bool(fits.all())
