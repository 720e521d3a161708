"""When each unit's operations end, for what makes later operations wait for earlier ones."""

from __future__ import annotations

KEPT_ENDS = 4096
"""Ends of a unit's operations after which those that nobody can wait for are forgotten."""


class Ends:
    """Ends by unit and number: a unit's operations count from 1 on, in the order of the stream."""

    def __init__(self, units: int) -> None:
        self._entered = [0] * units
        self._done = [0] * units
        # Less what they are shifted by: a shift of them all is one number.
        self._ends: list[dict[int, int]] = [{} for _ in range(units)]
        self._later = 0
        self._most = [KEPT_ENDS] * units

    def enter(self, unit: int) -> int:
        """The number of a unit's next operation of the stream."""
        self._entered[unit] += 1
        return self._entered[unit]

    def finish(self, unit: int, end: int) -> None:
        """The unit's next operation ends then."""
        self._done[unit] += 1
        self._ends[unit][self._done[unit]] = end - self._later

    def end(self, unit: int, number: int) -> int:
        """When an operation ends; -1 where that is not known yet, 0 where it is long past."""
        if number > self._done[unit]:
            return -1
        end = self._ends[unit].get(number)
        return 0 if end is None else end + self._later

    def forget(self, before: int) -> None:
        """Drop ends up to a cycle, where there are twice as many as the last time."""
        before -= self._later
        for unit, ends in enumerate(self._ends):
            if len(ends) > self._most[unit]:
                self._ends[unit] = kept = {n: e for n, e in ends.items() if e > before}
                self._most[unit] = max(KEPT_ENDS, 2 * len(kept))

    def shift(self, cycles: int) -> None:
        """Be as if everything had happened so much later."""
        self._later += cycles

    def age(self, unit: int, number: int, now: int) -> int:
        """Cycles from now until an operation ends, 0 if it does; below 0: operations up to it
        that are not done."""
        if number > self._done[unit]:
            return self._done[unit] - number
        return max(0, self.end(unit, number) - now)
