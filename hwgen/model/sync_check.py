"""Synchronisation, checked whatever the timing: races, deadlocks, tokens left over or wasted.

Operations are ordered by their unit's order and by tokens: the k-th pop of an edge gets the k-th
push. Vector clocks carry that order; two accesses of different units to one entry, one of them
a write, must be ordered by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.program import Call, If, KernelProgram, Loop, Node
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec

from .counting import count_calls, count_tokens
from .footprints import FootprintCosts, Instance, Space
from .stream import Operation, Stream

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
class RedundantTokens:
    """Tokens of one edge, given by the `pushes`-th and taken by the `pops`-th token statements of
    the text (counted from 0), without which every conflict stays ordered."""

    source: str
    target: str
    pushes: tuple[int, ...]
    pops: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class _Event:
    """An executed operation: what it popped and pushed, as (edge, number) pairs."""

    operation: Operation
    popped: tuple[tuple[int, int], ...]
    pushed: tuple[tuple[int, int], ...]


def check_synchronisation(program: KernelProgram, hardware: HardwareSpec) -> SyncResult:
    """Check that every conflict is ordered and that tokens come out even.

    Raises:
        HwgenError: H722 no such micro-kernel variant, H760 race, H761 deadlock, H762 tokens left
            over, H763 no such token queue, H764 a pop that no call follows.
    """
    machine = _Clocks(program, hardware)
    stream = Stream(
        program, hardware, machine.costs, machine, skip=True, limit=CHECK_LIMIT, located=True
    )
    machine.stream = stream
    stream.run()
    if stream.truncated:
        _check_balance(program, hardware)
    else:
        machine.check_end()
    if machine.race is not None:
        raise machine.race
    total = machine.accepted if not stream.truncated else count_calls(program)
    return SyncResult(machine.accepted, total, not stream.truncated)


def redundant_tokens(program: KernelProgram, hardware: HardwareSpec) -> tuple[RedundantTokens, ...]:
    """Tokens that order nothing: groups of statements that can go together, and alone.

    A group is the pushes and pops of one edge that exchange tokens with each other. Programs of
    more than `CHECK_LIMIT` operations are judged by that many first ones.

    Raises:
        HwgenError: as `check_synchronisation`, whose errors come first.
    """
    check_synchronisation(program, hardware)
    machine = _Clocks(program, hardware, record=True)
    stream = Stream(program, hardware, machine.costs, machine, limit=CHECK_LIMIT, located=True)
    machine.stream = stream
    stream.run()
    found: list[RedundantTokens] = []
    for edge, (source, target) in enumerate(stream.edges):
        pairs = list(zip(stream.pushed[edge], stream.popped[edge], strict=False))
        for pushes, pops in _groups(pairs):
            numbers = {k for k, (push, _) in enumerate(pairs) if push in pushes}
            if _ordered(machine, {(edge, k) for k in numbers}):
                found.append(RedundantTokens(source, target, pushes, pops, len(numbers)))
    return tuple(found)


def _groups(pairs: list[tuple[int, int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Connected components of push and pop statements."""
    groups: list[tuple[set[int], set[int]]] = []
    for push, pop in dict.fromkeys(pairs):
        joined = [g for g in groups if push in g[0] or pop in g[1]]
        pushes = {push}.union(*(g[0] for g in joined))
        pops = {pop}.union(*(g[1] for g in joined))
        groups = [g for g in groups if g not in joined] + [(pushes, pops)]
    return [(tuple(sorted(a)), tuple(sorted(b))) for a, b in groups]


def _ordered(machine: _Clocks, ignored: set[tuple[int, int]]) -> bool:
    """Whether all conflicts of the recorded events are ordered without the ignored tokens."""
    spaces = machine.costs.spaces
    units = len(machine.clock)
    clock = [[0] * units for _ in range(units)]
    writes = [[[0] * units for _ in s.writes] for s in spaces]
    reads = [[[0] * units for _ in s.writes] for s in spaces]
    given: dict[tuple[int, int], Clock] = {}
    for event in machine.events:
        operation = event.operation
        unit = operation.unit
        mine = clock[unit]
        for token in event.popped:
            if token not in ignored:
                mine = [max(a, b) for a, b in zip(mine, given[token], strict=True)]
        mine[unit] += 1
        clock[unit] = mine
        for space, footprint, write in operation.touches:
            for atom in spaces[space].atoms[footprint]:
                row = writes[space][atom]
                if any(row[u] > mine[u] for u in range(units)):
                    return False
                if write:
                    seen = reads[space][atom]
                    if any(seen[u] > mine[u] for u in range(units)):
                        return False
                    row[unit] = mine[unit]
                else:
                    reads[space][atom][unit] = mine[unit]
        for token in event.pushed:
            given[token] = tuple(mine)
    return True


def _check_balance(program: KernelProgram, hardware: HardwareSpec) -> None:
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


class _Clocks:
    """Executes a stream by its tokens alone, with vector clocks; a `Sink`."""

    def __init__(
        self, program: KernelProgram, hardware: HardwareSpec, *, record: bool = False
    ) -> None:
        self.program = program
        self.hardware = hardware
        self.costs = FootprintCosts(program, hardware)
        self.stream: Stream | None = None
        units = len(hardware.units)
        self.names = [unit.name for unit in hardware.units]
        index = {name: i for i, name in enumerate(self.names)}
        self.edges = hardware.tokens.edges if hardware.tokens is not None else ()
        self.target = [index[target] for _, target in self.edges]
        self.clock: list[list[int]] = [[0] * units for _ in range(units)]
        self.tokens: list[deque[Clock]] = [deque() for _ in self.edges]
        self.given = [0] * len(self.edges)
        self.taken = [0] * len(self.edges)
        self.queue: list[deque[Instance]] = [deque() for _ in range(units)]
        self.capacity = [unit.queue_entries or CHECK_LIMIT for unit in hardware.units]
        self.accepted = 0
        self.race: HwgenError | None = None
        self.record = record
        self.events: list[_Event] = []

    # Sink

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        self.accepted += operation.name in self.hardware.intrinsic
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

    def signature(self) -> Hashable:
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
        return clocks, tokens, queues, accesses, self.race is None

    def mark(self) -> int:
        return self.accepted

    def repeat(self, mark: object, times: int) -> None:
        assert isinstance(mark, int)
        self.accepted += (self.accepted - mark) * times

    # Execution

    def _execute(self, unit: int, instance: Instance, pending: list[int]) -> None:
        operation = instance[0]
        clock = self.clock[unit]
        for edge in operation.pops:
            token = self.tokens[edge].popleft()
            clock = [a if a > b else b for a, b in zip(clock, token, strict=True)]
        clock[unit] += 1
        self.clock[unit] = clock
        for space, footprint, write in operation.touches:
            self._touch(self.costs.spaces[space], footprint, write, instance, clock)
        for edge in operation.pushes:
            self.tokens[edge].append(tuple(clock))
            pending.append(self.target[edge])
        if self.record:
            popped = tuple((e, self._next(self.taken, e)) for e in operation.pops)
            pushed = tuple((e, self._next(self.given, e)) for e in operation.pushes)
            self.events.append(_Event(operation, popped, pushed))

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
            if b.memory == space.name and b.base <= low < b.base + b.entries
        ]  # fmt: skip
        place = f"{', '.join(buffers)} ({space.name}" if buffers else f"{space.name} ("
        self.race = HwgenError(
            "H760",
            f"race: {self._name(later)} does not wait for {self._name(first)}, which {verb} "
            "the same entries",
            field=buffers[0] if buffers else space.name,
            found=f"no order {source} -> {target} on {place} entries {low}..{high})",
            allowed="conflicting calls of different units ordered by tokens",
            repair=f"push {source} -> {target} after the first call, pop it before the second",
        )

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
            left = len(self.tokens[edge])
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


def _enclosing(program: KernelProgram, site: int) -> tuple[str, ...]:
    """Loop variables around a call site, outermost first."""

    def search(nodes: tuple[Node, ...], outer: tuple[str, ...]) -> tuple[str, ...] | None:
        for node in nodes:
            match node:
                case Call() if node.site == site:
                    return outer
                case Loop(variable, _, _, body):
                    found = search(body, (*outer, variable))
                case If(_, then, otherwise):
                    found = search(then, outer)
                    found = search(otherwise, outer) if found is None else found
                case _:
                    continue
            if found is not None:
                return found
        return None

    return search(program.body, ()) or ()
