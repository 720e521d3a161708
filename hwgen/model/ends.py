"""When each unit's operations end, for what makes later operations wait for earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

KEPT_ENDS = 4096
"""Ends of a unit's operations after which those that nobody can wait for are forgotten."""


class Ends:
    """Ends by unit and number: a unit's operations count from 1 on, in the order of the stream."""

    def __init__(self, units: int) -> None:
        self._entered = [0] * units
        self._done = [0] * units
        self._ends: list[dict[int, int]] = [{} for _ in range(units)]
        self._most = [KEPT_ENDS] * units

    def enter(self, unit: int) -> int:
        """The number of a unit's next operation of the stream."""
        self._entered[unit] += 1
        return self._entered[unit]

    def finish(self, unit: int, end: int) -> None:
        """The unit's next operation ends then."""
        self._done[unit] += 1
        self._ends[unit][self._done[unit]] = end

    def end(self, unit: int, number: int) -> int:
        """When an operation ends; -1 where that is not known yet, 0 where it is long past."""
        if number > self._done[unit]:
            return -1
        return self._ends[unit].get(number, 0)

    def forget(self, before: int) -> None:
        """Drop ends up to a cycle, where there are twice as many as the last time."""
        for unit, ends in enumerate(self._ends):
            if len(ends) > self._most[unit]:
                self._ends[unit] = kept = {n: e for n, e in ends.items() if e > before}
                self._most[unit] = max(KEPT_ENDS, 2 * len(kept))

    @property
    def done(self) -> tuple[int, ...]:
        """How many operations of each unit have ended."""
        return tuple(self._done)

    def shift(self, units: Sequence[int], done: Sequence[int]) -> None:
        """Be as if what ended after the first so many of each unit had ended so much later."""
        for ends, later, first, last in zip(self._ends, units, done, self._done, strict=True):
            if later:
                for number in range(first + 1, last + 1):
                    if number in ends:
                        ends[number] += later

    def age(self, unit: int, number: int, now: int) -> int:
        """Cycles from now until an operation ends, 0 if it does; below 0: operations up to it
        that are not done."""
        if number > self._done[unit]:
            return self._done[unit] - number
        return max(0, self.end(unit, number) - now)
