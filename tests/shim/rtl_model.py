"""Cycles of an instruction stream, from the measured rules of the default configuration's RTL.

Independent of the compiler's own timing model: its input is the trace that the shim writes, and
its rules are run here one cycle after another. Units run in order; loads issue bursts that share
one read channel; instructions arrive by fetch. A call of n cycles that starts in cycle s occupies
s to s + n - 1; what waits for it, on its unit or by a token, can start in s + n.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BEAT_BYTES = 8
BURST_BYTES = 128
WINDOW_BURSTS = 16
READER_CYCLES = 2
"""From one request of a reader to its next; those of others go out between."""
LEAD_CYCLES = 2
"""From the start of a load to its first request: the fixed part's other cycles come at the end."""
QUEUE_ENTRIES = 512
GROUP_CALLS = 8
CALL_BEATS = 2
FETCH_CYCLES = 2
"""From a group's last beat to its first call; from its last call to the next group's request."""

_PRIORITY = {"fetch": 0, "uop": 1, "inp": 2, "wgt": 3, "acc": 4}
_READER = {0: "uop", 1: "wgt", 2: "inp", 3: "acc"}


@dataclass(frozen=True)
class Timing:
    """Total cycles, and the cycles in which each stage (1 load, 2 compute, 3 store) was busy."""

    total_cycles: int
    busy_cycles: dict[int, int]


@dataclass
class _Read:
    """A load that waits for its bursts; `ready`: when it may request the next one; `left`: beats
    that have not come; `tail`: cycles after the last of them."""

    reader: str
    ready: int
    beats: deque[int]
    tail: int
    left: int = 0
    stage: int = 0
    step: dict[str, Any] = field(default_factory=dict[str, Any])
    start: int = 0


def bursts(address: int, row_bytes: int) -> list[int]:
    """Bytes of each burst of one row."""
    parts: list[int] = []
    while row_bytes > 0:
        part = min(row_bytes, BURST_BYTES - address % BURST_BYTES)
        parts.append(part)
        address += part
        row_bytes -= part
    return parts


def _rows(step: dict[str, Any]) -> list[list[int]]:
    size = step["entry_bytes"]
    return [
        bursts(step["address"] + y * step["stride"] * size, step["x"] * size)
        for y in range(step["y"])
    ]


def _beats(step: dict[str, Any]) -> deque[int]:
    base = step["address"] % BEAT_BYTES if step["kind"] == "load_uop" else 0
    rows = _rows(step)
    parts = [part for row in rows for part in row]
    if base:
        parts[0] += base
    return deque(-(-part // BEAT_BYTES) for part in parts)


@dataclass
class _Burst:
    """A burst under way; `due`: when its first beat can come."""

    read: _Read
    due: int
    left: int


class _Machine:
    def __init__(self, trace: Sequence[dict[str, Any]], latency: int, write_latency: int) -> None:
        assert latency >= 1, "a beat comes after its request"
        self.trace, self.latency, self.write_latency = trace, latency, write_latency
        self.queues: dict[int, deque[tuple[int, int]]] = {s: deque() for s in (1, 2, 3)}
        self.free = {1: 0, 2: 0, 3: 0}
        self.waiting: dict[int, _Read | None] = {1: None, 2: None, 3: None}
        self.busy = {1: 0, 2: 0, 3: 0}
        self.tokens: dict[tuple[int, int], deque[int]] = {
            edge: deque() for edge in ((1, 2), (2, 1), (2, 3), (3, 2))
        }
        self.reads: list[_Read] = []
        self.under_way: deque[_Burst] = deque()
        self.next_call, self.arrived, self.last_dispatch = 0, 0, 0
        self.group_ready = 0
        self.room_since = {1: 0, 2: 0, 3: 0}
        self.finish = 0
        self._request_group(0)

    # --- fetch ---

    def _request_group(self, ready: int) -> None:
        if self.arrived < len(self.trace):
            calls = min(GROUP_CALLS, len(self.trace) - self.arrived)
            beats = calls * CALL_BEATS
            self.reads.append(_Read("fetch", ready, deque([beats]), FETCH_CYCLES, beats))

    def _dispatch(self) -> None:
        """Move what has arrived into the queues, one call per cycle, in order."""
        while self.next_call < self.arrived:
            stage = self.trace[self.next_call]["stage"]
            if len(self.queues[stage]) >= QUEUE_ENTRIES:
                return
            at = max(self.last_dispatch + 1, self.group_ready, self.room_since[stage])
            self.queues[stage].append((self.next_call, at))
            self.last_dispatch = at
            self.next_call += 1
            if self.next_call == self.arrived:
                self._request_group(at + FETCH_CYCLES)

    # --- calls ---

    def _pops(self, step: dict[str, Any]) -> list[tuple[int, int]]:
        stage = step["stage"]
        edges = ((stage - 1, stage), (stage + 1, stage))
        return [edge for edge, wanted in zip(edges, step["pop"], strict=True) if wanted]

    def _start_time(self, stage: int) -> int | None:
        if not self.queues[stage] or self.waiting[stage]:
            return None
        index, at = self.queues[stage][0]
        times = [self.free[stage], at]
        for edge in self._pops(self.trace[index]):
            if not self.tokens[edge]:
                return None
            times.append(self.tokens[edge][0])
        return max(times)

    def _start(self, stage: int, now: int) -> None:
        index, _ = self.queues[stage].popleft()
        self.room_since[stage] = now + 1
        step = self.trace[index]
        for edge in self._pops(step):
            self.tokens[edge].popleft()
        kind = step["kind"]
        if kind in ("load", "load_uop") and step["x"] and step["y"]:
            fixed = 4 if kind == "load_uop" else 5
            beats = _beats(step)
            read = _Read(
                _READER[step["memory"]], now + LEAD_CYCLES, beats,
                fixed - LEAD_CYCLES + self._padding(step), sum(beats), stage, step, now,
            )  # fmt: skip
            self.reads.append(read)
            self.waiting[stage] = read
        else:
            self._end(stage, step, now, now + self._cycles(step))
        self._dispatch()

    def _padding(self, step: dict[str, Any]) -> int:
        before_x, before_y, after_x, after_y = step["pads"]
        if not (before_x or before_y or after_x or after_y):
            return 0
        width = before_x + step["x"] + after_x
        padded = width * (before_y + step["y"] + after_y) - step["x"] * step["y"]
        return max(0, before_y, padded - self.latency - 2)

    def _cycles(self, step: dict[str, Any]) -> int:
        match step["kind"]:
            case "gemm":
                return step["iterations"] + 7
            case "alu":
                return step["iterations"] * step["operands"] + 7
            case "store" if step["x"] and step["y"]:
                size = step["entry_bytes"]
                parts = [part for row in _rows(step) for part in row]
                return 1 + sum(3 * (part // size) + self.write_latency + 1 for part in parts)
            case _:
                return 2

    def _end(self, stage: int, step: dict[str, Any], start: int, end: int) -> None:
        self.free[stage] = end
        self.busy[stage] += end - start
        self.waiting[stage] = None
        for target, wanted in zip((stage - 1, stage + 1), step["push"], strict=True):
            if wanted:
                self.tokens[stage, target].append(end)
        if step["kind"] == "finish":
            self.finish = end

    # --- the read channel ---

    def _beat(self, now: int) -> bool:
        """Let a beat come: bursts in the order of their requests. Whether it is a burst's last."""
        if not self.under_way or self.under_way[0].due > now:
            return False
        burst = self.under_way[0]
        burst.left -= 1
        burst.read.left -= 1
        if burst.left:
            return False
        self.under_way.popleft()
        if not burst.read.left:
            self._complete(burst.read, now + 1)
        return True

    def _complete(self, read: _Read, end: int) -> None:
        if read.reader == "fetch":
            self.arrived += min(GROUP_CALLS, len(self.trace) - self.arrived)
            self.group_ready = end + read.tail
            self._dispatch()
        else:
            self._end(read.stage, read.step, read.start, end + read.tail)

    def _request(self, now: int) -> None:
        """Let the first reader that asks make a request."""
        asking = [read for read in self.reads if read.ready <= now]
        if not asking:
            return
        read = min(asking, key=lambda r: _PRIORITY[r.reader])
        self.under_way.append(_Burst(read, now + self.latency, read.beats.popleft()))
        read.ready = now + READER_CYCLES
        if not read.beats:
            self.reads.remove(read)

    def run(self) -> Timing:
        now = 0
        while True:
            starts = [(t, s) for s in (1, 2, 3) if (t := self._start_time(s)) is not None]
            if starts and min(starts)[0] <= now:
                self._start(min(starts)[1], min(starts)[0])
                continue
            if not (starts or self.reads or self.under_way):
                break
            free = len(self.under_way) < WINDOW_BURSTS
            # A place is free the cycle after a burst's last beat, in which nothing is requested.
            if not self._beat(now) and free:
                self._request(now)
            now += 1
        left = len(self.trace) - self.next_call + sum(map(len, self.queues.values()))
        assert left == 0, f"deadlock: {left} calls wait"
        return Timing(self.finish + 2, self.busy)


def run_trace(
    trace: Sequence[dict[str, Any]], latency_cycles: int = 20, write_latency_cycles: int = 20
) -> Timing:
    """Cycles of one synchronisation's instructions.

    `latency_cycles`: from a read request to its first beat; `write_latency_cycles`: from the last
    write beat to its response.
    """
    return _Machine(trace, latency_cycles, write_latency_cycles).run()
