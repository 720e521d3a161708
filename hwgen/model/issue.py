"""A host core that issues instructions one by one into the units' queues.

An operation is one or more instructions, which the host issues in its `issuing` cycles, evenly. The
first enters its unit's queue when there is room; the host goes on when the last has, so a run of
calls longer than a queue keeps it from issuing anything else until most of the run is done. Inside
an operation, instructions finish evenly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence

from .bus import FOREVER
from .stream import Operation

Done = tuple[int, int, int]
"""End, duration and instructions of an operation."""


class Issuer:
    """`cycles` per instruction where an operation does not say; `capacities`: instructions that
    each unit's queue holds.

    `step` lets something else happen, false where nothing can; `pending` gives the instructions of
    a unit whose end is not known yet; `stuck` reports a deadlock.
    """

    def __init__(
        self,
        cycles: int,
        capacities: Sequence[int],
        step: Callable[[], bool],
        pending: Callable[[int], int],
        stuck: Callable[[int], None],
    ) -> None:
        self._cycles = cycles
        self._capacities = capacities
        self._step = step
        self._pending = pending
        self._stuck = stuck
        # Each has an instruction at least: so many can stand in a queue.
        self._recent: list[deque[Done]] = [
            deque(maxlen=c if c < FOREVER else 0) for c in capacities
        ]
        self.free = 0
        """When the host can issue the next instruction."""

    def arrival(self, operation: Operation) -> tuple[int, int]:
        """When an operation's first instruction is in its queue, and how much later than with an
        empty one."""
        unit = operation.unit
        first = self.free + self._issuing(operation) // operation.instructions
        room = self._until(unit, self._capacities[unit] - 1)
        return max(first, room), max(0, room - first)

    def issued(self, operation: Operation, arrival: int) -> None:
        """The rest of an operation that has arrived follows."""
        unit, count = operation.unit, operation.instructions
        issuing = self._issuing(operation)
        self.free = arrival + issuing - issuing // count
        if count > 1:
            # Its own instructions may still stand in the queue.
            self.free = max(self.free, self._until(unit, self._capacities[unit]))

    def _issuing(self, operation: Operation) -> int:
        return operation.issuing or operation.instructions * self._cycles

    def finish(self, operation: Operation, start: int, end: int) -> None:
        """The next operation of its unit."""
        self._recent[operation.unit].append((end, end - start, operation.instructions))

    def _until(self, unit: int, left: int) -> int:
        """When at most `left` of a unit's instructions are not finished."""
        while self._pending(unit) > left:
            if not self._step():
                self._stuck(unit)
        count = self._pending(unit)
        for end, duration, instructions in reversed(self._recent[unit]):
            if count + instructions > left:
                return end - duration * (left - count) // instructions
            count += instructions
        return 0

    def signature(self, now: int) -> Hashable:
        """The state relative to now."""
        recent = tuple(
            [
                tuple([(end - now, d, n) for end, d, n in done if end > self.free])
                for done in self._recent
            ]
        )
        return max(0, self.free - now), recent

    def shift(self, cycles: int) -> None:
        """Be as if everything had happened so much later."""
        self.free += cycles
        self._recent = [
            deque([(end + cycles, d, n) for end, d, n in done], maxlen=done.maxlen)
            for done in self._recent
        ]
