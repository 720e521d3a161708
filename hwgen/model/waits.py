"""What a barrier means: for time, for the order of calls, and what would be less of it.

A barrier belongs to no unit: whoever issues the stream waits until calls of units have ended, and
issues nothing before. The two readings of it, `Gate` in cycles and `Heard` in vector clocks, share
nothing but which calls these are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hwgen.codegen.sync_nodes import Barrier
from hwgen.spec.hardware import HardwareSpec

Clock = list[int]


@dataclass(frozen=True, slots=True)
class Await:
    """One unit that a barrier waits for: everything that it was given before, or its calls but for
    the latest `outstanding`; `before_run`: nor for the latest of the others and its run, the calls
    of one site that follow each other in the stream with nothing in between."""

    unit: int
    outstanding: int = 0
    before_run: bool = False


class Issued(Protocol):
    """What `Gate` and `Heard` look at of an operation."""

    @property
    def unit(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def site(self) -> int: ...


def awaits_of(node: Barrier, units: Mapping[str, int]) -> tuple[Await, ...]:
    """What a barrier waits for; `units`: their numbers."""
    if not node.unit:
        return tuple(Await(unit) for unit in units.values())
    return (Await(units[node.unit], node.outstanding),)


def _counted(hardware: HardwareSpec) -> tuple[frozenset[str], int]:
    """The calls that a barrier may count, and of how many the latest must be kept."""
    most = hardware.barriers.outstanding if hardware.barriers else 0
    return (frozenset(hardware.intrinsic), most + 1) if most else (frozenset(), 0)


class Gate:
    """Barriers in time: when the latest was passed, which operations given to each unit since then
    come after, and when units have done theirs."""

    def __init__(self, hardware: HardwareSpec) -> None:
        units = len(hardware.units)
        self.passed = 0
        self._held: list[deque[int]] = [deque() for _ in range(units)]
        self._pending = [0] * units
        self._ended = [0] * units
        # Where calls are counted: how many have not ended, and the ends of the latest that have.
        self._calls, latest = _counted(hardware)
        self._running = [0] * units
        self._ends: list[deque[int]] = [deque(maxlen=latest) for _ in range(units)]

    def enter(self, operation: Issued) -> None:
        """An operation is given to its unit."""
        self._held[operation.unit].append(self.passed)
        self._pending[operation.unit] += 1
        self._running[operation.unit] += operation.name in self._calls

    def leave(self, unit: int) -> int:
        """The unit's next operation begins, not before this time."""
        return self._held[unit].popleft()

    def finish(self, operation: Issued, end: int) -> None:
        """An operation ends."""
        self._pending[operation.unit] -= 1
        self._ended[operation.unit] = end
        if operation.name in self._calls:
            self._running[operation.unit] -= 1
            self._ends[operation.unit].append(end)

    def wait(
        self, awaits: tuple[Await, ...], cycles: int, arrival: int, step: Callable[[int], None]
    ) -> None:
        """Pass a barrier that arrives then; `step` lets a unit get on."""
        passed = max(arrival, self.passed)
        for awaited in awaits:
            passed = max(passed, self._end(awaited.unit, awaited.outstanding, step))
        self.passed = passed + cycles

    def _end(self, unit: int, outstanding: int, step: Callable[[int], None]) -> int:
        """When at most so many calls of a unit are left to run."""
        if not outstanding:
            while self._pending[unit]:
                step(unit)
            return self._ended[unit]
        while self._running[unit] > outstanding:
            step(unit)
        ends, later = self._ends[unit], outstanding - self._running[unit]
        return ends[-1 - later] if later < len(ends) else 0

    def signature(self, unit: int, now: int) -> Hashable:
        """What later times of a unit's operations depend on."""
        if not self.passed:
            return ()
        held = tuple([max(0, t - now) for t in self._held[unit]])
        return held, tuple([max(0, t - now) for t in self._ends[unit]])

    def shift(self, cycles: int, units: Sequence[int]) -> None:
        """Be as if the latest barrier had been passed so much later, and units had ended theirs
        so much later."""
        self._ended = [t + later for t, later in zip(self._ended, units, strict=True)]
        for ends, later in zip(self._ends, units, strict=True):
            ends.extend([t + later for t in ends])
        if cycles:
            self.passed += cycles
            self._held = [deque([t + cycles for t in q]) for q in self._held]


class Heard:
    """Barriers in the order of calls: what every operation from now on comes after."""

    def __init__(self, hardware: HardwareSpec) -> None:
        units = len(hardware.units)
        self._clock = [0] * units
        self._done: list[Clock] = [[0] * units for _ in range(units)]
        # Where calls are counted: the clocks of the latest of each unit, and before their runs.
        self._calls, latest = _counted(hardware)
        self._latest: list[deque[tuple[Clock, Clock]]] = [
            deque(maxlen=latest) for _ in range(units)
        ]
        self._site: int | None = None

    def after(self, clock: Clock) -> Clock:
        """A clock, and what the barriers so far waited for."""
        if not any(self._clock):
            return clock
        return [a if a > b else b for a, b in zip(clock, self._clock, strict=True)]

    def ran(self, operation: Issued, clock: Clock) -> None:
        """An operation ran; `clock`: what it and all before it did."""
        self._done[operation.unit] = clock
        if operation.name in self._calls:
            latest = self._latest[operation.unit]
            last, before = latest[-1] if latest else ([0] * len(clock), [0] * len(clock))
            before = before if operation.site == self._site else last
            latest.append((list(clock), before))
            self._site = operation.site

    def wait(self, awaits: tuple[Await, ...]) -> None:
        """Pass a barrier."""
        self._site = None
        for awaited in awaits:
            done, latest = self._done[awaited.unit], self._latest[awaited.unit]
            if awaited.outstanding or awaited.before_run:
                if awaited.outstanding >= len(latest):
                    continue
                done = latest[-1 - awaited.outstanding][awaited.before_run]
            self._clock = [max(a, b) for a, b in zip(self._clock, done, strict=True)]

    def signature(self, done: Sequence[int]) -> Hashable:
        """The state relative to what units have done."""
        clocks = [self._clock] if any(self._clock) else []
        clocks += [clock for latest in self._latest for clock, _ in latest]
        return tuple([tuple([c - d for c, d in zip(k, done, strict=True)]) for k in clocks])
