"""Posted writes: a unit goes on while its bursts wait in a buffer to be written.

A burst enters its unit's buffer at a beat per cycle, when there is room; it leaves with its last
beat on the way. What reads the tensor, and the end of the kernel, wait for the last response.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hwgen.spec.hardware import Channel, HardwareSpec

from .bus import Bursts, write_data
from .ends import Ends
from .stream import EVERY_TENSOR, Operation

Awaited = tuple[tuple[int, int], ...]
"""(unit, number): posted writes by their number among their unit's, from 1 on."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What is under way, in cycles from some moment: when the next request may follow, the last
    `posted_bursts` bursts are on their way, and the last `in_flight_bursts` are answered."""

    request: int
    sent: tuple[int, ...]
    answered: tuple[int, ...]

    def later(self, cycles: int) -> Pending:
        """The same from so many cycles earlier; what is long past is all the same."""
        return Pending(
            max(0, self.request + cycles),
            tuple([max(0, t + cycles) for t in self.sent]),
            tuple([max(0, t + cycles) for t in self.answered]),
        )


def idle(channel: Channel) -> Pending:
    """A channel on which nothing is under way."""
    return Pending(0, (0,) * channel.posted_bursts, (0,) * channel.in_flight_bursts)


@lru_cache(maxsize=65536)
def post(channel: Channel, bursts: Bursts, before: Pending) -> tuple[int, Pending]:
    """Cycles until the buffer has all bursts of an access, and what is under way then."""
    request, sent, answered = before.request, list(before.sent), list(before.answered)
    entered = 0
    for beats, cycles in zip(bursts.beats, write_data(channel, bursts), strict=True):
        begin = max(entered, sent[-channel.posted_bursts])
        start = max(begin, request, sent[-1], answered[-channel.in_flight_bursts])
        request = start + channel.request_cycles
        sent.append(start + cycles)
        answered.append(sent[-1] + channel.latency_cycles)
        # No burst is on its way before the buffer has it.
        entered = begin + min(beats, cycles)
    kept = tuple(sent[-channel.posted_bursts :]), tuple(answered[-channel.in_flight_bursts :])
    return entered, Pending(request, *kept)


def posted_cycles(channel: Channel, bursts: Bursts) -> int:
    """Cycles until the buffer has all bursts of an access, alone on the write channel."""
    return post(channel, bursts, idle(channel))[0]


class WriteBuffers:
    """The posted writes of all units, each with its own writes in flight on a bus."""

    def __init__(self, hardware: HardwareSpec) -> None:
        self._channels = [bus.write for bus in hardware.buses]
        self._pending: dict[tuple[int, int], Pending] = {}
        self._ends = Ends(len(hardware.units))
        self._latest: dict[int, dict[int, int]] = {}
        self.written = 0
        """When everything that was posted so far is written."""

    def enter(self, operation: Operation) -> Awaited:
        """What an operation, the next of the stream, waits for."""
        tensor, unit = operation.tensor, operation.unit
        awaited: Awaited = ()
        if operation.reads or tensor == EVERY_TENSOR:
            every = tensor == EVERY_TENSOR
            found = self._latest.values() if every else (self._latest.get(tensor, {}),)
            awaited = tuple([last for latest in found for last in latest.items()])
        if operation.posts:
            self._latest.setdefault(tensor, {})[unit] = self._ends.enter(unit)
        return awaited

    def ready(self, awaited: Awaited) -> int:
        """When all of them are written; -1 where that is not known yet."""
        ends = [self._ends.end(unit, number) for unit, number in awaited]
        return -1 if -1 in ends else max(ends, default=0)

    def write(self, operation: Operation, start: int) -> int:
        """Post the bursts of an operation, the next of its unit that does, from a cycle on; when
        the buffer has the last of them."""
        assert operation.bursts is not None
        unit, channel = operation.unit, self._channels[operation.bus]
        before = self._pending.get((unit, operation.bus), idle(channel)).later(-start)
        handed, after = post(channel, operation.bursts, before)
        self._pending[unit, operation.bus] = after.later(start)
        done = start + after.answered[-1]
        self._ends.finish(unit, done)
        self.written = max(self.written, done)
        return start + handed

    def forget(self, before: int) -> None:
        """Nothing asks any more for what was written up to a cycle."""
        self._ends.forget(before)

    def relative(self, awaited: Awaited, now: int) -> Hashable:
        """What is awaited, relative to now and to what is done."""
        return tuple([(unit, self._ends.age(unit, number, now)) for unit, number in awaited])

    def signature(self, now: int) -> Hashable:
        """The state relative to now."""
        latest: Iterable[Hashable] = (
            (tensor, self.relative(tuple(units.items()), now))
            for tensor, units in self._latest.items()
        )
        pending = [(key, p.later(-now)) for key, p in self._pending.items()]
        return tuple(latest), tuple(pending), max(0, self.written - now)

    @property
    def done(self) -> tuple[int, ...]:
        """How many operations of each unit have written what they posted."""
        return self._ends.done

    def shift(self, cycles: int, done: Sequence[int]) -> None:
        """Be as if everything had happened so much later, of writes what followed the first so
        many of each unit."""
        self._ends.shift([cycles] * len(done), done)
        self._pending = {key: p.later(cycles) for key, p in self._pending.items()}
        self.written += cycles
