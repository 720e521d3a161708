"""What schedules are estimated to take: arrays over tile sizes, for one loop order and placement.

The cost is that of the shape's tree, what its micro-kernels take to load, and of cores what their
caches take.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.cost import cycles, least
from hwgen.polyhedral.search.cost_tree import Array, taken
from hwgen.polyhedral.search.estimate_caches import with_caches
from hwgen.polyhedral.search.estimate_shape import Counts, Outer, Shape
from hwgen.polyhedral.search.shape_tree import ShapeTree, machine_of
from hwgen.polyhedral.search.slots import slots_of

TAIL_PENALTY = 1e-3
"""Relative cost of a loop with a tail: a program without is shorter, at equal speed better. It
decides between equals alone, and is no property of a machine."""


NEAR = 1.04
"""Estimated cycles over the least, by this factor at most, of candidates that are kept because they
load little."""

ALMOST = 1.001
"""Estimated cycles over those of candidates that load no more, by which one may be better still."""

FIRST, MORE = 256, 16
"""Points that are costed first, those of the least work, and by how many times more in turn."""


class Estimate(NamedTuple):
    """Of a shape's points: cycles, infinite where the buffers do not fit; slots of each storage;
    beats on the bus of everything that is loaded; of the cycles, those of caches, which no
    simulation sees."""

    cycles: NDArray[np.float64]
    slots: dict[str, NDArray[np.int64]]
    beats: NDArray[np.float64]
    unseen: NDArray[np.float64]

    def with_caches(self, shape: Shape) -> Estimate:
        """The same with what a core's caches take."""
        if not through_caches(shape.hardware):
            return self
        possible = np.where(np.isfinite(self.cycles), self.cycles, 0)
        unseen = with_caches(shape, possible) - possible
        return self._replace(cycles=self.cycles + unseen, unseen=unseen)


@dataclass(frozen=True, slots=True)
class Front:
    """Points of which none takes fewer beats and fewer cycles, of ascending beats."""

    beats: Array = field(default_factory=lambda: np.zeros(0))
    cycles: Array = field(default_factory=lambda: np.zeros(0))

    def with_points(self, beats: Array, cycles: Array) -> Front:
        """The front of these points and others."""
        loads, times = np.append(self.beats, beats), np.append(self.cycles, cycles)
        order = np.lexsort((times, loads))
        loads, times = loads[order], times[order]
        before = np.minimum.accumulate(np.append(np.inf, times))[:-1]
        return Front(loads[times < before], times[times < before])

    def cycles_for(self, beats: Array) -> Array:
        """The fewest cycles for no more beats; infinite where there are none."""
        place = np.searchsorted(self.beats, beats, side="right")
        return np.append(np.inf, self.cycles)[place]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which points are costed: those that may be among the `keep` cheapest and take no more than
    the `limit`; or no more than `near` the least, and hardly more than what is known to load no
    more. The others are infinite. `among`: of these points."""

    keep: int
    limit: float = np.inf
    near: float = 0.0
    front: Front = field(default_factory=Front)
    among: NDArray[np.bool_] = field(default_factory=lambda: np.ones(1, np.bool_))

    def may_be(self, bound: Array, beats: Array) -> NDArray[np.bool_]:
        """Which points are wanted, of so many cycles at least."""
        thrifty = (bound <= self.near) & (bound < ALMOST * self.front.cycles_for(beats))
        return (bound <= self.limit) | thrifty

    def beside(self, cycles: Array, beats: Array) -> Wanted:
        """The same when some points are known."""
        limit = self.limit
        if len(cycles) >= self.keep:
            limit = min(limit, float(np.partition(cycles, self.keep - 1)[self.keep - 1]))
        near = min(self.near, NEAR * float(cycles.min(initial=np.inf)))
        front = self.front.with_points(beats, cycles) if self.near else self.front
        return replace(self, limit=limit, near=near, front=front)


def estimate(shape: Shape, wanted: Wanted, known: dict[object, Estimate] | None = None) -> Estimate:
    """What the points of a shape are estimated to take; `known`: of shapes of the same points that
    cost the same."""
    known = {} if known is None else known
    if shape.alike not in known:
        known[shape.alike] = Costing(shape).costed(wanted)
    return known[shape.alike].with_caches(shape)


class Costing:
    """The cost of a shape's points: a bound on all of them, and exactly that of those wanted.

    `bound`: cycles at least, infinite where the buffers do not fit; `beats`: as an `Estimate` has
    them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.size = size = len(next(iter(shape.grid.values()), np.ones(1)))
        entries = {s.name: shape.entries(s.name) for s in shape.match.selection.storages}
        self.slots, fits = slots_of(shape, entries)
        kernels = _MicroKernels(shape, self.slots)
        self.tree = ShapeTree(shape, self.slots, entries)
        self.machine = machine_of(shape.hardware)
        every = (self.tree.variants, kernels.cycles, 1 + TAIL_PENALTY * shape.tails())
        self.variants, self.loading, self.tails = (np.broadcast_to(x, size) for x in every)
        possible = np.broadcast_to(fits & ~kernels.refused, size)
        numbers = np.unique(self.variants[possible]).tolist()
        self.nodes = {v: self.tree.nodes(v) for v in numbers}
        self.bound, self.beats = np.full(size, np.inf), np.zeros(size)
        for variant, made in self.nodes.items():
            work, mine = least(made, self.machine, self.tree.versions), self.variants == variant
            self.beats = np.where(mine, work.beats, self.beats)
            bound = (work.cycles + self.loading) * self.tails
            self.bound = np.where(mine & possible, bound, self.bound)

    def costed(self, wanted: Wanted) -> Estimate:
        """The cost but for caches of the points that are wanted, of the least bound first."""
        bound, beats, found = self.bound, self.beats, np.full(self.size, np.inf)
        possible = np.flatnonzero(np.isfinite(bound) & wanted.among)
        order = possible[np.argsort(bound[possible], kind="stable")]
        count = self.size if through_caches(self.shape.hardware) else FIRST
        while len(order := order[wanted.may_be(bound[order], beats[order])]):
            now, order = order[:count], order[count:]
            for variant in np.unique(self.variants[now]).tolist():
                mine = now[self.variants[now] == variant]
                tree = taken(self.nodes[variant], self.tree.versions, mine, self.size)
                walked = cycles(tree[0], self.machine, tree[1])
                found[mine] = (walked + self.loading[mine]) * self.tails[mine]
            wanted = wanted.beside(found[now], beats[now])
            count *= MORE
        return Estimate(found, self.slots, beats, np.zeros(self.size))


class _MicroKernels:
    """Loading a micro-kernel costs once per combination of base addresses. `refused`: where there
    are too many of these; `cycles`: of all loads."""

    def __init__(self, shape: Shape, slots: dict[str, Counts]) -> None:
        self.shape = shape
        self.slots = slots
        self.refused = np.zeros(1, dtype=np.bool_)
        self.cycles: Array = np.zeros(1)
        for o in shape.match.selection.operations:
            micro = o.intrinsic.micro_kernel
            if micro is None:
                continue
            depth = len(shape.loops) if shape.match.selection.inner(o) else shape.spatial
            self.refused = self.refused | (self._variants(o, depth) > micro.max_variants)
            bus = shape.hardware.bus[micro.bus]
            self.cycles = self.cycles + self._loaded(o, depth) * (bus.read.latency_cycles + 8)

    def _loaded(self, o: Operation, depth: int) -> Array:
        """Combinations of base addresses of an operation's micro-kernels: those of short tiles are
        others than those of full ones."""
        shape, match = self.shape, self.shape.match
        cut = {
            n: (match.count[n] % shape.grid[n] != 0) & (shape.trips(frozenset((n,))) > 1)
            for n in shape.loops[:depth]
            if n in match.count and n in o.loops
        }
        ends = sorted(n for n, short in cut.items() if short.any())
        total: Array = np.zeros(1)
        for count in range(len(ends) + 1):
            for short in combinations(ends, count):
                there = np.prod([cut[n] for n in short], axis=0, initial=1)
                total = total + there * self._variants(o, depth, frozenset(short))
        return total

    def _variants(self, o: Operation, depth: int, short: Outer = frozenset()) -> Array:
        """Combinations of base addresses: slots of buffers, and parts that loops move; buffers that
        come in parts move together. `short`: loops that are in their last iteration."""
        shape = self.shape
        storages = [s for s in dict.fromkeys(o.storages) if s in shape.placement]
        parted = {s: shape.around(s).parts for s in storages if s in shape.parts}
        moved = frozenset(n for parts in parted.values() for n in parts)
        variants, inner = np.ones(1), depth
        for storage in storages:
            parts = shape.trips(parted.get(storage, frozenset()))
            turns = self._turns(storage, moved | short)
            variants = variants * (self.slots[storage] / parts if storage in parted else turns)
            moving = shape.match.moving(storage)
            inside = range(shape.placement[storage], depth)
            inner = min([inner, *(p for p in inside if shape.loops[p] in moving)])
        return variants * shape.trips((frozenset(shape.loops[inner:depth]) | moved) - short)

    def _turns(self, storage: str, fixed: Outer) -> Array:
        """Slots that a buffer's tiles have in turn while some loops are in one iteration."""
        slots, around = self.slots[storage], self.shape.loops[: self.shape.placement[storage]]
        step = slots
        for n, name in enumerate(around):
            if name not in fixed:
                inside = self.shape.trips(frozenset(around[n + 1 :]))
                several = self.shape.trips(frozenset((name,))) > 1
                step = np.gcd(step, np.where(several, inside, slots))
        return slots / step
