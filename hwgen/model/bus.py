"""Off-chip buses: how accesses split into bursts, and how readers share the path.

Model: one request per cycle, granted by fixed priority, of each reader one per `request_cycles`;
at most `in_flight_bursts` requests are outstanding over all readers; memory answers in the order
of the requests, the first beat `latency_cycles` after its request, then one beat per cycle. With
`last_beat_blocks_request`, no request is made in a cycle in which the last beat of a burst arrives.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

from hwgen.spec.hardware import Bus, Channel

FOREVER = 1 << 62


class Bursts:
    """The bursts of one access in order: beats and (rounded up) memory entries of each."""

    __slots__ = ("beats", "count", "entries", "total_beats", "uniform")

    def __init__(self, beats: tuple[int, ...], entries: tuple[int, ...]) -> None:
        self.beats = beats
        self.entries = entries
        self.count = len(beats)
        self.total_beats = sum(beats)
        self.uniform = beats[0] if beats and min(beats) == max(beats) else 0


@lru_cache(maxsize=65536)
def _row(
    bus: Bus, offset_bytes: int, row_bytes: int, entry_bytes: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    beat, boundary = bus.beat_bytes, bus.burst_boundary_bytes
    beats: list[int] = []
    entries: list[int] = []
    position, end = offset_bytes, offset_bytes + row_bytes
    while position < end:
        stop = min(
            end,
            (position // boundary + 1) * boundary,
            position // beat * beat + bus.burst_beats * beat,
        )
        beats.append(-(-stop // beat) - position // beat)
        entries.append(-(-(stop - position) // entry_bytes))
        position = stop
    return tuple(beats), tuple(entries)


@lru_cache(maxsize=8192)
def _rows(
    bus: Bus,
    offset_bytes: int,
    row_bytes: int,
    counts: tuple[int, ...],
    strides: tuple[int, ...],
    entry_bytes: int,
) -> Bursts:
    if not counts:
        return Bursts(*_row(bus, offset_bytes, row_bytes, entry_bytes))
    boundary = bus.burst_boundary_bytes
    count, stride = counts[0], strides[0]
    beats: list[int] = []
    entries: list[int] = []
    # Rows at the same offset from a boundary have the same bursts.
    known: dict[int, Bursts] = {}
    for n in range(count):
        at = (offset_bytes + n * stride) % boundary
        part = known.get(at)
        if part is None:
            part = _rows(bus, at, row_bytes, counts[1:], strides[1:], entry_bytes)
            known[at] = part
        beats += part.beats
        entries += part.entries
    return Bursts(tuple(beats), tuple(entries))


def split_rows(
    bus: Bus,
    start_bytes: int,
    row_bytes: int,
    counts: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    entry_bytes: int,
) -> Bursts:
    """Bursts of rows of `row_bytes` from byte `start_bytes` on, in loops of `counts` iterations,
    the outermost first, each `strides_bytes` apart.

    A burst covers one row, has at most `burst_beats` beats and crosses no boundary; the image's
    own base is assumed aligned to `burst_boundary_bytes`.
    """
    boundary = bus.burst_boundary_bytes
    strides = tuple(stride % boundary for stride in strides_bytes)
    return _rows(bus, start_bytes % boundary, row_bytes, counts, strides, entry_bytes)


def write_data(channel: Channel, bursts: Bursts) -> list[int]:
    """Cycles that the data of each burst are on the write channel."""
    per_entry = channel.cycles_per_entry
    return [per_entry * n for n in bursts.entries] if per_entry else list(bursts.beats)


def write_cycles(channel: Channel, bursts: Bursts) -> int:
    """Cycles from the first write request to the last response, alone on the write channel."""
    data = write_data(channel, bursts)
    if channel.in_flight_bursts <= 1 and channel.request_cycles <= 1:
        return sum(data) + channel.latency_cycles * bursts.count
    responses: deque[int] = deque([0] * channel.in_flight_bursts, channel.in_flight_bursts)
    sent = ready = 0
    for cycles in data:
        request = max(sent, responses[0], ready)
        sent, ready = request + cycles, request + channel.request_cycles
        responses.append(sent + channel.latency_cycles)
    return responses[-1]


class Reader:
    """One read access under way. `start`: the cycle of its first request at the earliest; `ready`:
    of its next one."""

    __slots__ = ("bursts", "index", "owner", "priority", "ready", "start")

    def __init__(self, owner: int, priority: int, ready: int, bursts: Bursts) -> None:
        self.owner = owner
        self.priority = priority
        self.start = self.ready = ready
        self.bursts = bursts
        self.index = 0


class ReadBus:
    """State of a bus's read side. `ends`: when the last `in_flight_bursts` bursts are complete."""

    __slots__ = ("_alone", "_bus", "blocked", "ends", "last_issue", "latency", "readers",
                 "spacing", "window")  # fmt: skip

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.latency = bus.read.latency_cycles
        self.window = max(1, bus.read.in_flight_bursts)
        self.spacing = bus.read.request_cycles
        self.blocked = bus.read.last_beat_blocks_request
        self.ends: deque[int] = deque([0] * self.window, self.window)
        self.last_issue = -1
        self.readers: list[Reader] = []
        self._alone: dict[Bursts, tuple[int, tuple[int, ...]]] = {}

    def alone(self, bursts: Bursts) -> tuple[int, tuple[int, ...]]:
        """On an idle bus: cycle of the last request, and ends of the last bursts, from 0."""
        known = self._alone.get(bursts)
        if known is None:
            idle = ReadBus(self._bus)
            reader = Reader(0, 0, 0, bursts)
            idle._issue(reader, FOREVER, FOREVER)
            tail = min(bursts.count, self.window)
            known = (idle.last_issue, tuple(idle.ends)[self.window - tail :])
            self._alone[bursts] = known
        return known

    def read_cycles(self, bursts: Bursts) -> int:
        """Cycles from the first request to the end of the last beat, alone on the bus."""
        return self.alone(bursts)[1][-1] if bursts.count else 0

    def next_request(self) -> tuple[int, Reader]:
        """Cycle and reader of the next request; there must be a reader."""
        slot = max(self.last_issue + 1, self.ends[0])
        best, when = self.readers[0], FOREVER
        for reader in self.readers:
            at = self._open(reader.ready if reader.ready > slot else slot)
            if at < when or (at == when and reader.priority < best.priority):
                best, when = reader, at
        return when, best

    def _open(self, cycle: int) -> int:
        """The first cycle from one on in which a request may be made, of what is under way."""
        if self.blocked:
            while cycle < self.ends[-1] and cycle + 1 in self.ends:
                cycle += 1
        return cycle

    def advance(self, when: int, reader: Reader, horizon: int) -> bool:
        """Issue requests of `reader`, chosen by `next_request`, before cycle `horizon` or until
        it is another's turn; true when the last one is issued."""
        # Others go first where they have priority, or while this one may not make its next request.
        between = FOREVER
        for other in self.readers:
            if other.priority < reader.priority:
                horizon = min(horizon, other.ready)
            elif other is not reader and self.spacing > 1:
                between = min(between, other.ready)
        if reader.index == 0 and reader.bursts.count > 4 and self.ends[-1] <= when:
            last, tail = self.alone(reader.bursts)
            if when + last < min(horizon, between):
                self.last_issue = when + last
                self.ends.extend([when + end for end in tail])
                reader.index = reader.bursts.count
                return True
        self._issue(reader, horizon, between)
        return reader.index == reader.bursts.count

    def _issue(self, reader: Reader, horizon: int, between: int) -> None:
        ends, latency, window, spacing = self.ends, self.latency, self.window, self.spacing
        beats, count, uniform = reader.bursts.beats, reader.bursts.count, reader.bursts.uniform
        index, ready = reader.index, reader.ready
        issue, end = self.last_issue, ends[-1]
        # Ends that follow each other cycle by cycle would block the requests that wait for them.
        repeats = uniform >= spacing and not (self.blocked and uniform == 1)
        steady_from = index + window if repeats else count
        while index < count:
            follow = ends[-1] - ends[0] == (window - 1) * uniform
            if index >= steady_from and follow and max(issue + 1, ready) <= ends[0]:
                issued = self._issue_steady(uniform, count - index, horizon)
                index += issued
                steady_from = count
                if issued:
                    issue, end = self.last_issue, ends[-1]
                    ready = issue + spacing
                    continue
            free = max(issue + 1, ends[0])
            at = self._open(max(free, ready))
            if at >= horizon or (at > free and self._open(max(free, between)) < at):
                break
            end = max(at + latency, end) + beats[index]
            ends.append(end)
            issue = at
            ready = at + spacing
            index += 1
        reader.index, reader.ready = index, ready
        self.last_issue = issue

    def _issue_steady(self, beats: int, count: int, horizon: int) -> int:
        """Skip over equal bursts once the last `window` of them follow each other without gap and
        each request waits for one of them to end."""
        ends, window = self.ends, self.window
        first = ends[0]
        if self.latency <= (window - 1) * beats:
            issued = min(count, max(0, -(-(horizon - first) // beats)))
            shift = issued * beats
            issue = first + shift - beats
        else:
            period = self.latency + beats
            last = first + (window - 1) * beats
            groups = min(count // window, max(0, -(-(horizon - last) // period)))
            issued = groups * window
            shift = groups * period
            issue = last + shift - period
        if issued:
            self.last_issue = issue
            ends.extend([end + shift for end in ends])
        return issued
