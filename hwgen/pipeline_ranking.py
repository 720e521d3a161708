"""How long software pipelines of a loop take, by a model of in-order units with cycles per block.

All choices of what runs an iteration later are looked at, as rows of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

CLOSE = 1.01
"""A kernel that takes hardly longer than its busiest unit works cannot get much faster."""


@dataclass(frozen=True, slots=True)
class Work:
    """A block inside a band: its unit, cycles of one iteration, and the place that it writes."""

    name: str
    stage: str
    unit: str
    cycles: float
    place: str
    inner: tuple[str, ...]


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
    in the iteration before."""

    blocks: tuple[Work, ...]
    edges: tuple[Edge, ...]
    carried: tuple[tuple[int, int], ...]
    users: Mapping[str, tuple[int, ...]]
    outer: Mapping[str, tuple[int, ...]]
    slots: Mapping[str, int]
    trips: int

    def ranked(self) -> list[tuple[int, ...]]:
        """The delays that take the fewest cycles, if fewer than none."""
        choices = self.choices()
        needed = [self.needed(delays, 1) for delays in choices]
        with np.errstate(invalid="ignore"):  # Times of what is not in order.
            every = self.cycles(np.array(choices), needed)
            (now,) = self.cycles(np.zeros((1, len(self.blocks)), np.int64), [self.slots])
        order = sorted(zip(every.tolist(), map(sum, choices), choices, strict=True))
        return [d for cycles, _, d in order if cycles * CLOSE < now][:COMPILED]

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
                (runs,) = np.nonzero((at >= 0) & (at < count))
                if not len(runs):
                    continue
                at = at[runs]
                start, last = free[block.unit][runs], np.zeros(len(runs))
                for edge in self.edges:
                    if edge.target == n:
                        first, end = begun[edge.source, at, runs], done[edge.source, at, runs]
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


def _never(*shape: int) -> Times:
    return np.full(shape, inf)
