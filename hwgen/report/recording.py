"""The first calls of a kernel, one by one: when each ran, and which slots of the memories it used.

Long kernels are recorded up to a number of calls, so that this costs the same for every size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.codegen.nodes import Call, Code
from hwgen.codegen.program import Program
from hwgen.model.machine import Machine
from hwgen.model.scoreboard import cycle_costs
from hwgen.model.share import largest_share
from hwgen.model.stream import Costs, Operation, Stream
from hwgen.model.timing import estimate_cycles
from hwgen.model.timing_result import TimelineEntry, TimingResult
from hwgen.model.touched import nested_calls
from hwgen.model.turns import PROCESSOR
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Access

SLACK_OPERATIONS = 256
"""Operations sent after the last recorded one, and as many as all queues hold: what is recorded
has then ended, and was disturbed by what came after it as in the whole kernel."""


@dataclass(frozen=True, slots=True)
class Touched:
    """An operand of one executed call: entries `first` to `last` of a buffer or image."""

    operand: str
    buffer: str
    access: Access
    first: int
    last: int

    def __str__(self) -> str:
        end = f"..{self.last}" if self.last > self.first else ""
        return f"{self.operand} {self.access}s {self.buffer}@{self.first}{end}"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One operation. `number`: its place in the stream; `site`: its call site, or -1;
    `loops`: the variables of the loops around it; `waited`: cycles for a port of `waited_for`;
    `pushes`, `pops`: queues of tokens, or flags, that it fills when it ends and waits for."""

    number: int
    unit: str
    name: str
    site: int
    start: int
    end: int
    loops: tuple[tuple[str, int], ...] = ()
    extents: tuple[int, ...] = ()
    touched: tuple[Touched, ...] = ()
    waited: int = 0
    waited_for: str = ""
    pushes: tuple[int, ...] = ()
    pops: tuple[int, ...] = ()

    @property
    def cycles(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Recording:
    """`calls` in the order of their starts; `timing` is that of the whole kernel; `complete`:
    every call of the kernel is recorded."""

    calls: tuple[RecordedCall, ...]
    timing: TimingResult
    complete: bool

    @cached_property
    def end(self) -> int:
        """The cycle at which the last recorded call ends."""
        return max((c.end for c in self.calls), default=0)

    @property
    def shown(self) -> int:
        """The last cycle to show at first."""
        return self.timing.cycles if self.complete else self.end

    @cached_property
    def counts(self) -> Counter[str]:
        """Recorded calls by name."""
        return Counter(c.name for c in self.calls)

    @cached_property
    def busy(self) -> Counter[str]:
        """Cycles of the recorded calls by unit."""
        busy: Counter[str] = Counter()
        for call in self.calls:
            busy[call.unit] += call.cycles
        return busy


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A slot of a buffer from the first call that fills it to the last that uses what it holds.

    `base`, `entries`: where the slot lies in its memory. `calls`: how many use it meanwhile.
    """

    memory: str
    buffer: str
    tensor: str
    slot: int
    base: int
    entries: int
    start: int
    end: int
    calls: int


class _Recorder(Machine):
    """A machine that also keeps which operations it was sent, by unit."""

    def __init__(self, hardware: HardwareSpec, costs: Costs) -> None:
        super().__init__(hardware, costs, timeline=True)
        self.sent: dict[str, list[tuple[int, tuple[int, ...], Operation]]] = {
            unit.name: [] for unit in hardware.units
        }
        self._units = [unit.name for unit in hardware.units]
        self.count = 0

    def accept(self, operation: Operation, where: tuple[int, ...]) -> None:
        if operation.unit >= 0:  # A barrier is on no unit.
            self.sent[self._units[operation.unit]].append((self.count, where, operation))
        self.count += 1
        super().accept(operation, where)


def record(program: Program, hardware: HardwareSpec, timing: TimingResult, limit: int) -> Recording:
    """Simulate a kernel's first `limit` operations one by one.

    `timing` is the whole kernel's. Fewer are recorded where one of the first `limit` waits for
    an operation far behind them.
    """
    if not program.codes:
        return _record(program, hardware, timing, limit)
    calls: list[RecordedCall] = []
    start = 0
    for part in program.parts:
        if len(calls) >= limit:
            return Recording(tuple(calls), timing, complete=False)
        if isinstance(part, Code):
            end = start + part.cycles
            calls.append(RecordedCall(len(calls), PROCESSOR, part.name, -1, start, end))
            start = end
            continue
        alone = estimate_cycles(part, hardware)
        found = _record(part, hardware, alone, limit - len(calls))
        first = len(calls)
        calls += (
            replace(c, number=c.number + first, start=c.start + start, end=c.end + start)
            for c in found.calls
        )
        if not found.complete:
            return Recording(tuple(calls), timing, complete=False)
        start += alone.cycles
    return Recording(tuple(calls), timing, complete=True)


def _record(
    program: Program, hardware: HardwareSpec, timing: TimingResult, limit: int
) -> Recording:
    """The same of a program that units run alone."""
    ahead = sum(unit.queue_entries for unit in hardware.units) + SLACK_OPERATIONS
    program = largest_share(program, hardware)
    costs = cycle_costs(program, hardware)
    machine = _Recorder(hardware, costs)
    stream = Stream(program, hardware, costs, machine, located=True, limit=limit + ahead)
    stream.run()
    if not stream.truncated:
        machine.result(stream)
    entries: dict[str, list[TimelineEntry]] = {name: [] for name in machine.sent}
    for entry in machine.finished:
        entries.setdefault(entry.unit, []).append(entry)
    resolve = _Resolver(program, hardware, stream.variables)
    calls = [
        replace(resolve(number, where, entry), pushes=sent_one.pushes, pops=sent_one.pops)
        for unit, sent in machine.sent.items()
        # Units are in order; what was sent last has not yet ended where the stream was cut.
        for (number, where, sent_one), entry in zip(sent, entries[unit], strict=False)
        if number < limit
    ]
    complete = not stream.truncated and machine.count <= limit
    return Recording(tuple(sorted(calls, key=lambda c: (c.start, c.number))), timing, complete)


class _Resolver:
    """Adds to a timeline's entry what its call site says of it."""

    def __init__(self, program: Program, hardware: HardwareSpec, variables: dict[str, int]) -> None:
        self.hardware = hardware
        self.variables = variables
        self.sites = {
            n.call.site: (n.call, tuple(loop.variable for loop in n.loops))
            for n in nested_calls(program.body)
        }

    def __call__(self, number: int, where: tuple[int, ...], entry: TimelineEntry) -> RecordedCall:
        plain = RecordedCall(number, entry.unit, entry.name, entry.site, entry.start, entry.end)
        if entry.site not in self.sites:
            return plain
        call, names = self.sites[entry.site]
        values = {n: where[self.variables[n]] for n in names if n in self.variables}
        if entry.name != call.intrinsic:
            return plain  # The load of a micro-kernel touches no operand.
        extents = tuple(int(evaluate(e, values)) for e in call.extents)
        return RecordedCall(
            number,
            entry.unit,
            entry.name,
            entry.site,
            entry.start,
            entry.end,
            tuple(values.items()),
            extents,
            self._touched(call, values, extents),
            entry.waited,
            entry.waited_for,
        )

    def _touched(
        self, call: Call, values: dict[str, int], extents: tuple[int, ...]
    ) -> tuple[Touched, ...]:
        found: list[Touched] = []
        rules = self.hardware.intrinsic[call.intrinsic].operands
        for operand, rule in zip(call.operands, rules, strict=True):
            low = high = int(evaluate(operand.address, values))
            for extent, stride in zip(extents, operand.strides, strict=True):
                step = (extent - 1) * int(evaluate(stride, values))
                low, high = low + min(0, step), high + max(0, step)
            found.append(Touched(operand.name, operand.buffer, rule.access, low, high))
        return tuple(found)


def slot_uses(recording: Recording, program: Program) -> tuple[SlotUse, ...]:
    """The on-chip slots over time, by buffer, slot and start.

    A use begins with the first call that overwrites the slot after it was read or updated.
    """
    touching: dict[tuple[str, int], list[tuple[RecordedCall, Access]]] = {}
    for call in recording.calls:
        for touched in call.touched:
            buffer = program.buffer.get(touched.buffer)
            if buffer is None:
                continue
            first = (touched.first - buffer.base) // buffer.stride
            last = (touched.last - buffer.base) // buffer.stride
            for slot in range(max(0, first), min(last, buffer.slots - 1) + 1):
                touching.setdefault((buffer.name, slot), []).append((call, touched.access))
    uses: list[SlotUse] = []
    for (name, slot), accesses in sorted(touching.items()):
        buffer = program.buffer[name]
        base = buffer.base + slot * buffer.stride
        groups: list[list[RecordedCall]] = []
        filling = False
        for call, access in accesses:
            if not groups or (access == "write" and not filling):
                groups.append([])
            groups[-1].append(call)
            filling = access == "write"
        for number, group in enumerate(groups):
            end = max(c.end for c in group)
            if number + 1 < len(groups):
                end = min(end, groups[number + 1][0].start)
            uses.append(
                SlotUse(
                    buffer.memory,
                    name,
                    buffer.tensor,
                    slot,
                    base,
                    buffer.slot_entries,
                    group[0].start,
                    end,
                    len(group),
                )
            )
    return tuple(uses)
