"""Closed-form cycles of schedules: arrays over tile sizes, for one loop order and placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.traffic import Rates, transfer_cycles
from hwgen.spec.hardware import HardwareSpec

Grid = dict[str, NDArray[np.int64]]
"""Tile size of each loop, one array element per point."""

TAIL_PENALTY = 1e-3
"""Relative cost of a loop with a tail: a program without is shorter, at equal speed better."""


def box_entries(coordinates: Sequence[Affine], extents: Grid) -> NDArray[np.int64]:
    """Entries of the box that the coordinates span, for arrays of extents."""
    total = np.ones(1, dtype=np.int64)
    for extent in box_extents(coordinates, extents):
        total = total * extent
    return total


def box_extents(coordinates: Sequence[Affine], extents: Grid) -> list[NDArray[np.int64]]:
    """Extent of each coordinate, for arrays of loop extents."""
    result: list[NDArray[np.int64]] = []
    for coordinate in coordinates:
        extent = np.ones(1, dtype=np.int64)
        for name, coefficient in coordinate.terms:
            extent = extent + abs(coefficient) * (extents[name] - 1)
        result.append(extent)
    return result


@dataclass(frozen=True, slots=True)
class Cache:
    """Arrays that depend on the set of outer loops only, not on their order."""

    transfers: dict[tuple[str, frozenset[str]], tuple[NDArray[np.float64], NDArray[np.float64]]]
    counts: dict[frozenset[str], NDArray[np.int64]]
    rates: dict[str, Rates]

    def rate(self, operation: Operation) -> Rates:
        """An operation's rates, worked out once."""
        if operation.name not in self.rates:
            self.rates[operation.name] = Rates.of(operation.intrinsic)
        return self.rates[operation.name]


@dataclass(frozen=True)
class Shape:
    """One order of loops and one placement of loads, over all tile sizes."""

    hardware: HardwareSpec
    match: Match
    grid: Grid
    loops: tuple[str, ...]
    spatial: int
    placement: dict[str, int]
    cache: Cache
    slots: int

    def transfer(
        self, operation: Operation, storage: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cycles and bus beats of moving one box; depends only on which loops lie outside."""
        depth = self.placement[storage]
        key = (operation.name, frozenset(self.loops[:depth]))
        if key not in self.cache.transfers:
            self.cache.transfers[key] = transfer_cycles(
                self.hardware,
                operation,
                self.match,
                self.extents(depth),
                self.match.coordinate[storage],
            )
        return self.cache.transfers[key]

    def counts(self, depth: int) -> NDArray[np.int64]:
        """Iterations of the outermost `depth` loops."""
        outer = frozenset(self.loops[:depth])
        if outer not in self.cache.counts:
            total = np.ones(1, dtype=np.int64)
            for name in sorted(outer):
                total = total * -(-self.match.count[name] // self.grid[name])
            self.cache.counts[outer] = total
        return self.cache.counts[outer]

    def extents(self, depth: int) -> Grid:
        outer = set(self.loops[:depth])
        return {
            n: self.grid[n] if n in outer else np.full(1, blocks, np.int64)
            for n, blocks in self.match.count.items()
        }


def estimate(shape: Shape) -> tuple[NDArray[np.float64], dict[str, NDArray[np.int64]]]:
    """Estimated cycles, infinite where the buffers do not fit, and the slots of each storage."""
    match, hardware = shape.match, shape.hardware
    size = len(next(iter(shape.grid.values()), np.ones(1)))
    entries = {
        s.name: box_entries(match.coordinate[s.name], shape.extents(shape.placement[s.name]))
        for s in match.selection.storages
    }
    slots = {n: np.minimum(shape.slots, shape.counts(d)) for n, d in shape.placement.items()}
    fits = np.ones(size, dtype=np.bool_)
    for memory in hardware.memories:
        mine = [s.name for s in match.selection.storages if s.memory == memory.name]
        if not mine:
            continue
        usable = match.selection.usable_entries(hardware, memory.name)
        double = sum((slots[n] * entries[n] for n in mine), np.zeros(1, np.int64))
        tight = double > usable
        for n in mine:
            slots[n] = np.where(tight, 1, slots[n])
        fits &= sum((slots[n] * entries[n] for n in mine), np.zeros(1, np.int64)) <= usable
    return np.where(fits, _Levels(shape, slots).cycles(), np.inf), slots


def bus_rank(hardware: HardwareSpec, operation: Operation) -> int:
    """Place of a load in its bus's order of service, the first served first."""
    offchip = next(
        o for o in operation.intrinsic.operands if hardware.memory[o.memory].kind == "offchip"
    )
    priority = hardware.bus[hardware.memory[offchip.memory].bus].priority
    name = operation.intrinsic.name
    return priority.index(name) if name in priority else len(priority)


class _Levels:
    """Cycles level by level: inside each tile loop, loads overlap compute unless single-buffered.

    Per iteration at a depth, the anchor's unit is busy for its own work and the inner loops; the
    loads of the iteration run beside it, one generation ahead where there are two slots.
    """

    def __init__(self, shape: Shape, slots: dict[str, NDArray[np.int64]]) -> None:
        size = len(next(iter(shape.grid.values()), np.ones(1)))
        depths = len(shape.loops) + 1
        self.shape = shape
        self.overlapped = [np.zeros(size) for _ in range(depths)]
        self.serial = [np.zeros(size) for _ in range(depths)]
        self.anchored = [np.zeros(size) for _ in range(depths)]
        self.store = np.zeros(size)
        self.store_serial = np.zeros(size, dtype=np.bool_)
        self.bus = np.zeros(size)
        self.anchor = next(
            o.intrinsic.unit
            for kind in ("update", "map", "store")
            for o in shape.match.selection.operations
            if o.kind == kind
        )
        self.loads: list[tuple[int, int, bool, NDArray[np.float64]]] = []
        for operation in shape.match.selection.operations:
            self._add(operation, slots)
        self._add_bus_waits()
        self.infeasible = np.zeros(size, dtype=np.bool_)
        self._add_micro_kernels(slots)

    def _add(self, o: Operation, slots: dict[str, NDArray[np.int64]]) -> None:
        shape, match = self.shape, self.shape.match
        rates = shape.cache.rate(o)
        if o.kind in ("load", "store"):
            storage = next(s for s in o.storages if s in shape.placement)
            depth = shape.placement[storage]
            each, beats = shape.transfer(o, storage)
            if o.kind == "store":
                self.store = self.store + each
                self.store_serial = self.store_serial | (slots[storage] == 1)
                return
            self.bus = self.bus + beats * shape.counts(depth)
            anchored = o.intrinsic.unit == self.anchor
            self.loads.append((depth, bus_rank(shape.hardware, o), anchored, each))
            if anchored:
                self.anchored[depth] = self.anchored[depth] + each
                return
            single = slots[storage] == 1
            self.serial[depth] = self.serial[depth] + np.where(single, each, 0)
            self.overlapped[depth] = self.overlapped[depth] + np.where(single, 0, each)
            return
        depth = len(shape.loops) if match.selection.inner(o) else shape.spatial
        iterations = np.ones(1)
        for n in o.loops:
            iterations = iterations * match.count[n]
        each = rates.fixed + 1 + rates.per_iteration * iterations / shape.counts(depth)
        self.anchored[depth] = self.anchored[depth] + each

    def _add_bus_waits(self) -> None:
        """A load on the anchor's unit waits for the loads that are served before it.

        Outside the loops it shares its wait with the first tile's loads, which all must wait for.
        """
        for depth, rank, anchored, _ in self.loads:
            if not anchored or depth == 0:
                continue
            for other, before, beside, each in self.loads:
                if other == depth and before < rank and not beside:
                    self.anchored[depth] = self.anchored[depth] + each

    def _add_micro_kernels(self, slots: dict[str, NDArray[np.int64]]) -> None:
        """Loading a micro-kernel costs once per combination of base addresses."""
        shape, match = self.shape, self.shape.match
        for o in match.selection.operations:
            micro = o.intrinsic.micro_kernel
            if micro is None:
                continue
            depth = len(shape.loops) if match.selection.inner(o) else shape.spatial
            variants = np.ones(1)
            inner = depth
            for storage in dict.fromkeys(o.storages):
                if storage in shape.placement:
                    variants = variants * slots[storage]
                    moving = {n for c in match.coordinate[storage] for n in c.names}
                    inside = [
                        p
                        for p in range(shape.placement[storage], depth)
                        if shape.loops[p] in moving
                    ]
                    inner = min([inner, *inside])
            for p in range(inner, depth):
                variants = variants * -(-match.count[shape.loops[p]] // shape.grid[shape.loops[p]])
            self.infeasible = self.infeasible | (variants > micro.max_variants)
            bus = shape.hardware.bus[micro.bus]
            self.anchored[0] = self.anchored[0] + variants * (bus.read.latency_cycles + 8)

    def cycles(self) -> NDArray[np.float64]:
        """Modelled cycles, infinite where the hardware's limits are exceeded."""
        shape = self.shape
        iteration = np.zeros(1)
        loading = np.zeros(1)
        ramp = np.zeros(1)
        ahead = np.full(1, np.inf)
        for depth in reversed(range(len(shape.loops) + 1)):
            busy = self.anchored[depth]
            loads = self.overlapped[depth] + self.serial[depth]
            if depth < len(shape.loops):
                name = shape.loops[depth]
                count = -(-shape.match.count[name] // shape.grid[name])
                busy = busy + count * iteration
                if depth:
                    # In order behind the inner loads: only what these run ahead hides it.
                    busy = busy + np.maximum(0, self.overlapped[depth] - ahead)
                loads = loads + count * loading
            loading = loads
            iteration = np.maximum(busy, loads - self.serial[depth]) + self.serial[depth]
            ramp = ramp + np.minimum(self.overlapped[depth], busy)
            ahead = np.where(self.overlapped[depth] > 0, 2 * iteration, ahead)
            if depth == shape.spatial:
                overlapped = np.maximum(iteration, self.store)
                iteration = np.where(self.store_serial, iteration + self.store, overlapped)
        # A store from a single slot is in every iteration already, also in the last.
        drain = np.where(self.store_serial, 0, self.store)
        total = np.maximum(iteration, self.bus) + ramp + drain
        tails = np.zeros(1)
        for name in shape.loops:
            tails = tails + (shape.match.count[name] % shape.grid[name] != 0)
        return np.where(self.infeasible, np.inf, total * (1 + TAIL_PENALTY * tails))
