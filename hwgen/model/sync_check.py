"""Synchronisation, checked whatever the timing: races, deadlocks, tokens left over.

Operations are ordered by their unit's order; by tokens and flags, where the k-th pop gets the k-th
push; by barriers, which what is issued later comes after; and on chip by a scoreboard, where there
is one. Vector clocks carry that order; two accesses of different units to one entry, one of them a
write, must be ordered by it. No flag may be signalled while it may already be at its maximum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Set
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.emit_sync import sync_nodes
from hwgen.codegen.nodes import Signal
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec

from .columns import count_calls, count_tokens
from .footprints import FootprintCosts, Instance, Space
from .periodicity import Use
from .stream import ISSUER, Operation, Stream
from .touched import nested_calls
from .waits import Heard

CHECK_LIMIT = 200_000
"""Operations that are checked one by one at most, where iterations do not repeat."""

Clock = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What was checked: `checked` of `total` calls, without an error.

    Iterations that begin in the state of earlier ones (relative clocks, tokens, latest accesses)
    and run the same calls need no second look and count as checked. `complete` is false where
    the program is longer than that allows to cover.
    """

    checked: int
    total: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Executed:
    """An executed operation: what it popped and pushed, as (edge, number) pairs."""

    operation: Operation
    popped: tuple[tuple[int, int], ...]
    pushed: tuple[tuple[int, int], ...]


def check_synchronisation(program: Program, hardware: HardwareSpec) -> SyncResult:
    """Check that every conflict is ordered and that tokens come out even.

    Raises:
        HwgenError: H722 no such micro-kernel variant, H760 race, H761 deadlock, H762 tokens left
            over, H763 no such token queue or flag, H764 a pop that no call follows, H765 a flag
            that may be signalled above its maximum.
    """
    if program.codes:
        return _in_turn(program, hardware)
    machine = Clocks(program, hardware)
    stream = Stream(
        program, hardware, machine.costs, machine, skip=machine, limit=CHECK_LIMIT, located=True
    )
    machine.stream = stream
    stream.run()
    if stream.truncated:
        _check_balance(program, hardware)
    else:
        machine.check_end()
    if machine.race is not None:
        raise machine.race
    total = machine.accepted if not stream.truncated else count_calls(program, hardware)
    return SyncResult(machine.accepted, total, not stream.truncated)


def _in_turn(program: Program, hardware: HardwareSpec) -> SyncResult:
    """Of parts that a processor comes between, each by itself: units have done all of one before
    the next begins."""
    parts = [p for p in program.parts if isinstance(p, Program)]
    found = [check_synchronisation(p, hardware) for p in parts]
    return SyncResult(
        sum(f.checked for f in found), sum(f.total for f in found), all(f.complete for f in found)
    )


def _check_balance(program: Program, hardware: HardwareSpec) -> None:
    """Pushes and pops of a program too long to execute must come out even."""
    for (source, target), (pushes, pops) in count_tokens(program, hardware).items():
        if pushes != pops:
            raise _unbalanced(source, target, pushes, pops)


def _unbalanced(source: str, target: str, pushes: int, pops: int) -> HwgenError:
    if pushes < pops:
        return HwgenError(
            "H761",
            f"deadlock: unit {target} waits for a token that never comes",
            found=f"{pushes} pushes and {pops} pops {source} -> {target}",
            allowed=f"a push {source} -> {target} for each pop",
            repair=f"add the missing push after the call of {source} that {target} waits for",
        )
    return HwgenError(
        "H762",
        f"{pushes - pops} token{'s' if pushes - pops > 1 else ''} {source} -> {target} left over "
        "at the end",
        found=f"{pushes} pushes and {pops} pops {source} -> {target}",
        allowed="as many pops as pushes on each edge",
        repair="add the missing pop, or remove the surplus push",
    )


class Clocks:
    """Executes a stream by its tokens alone, with vector clocks; a `Sink`."""

    def __init__(self, program: Program, hardware: HardwareSpec, *, record: bool = False) -> None:
        self.program = program
        self.hardware = hardware
        self.costs = FootprintCosts(program, hardware)
        self.stream: Stream | None = None
        units = len(hardware.units)
        self.names = [unit.name for unit in hardware.units]
        index = {name: i for i, name in enumerate(self.names)}
        events, exchanged = hardware.events, hardware.tokens or hardware.events
        self.edges = exchanged.edges if exchanged is not None else ()
        self.flags = events.flags if events is not None else 1
        self.target_of = [index[target] for _, target in self.edges]
        # Of each edge: signals that its flags can count together; 0: no limit.
        self.in_flight = [0] * len(self.edges)
        if events is not None:
            for node in sync_nodes(program.body):
                if isinstance(node, Signal) and (node.source, node.target) in self.edges:
                    edge = self.edges.index((node.source, node.target))
                    self.in_flight[edge] = node.count * events.maximum
        self.maximum = events.maximum if events is not None else 0
        self.interlocked = hardware.scoreboard is not None
        self.clock: list[list[int]] = [[0] * units for _ in range(units)]
        self.heard = Heard(hardware)
        # Where a scoreboard orders calls: the clock of each operation when it is done.
        self.history: dict[tuple[int, int], list[int]] = {}
        queues = len(self.edges) * self.flags
        self.tokens: list[deque[Clock]] = [deque() for _ in range(queues)]
        # Of each flag: signals and waits so far, and its target's clock at the latest waits.
        self.signals = [0] * queues
        self.waits = [0] * queues
        self.awaited: list[deque[int]] = [deque(maxlen=self.maximum or 1) for _ in range(queues)]
        self.given = [0] * len(self.edges)
        self.taken = [0] * len(self.edges)
        self.queue: list[deque[Instance]] = [deque() for _ in range(units)]
        self.capacity = [unit.queue_entries or CHECK_LIMIT for unit in hardware.units]
        self.accepted = 0
        self.race: HwgenError | None = None
        self.record = record
        self.executed: list[Executed] = []

    # Sink

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        self.accepted += operation.name in self.hardware.intrinsic
        if operation.unit == ISSUER:
            self._barrier(operation)
            return
        self.queue[operation.unit].append((operation, where))
        pending = [operation.unit]
        while pending:
            unit = pending.pop()
            queue = self.queue[unit]
            while queue and all(self.tokens[edge] for edge in queue[0][0].pops):
                self._execute(unit, queue.popleft(), pending)
        # A full queue in front of a waiting unit stops the fetch of whatever could free it.
        if len(self.queue[operation.unit]) > self.capacity[operation.unit]:
            raise self._deadlock()

    def _barrier(self, operation: Operation) -> None:
        if any(self.queue[awaited.unit] for awaited in operation.awaits):
            raise self._deadlock()
        self.heard.wait(operation.awaits)
        if self.record:
            self.executed.append(Executed(operation, (), ()))

    def signature(self, touched: Set[Use]) -> Hashable:
        del touched
        done = [self.clock[u][u] for u in range(len(self.clock))]
        known = [
            min((c[u] for v, c in enumerate(self.clock) if v != u), default=done[u])
            for u in range(len(done))
        ]
        clocks = tuple([_relative(c, done) for c in self.clock])
        tokens = tuple([tuple([_relative(c, done) for c in queue]) for queue in self.tokens])
        queues = tuple([tuple([op.identity for op, _ in queue]) for queue in self.queue])
        # An access that all other units know of can be in no race any more.
        accesses = tuple(
            [
                tuple([a - d if a > k else 1 for a, d, k in zip(row, done, known, strict=True)])
                for space in self.costs.spaces
                for row in (*space.writes, *space.reads)
            ]
        )
        awaited = tuple(
            [
                tuple([a - done[self.target_of[q // self.flags]] for a in waits])
                for q, waits in enumerate(self.awaited)
                if waits
            ]
        )
        heard = self.heard.signature(done)
        return clocks, tokens, queues, accesses, heard, awaited, self.race is None

    def settled(self, read: Use) -> bool:
        del read
        return False

    def mark(self) -> int:
        return self.accepted

    def steady(self, mark: object) -> bool:
        del mark
        return True

    def repeat(self, mark: object, times: int) -> None:
        assert isinstance(mark, int)
        self.accepted += (self.accepted - mark) * times

    # Execution

    def _execute(self, unit: int, instance: Instance, pending: list[int]) -> None:
        operation = instance[0]
        clock = self.heard.after(self.clock[unit])
        for queue in operation.pops:
            token = self.tokens[queue].popleft()
            clock = [a if a > b else b for a, b in zip(clock, token, strict=True)]
        clock[unit] += 1
        self.clock[unit] = clock
        if self.interlocked:
            self._interlock(operation, clock)
        self.heard.ran(operation, clock)
        for space, footprint, write in operation.touches:
            self._touch(self.costs.spaces[space], footprint, write, instance, clock)
        for queue in operation.pops if self.maximum else ():
            self.waits[queue] += 1
            self.awaited[queue].append(clock[unit])
        for queue in operation.pushes:
            if self.maximum:
                self._signal(queue, clock)
            self.tokens[queue].append(tuple(clock))
            pending.append(self.target_of[queue // self.flags])
        if self.record:
            edges = [q // self.flags for q in operation.pops]
            popped = tuple([(e, self._next(self.taken, e)) for e in edges])
            edges = [q // self.flags for q in operation.pushes]
            pushed = tuple([(e, self._next(self.given, e)) for e in edges])
            self.executed.append(Executed(operation, popped, pushed))

    def _interlock(self, operation: Operation, clock: list[int]) -> None:
        """Let an operation come after those that a scoreboard orders before it."""
        unit = operation.unit
        for space, footprint, write in operation.touches:
            place = self.costs.spaces[space]
            for atom in place.atoms[footprint] if place.onchip else ():
                for row in (
                    (place.writes[atom], place.reads[atom]) if write else (place.writes[atom],)
                ):
                    for other, when in enumerate(row):
                        if when > clock[other]:
                            known = self.history[other, when]
                            clock[:] = [max(a, b) for a, b in zip(clock, known, strict=True)]
        self.history[unit, clock[unit]] = list(clock)

    def _signal(self, queue: int, clock: list[int]) -> None:
        """Keep the first signal of a flag that may be at its maximum still."""
        number, target = self.signals[queue], self.target_of[queue // self.flags]
        self.signals[queue] += 1
        earlier = number - self.maximum
        if earlier < 0 or self.race is not None:
            return
        taken, awaited = self.waits[queue], self.awaited[queue]
        position = earlier - (taken - len(awaited))
        if earlier < taken and awaited[position] <= clock[target]:
            return
        names = self.edges[queue // self.flags]
        self.race = HwgenError(
            "H765",
            f"flag {queue % self.flags} of {names[0]} -> {names[1]} may be signalled above its "
            "maximum",
            found=f"signal {number + 1} of the flag, with no order after wait {earlier + 1}",
            allowed=f"a flag counts up to {self.maximum}",
            repair=f"let {names[0]} wait for {names[1]} before it, or use more flags in turn",
        )

    @staticmethod
    def _next(counters: list[int], edge: int) -> int:
        counters[edge] += 1
        return counters[edge] - 1

    def _touch(
        self, space: Space, footprint: int, write: bool, instance: Instance, clock: list[int]
    ) -> None:
        unit = instance[0].unit
        now = clock[unit]
        for atom in space.atoms[footprint]:
            writes = space.writes[atom]
            for other, when in enumerate(writes):
                if when > clock[other]:
                    self._report(space, footprint, instance, space.last_write[atom][other], True)
            if write:
                for other, when in enumerate(space.reads[atom]):
                    if when > clock[other]:
                        self._report(
                            space, footprint, instance, space.last_read[atom][other], False
                        )
                writes[unit] = now
                space.last_write[atom][unit] = instance
            else:
                space.reads[atom][unit] = now
                space.last_read[atom][unit] = instance

    def _report(
        self, space: Space, footprint: int, later: Instance, earlier: Instance | None, wrote: bool
    ) -> None:
        """Keep the first race; deadlocks and leftover tokens are reported before it."""
        if self.race is not None:
            return
        assert earlier is not None
        first = earlier
        entries = space.footprints[footprint]
        for place, number, _ in first[0].touches:
            if self.costs.spaces[place] is space:
                common = np.intersect1d(entries, space.footprints[number])
                entries = common if common.size else entries
        low, high = int(entries[0]), int(entries[-1])
        source, target = self.names[first[0].unit], self.names[later[0].unit]
        verb = "writes" if wrote else "reads"
        buffers = [
            b.name for b in self.program.buffers
            if b.memory == space.name and b.holds(low)
        ]  # fmt: skip
        place = f"{', '.join(buffers)} ({space.name}" if buffers else f"{space.name} ("
        self.race = HwgenError(
            "H760",
            f"race: {self._name(later)} does not wait for {self._name(first)}, which {verb} "
            "the same entries",
            field=buffers[0] if buffers else space.name,
            found=f"no order {source} -> {target} on {place} entries {low}..{high})",
            allowed="conflicting calls of different units in order",
            repair=self._repair(source, target),
        )

    def _repair(self, source: str, target: str) -> str:
        if self.hardware.tokens is not None:
            return f"push {source} -> {target} after the first call, pop it before the second"
        if self.hardware.events is not None:
            return f"signal {source} -> {target} after the first call, wait before the second"
        return f"wait for {source} before the second call"

    def _name(self, instance: Instance) -> str:
        operation, where = instance
        assert self.stream is not None
        inside = self._loops(operation.site)
        values = ", ".join(
            f"{name}={where[slot]}"
            for name, slot in self.stream.variables.items()
            if name in inside and slot < len(where)
        )
        unit = self.names[operation.unit]
        return f"{operation.name} of {unit} (site {operation.site}{', ' if values else ''}{values})"

    def _loops(self, site: int) -> tuple[str, ...]:
        return _enclosing(self.program, site)

    def check_end(self) -> None:
        """Raise where operations never ran or tokens remain."""
        if any(self.queue):
            raise self._deadlock()
        for edge, (source, target) in enumerate(self.edges):
            queues = self.tokens[edge * self.flags : (edge + 1) * self.flags]
            left = sum(len(queue) for queue in queues)
            if left:
                raise HwgenError(
                    "H762",
                    f"{left} token{'s' if left > 1 else ''} {source} -> {target} left over "
                    "at the end",
                    found=f"{left} more pushes than pops {source} -> {target}",
                    allowed="as many pops as pushes on each edge",
                    repair="add the missing pop, or remove the surplus push",
                )

    def _deadlock(self) -> HwgenError:
        """Name a wait that nothing can end: on an edge short of pushes, else where the chain of
        waiting units ends or closes."""
        waits = {
            unit: next(e for e in queue[0][0].pops if not self.tokens[e])
            for unit, queue in enumerate(self.queue)
            if queue
        }
        assert self.stream is not None
        pushed, popped = self.stream.pushed, self.stream.popped
        waits = {unit: queue // self.flags for unit, queue in waits.items()}
        short = [u for u, edge in waits.items() if len(pushed[edge]) < len(popped[edge])]
        unit = (short or list(waits))[0]
        passed = {unit}
        while not short:
            source = self.names.index(self.edges[waits[unit]][0])
            if source not in waits or source in passed:
                break
            unit = source
            passed.add(unit)
        source, target = self.edges[waits[unit]]
        full = [
            self.names[u] for u, queue in enumerate(self.queue) if len(queue) > self.capacity[u]
        ]
        behind = f"; the queue of {full[0]} is full" if full else ""
        return HwgenError(
            "H761",
            f"deadlock: unit {self.names[unit]} waits for a token that never comes",
            found=f"{self._name(self.queue[unit][0])} pops {source} -> {target}{behind}",
            allowed=f"a push {source} -> {target} for each pop, before what waits for it",
            repair=f"add the missing push after the call of {source} that {target} waits for",
        )


def _relative(clock: Clock | list[int], done: list[int]) -> Clock:
    return tuple([c - d for c, d in zip(clock, done, strict=True)])


def _enclosing(program: Program, site: int) -> tuple[str, ...]:
    """Loop variables around a call site, outermost first."""
    found = (n.loops for n in nested_calls(program.body) if n.call.site == site)
    return tuple(loop.variable for loop in next(found, ()))
