"""A machine that runs a stream: in-order units, their synchronisation, shared buses, fetch.

`docs/timing.md` lists the rules. Times are cycles since the launch; an operation that starts at s
and takes n cycles ends at s + n: its unit's next operation, and one that its token frees, can
start there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Set
from dataclasses import dataclass
from itertools import islice

from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec

from .banks import Awaited as AwaitedPorts
from .banks import Ports, Who, bank_ports
from .bus import FOREVER, ReadBus, Reader, split_rows
from .issue import Issuer
from .pace import Counts, Pace, Shift, own_pace
from .periodicity import Use
from .posted import Awaited as AwaitedWrites
from .posted import WriteBuffers
from .scoreboard import Awaited, Board
from .stream import ISSUER, Costs, Operation, Stream
from .timing_result import TimelineEntry, TimingResult, UnitTime
from .waits import Gate

QUEUE_WITHOUT_FETCH = 16
"""Operations of a unit that wait before the simulation goes on, where all are there from the start:
it keeps the simulator's own queues short, and changes no result."""
CAUSES = ("tokens", "bus", "fetch", "queue", "banks")


@dataclass(slots=True)
class _Mark:
    time: int
    free: list[int]
    issued: list[int]
    passed: int
    waits: Counts
    done: list[tuple[int, ...]]
    totals: list[list[int]]
    counts: dict[str, int]
    busy: dict[tuple[int, str], int]
    conflicts: dict[tuple[int, Who, Who], tuple[int, int]]


class Machine:
    """Executes a stream of operations and counts cycles; a `Sink`."""

    def __init__(
        self,
        hardware: HardwareSpec,
        costs: Costs | None = None,
        *,
        timeline: bool = False,
        lead: int = FOREVER,
    ) -> None:
        self.hardware = hardware
        n = len(hardware.units)
        exchanged = hardware.tokens or hardware.events
        self._edges = exchanged.edges if exchanged is not None else ()
        self._flags = hardware.events.flags if hardware.events is not None else 1
        units = {unit.name: i for i, unit in enumerate(hardware.units)}
        self._target = [units[t] for _, t in self._edges for _ in range(self._flags)]
        self._tokens: list[deque[int]] = [deque() for _ in self._target]
        board = hardware.scoreboard
        assert board is None or costs is not None, "a scoreboard reads footprints"
        self._board = Board(costs, n, board.cycles, board.renames) if board and costs else None
        # Where units get on at rates of their own.
        self._pace = Pace(n, len(hardware.buses)) if own_pace(hardware) else None
        self._awaited: list[deque[Awaited]] = [deque() for _ in range(n)]
        ports = bank_ports(hardware)
        self._ports = Ports(ports, n) if ports else None
        self._wanted: list[deque[AwaitedPorts]] = [deque() for _ in range(n)]
        posted = any(bus.write.posted_bursts for bus in hardware.buses)
        self._buffers = WriteBuffers(hardware) if posted else None
        self._unwritten: list[deque[AwaitedWrites]] = [deque() for _ in range(n)]
        # Of each unit's last operation, what it waited for a port and of which bank.
        self._waited = [(0, "")] * n
        self._gate = Gate(hardware)
        self._buses = [ReadBus(bus) for bus in hardware.buses]
        self._free = [0] * n
        self._queue: list[deque[Operation]] = [deque() for _ in range(n)]
        self._unfinished = [0] * n
        self._arrival: list[deque[int]] = [deque() for _ in range(n)]
        self._reading: list[tuple[Operation, int] | None] = [None] * n
        self._capacity = [min(lead, unit.queue_entries or FOREVER) for unit in hardware.units]
        # Ends of the latest operations of each unit, as far as the queue's capacity looks back.
        self._ends: list[deque[int]] = [
            deque(maxlen=n if n < FOREVER else 1) for n in self._capacity
        ]
        self._busy = [0] * n
        self._stalls = [[0] * n for _ in CAUSES]
        self._counts: dict[str, int] = {}
        self._busy_by_site: dict[tuple[int, str], int] = {}
        self._timeline: list[TimelineEntry] | None = [] if timeline else None
        self._names = [unit.name for unit in hardware.units]
        self._last_end = 0
        issue = hardware.issue
        self._issuer: Issuer | None = None
        if issue is not None:
            self._issuer = Issuer(
                issue.cycles, self._capacity, self._step, self._instructions, self._deadlock
            )
        # Fetch: operations of the group being filled, time of the last dispatch, next request.
        self._group: list[Operation] = []
        self._dispatched = -1
        self._request = 0
        self._queue_delay = 0
        fetch = hardware.fetch
        self._group_size = fetch.group_calls if fetch is not None else 1
        if fetch is not None:
            names = [bus.name for bus in hardware.buses]
            self._fetch_bus = names.index(fetch.bus)
            bus = hardware.bus[fetch.bus]
            self._fetch_bursts = [
                split_rows(bus, 0, i * fetch.call_bytes, (), (), fetch.call_bytes)
                for i in range(fetch.group_calls + 1)
            ]
            order = bus.priority
            self._fetch_priority = order.index("fetch") if "fetch" in order else len(order)
            full = self._buses[self._fetch_bus].read_cycles(self._fetch_bursts[-1])
            self._first_dispatch = fetch.first_cycles - full
            self._turnaround = fetch.group_cycles - fetch.first_cycles - (fetch.group_calls - 1)

    # Sink

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        """Fetch an operation; where its unit's queue is full, run until it is not."""
        del where
        self._counts[operation.name] = self._counts.get(operation.name, 0) + 1
        self._group.append(operation)
        if len(self._group) == self._group_size:
            self._dispatch()

    def signature(self, touched: Set[Use]) -> Hashable:
        clocks = self._clocks()
        readers = tuple(
            (
                i,
                tuple([max(0, e - now) for e in bus.ends]),
                max(0, bus.last_issue + 1 - now),
                tuple(
                    [
                        (r.owner, max(0, r.ready - bus.last_issue - 1), r.index, id(r.bursts))
                        for r in bus.readers
                    ]
                ),
            )
            for i, bus in enumerate(self._buses)
            for now in (bus.last_issue if self._pace else clocks[0],)
        )
        units = tuple([self._unit_signature(u, now) for u, now in enumerate(clocks)])
        board = self._board.signature(clocks, touched) if self._board is not None else ()
        if self._pace is not None:
            return readers, units, board
        now = clocks[0]
        tokens = tuple([tuple([max(0, t - now) for t in queue]) for queue in self._tokens])
        group = tuple([op.kind for op in self._group])
        fetch = max(0, self._dispatched + 1 - now), max(0, self._request - now)
        ports = self._ports.signature(now) if self._ports is not None else ()
        issuer = self._issuer.signature(now) if self._issuer is not None else ()
        buffers = self._buffers.signature(now) if self._buffers is not None else ()
        return readers, units, board, tokens, group, fetch, ports, issuer, buffers

    def _clocks(self) -> list[int]:
        """Of each unit, a cycle that its later times are seen from: what is not later is over."""
        return list(self._free) if self._pace is not None else [self._now()] * len(self._free)

    def _unit_signature(self, unit: int, now: int) -> Hashable:
        reading = self._reading[unit]
        arrivals = self._arrival[unit]
        late = [t - now for t in arrivals if t > now] if arrivals and arrivals[-1] > now else []
        ends = self._ends[unit]
        dispatched = self._dispatched
        recent = 0
        if self.waits_for_room and self._capacity[unit] < FOREVER:
            for end in reversed(ends):
                if end <= dispatched:
                    break
                recent += 1
        return (
            max(0, self._free[unit] - now),
            None if reading is None else (reading[0].kind, reading[1] - now),
            tuple([op.kind for op in self._queue[unit]]),
            tuple(late),
            tuple([end - now for end in islice(ends, len(ends) - recent, None)]),
            max(0, self._gate.passed - now),
            self._gate.signature(unit, now),
            tuple([self._board.relative(a, now) for a in self._awaited[unit]])
            if self._board is not None
            else (),
            tuple([self._ports.relative(a, now) for a in self._wanted[unit]])
            if self._ports is not None
            else (),
            tuple([self._buffers.relative(a, now) for a in self._unwritten[unit]])
            if self._buffers is not None
            else (),
        )

    @property
    def waits_for_room(self) -> bool:
        """Whether a full queue keeps others from getting operations."""
        return self.hardware.fetch is not None or self._issuer is not None

    def settled(self, read: Use) -> bool:
        """Whether a unit need not wait for what was written so far of a memory."""
        return self._board is not None and self._board.settled(read, self._clocks()[read.unit])

    def mark(self) -> _Mark:
        return _Mark(
            self._now(),
            list(self._free),
            [bus.last_issue for bus in self._buses],
            self._gate.passed,
            self._pace.counts() if self._pace is not None else (),
            [
                part.done if part is not None else ()
                for part in (self._board, self._ports, self._buffers)
            ],
            [list(row) for row in (self._busy, *self._stalls)],
            dict(self._counts),
            dict(self._busy_by_site),
            dict(self._ports.conflicts) if self._ports is not None else {},
        )

    def steady(self, mark: object) -> bool:
        assert isinstance(mark, _Mark)
        return self._pace is None or self._pace.steady(mark.waits, self._since(mark, 1))

    def _since(self, mark: _Mark, times: int) -> Shift:
        """How much later everything is than at a mark, so many times."""
        ahead = [now - old for now, old in zip(self._free, mark.free, strict=True)]
        if self._pace is not None:
            buses = [b.last_issue - old for b, old in zip(self._buses, mark.issued, strict=True)]
            barrier = self._gate.passed - mark.passed
            return Shift([c * times for c in ahead], [c * times for c in buses], barrier * times, 0)
        # Units may get on while nothing is left to happen on the buses. Where the state repeats
        # exactly, all of them have got on alike.
        now = self._now()
        after = (
            max(free, now) - max(before, mark.time)
            for free, before in zip(self._free, mark.free, strict=True)
        )
        shift = max(now - mark.time, *after) * times
        # A unit that did nothing meanwhile has been free since then, and still is.
        units = [shift if moved else 0 for moved in ahead]
        return Shift(units, [shift] * len(self._buses), shift if self._gate.passed else 0, shift)

    def repeat(self, mark: object, times: int) -> None:
        assert isinstance(mark, _Mark)
        shift = self._since(mark, times)
        for bus, later in zip(self._buses, shift.buses, strict=True):
            bus.last_issue += later
            bus.ends.extend([end + later for end in bus.ends])
            for reader in bus.readers:
                # One that nothing was served of still waits since it began.
                since = shift.units[reader.owner] if reader.owner >= 0 else shift.front
                reader.start += since
                reader.ready += since
                reading = self._reading[reader.owner] if reader.owner >= 0 else None
                if reading is not None:
                    self._reading[reader.owner] = reading[0], reading[1] + since
        self._free = [t + later for t, later in zip(self._free, shift.units, strict=True)]
        self._gate.shift(shift.barrier, shift.units)
        front = shift.front
        self._tokens = [deque([t + front for t in q]) for q in self._tokens]
        self._arrival = [deque([t + front for t in q]) for q in self._arrival]
        for ends in self._ends:
            ends.extend([end + front for end in ends])
        self._dispatched += front
        self._request += front
        if self._issuer is not None:
            self._issuer.shift(front)
        if self._board is not None:
            self._board.shift(shift.units, mark.done[0])
        if self._buffers is not None:
            self._buffers.shift(front, mark.done[2])
        if self._ports is not None:
            self._ports.shift(shift.units, mark.done[1])
            self._ports.repeat(mark.conflicts, times)
        self._last_end = max(self._last_end + front, self._gate.passed, *self._free)
        for row, before in zip((self._busy, *self._stalls), mark.totals, strict=True):
            for i, old in enumerate(before):
                row[i] += (row[i] - old) * times
        for name, count in self._counts.items():
            self._counts[name] += (count - mark.counts.get(name, 0)) * times
        for key, cycles in self._busy_by_site.items():
            self._busy_by_site[key] += (cycles - mark.busy.get(key, 0)) * times

    def _now(self) -> int:
        """A cycle before which nothing is left to happen that later times depend on."""
        issued = [bus.last_issue for bus in self._buses if bus.readers]
        if issued:
            return min(issued)
        return max([bus.last_issue for bus in self._buses], default=0)

    @property
    def finished(self) -> tuple[TimelineEntry, ...]:
        """The timeline so far, where there is one; each unit's operations are in stream order."""
        return tuple(self._timeline or ())

    def result(self, stream: Stream) -> TimingResult:
        """Run to the end of the stream."""
        if self._group:
            self._dispatch()
        while self._step():
            pass
        for unit, queue in enumerate(self._queue):
            if queue:
                self._deadlock(unit)
        completion = self.hardware.completion
        extra = completion.extra_cycles if completion is not None else 0
        written = self._buffers.written if self._buffers is not None else 0
        by_name, by_site = Counter[str](), Counter[int]()
        for (site, name), cycles in self._busy_by_site.items():
            by_name[name] += cycles
            by_site[site] += cycles
        return TimingResult(
            max(self._last_end, written) + extra,
            tuple(
                UnitTime(name, self._busy[i], *(row[i] for row in self._stalls))
                for i, name in enumerate(self._names)
            ),
            tuple(sorted(self._counts.items())),
            tuple(sorted(by_name.items())),
            stream.emitted,
            stream.exact,
            tuple(self._timeline) if self._timeline is not None else None,
            self._ports.found if self._ports is not None else (),
            tuple(sorted(by_site.items())),
        )

    # Fetch

    def _dispatch(self) -> None:
        group, self._group = self._group, []
        if self._issuer is not None:
            for operation in group:
                self._issue(operation, self._issuer)
            return
        if self.hardware.fetch is None:
            for operation in group:
                if operation.unit == ISSUER:
                    self._await(operation, 0)
                else:
                    self._enqueue(operation, 0)
            for queue in self._queue:
                while len(queue) > QUEUE_WITHOUT_FETCH and self._step():
                    pass
            return
        bus = self._buses[self._fetch_bus]
        reader = Reader(-1, self._fetch_priority, self._request, self._fetch_bursts[len(group)])
        bus.readers.append(reader)
        while reader.index < reader.bursts.count:
            self._step()
        arrival = bus.ends[-1] + self._first_dispatch
        for operation in group:
            arrival = max(arrival, self._dispatched + 1)
            self._queue_delay = 0
            if operation.unit == ISSUER:
                self._await(operation, arrival)
                arrival = self._dispatched = max(arrival, self._gate.passed)
                continue
            unit = operation.unit
            capacity = self._capacity[unit]
            if capacity < FOREVER:
                room = self._room(unit, capacity)
                if room > arrival:
                    self._queue_delay = room - arrival
                    arrival = room
            self._dispatched = arrival
            self._enqueue(operation, arrival)
        self._request = self._dispatched + self._turnaround

    def _issue(self, operation: Operation, issuer: Issuer) -> None:
        """Let the host issue an operation."""
        if operation.unit == ISSUER:
            self._await(operation, issuer.free)
            issuer.free = max(issuer.free, self._gate.passed)
            return
        arrival, self._queue_delay = issuer.arrival(operation)
        self._enqueue(operation, arrival)
        issuer.issued(operation, arrival)

    def _instructions(self, unit: int) -> int:
        """Instructions of a unit's operations whose ends are not known yet."""
        return self._unfinished[unit]

    def _room(self, unit: int, capacity: int) -> int:
        """The first cycle at which the unit's queue takes one more."""
        while True:
            waiting = len(self._queue[unit]) + (self._reading[unit] is not None)
            if waiting < capacity:
                break
            if not self._step():
                self._deadlock(unit)
        ends = self._ends[unit]
        position = len(ends) + waiting - capacity
        return ends[position] + 1 if position >= 0 else 0

    def _await(self, barrier: Operation, arrival: int) -> None:
        """Run until what a barrier waits for has ended; later operations come after that."""
        self._gate.wait(barrier.awaits, barrier.cycles, arrival, self._progress)
        if self._pace is not None:
            self._pace.passed()
        self._last_end = max(self._last_end, self._gate.passed)

    def _progress(self, unit: int) -> None:
        if not self._step():
            self._deadlock(unit)

    def _enqueue(self, operation: Operation, arrival: int) -> None:
        self._queue[operation.unit].append(operation)
        self._unfinished[operation.unit] += operation.instructions
        self._arrival[operation.unit].append(arrival)
        self._gate.enter(operation)
        if self._board is not None:
            self._awaited[operation.unit].append(self._board.enter(operation))
        if self._ports is not None:
            self._wanted[operation.unit].append(self._ports.enter(operation))
        if self._buffers is not None:
            self._unwritten[operation.unit].append(self._buffers.enter(operation))
        self._run(operation.unit)

    # Units

    def _run(self, unit: int) -> None:
        """Execute what can be executed, beginning with a unit, until all wait."""
        pending = [unit]
        tokens = self._tokens
        while pending:
            unit = pending.pop()
            queue = self._queue[unit]
            while queue and self._reading[unit] is None:
                operation = queue[0]
                ready = 0
                for edge in operation.pops:
                    waiting = tokens[edge]
                    if not waiting:
                        ready = -1
                        break
                    ready = max(ready, waiting[0])
                if self._board is not None and ready >= 0:
                    done = self._board.ready(self._awaited[unit][0])
                    ready = done if done < 0 else max(ready, done)
                if self._buffers is not None and ready >= 0:
                    done = self._buffers.ready(self._unwritten[unit][0])
                    ready = done if done < 0 else max(ready, done)
                served = 0
                if self._ports is not None and ready >= 0:
                    served = self._ports.ready(self._wanted[unit][0])
                if ready < 0 or served < 0:
                    break
                ready = max(ready, self._gate.leave(unit))
                if self._board is not None:
                    self._begin(unit, self._board, self._awaited[unit].popleft())
                if self._buffers is not None:
                    self._unwritten[unit].popleft()
                queue.popleft()
                for edge in operation.pops:
                    tokens[edge].popleft()
                free, arrival = self._free[unit], self._arrival[unit].popleft()
                start = free
                if ready > start or arrival > start:
                    start = self._wait(unit, free, ready, arrival)
                if self._ports is not None:
                    wanted = self._wanted[unit].popleft()
                    self._waited[unit] = (0, "")
                    if served > start:
                        self._stalls[4][unit] += served - start
                        bank = self._ports.waited(operation, wanted, served - start)
                        self._waited[unit] = (served - start, bank)
                        start = served
                if operation.posts and not operation.reads:
                    end = self._posted(operation, start + operation.lead)
                    self._finish(unit, operation, start, end, pending)
                    continue
                if operation.bursts is not None and operation.bursts.count:
                    self._reading[unit] = (operation, start)
                    if self._pace is not None:
                        self._pace.read(operation.bus, unit)
                    self._buses[operation.bus].readers.append(
                        Reader(unit, operation.priority, start + operation.lead, operation.bursts)
                    )
                    break
                self._finish(unit, operation, start, start + operation.cycles, pending)

    def _begin(self, unit: int, board: Board, awaited: Awaited) -> None:
        """Note which others a unit's next operation waits for."""
        if self._pace is not None:
            free = self._free[unit]
            for other, number in awaited:
                self._pace.waited(unit, other, board.end(other, number) > free)

    def _posted(self, operation: Operation, first: int) -> int:
        """The end of an operation that leaves its writes to the buffer from a cycle on."""
        assert self._buffers is not None
        return self._buffers.write(operation, first) + operation.cycles - operation.lead

    def _wait(self, unit: int, free: int, ready: int, arrival: int) -> int:
        if ready >= arrival:
            self._stalls[0][unit] += ready - free
            return ready
        late = min(arrival - free, self._queue_delay)
        self._stalls[3][unit] += late
        self._stalls[2][unit] += arrival - free - late
        return arrival

    def _finish(
        self, unit: int, operation: Operation, start: int, end: int, pending: list[int]
    ) -> None:
        self._free[unit] = end
        self._gate.finish(operation, end)
        self._unfinished[unit] -= operation.instructions
        self._ends[unit].append(end)
        if self._issuer is not None:
            self._issuer.finish(operation, start, end)
        self._last_end = max(self._last_end, end)
        busy = end - start
        self._busy[unit] += busy
        key = operation.site, operation.name
        self._busy_by_site[key] = self._busy_by_site.get(key, 0) + busy
        for edge in operation.pushes:
            self._tokens[edge].append(end)
            pending.append(self._target[edge])
        if self._board is not None:
            self._board.finish(unit, end, self._free)
        if self._ports is not None:
            self._ports.finish(unit, end, self._free)
        if self._buffers is not None and operation.posts:
            self._buffers.forget(min(self._free))
        if self._board is not None or self._ports is not None or operation.posts:
            pending.extend(other for other, queue in enumerate(self._queue) if queue)
        if self._timeline is not None:
            what = (self._names[unit], operation.name, operation.site)
            self._timeline.append(TimelineEntry(*what, start, end, *self._waited[unit]))

    def _step(self) -> bool:
        """Let the bus whose next request is first issue it and what must follow; false if idle."""
        best: tuple[int, Reader] | None = None
        chosen, horizon = self._buses[0] if self._buses else None, FOREVER
        for bus in self._buses:
            if not bus.readers:
                continue
            request = bus.next_request()
            if best is None or request[0] < best[0]:
                if best is not None:
                    horizon = best[0] + 1
                best, chosen = request, bus
            else:
                horizon = min(horizon, request[0] + 1)
        if best is None or chosen is None:
            return False
        when, reader = best
        if not chosen.advance(when, reader, horizon):
            return True
        chosen.readers.remove(reader)
        unit = reader.owner
        if unit < 0:
            return True
        reading = self._reading[unit]
        assert reading is not None
        self._reading[unit] = None
        operation, start = reading
        transfer = chosen.ends[-1] - reader.start
        self._stalls[1][unit] += transfer - chosen.read_cycles(reader.bursts)
        pending = [unit]
        end = start + operation.cycles + transfer
        if operation.posts:
            end = self._posted(operation, start + operation.lead + transfer)
        self._finish(unit, operation, start, end, pending)
        for other in reversed(pending):
            self._run(other)
        return True

    def _deadlock(self, unit: int) -> None:
        blocked = [
            (self._names[u], queue[0], edge)
            for u, queue in enumerate(self._queue)
            if queue and self._reading[u] is None
            for edge in queue[0].pops
            if not self._tokens[edge]
        ]
        name, operation, queue = blocked[0]
        source, target = self._edges[queue // self._flags]
        full = f"; the queue of {self._names[unit]} is full" if name != self._names[unit] else ""
        raise HwgenError(
            "H761",
            f"deadlock: unit {name} waits for a token that never comes",
            found=f"{operation.name} (site {operation.site}) pops {source} -> {target}{full}",
            allowed=f"a push {source} -> {target} for each pop, before what waits for it",
            repair=f"add the missing push after the call of {source} that {target} waits for",
        )
