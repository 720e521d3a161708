"""Closed-form cycles of caches, which a simulation does not see: what crosses each of them.

Where units are those of a core, tensors off chip and buffers that are no registers lie in its
caches. What is touched inside of some loops stays in a cache if all of it together fits; of what
does not, every iteration of the loops around brings it again. As for a core's own code, the
resource that is busiest decides, and a share of what keeps the others busy does not pass beside it.
What copies between memory and buffers comes at once, in front of and behind the work on these: all
of it takes time, as do a loop's steps, and its last sums before what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from hwgen.polyhedral.caches import busiest, filled, in_caches, inside, own_room, stays_from
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.match.wide_calls import wider_copy
from hwgen.polyhedral.search.estimate_shape import Cycles, Grid, Shape, box_extents
from hwgen.polyhedral.search.tiling import inner_name
from hwgen.polyhedral.search.traffic import moved_block
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True)
class _Touched:
    """An array that is touched inside of loops: boxes of a storage, of blocks of `each` so many
    bytes, by what has the `name`. `moves`: which of the shape's loops move it; `again`: how often
    it is touched, as it is read and written. Of a `buffer`, nothing comes from outside: it stays,
    or is evicted. What is read `in_place` comes beside the work, and iterations of the innermost
    loop that follow one another find what is left of their lines."""

    name: str
    storage: str
    each: float
    depth: int
    moves: tuple[bool, ...]
    again: int = 1
    buffer: bool = False
    in_place: bool = False

    def bytes(self, shape: Shape, depth: int) -> Cycles:
        """Bytes of it that are touched inside of the outermost `depth` loops."""
        if self.buffer:
            depth = max(self.depth, depth)
        elif depth > self.depth:
            return np.zeros(1)

        def made() -> Cycles:
            if self.buffer:
                return (self.each * shape.box(self.storage, depth)).astype(np.float64)
            whole = min(depth, len(shape.loops) - 1) if self.in_place else depth
            lines = _lines(shape, self.storage, whole, self.each)
            return self.each * shape.box(self.storage, depth) * lines

        return shape.cache.once(("bytes", self.name, frozenset(shape.loops[:depth])), made)

    def brought(self, shape: Shape, depth: int) -> Cycles:
        """What comes into a cache that holds all that is touched inside of `depth` loops."""
        if self.buffer:
            depth = stays_from(self.moves, depth, self.depth)
            if depth <= self.depth:
                return np.zeros(1)
        else:
            depth = stays_from(self.moves, min(depth, self.depth))

        def made() -> Cycles:
            return self.again * shape.counts(depth) * self.bytes(shape, depth)

        return shape.cache.once(("brought", self.name, frozenset(shape.loops[:depth])), made)


def with_caches(shape: Shape, cycles: Cycles) -> Cycles:
    """Cycles of a shape's points, those in which its units wait for caches included."""
    machine = shape.hardware.machine
    touched = list(_touched(shape))
    depths = range(len(shape.loops) + 1)
    together = [sum((t.bytes(shape, d) for t in touched), np.zeros(1)) for d in depths]
    steps, runs = (shape.counts(d) for d in (len(shape.loops), max(0, len(shape.loops) - 1)))
    alone = _copying(shape) + machine.costs.step_cycles * steps + machine.costs.sum_cycles * runs
    busy = [cycles, _accesses(shape)]
    brought = [_brought(shape, touched, d) for d in depths]
    for room, rate, _ in filled(machine):
        read, copied = (inside([b[n] for b in brought], together, room) for n in range(2))
        busy.append(read / rate)
        alone = alone + copied / rate
    return alone + busiest(busy, machine)


def _touched(shape: Shape) -> Iterator[_Touched]:
    """What lies in caches: what is moved off chip, and the buffers that are no registers."""
    match, hardware = shape.match, shape.hardware

    def moves(storage: str) -> tuple[bool, ...]:
        moving = match.moving(storage)
        return tuple(inner_name(n) in moving for n in shape.loops)

    for o in match.selection.operations:
        if o.kind not in ("load", "store"):
            continue
        storage = next(s for s in o.storages if s in shape.placement)
        own = shape.placement[storage] if o.kind == "load" else shape.spatial
        ends = o.intrinsic.operands
        outside = next(p for p in ends if hardware.is_offchip(p.memory))
        each = float(moved_block(match, o, outside).bytes)
        again = 2 if o.kind == "store" and shape.added else 1
        there = o.kind == "load" and shape.in_place(storage)
        yield _Touched(o.name, storage, each, own, moves(storage), again, in_place=there)
    for held in match.selection.storages:
        if in_caches(hardware, held.memory) and not shape.in_place(held.name):
            size = (
                1.0 * match.entry_elements(held.name) * DTYPES[hardware.memory[held.memory].dtype]
            )
            own, name = shape.placement[held.name], f"{held.name} itself"
            yield _Touched(name, held.name, size, own, moves(held.name), buffer=True)


def _lines(shape: Shape, storage: str, depth: int, each: float) -> Cycles:
    """Of the lines of caches that rows of blocks lie in, how much more there is than of the rows,
    each of which is taken to begin with a line."""
    line = shape.hardware.machine.line_bytes
    coordinates = shape.match.coordinate[storage]
    row = each * (box_extents(coordinates, shape.extents(depth))[-1] if coordinates else 1)
    return np.ceil(row / line) * line / row


def _brought(shape: Shape, touched: list[_Touched], depth: int) -> tuple[Cycles, Cycles]:
    """What comes into a cache that holds all inside of `depth` loops: beside the work, of buffers
    and of what is read in place; and of what is copied."""
    read, copied = np.zeros(1), np.zeros(1)
    for t in touched:
        mine = t.brought(shape, depth)
        beside = t.buffer or t.in_place
        read, copied = (read + mine, copied) if beside else (read, copied + mine)
    return read, copied


def _copying(shape: Shape) -> Cycles:
    """Accesses to the first cache of what copies, each as wide as it is or less: one a cycle; and
    what the first of each row takes more, where no prefetcher has asked for it."""
    total = np.zeros(1)
    for o in shape.match.selection.operations:
        if o.kind in ("load", "store"):
            storage = next(s for s in o.storages if s in shape.placement)
            if o.kind == "load" and shape.in_place(storage):
                continue
            depth = shape.placement[storage] if o.kind == "load" else shape.spatial
            key = ("copying", o.name, frozenset(shape.loops[:depth]))
            total = total + shape.cache.once(key, partial(_copied, shape, o, storage, depth))
    return total


def _copied(shape: Shape, o: Operation, storage: str, depth: int) -> Cycles:
    """The same of one operation, inside of the outermost `depth` loops."""
    calls = shape.box(storage, depth).astype(np.float64)
    wide = wider_copy(shape.hardware, o) if o.kind == "load" else None
    coordinates = shape.match.coordinate[storage]
    if wide is not None and coordinates:
        row = box_extents(coordinates, shape.extents(depth))[-1]
        calls = calls / row * -(-row // wide.iterators[0][1])
    late = _far_rows(shape, o, storage, depth) * shape.hardware.machine.costs.far_cycles
    return (2 * calls + late) * shape.counts(depth)


def _far_rows(shape: Shape, o: Operation, storage: str, depth: int) -> Cycles:
    """Rows of a load's box, where one begins so far from the one before that no prefetcher sees
    it coming. What a worker's own caches hold all of is taken to be there, and never late."""
    machine, coordinates = shape.hardware.machine, shape.match.coordinate[storage]
    if o.kind != "load" or not coordinates:
        return np.zeros(1)
    offchip = next(p for p in o.intrinsic.operands if shape.hardware.is_offchip(p.memory))
    each = float(moved_block(shape.match, o, offchip).bytes)
    if float(each * np.max(shape.box(storage, 0))) <= own_room(machine):
        return np.zeros(1)
    row = box_extents(coordinates, shape.extents(depth))[-1]
    whole = box_extents(coordinates, shape.extents(0))[-1]
    far = (row < whole) & (each * whole >= machine.costs.reach_bytes)
    return np.where(far, shape.box(storage, depth) / row, 0.0)


def _accesses(shape: Shape) -> Cycles:
    """The same of what computes. Calls one after the other that read the same element have it in a
    register."""
    match, total = shape.match, np.zeros(1)
    for o in match.selection.operations:
        if o.kind not in ("load", "store"):
            depth = len(shape.loops) if match.selection.inner(o) else shape.spatial
            key = ("accesses", o.name, frozenset(shape.loops[:depth]))
            total = total + shape.cache.once(key, partial(_accessed, shape, o, depth))
    return total


def _accessed(shape: Shape, o: Operation, depth: int) -> Cycles:
    """The same of one operation, inside of the outermost `depth` loops."""
    again = shape.counts(depth) / shape.tiles(o, depth)
    return again * _reads(shape.hardware, shape.match, o, shape.grid)


def operand_reads(hardware: HardwareSpec, match: Match, o: Operation, grid: Grid) -> Cycles:
    """The same of an operation inside of all tile loops: accesses to its operands in caches."""
    again = np.ones(1)
    for n in match.count:
        if n not in o.loops:
            again = again * -(-match.count[n] // grid[n])
    return again * _reads(hardware, match, o, grid)


def _reads(hardware: HardwareSpec, match: Match, o: Operation, grid: Grid) -> Cycles:
    """Accesses of all of an operation's iterations to its operands in caches."""
    total = np.zeros(1)
    for p, storage in zip(o.intrinsic.operands, o.storages, strict=True):
        if storage not in match.coordinate or not in_caches(hardware, p.memory):
            continue
        moving = match.moving(storage)
        calls = np.full(1, float(prod(match.count[n] for n in o.loops)))
        for n in o.loops:
            if n not in moving:
                calls = calls / match.count[n] * -(-match.count[n] // grid[n])
        total = total + calls
    return total
