"""Closed-form cycles of schedules: arrays over tile sizes, for one loop order and placement."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.match.call_shapes import call_cycles
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.search.bank_share import bank_shares
from hwgen.polyhedral.search.estimate_caches import with_caches
from hwgen.polyhedral.search.estimate_shape import Counts, Cycles, Shape, Work, held_runs
from hwgen.polyhedral.search.host_queues import anchor_unit, queued_cycles, stored_in_parts, waiting
from hwgen.polyhedral.search.slots import slots_of
from hwgen.polyhedral.search.tiling import TOGETHER
from hwgen.polyhedral.search.traffic import Rates, bus_rank, call_overhead, start_beats
from hwgen.polyhedral.semantics import moves

SPARE = 0.01
"""Relative cost of cycles on the bus that others hide, where a host issues calls. It decides
between equals alone, and is no property of a machine."""

TAIL_PENALTY = 1e-3
"""Relative cost of a loop with a tail: a program without is shorter, at equal speed better. It
decides between equals alone, and is no property of a machine."""


class Estimate(NamedTuple):
    """Of a shape's points: cycles, infinite where the buffers do not fit; slots of each storage;
    beats on the bus of everything that is loaded; of the cycles, those of caches, which no
    simulation sees; where micro-operations likely exceed their memory."""

    cycles: NDArray[np.float64]
    slots: dict[str, NDArray[np.int64]]
    beats: NDArray[np.float64]
    unseen: NDArray[np.float64]
    crowded: NDArray[np.bool_]


class _Parts(NamedTuple):
    """A load in parts, which come in the first pass of the loops that do not move them: `depth` of
    a part, `inside` and `outside` of those loops; the loops that move parts; the cycles of the
    first part; a part's cycles and instructions on average; the number of parts, and in how many
    iterations inside."""

    unit: str
    depth: int
    inside: int
    outside: int
    loops: frozenset[str]
    first: Cycles
    part: Cycles
    issued: Cycles
    number: Counts
    tiles: Counts

    @property
    def each(self) -> Cycles:
        """Cycles in one iteration inside."""
        return self.part * (self.number // self.tiles)


def estimate(shape: Shape) -> Estimate:
    """What the points of a shape are estimated to take."""
    match, hardware = shape.match, shape.hardware
    size = len(next(iter(shape.grid.values()), np.ones(1)))
    entries = {s.name: shape.entries(s.name) for s in match.selection.storages}
    slots, fits = slots_of(shape, entries)
    if not fits.any():
        nothing = np.zeros(size)
        return Estimate(np.full(size, np.inf), slots, nothing, nothing, nothing > 0)
    levels = _Levels(shape, slots, entries)
    seen = np.where(fits, levels.cycles(), np.inf)
    possible = np.where(np.isfinite(seen), seen, 0)
    unseen = with_caches(shape, possible) - possible if through_caches(hardware) else np.zeros(1)
    cycles = seen + unseen
    beats, unseen = (np.broadcast_to(x, cycles.shape) for x in (levels.bus, unseen))
    return Estimate(cycles, slots, beats, unseen, np.broadcast_to(levels.crowded, cycles.shape))


class _Levels:
    """Cycles level by level: inside each tile loop, loads overlap compute unless single-buffered.

    Per iteration at a depth, the anchor's unit is busy for its own work and the inner loops; the
    loads of the iteration run beside it, one generation ahead where there are two slots.
    """

    def __init__(
        self,
        shape: Shape,
        slots: dict[str, NDArray[np.int64]],
        entries: dict[str, NDArray[np.int64]],
    ) -> None:
        depths = len(shape.loops) + 1
        self.shape = shape
        board = shape.hardware.scoreboard
        self.waits = board is None or not board.renames
        self.overlapped = [np.zeros(1) for _ in range(depths)]
        self.serial = [np.zeros(1) for _ in range(depths)]
        self.anchored = [np.zeros(1) for _ in range(depths)]
        # While the host waits for room in another queue, beyond what the anchor's own holds.
        self.blocked = [np.zeros(1) for _ in range(depths)]
        # What the host is busy for, issuing everything of a depth.
        self.hosting = [np.zeros(1) for _ in range(depths)]
        self.issued: dict[tuple[str, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        # What begins sums on another unit: cycles and instructions in one tile.
        self.begun: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self.parts: list[_Parts] = []
        # By unit and depth: what moves or finishes tiles while the anchor's unit works on others.
        self.moving: dict[str, dict[int, Cycles]] = {}
        # What of it is left when the anchor's unit is done.
        self.last = np.zeros(1)
        self.waiting = [np.zeros(1) for _ in range(depths)]
        self.store = np.zeros(1)
        # By depth: what stores take, until what they post is written, and whether work waits for
        # it, where nothing has a slot for more.
        self.stored: dict[int, tuple[Cycles, Cycles, NDArray[np.bool_]]] = {}
        operations = shape.match.selection.operations
        self.anchor = anchor_unit(shape.match)
        # Cycles of other units that load and store, of both together.
        self.shared = [np.zeros(1) for _ in range(depths)]
        self.storing = {o.intrinsic.unit for o in operations if o.kind == "store"} - {self.anchor}
        self.loading = [o for o in operations if o.kind == "load"]
        self.worked = {s for o in operations if o.kind == "update" for s in o.storages}
        self.bus = np.zeros(1)
        self.ready = queued_cycles(shape.hardware, shape.match)
        self.parted = stored_in_parts(shape.hardware, shape.match)
        self.loads: list[tuple[int, int, bool, NDArray[np.float64]]] = []
        self.shares = bank_shares(
            shape.hardware, operations, self.anchor, shape.placement, slots, entries
        )
        for operation in operations:
            self._add(operation, slots)
        self._add_bus_waits()
        for unit, depth in self.issued:
            self.blocked[depth] = self.blocked[depth] + self._blocked_at(unit, depth)
        self._add_beside_others()
        for unit in self.begun:
            self._add_begun(unit)
        self.infeasible = np.zeros(1, dtype=np.bool_)
        self.crowded = np.zeros(1, dtype=np.bool_)
        self._add_micro_kernels(slots)

    def _add(self, o: Operation, slots: dict[str, NDArray[np.int64]]) -> None:
        shape, match = self.shape, self.shape.match
        if o.kind in ("load", "store"):
            storage = next(s for s in o.storages if s in shape.placement)
            if shape.in_place(storage):
                return
            # What is in the place of an input is stored where the tile is.
            depth = shape.placement[storage]
            if o.kind == "store":
                loaded = any(storage in x.storages for x in self.loading)
                depth = shape.spatial if loaded else min(depth, shape.spatial)
            moved = shape.transfer(o, storage)
            filled = shape.filled(match.moving(storage), shape.placement[storage])
            each, beats, issued, written = (x * filled for x in moved)
            if o.kind == "load":
                each = each + self._more_calls(o, depth, slots[storage])
            if storage in shape.parts:
                self._add_parts(o, storage, each, beats, issued)
                return
            self._issue(o, depth, each, issued)
            if o.intrinsic.unit in self.storing:
                self.shared[depth] = self.shared[depth] + each
            if o.kind == "store":
                self.store = self.store + each
                never = self.shares.get(storage, np.zeros(1)) == 1
                single = (slots[storage] == 1) & self.waits
                serial = single | never | (o.intrinsic.unit == self.anchor)
                if depth in self.stored:
                    before = self.stored[depth]
                    each, written = before[0] + each, before[1] + written
                    serial = before[2] | serial
                self.stored[depth] = each, written, serial
                return
            self.bus = self.bus + beats * shape.counts(depth)
            anchored = o.intrinsic.unit == self.anchor
            self.loads.append((depth, bus_rank(shape.hardware, o), anchored, each))
            if anchored:
                self.anchored[depth] = self.anchored[depth] + each
                return
            single = (slots[storage] == 1) & self.waits
            alone = np.where(single, 1.0, self.shares.get(storage, np.zeros(1)))
            self.serial[depth] = self.serial[depth] + each * alone
            self.overlapped[depth] = self.overlapped[depth] + each * (1 - alone)
            return
        depth = len(shape.loops) if match.selection.inner(o) else shape.spatial
        work = shape.cache.once(("work", o.name), lambda: self._work(o, depth))
        each = work.cycles
        self.hosting[depth] = self.hosting[depth] + work.issuing
        if o.kind == "init":
            iterations = float(prod(match.count[n] for n in o.loops))
            beats = start_beats(shape.hardware, o) * iterations
            each = np.maximum(each, beats / work.tiles)
            self.bus = self.bus + beats * shape.counts(depth) / work.tiles
        if o.kind == "init" and o.intrinsic.unit != self.anchor:
            # It fills the next tile's sums beside this one's, where there is a slot for them.
            single = (slots[o.written] == 1) & self.waits
            self.serial[depth] = self.serial[depth] + np.where(single, each, 0)
            self.overlapped[depth] = self.overlapped[depth] + np.where(single, 0, each)
            if shape.hardware.pipelined and shape.hardware.issue is not None:
                before = self.begun.get(o.intrinsic.unit, (np.zeros(1), np.zeros(1)))
                calls = work.issuing / shape.hardware.issue.each(o.intrinsic)
                self.begun[o.intrinsic.unit] = (before[0] + each, before[1] + calls)
            return
        beside = moves(shape.hardware, o.intrinsic) or o.kind == "map"
        if beside and o.intrinsic.unit != self.anchor:
            # Another unit prepares the next tile, or works on the last one, where there is a slot.
            single = np.zeros(1, dtype=np.bool_)
            for name, count in slots.items():
                if name == o.written or (name in o.storages and name in self.worked):
                    single = single | ((count == 1) & self.waits)
            self.waiting[depth] = self.waiting[depth] + np.where(single, each, 0)
            mine = self.moving.setdefault(o.intrinsic.unit, {})
            mine[depth] = mine.get(depth, np.zeros(1)) + np.where(single, 0, each)
            if not match.selection.inner(o):
                self.last = self.last + np.where(single, 0, each)
            return
        self.anchored[depth] = self.anchored[depth] + each

    def _more_calls(
        self, o: Operation, depth: int, slots: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What a load takes more where a part of it comes with each load inside the next loop."""
        shape = self.shape
        beside = (
            x.intrinsic.unit == o.intrinsic.unit and shape.placement[s] > depth
            for x in self.loading
            for s in x.storages
            if s in shape.placement
        )
        if shape.hardware.pipelined or not depth or not any(beside):
            return np.zeros(1)
        more = shape.trips(frozenset((shape.loops[depth],))) - 1
        return np.where(slots > 1, more * call_overhead(shape.hardware, o), 0)

    def _add_parts(
        self, o: Operation, storage: str, each: Cycles, beats: Cycles, issued: Cycles
    ) -> None:
        """A load whose parts come in the first pass of loops that do not move them."""
        shape, around = self.shape, self.shape.around(storage)
        first, fresh = each, shape.fresh(storage)
        each, beats, issued = each * fresh, beats * fresh, issued * fresh
        self.bus = self.bus + beats * shape.trips(around.loading)
        times = shape.trips(around.parts)
        blocked = self._blocked(o.intrinsic.unit, each, issued)
        outside = len(around.before)
        self.blocked[outside] = self.blocked[outside] + blocked * times
        if shape.hardware.issue is not None:
            spent = issued * shape.hardware.issue.each(o.intrinsic) * times
            self.hosting[outside] = self.hosting[outside] + spent
        depth = shape.placement[storage]
        inside = len(shape.passes(storage))
        inner = shape.trips(around.parts.intersection(shape.loops[inside:depth]))
        unit, moving = o.intrinsic.unit, around.parts
        tiles = times // inner
        self.parts.append(
            _Parts(unit, depth, inside, outside, moving, first, each, issued, times, tiles)
        )

    def _beside(self, parts: _Parts) -> Cycles:
        """What other loads in parts take in the first pass of a load's, for each of its tiles."""
        shape = self.shape
        total = np.zeros(1)
        for other in self.parts:
            if other.outside > parts.outside:
                between = parts.loops.intersection(shape.loops[parts.outside : other.outside])
                total = total + other.each * other.tiles * shape.trips(between)
        return total / parts.tiles

    def _work(self, o: Operation, depth: int) -> Work:
        """What an operation inside `depth` loops takes, whatever their order."""
        if not o.intrinsic.software_loops and o.intrinsic.micro_kernel is None:
            each = call_cycles(o, self.shape.match, self.shape.extents(depth))
            each = each * self.shape.filled(o.loops, depth)
            return Work(each + 1, np.zeros(1), self.shape.tiles(o, depth))
        rates = Rates.of(o.intrinsic)
        iterations = np.ones(1)
        for n in o.loops:
            iterations = iterations * self.shape.match.count[n]
        rows = self._rows(o, depth)
        work = rates.per_iteration * iterations + self._held(o, rates.per_iteration * rows)
        issuing = self._issuing(o, iterations, rows)
        tiles = self.shape.tiles(o, depth)
        work = np.maximum(work, issuing)
        return Work(rates.fixed + 1 + work / tiles, issuing / tiles, tiles)

    def _issue(
        self,
        o: Operation,
        depth: int,
        cycles: NDArray[np.float64],
        instructions: NDArray[np.float64],
    ) -> None:
        """Calls that the host issues one after the other."""
        if self.shape.hardware.issue is not None:
            spent = instructions * self.shape.hardware.issue.each(o.intrinsic)
            self.hosting[depth] = self.hosting[depth] + spent
        key = (o.intrinsic.unit, depth)
        before = self.issued.get(key, (np.zeros(1), np.zeros(1)))
        self.issued[key] = (before[0] + cycles, before[1] + instructions)

    def _blocked(
        self, unit: str, cycles: NDArray[np.float64], instructions: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Cycles for which the host cannot issue the anchor's calls, as those of another unit fill
        its queue, less what the anchor's unit has in its own."""
        if unit == self.anchor:
            return np.zeros(1)
        return waiting(self.shape.hardware, unit, cycles, instructions, self.ready)

    def _issued_from(self, unit: str, depth: int) -> tuple[Cycles, Cycles]:
        """Cycles and instructions of what comes together where a depth's iteration begins: its own
        and those of the depths inside."""
        inside = [each for (u, d), each in self.issued.items() if u == unit and d >= depth]
        return sum((c for c, _ in inside), np.zeros(1)), sum((n for _, n in inside), np.zeros(1))

    def _blocked_at(self, unit: str, depth: int) -> Cycles:
        """For what a unit's calls at a depth keep the host longer than those inside alone."""
        cycles, instructions = self._issued_from(unit, depth)
        parts = self._parts_stored(unit, depth, instructions)
        together = parts * self._blocked(unit, cycles / parts, instructions / parts)
        return together - self._blocked(unit, *self._issued_from(unit, depth + 1))

    def _parts_stored(self, unit: str, depth: int, instructions: Cycles) -> Cycles:
        """In how many parts a unit's calls at a depth come, where these are those of the store that
        may do so."""
        shape = self.shape
        mine = self.parted is not None and self.parted.intrinsic.unit == unit
        if not mine or depth != shape.spatial or depth in (0, len(shape.loops)):
            return np.ones(1)
        most = shape.trips(frozenset((shape.loops[depth],)))
        return np.maximum(1, np.minimum(most, instructions))

    def _add_beside_others(self) -> None:
        """For what else is loaded in the same iteration the host waits longer than for a part."""
        for x in self.parts:
            others = self._issued_from(x.unit, x.depth)
            alone = self._blocked(x.unit, x.part, x.issued) + self._blocked(x.unit, *others)
            both = self._blocked(x.unit, x.part + others[0], x.issued + others[1])
            more = np.maximum(0, both - alone) * x.number
            self.blocked[x.outside] = self.blocked[x.outside] + more

    def _add_begun(self, unit: str) -> None:
        """The host waits for room in the queue of what begins the next sums, and of the loads that
        follow; these wait for the stores where they come with them, and find no work beside them
        where a tile has one part."""
        shape = self.shape
        parts = shape.trips(frozenset(shape.loops[shape.spatial :]))
        follow = self._issued_from(unit, shape.spatial + 1)
        cycles, calls = (a + b for a, b in zip(self.begun[unit], follow, strict=True))
        known = self._blocked(unit, *follow)
        room = shape.hardware.unit[unit].queue_entries or np.inf

        def blocked(cycles: Cycles, calls: Cycles) -> Cycles:
            share = np.where(parts > 1, np.maximum(0, 1 - room / np.maximum(calls, 1)), 1)
            stored = np.where(parts > TOGETHER, 0, self.store)
            waiting = np.where(share > 0, cycles * share + stored, 0)
            return np.maximum(0, waiting - self.ready - known)

        always = blocked(cycles, calls)
        self.blocked[shape.spatial] = self.blocked[shape.spatial] + always
        for x in self.parts:
            if x.unit == unit:
                more = blocked(cycles + x.part, calls + x.issued) - always
                self.blocked[x.outside] = self.blocked[x.outside] + more * x.tiles

    def _issuing(
        self, o: Operation, iterations: NDArray[np.float64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Cycles in which the host issues an operation's calls, each as long as its tile allows."""
        issue = self.shape.hardware.issue
        if issue is None or not o.intrinsic.software_loops:
            return np.zeros(1)
        return iterations / rows * (o.intrinsic.instructions * issue.each(o.intrinsic))

    def _rows(self, o: Operation, depth: int) -> NDArray[np.float64]:
        """Iterations of one call among those that C loops repeat."""
        shape, match = self.shape, self.shape.match
        if not o.intrinsic.software_loops:
            return np.ones(1)
        own = [x.extent.maximum for x in o.intrinsic.loops if not x.software]
        moving = match.moving(o.written) if o.written in match.coordinate else ()
        tiles = shape.extents(depth)
        each = np.ones(1)
        for most in own:
            rows = np.ones(1)
            for n in o.loops:
                if match.block.get(n, 1) == 1 and n in moving:
                    rows = np.maximum(rows, tiles[n] / np.ceil(tiles[n] / most))
            each = each * rows
        return each

    def _held(self, o: Operation, call: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cycles of bringing in the operand that the unit holds, beyond those of the `call` that it
        may happen beside, in all tiles together."""
        held = o.intrinsic.stationary
        if held is None:
            return np.zeros(1)
        hidden = call if held.overlaps else np.zeros(1)
        return np.maximum(0, held.cycles - hidden) * held_runs(self.shape, o)

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
        stored: dict[int, Cycles] = {}
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
                    moving = match.moving(storage)
                    inside = [
                        p
                        for p in range(shape.placement[storage], depth)
                        if shape.loops[p] in moving
                    ]
                    inner = min([inner, *inside])
            for p in range(inner, depth):
                variants = variants * shape.trips(frozenset((shape.loops[p],)))
            self.infeasible = self.infeasible | (variants > micro.max_variants)
            most = micro.capacity_operations
            stored[most] = stored.get(most, np.zeros(1)) + variants * self._sequence(o, depth)
            bus = shape.hardware.bus[micro.bus]
            self.anchored[0] = self.anchored[0] + variants * (bus.read.latency_cycles + 8)
        for most, operations in stored.items():
            self.crowded = self.crowded | (operations > most)

    def _sequence(self, o: Operation, depth: int) -> Cycles:
        """Micro-operations of one call: what its tile has in no hardware loop, where each of these
        is one of the tile's longest. Some may be two of them together."""
        tile = self.shape.extents(depth)
        extents = np.stack(np.broadcast_arrays(np.ones(1), *(tile[n] for n in o.loops)))
        loops = sum(not x.software for x in o.intrinsic.loops)
        return np.sort(extents, axis=0)[: max(1, len(extents) - loops)].prod(axis=0)

    def cycles(self) -> NDArray[np.float64]:
        """Modelled cycles, infinite where the hardware's limits are exceeded."""
        shape = self.shape
        iteration = np.zeros(1)
        loading = np.zeros(1)
        hosting = np.zeros(1)
        shared, tile = np.zeros(1), np.zeros(1)
        loaded = [
            shape.placement[s] for o in self.loading for s in o.storages if s in shape.placement
        ]
        innermost = max([shape.spatial, *loaded])
        count = np.ones(1)
        ramp, drain = np.zeros(1), self.last
        ahead = np.full(1, np.inf)
        longer = [np.zeros(1) for _ in range(len(shape.loops) + 1)]
        for depth in reversed(range(len(shape.loops) + 1)):
            busy = self.anchored[depth] + self.blocked[depth] + longer[depth]
            loads = self.overlapped[depth] + self.serial[depth]
            if depth < len(shape.loops):
                name = shape.loops[depth]
                count = shape.trips(frozenset((name,)))
                busy = busy + count * iteration
                if depth and shape.hardware.pipelined:
                    # In order behind the inner loads: only what these run ahead hides it.
                    busy = busy + np.maximum(0, self.overlapped[depth] - ahead)
                loads = loads + count * loading
            loading = loads
            # While the host waits for room in a load's queue, it issues nothing else either.
            exposed = np.maximum(0, self.serial[depth] - self.blocked[depth])
            iteration = np.maximum(busy + exposed, loads)
            for moving in self.moving.values():
                iteration = np.maximum(iteration, moving.get(depth, 0))
            iteration = iteration + self.waiting[depth]
            hosting = self.hosting[depth] + (count if depth < len(shape.loops) else 1) * hosting
            iteration = np.maximum(iteration, hosting)
            # The first calls wait for what comes with them.
            first = sum((x.first for x in self.parts if x.depth == depth), self.overlapped[depth])
            ramp = ramp + np.minimum(first, busy)
            for parts in self.parts:
                if parts.inside == depth:
                    # Beside what else is loaded in the first pass of those loops.
                    each = parts.each + self._beside(parts) + loading
                    more = np.maximum(0, each - iteration) * parts.tiles
                    longer[parts.outside] = longer[parts.outside] + more
            ahead = np.where(self.overlapped[depth] > 0, 2 * iteration, ahead)
            if depth in self.stored:
                stored, written, serial = self.stored[depth]
                iteration = np.where(serial, iteration + stored, iteration)
                iteration = np.maximum(iteration, written)
                # From a single slot it is in every iteration already, also in the last.
                drain = drain + written - np.where(serial, stored, 0)
            if shape.spatial <= depth <= innermost:
                tile = busy if depth == innermost else self.anchored[depth] + tile
            shared = self.shared[depth] + (count if depth < len(shape.loops) else 1) * shared
        total = np.maximum(iteration, self.bus) + ramp + drain
        # A unit that loads and stores waits for the work on what it loads last.
        total = np.maximum(total, shared + np.where(shared > 0, tile, 0))
        if shape.hardware.pipelined:
            # Of equals, what leaves the bus more time: for latencies that are not known here.
            total = total + SPARE * self.bus
        return np.where(self.infeasible, np.inf, total * (1 + TAIL_PENALTY * shape.tails()))
