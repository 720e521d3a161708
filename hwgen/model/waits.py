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
    """One unit that a barrier waits for: everything that it was given before."""

    unit: int


class Issued(Protocol):
    """What `Gate` and `Heard` look at of an operation."""

    @property
    def unit(self) -> int: ...


def awaits_of(node: Barrier, units: Mapping[str, int]) -> tuple[Await, ...]:
    """What a barrier waits for; `units`: their numbers."""
    if not node.unit:
        return tuple(Await(unit) for unit in units.values())
    return (Await(units[node.unit]),)


def weaker(awaits: tuple[Await, ...], hardware: HardwareSpec) -> tuple[Await, ...]:
    """The next less that a barrier of the chip can wait for: the barrier is needed where that is
    not enough."""
    del awaits, hardware
    return ()


def awaited_text(awaits: tuple[Await, ...], names: Sequence[str]) -> str:
    """What a barrier waits for, in words."""
    return names[awaits[0].unit] if len(awaits) == 1 else "all units"


class Gate:
    """Barriers in time: when the latest was passed, which operations given to each unit since then
    come after, and when units have done theirs."""

    def __init__(self, hardware: HardwareSpec) -> None:
        units = len(hardware.units)
        self.passed = 0
        self._held: list[deque[int]] = [deque() for _ in range(units)]
        self._pending = [0] * units
        self._ended = [0] * units

    def enter(self, operation: Issued) -> None:
        """An operation is given to its unit."""
        self._held[operation.unit].append(self.passed)
        self._pending[operation.unit] += 1

    def leave(self, unit: int) -> int:
        """The unit's next operation begins, not before this time."""
        return self._held[unit].popleft()

    def finish(self, operation: Issued, end: int) -> None:
        """An operation ends."""
        self._pending[operation.unit] -= 1
        self._ended[operation.unit] = end

    def wait(
        self, awaits: tuple[Await, ...], cycles: int, arrival: int, step: Callable[[int], None]
    ) -> None:
        """Pass a barrier that arrives then; `step` lets a unit get on."""
        passed = max(arrival, self.passed)
        for awaited in awaits:
            while self._pending[awaited.unit]:
                step(awaited.unit)
            passed = max(passed, self._ended[awaited.unit])
        self.passed = passed + cycles

    def signature(self, unit: int, now: int) -> Hashable:
        """What later times of a unit's operations depend on."""
        return tuple([max(0, t - now) for t in self._held[unit]]) if self.passed else ()

    def shift(self, cycles: int, idle: Sequence[bool]) -> None:
        """Be as if all since the start had been later, but for units that were idle since."""
        self._ended = [
            t if still else t + cycles for t, still in zip(self._ended, idle, strict=True)
        ]
        if self.passed:
            self.passed += cycles
            self._held = [deque([t + cycles for t in q]) for q in self._held]


class Heard:
    """Barriers in the order of calls: what every operation from now on comes after."""

    def __init__(self, hardware: HardwareSpec) -> None:
        units = len(hardware.units)
        self._clock = [0] * units
        self._done: list[Clock] = [[0] * units for _ in range(units)]

    def after(self, clock: Clock) -> Clock:
        """A clock, and what the barriers so far waited for."""
        if not any(self._clock):
            return clock
        return [a if a > b else b for a, b in zip(clock, self._clock, strict=True)]

    def ran(self, operation: Issued, clock: Clock) -> None:
        """An operation ran; `clock`: what it and all before it did."""
        self._done[operation.unit] = clock

    def wait(self, awaits: tuple[Await, ...]) -> None:
        """Pass a barrier."""
        for awaited in awaits:
            done = self._done[awaited.unit]
            self._clock = [max(a, b) for a, b in zip(self._clock, done, strict=True)]

    def signature(self, done: Sequence[int]) -> Hashable:
        """The state relative to what units have done."""
        if not any(self._clock):
            return ()
        return tuple([c - d for c, d in zip(self._clock, done, strict=True)])
