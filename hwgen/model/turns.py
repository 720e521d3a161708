"""Time of programs that units and a processor run in turn: each part begins when the one before it
has ended, whatever that left in the units' queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hwgen.codegen.nodes import Code
from hwgen.codegen.program import Program

from .banks import BankConflict
from .timing_result import TimelineEntry, TimingResult, UnitTime

PROCESSOR = "processor"
"""What results call the processor beside the units."""


def in_turn(program: Program, time: Callable[[Program], TimingResult]) -> TimingResult:
    """The time of all parts; `time`: of a part that units run."""
    cycles, simulated, exact = 0, 0, True
    units: dict[str, UnitTime] = {}
    calls: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    timeline: list[TimelineEntry] | None = []
    conflicts: dict[BankConflict, tuple[int, int]] = {}
    for part in program.parts:
        if isinstance(part, Code):
            units[PROCESSOR] = _added(units.get(PROCESSOR), _alone(part.cycles))
            calls[PROCESSOR] += 1
            busy[PROCESSOR] += part.cycles
            if timeline is not None:
                end = cycles + part.cycles
                timeline.append(TimelineEntry(PROCESSOR, part.name, -1, cycles, end))
            cycles += part.cycles
            continue
        found = time(part)
        for unit in found.units:
            units[unit.unit] = _added(units.get(unit.unit), unit)
        calls.update(dict(found.calls))
        busy.update(dict(found.busy_by_name))
        for conflict in found.conflicts:
            what = replace(conflict, times=0, cycles=0)
            times, lost = conflicts.get(what, (0, 0))
            conflicts[what] = times + conflict.times, lost + conflict.cycles
        if timeline is not None and found.timeline is not None:
            moved = (replace(e, start=e.start + cycles, end=e.end + cycles) for e in found.timeline)
            timeline += moved
        else:
            timeline = None
        cycles += found.cycles
        simulated += found.simulated
        exact = exact and found.exact
    return TimingResult(
        cycles,
        tuple(units.values()),
        tuple(sorted(calls.items())),
        tuple(sorted(busy.items())),
        simulated,
        exact,
        None if timeline is None else tuple(timeline),
        tuple(replace(c, times=n, cycles=lost) for c, (n, lost) in conflicts.items()),
    )


def _alone(cycles: int) -> UnitTime:
    return UnitTime(PROCESSOR, cycles, 0, 0, 0, 0)


def _added(known: UnitTime | None, more: UnitTime) -> UnitTime:
    if known is None:
        return more
    return UnitTime(
        more.unit,
        known.busy + more.busy,
        known.tokens + more.tokens,
        known.bus + more.bus,
        known.fetch + more.fetch,
        known.queue + more.queue,
        known.banks + more.banks,
    )
