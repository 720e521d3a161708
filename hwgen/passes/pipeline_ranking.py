"""How long software pipelines of a loop take, by a model of in-order units with cycles per block.

All choices of what runs an iteration later are looked at, as rows of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

Delays = NDArray[np.int64]
"""By choice and block: how many iterations later than its own the block runs."""

Times = NDArray[np.float64]

MOST_EDGES = 11
"""Handovers of which all choices are looked at; of the others, those between late stages run in
the same iteration."""

COMPILED = 3
"""Pipelines of one loop that are compiled, the best by the model first."""

STEADY = 8
"""Iterations in which all blocks run, of which the later half tells how long one takes."""

JUMPS = (-4, -1, 1, 4)
"""Iterations by which blocks run later in one step to a better start."""

STEPS = 40
"""Steps to better starts."""

LATEST = 16
"""Iterations that any block runs later in a start."""

CLOSE = 1.01
"""A kernel that takes hardly longer than its busiest unit works cannot get much faster."""

Room = Callable[[Sequence[int]], Mapping[str, int] | None]
"""Slots of each place that some delays take; None where there is no room for them."""


@dataclass(frozen=True, slots=True)
class Work:
    """A block inside a band: its unit, cycles of one iteration, and the place that it writes.
    `once`: it loads in the first iteration alone what stays for all."""

    name: str
    stage: str
    unit: str
    cycles: float
    place: str
    inner: tuple[str, ...]
    once: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A block that needs what another has made; numbers in textual order. `overlap`: the share of
    their work that both do in one iteration of loops further in."""

    source: int
    target: int
    overlap: float


@dataclass(frozen=True)
class Body:
    """What is inside a band, in textual order. `users`: who uses places that each iteration has
    anew, and `outer`: those that an iteration of an outer loop of the band has; `slots`: of places,
    as they are; `trips`: how often the band runs. `carried`: blocks that need what another has made
    in the iteration before. `around`: places used inside that are there for all of the band."""

    blocks: tuple[Work, ...]
    edges: tuple[Edge, ...]
    carried: tuple[tuple[int, int], ...]
    users: Mapping[str, tuple[int, ...]]
    outer: Mapping[str, tuple[int, ...]]
    slots: Mapping[str, int]
    trips: int
    around: frozenset[str] = frozenset()

    @cached_property
    def plain(self) -> float:
        """The cycles where nothing runs later."""
        with np.errstate(invalid="ignore"):
            return self.cycles(np.zeros((1, len(self.blocks)), np.int64), [self.slots]).item()

    @cached_property
    def ranked(self) -> list[tuple[float, tuple[int, ...]]]:
        """The fewest cycles that delays take, if fewer than none, and the delays."""
        choices = self.choices()
        needed = [self.needed(delays, 1) for delays in choices]
        with np.errstate(invalid="ignore"):  # Times of what is not in order.
            every = self.cycles(np.array(choices), needed)
        order = sorted(zip(every.tolist(), map(sum, choices), choices, strict=True))
        return [(cycles, d) for cycles, _, d in order if cycles * CLOSE < self.plain][:COMPILED]

    def choices(self) -> list[tuple[int, ...]]:
        """All delays, where the targets of some handovers between units run an iteration later than
        their sources at least."""
        handovers = [
            n
            for n, e in enumerate(self.edges)
            if self.blocks[e.source].unit != self.blocks[e.target].unit
        ][:MOST_EDGES]
        number = np.arange(1 << len(handovers))
        late = np.zeros((len(self.edges), len(number)), np.int64)
        for bit, n in enumerate(handovers):
            late[n] = number >> bit & 1
        found: list[Delays] = [np.zeros(len(number), np.int64) for _ in self.blocks]
        order = sorted(enumerate(self.edges), key=lambda x: x[1].target)
        for _ in range(1 + len(self.carried)):
            for n, edge in order:
                found[edge.target] = np.maximum(found[edge.target], found[edge.source] + late[n])
            for source, target in self.carried:
                found[target] = np.maximum(found[target], found[source])
        # What needs nothing from inside comes as late as those who need it allow.
        for block in {*range(len(found))} - {e.target for e in self.edges}:
            allowed = [found[e.target] - late[n] for n, e in order if e.source == block]
            found[block] = np.min(allowed, axis=0) if allowed else np.zeros_like(number)
        rows: list[list[int]] = [row.tolist() for row in found]
        return [*dict.fromkeys(zip(*rows, strict=True))]

    def with_loads(self, loads: Sequence[tuple[Work, Sequence[int]]]) -> Body:
        """The same with loads at the end of its first iteration, and who needs them."""
        count = len(self.blocks)
        edges = (Edge(n, user, 0.0) for n, (_, users) in enumerate(loads, count) for user in users)
        blocks = (*self.blocks, *(load for load, _ in loads))
        return replace(self, blocks=blocks, edges=(*self.edges, *edges))

    def together(self, delays: Sequence[int]) -> tuple[int, ...]:
        """The same, what begins sums with what adds to them: its slot is taken no sooner."""
        pairs = [*zip(self.blocks, delays, strict=True)]
        main = {b.stage: delay for b, delay in pairs if b.name == b.stage}
        return tuple(main.get(b.stage, delay) for b, delay in pairs)

    def started(self, delays: Sequence[int], room: Room) -> tuple[int, ...] | None:
        """Delays with which the first iterations wait less; None where no step leads to any.

        First all that is loaded once comes before the loop."""
        loads = [min(delays) - 1] * (len(self.blocks) - len(delays))
        return self.faster(_from_zero((*delays, *loads)), room)

    def in_pieces(self, source: int, target: int, count: int) -> Body:
        """The same, a block at work on some of so many pieces of what another makes while this
        makes more."""

        def changed(edge: Edge) -> Edge:
            if (edge.source, edge.target) != (source, target):
                return edge
            return replace(edge, overlap=max(edge.overlap, 1 - 1 / count))

        return replace(self, edges=tuple(map(changed, self.edges)))

    def least(self, delays: tuple[int, ...], room: Room, moved: Collection[int] = ()) -> float:
        """Cycles that delays take, or those beside them in which some blocks are moved."""
        beside = (_from_zero(np.add(delays, way).tolist()) for way in self._ways(moved))
        ranks = self._ranks([*dict.fromkeys((delays, *beside))], room)
        return min((rank[0] for rank in ranks.values()), default=inf)

    def faster(self, best: tuple[int, ...], room: Room) -> tuple[int, ...] | None:
        """Faster delays, some steps beside others; None where no step leads to any.

        A step is what takes the fewest cycles of these: a block runs earlier with all that it
        needs, or later with all that need it."""
        found, least = None, self._ranks([best], room).get(best, (inf,))
        ways = self._ways(range(len(best)))
        for _ in range(STEPS):
            beside = (_from_zero(np.add(best, step).tolist()) for step in ways)
            ranks = self._ranks([*dict.fromkeys(beside)], room)
            best = min(ranks, key=lambda d: ranks[d], default=best)
            if ranks.get(best, (inf,))[:2] >= least[:2]:
                break
            found, least = best, ranks[best]
        return found

    def _ways(self, moved: Collection[int]) -> list[list[int]]:
        """By how much each block moves in a step that moves one of some."""
        groups = {self._after(n, back) for n in moved for back in (False, True)}
        count = range(len(self.blocks))
        return [[k * (n in group) for n in count] for group in sorted(groups) for k in JUMPS]

    def _ranks(
        self, choices: Sequence[tuple[int, ...]], room: Room
    ) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Cycles of the choices that are in order and for which there is room, then slots, then the
        delays."""
        slots = {delays: room(delays) for delays in choices if self._in_order(delays)}
        fitting = {delays: s for delays, s in slots.items() if s is not None}
        if not fitting:
            return {}
        with np.errstate(invalid="ignore"):
            taken = self.cycles(np.array([*fitting]), [*fitting.values()])
        both = zip(fitting.items(), taken.tolist(), strict=True)
        return {d: (cycles, sum(s.values()), *d) for (d, s), cycles in both}

    def _in_order(self, delays: Sequence[int]) -> bool:
        """Whether every block runs after what it needs, and none much later than others."""
        if max(delays) > LATEST:
            return False
        pairs = ((e.source, e.target) for e in self.edges)
        inside = all(delays[a] + (a > b) <= delays[b] for a, b in pairs)
        return inside and all(delays[a] <= delays[b] for a, b in self.carried)

    def _after(self, first: int, back: bool) -> tuple[int, ...]:
        """A block and all that need it, or, backwards, all that it needs."""
        pairs = {(e.source, e.target) for e in self.edges} | {*self.carried}
        pairs = {(b, a) for a, b in pairs} if back else pairs
        found, more = {first}, {first}
        while more:
            more = {b for a, b in pairs if a in more} - found
            found |= more
        return tuple(sorted(found))

    def needed(self, delays: Sequence[int], spare: int) -> dict[str, int]:
        """Slots of each place, `spare` more than it takes."""
        result: dict[str, int] = {}
        for place, users in self.users.items():
            mine = [delays[u] for u in users]
            result[place] = max(self.slots[place], max(mine) - min(mine) + 1 + spare)
        for place, users in self.outer.items():
            delays_of = {delays[u] for u in users}
            result[place] = max(self.slots[place], min(len(delays_of), 2))
        return result

    def cycles(self, delays: Delays, slots: Sequence[Mapping[str, int]]) -> Times:
        """About how long all iterations of each choice take; infinite where blocks would not be in
        order."""
        most = delays.max(axis=1, initial=0)
        count = np.minimum(self.trips, most + STEADY)
        room = {place: np.array([s[place] for s in slots]) for place in self.users}
        begun, done = (_never(len(self.blocks), int(count.max()), len(delays)) for _ in range(2))
        free: dict[str, Times] = {block.unit: np.zeros(len(delays)) for block in self.blocks}
        busy: list[Times] = []
        for time in range(int((count + most).max())):
            for n, block in enumerate(self.blocks):
                at: Delays = time - delays[:, n]
                (runs,) = np.nonzero((at >= 0) & (at < (1 if block.once else count)))
                if not len(runs):
                    continue
                at = at[runs]
                start, last = free[block.unit][runs], np.zeros(len(runs))
                for edge in self.edges:
                    if edge.target == n:
                        when = 0 if self.blocks[edge.source].once else at
                        first, end = begun[edge.source, when, runs], done[edge.source, when, runs]
                        start = np.maximum(start, first + (end - first) * (1 - edge.overlap))
                        last = np.maximum(last, end + block.cycles * (1 - edge.overlap))
                for other, before in self._waits(n, at, room, runs):
                    ended = np.where(before < 0, 0, done[other, np.maximum(before, 0), runs])
                    start = np.maximum(start, ended)
                begun[n, at, runs] = start
                done[n, at, runs] = free[block.unit][runs] = np.maximum(start + block.cycles, last)
            busy.append(np.max([*free.values()], axis=0))
        total = np.array(busy[-1])
        # All blocks run from the largest delay on, and of the steady iterations the later half.
        (longer,) = np.nonzero(count < self.trips)
        steady = np.array(busy)
        first = steady[most[longer] + STEADY // 2 - 1, longer]
        each = (steady[count[longer] - 1, longer] - first) / (STEADY - STEADY // 2)
        total[longer] += each * (self.trips - count[longer])
        late = [delays[:, source] > delays[:, target] for source, target in self.carried]
        total[np.any([~np.isfinite(busy[-1]), *late], axis=0)] = inf
        return total

    def _waits(
        self, n: int, at: Delays, room: Mapping[str, Delays], runs: Delays
    ) -> Iterator[tuple[int, Delays]]:
        """Which iterations of which others a block waits for besides what it reads in its own: what
        is carried, and who uses the slot that it writes."""
        for source, target in self.carried:
            if target == n:
                yield source, at - 1
        place = self.blocks[n].place
        for user in self.users.get(place, ()):
            if user != n:
                yield user, at - room[place][runs]


def _from_zero(delays: Sequence[int]) -> tuple[int, ...]:
    least = min(delays)
    return tuple(d - least for d in delays)


def _never(*shape: int) -> Times:
    return np.full(shape, inf)
