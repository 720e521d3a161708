"""Micro-kernels of a shape: how many there are, whether their memory holds them, and what loading
them takes.

Each combination of base addresses is a micro-kernel of its own, loaded once. Its operations are the
iterations of one call that the hardware's own loops leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from math import prod

import numpy as np

from hwgen.polyhedral.match.call_shapes import together
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.cost_tree import Array
from hwgen.polyhedral.search.estimate_shape import Counts, Grid, Shape
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec, MicroKernel


class MicroKernels:
    """`refused`: points with too many micro-kernels; `cycles`: of loading all of them."""

    def __init__(self, shape: Shape, slots: dict[str, Counts]) -> None:
        self.shape = shape
        self.slots = slots
        self.refused = np.zeros(1, dtype=np.bool_)
        self.cycles: Array = np.zeros(1)
        held: dict[int, Array] = {}
        for o in shape.match.selection.operations:
            micro = o.intrinsic.micro_kernel
            if micro is None:
                continue
            depth = len(shape.loops) if shape.match.selection.inner(o) else shape.spatial
            room = micro.capacity_operations
            for count, tile in self.of(o, depth):
                each = shortest_sequence(o, shape, tile)
                self.refused = self.refused | (count > micro.max_variants)
                held[room] = held.get(room, np.zeros(1)) + count * each
                self.cycles = self.cycles + count * load_cycles(shape.hardware, micro, each)
        for room, operations in held.items():
            self.refused = self.refused | (operations > room)

    def of(self, o: Operation, depth: int) -> Iterator[tuple[Array, Grid]]:
        """Combinations of base addresses of an operation, and the tile that each works on: those of
        short tiles are others than those of full ones."""
        shape, match = self.shape, self.shape.match
        full, left = shape.extents(depth), dict[str, Counts]()
        whole = {n: shape.trips(frozenset((n,))) for n in shape.loops[:depth]}
        for n in (x for x in whole if x in match.count and x in o.loops):
            rest = match.count[n] - shape.grid[n] * (whole[n] - 1)
            if ((rest < shape.grid[n]) & (whole[n] > 1)).any():
                left[n] = np.where(whole[n] > 1, rest, shape.grid[n])
        uncut = whole | {n: whole[n] - (left[n] < shape.grid[n]) for n in left}
        for count in range(len(left) + 1):
            for short in combinations(sorted(left), count):
                there = prod((left[n] < shape.grid[n] for n in short), start=np.ones(1))
                trips = uncut | {n: np.ones(1, np.int64) for n in short}
                tile = full | {n: left[n] for n in short}
                yield there * self._variants(o, trips), tile

    def _variants(self, o: Operation, trips: Grid) -> Array:
        """Combinations of base addresses, where each loop has so many iterations: parts of buffers
        that loops move, and slots that take turns; buffers of the same turn count once."""
        shape = self.shape
        storages = [s for s in dict.fromkeys(o.storages) if s in shape.placement]
        moved = set[str]()
        for storage in storages:
            moving, inside = shape.match.moving(storage), shape.loops[shape.placement[storage] :]
            moved |= {n for n in inside if n in moving and n in trips}
            if storage in shape.parts:
                moved |= shape.around(storage).parts & {*trips}
        variants: Array = np.ones(1)
        for n in sorted(moved):
            variants = variants * trips[n]
        known: list[tuple[int, Counts]] = []
        for storage in sorted(storages, key=lambda s: shape.placement[s]):
            place, slots = shape.placement[storage], self.slots[storage]
            if storage in shape.parts:
                around = shape.around(storage)
                outside = [n for n in shape.loops if n in around.before]
                turns = slots // shape.trips(around.parts)
                variants = variants * self._turns(turns, outside, moved, trips)
            elif not shape.in_place(storage):
                turns = self._turns(slots, shape.loops[:place], moved, trips)
                for other, same in known:
                    between = shape.trips(frozenset(shape.loops[other:place]))
                    turns = np.where((between == 1) & (same == slots), 1, turns)
                variants = variants * turns
                known.append((place, slots))
        return variants

    def _turns(
        self, slots: Counts, around: Sequence[str], fixed: Collection[str], trips: Grid
    ) -> Array:
        """Slots that a buffer's tiles have in turn while some loops are in one iteration."""
        step, most = slots, np.ones(1, np.int64)
        for n, name in enumerate(around):
            if name not in fixed:
                inside = self.shape.trips(frozenset(around[n + 1 :]))
                step = np.gcd(step, np.where(trips[name] > 1, inside, slots))
                most = most * trips[name]
        return np.minimum(slots / step, most)


def shortest_sequence(o: Operation, shape: Shape, tile: Grid) -> Array:
    """The fewest operations of a micro-kernel for one call on a tile: what hardware loops leave,
    no entry written again too soon."""
    micro = o.intrinsic.micro_kernel
    assert micro is not None
    groups, written = together(o, shape.match, tile), o.intrinsic.written.name
    most = min(len(o.intrinsic.loops), len(groups))
    least = np.full(1, np.inf)
    for taken in (x for count in range(most + 1) for x in combinations(groups, count)):
        rest = [g for g in groups if g not in taken]
        all_left = prod((groups[g] for g in rest), start=np.ones(1))
        apart = prod((groups[g] for g in rest if written in g[0]), start=np.ones(1))
        legal = (apart >= micro.rewrite_distance) | (all_left == apart)
        least = np.minimum(least, np.where(legal, all_left, np.inf))
    # Where none is legal, what writes again is in loops around the call.
    once = prod((groups[g] for g in groups if written in g[0]), start=np.ones(1))
    return np.where(np.isfinite(least), least, once)


def load_cycles(hardware: HardwareSpec, micro: MicroKernel, operations: Array) -> Array:
    """What loading so many operations takes."""
    bus = hardware.bus[micro.bus]
    beats = np.ceil(operations * micro.operation_bytes / bus.beat_bytes)
    names = {"operations": 1, "bursts": 1, "beats": 1}
    first, second = (evaluate(micro.load_cycles, names | {"transfer": n}) for n in (0, 1))
    return first + (second - first) * (bus.read.latency_cycles + beats)
