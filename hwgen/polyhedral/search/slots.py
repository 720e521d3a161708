"""How many slots each buffer of a schedule has: as many as are of use, and as fit the memories."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.search.estimate_shape import Counts, Shape
from hwgen.polyhedral.search.resident import own_storages
from hwgen.polyhedral.search.tiling import MOST_SLOTS, PART_TURNS

Slots = dict[str, Counts]
"""Slots of each storage, by point."""


def slots_of(shape: Shape, entries: Slots) -> tuple[Slots, NDArray[np.bool_]]:
    """Slots of each storage at the points of a shape, and where its buffers fit."""
    match, hardware = shape.match, shape.hardware
    size = len(next(iter(shape.grid.values()), np.ones(1)))
    loaded = {s for o in match.selection.operations if o.kind == "load" for s in o.storages}
    # With a third slot, the next load need not wait for the calls that are still running.
    own = shape.own_slots
    more = own + 1 if hardware.pipelined and own > 1 else own
    most: Slots = {
        n: np.minimum(more if n in loaded else own, shape.counts(d))
        for n, d in shape.placement.items()
    }
    fewer = [{n: np.minimum(v, limit) for n, v in most.items()} for limit in (own, 1)]
    fits = np.ones(size, dtype=np.bool_)
    for n in shape.parts:
        around = shape.around(n)
        parts, apart = shape.trips(around.parts), _parts_apart(shape, n)
        several = (parts <= MOST_SLOTS) | ~apart
        most[n] = parts * np.where(several, PART_TURNS if around.before else 1, 1)
        for limited in fewer:
            limited[n] = np.where(apart, parts, most[n])
        for loops in (around.before, around.still, around.parts):
            fits &= (shape.trips(loops) > 1) | (not loops)
    rooms = [
        (mine, match.selection.usable_entries(hardware, m.name))
        for m in hardware.of_kind("scratchpad")
        if (mine := [s.name for s in own_storages(match) if s.memory == m.name])
    ]
    # What does not fit with a slot each, does not at all.
    for mine, usable in rooms:
        fits &= _used(fewer[-1], entries, mine, size) <= usable
    slots = dict(most)
    for mine, usable in rooms if fits.any() else ():
        moved = {n: entries[n] * shape.counts(shape.placement[n]) for n in mine}
        for limited in fewer:
            over = np.flatnonzero(fits & (_used(slots, entries, mine, size) > usable))
            if not len(over):
                break
            columns = [x[n] for n in mine for x in (slots, limited, most, entries, moved)]
            found = _fitted(np.stack([np.broadcast_to(c, size)[over] for c in columns]), usable)
            for n, values in zip(mine, found, strict=True):
                slots[n] = np.array(np.broadcast_to(slots[n], size))
                slots[n][over] = values
    return slots, fits


def _used(slots: Slots, entries: Slots, names: list[str], size: int) -> Counts:
    return sum((slots[n] * entries[n] for n in names), np.zeros(size, np.int64))


def _fitted(columns: Counts, usable: int) -> Counts:
    """Slots of buffers that do not fit: fewer in as many as that takes, of those first that least
    is moved through, as loads into a buffer with one slot wait for what reads it. The others have
    the most that fit then.

    Args:
        columns: rows of five for each buffer, a column for each point: its slots, fewer of them,
            the most that it ever has, entries of one, and what is moved through it.
        usable: entries that there are.
    """
    slots, fewer, most, room, moved = (columns[n::5] for n in range(5))
    order: Counts = np.argsort(moved, axis=0, kind="stable")
    every = np.arange(moved.shape[1], dtype=np.int64)
    found: Counts = np.array(slots)
    total: Counts = (slots * room).sum(axis=0)
    for row in order:
        more = np.where(total > usable, (fewer - found)[row, every], 0)
        total += more * room[row, every]
        found[row, every] += more
    for row in order[::-1]:
        for wanted in (slots, most):
            more = (wanted - found)[row, every]
            more = np.where(total + more * room[row, every] <= usable, more, 0)
            total += more * room[row, every]
            found[row, every] += more
    return found


def _parts_apart(shape: Shape, storage: str) -> NDArray[np.bool_]:
    """Where parts of a load that stays are the same places whatever loops before them do."""
    around = shape.around(storage)
    apart = np.ones(1, dtype=np.bool_)
    for coordinate in shape.match.coordinate[storage]:
        before, parts = (x.intersection(coordinate.names) for x in (around.before, around.parts))
        apart = apart & ((shape.trips(before) == 1) | (shape.trips(parts) == 1))
    return apart
