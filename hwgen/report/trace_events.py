"""A kernel's calls in the Chrome trace event format, which Perfetto and chrome://tracing open.

One microsecond of the viewer is one cycle. Units are the threads of one process; the slots of the
on-chip buffers are those of another. Arrows lead from a call to the one that waits for its token;
counters say what crosses the bus and what the memories hold. `trace(compile_kernel(workload,
hardware))` is its text.

Source: "Trace Event Format", the JSON object form with metadata (M), complete (X), flow (s, f) and
counter (C) events.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from hwgen.codegen.nodes import calls
from hwgen.codegen.program import Program
from hwgen.model.columns import off_chip_bytes
from hwgen.report.banks import BankUse, bank_uses
from hwgen.report.figures import Json
from hwgen.report.recording import RecordedCall, Recording, SlotUse, record, slot_uses

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel
    from hwgen.spec.hardware import HardwareSpec

TRACED_CALLS = 10_000
"""Calls that a trace has one by one at most; the rest is one event per unit."""

UNITS, MEMORIES, BANKS = 1, 2, 3
WAITS = ": waits for it"


def trace(compilation: Kernel, traced: int = TRACED_CALLS) -> str:
    """The JSON text of a kernel's trace; at most `traced` calls are in it one by one.

    Raises:
        HwgenError: as `estimate_cycles`, for chips with units.
    """
    c = compilation
    if c.nest:
        return _of_blocks(c)
    recording = record(c.program, c.hardware, c.timing, traced)
    uses = slot_uses(recording, c.program)
    held = bank_uses(recording, c.program, c.hardware)
    events = [
        *_units(recording),
        *token_flows(recording),
        *bus_counters(recording, c.program, c.hardware),
        *_memories(uses),
        *occupancy_counters(uses),
        *_banks(held, recording, c.hardware),
    ]
    head: dict[str, Json] = {
        "kernel": c.program.name,
        "workload": c.workload.name,
        "sizes": dict(c.workload.sizes),
        "chip": c.hardware.name,
        "unit of time": "1 us is 1 cycle",
        "cycles": recording.timing.cycles,
        "calls": recording.timing.operations,
        "calls one by one": len(recording.calls),
    }
    return _text(head, events)


def _of_blocks(compilation: Kernel) -> str:
    """The same of a kernel of a processor: an event per block, one after another, as the closed
    form has them; rounded to cycles."""
    c = compilation
    events: list[Json] = [*_named(UNITS, "processor", ["blocks"])]
    at = c.cost.start_cycles
    rates: list[tuple[int, int, int, int]] = []
    for block in c.cost.blocks:
        start, end = round(at), round(at + block.cycles)
        at += block.cycles
        moved = round(block.memory_bytes)
        args: dict[str, Json] = {
            "arithmetic cycles": round(block.compute_cycles),
            "memory cycles": round(block.memory_cycles),
            "memory bytes": moved,
        }
        events.append(_complete(block.block, "block", UNITS, 1, start, end, args))
        rates.append((start, end, moved, 0))
    events += [
        _counter(UNITS, "memory bytes per cycle", time, {"moved": read})
        for time, (read, _) in steps(rates)
    ]
    head: dict[str, Json] = {
        "kernel": c.source.function,
        "workload": c.workload.name,
        "sizes": dict(c.workload.sizes),
        "chip": c.hardware.name,
        "unit of time": "1 us is 1 cycle",
        "cycles": c.cycles,
    }
    return _text(head, events)


def _text(head: dict[str, Json], events: Iterable[Json]) -> str:
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in events)
    return (
        f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n{lines}\n]}}\n'
    )


def _named(process: int, name: str, threads: list[str]) -> Iterator[Json]:
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
    order: Json = {"sort_index": process}
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": order}
    for number, thread in enumerate(threads, 1):
        of = {"ph": "M", "pid": process, "tid": number}
        yield {**of, "name": "thread_name", "args": {"name": thread}}
        yield {**of, "name": "thread_sort_index", "args": {"sort_index": number}}


def _units(recording: Recording) -> Iterator[Json]:
    timing = recording.timing
    threads = [u.unit for u in timing.units]
    yield from _named(UNITS, "units", threads)
    ends = dict.fromkeys(threads, 0)
    for call in recording.calls:
        ends[call.unit] = max(ends[call.unit], call.end)
        yield _complete(
            call.name,
            "call",
            UNITS,
            threads.index(call.unit) + 1,
            call.start,
            call.end,
            _args(call),
        )
    if recording.complete:
        return
    left = timing.operations - len(recording.calls)
    for number, unit in enumerate(timing.units, 1):
        args: dict[str, Json] = {
            "calls of all units not shown": left,
            "busy cycles not shown": unit.busy - recording.busy[unit.unit],
        }
        yield _complete(
            "not shown one by one", "rest", UNITS, number, ends[unit.unit], timing.cycles, args
        )


def token_flows(recording: Recording) -> Iterator[Json]:
    """An arrow for each token or flag: from the end of the call that gives it to the start of the
    one that waits for it. Queues are first in, first out."""
    threads = {u.unit: number for number, u in enumerate(recording.timing.units, 1)}
    given: dict[int, deque[RecordedCall]] = {}
    number = 0
    for call in sorted(recording.calls, key=lambda c: c.number):
        for queue in call.pops:
            if not given.get(queue):
                continue  # Given by a call past those that are recorded one by one.
            giver = given[queue].popleft()
            number += 1
            name = f"{giver.unit} to {call.unit}"
            common: dict[str, Json] = {"name": name, "cat": "token", "id": number, "pid": UNITS}
            # An arrow is tied to the slice around its time: the giver's last cycle.
            tied = max(giver.start, giver.end - 1)
            yield {**common, "ph": "s", "tid": threads[giver.unit], "ts": tied, "args": {}}
            yield {
                **common, "ph": "f", "bp": "e", "tid": threads[call.unit], "ts": call.start,
                "args": {},
            }  # fmt: skip
        for queue in call.pushes:
            given.setdefault(queue, deque()).append(call)


def bus_counters(recording: Recording, program: Program, hardware: HardwareSpec) -> Iterator[Json]:
    """Bytes per cycle that cross the bus in each direction, each call's spread over its cycles."""
    sites = {call.site: call for call in calls(program.body)}
    spans: list[tuple[int, int, int, int]] = []
    for call in recording.calls:
        site = sites.get(call.site)
        if site is not None and site.intrinsic == call.name:
            moved = off_chip_bytes(site, call.extents, program, hardware)
            read, written = (sum(m.bytes for m in moved if m.way == w) for w in ("load", "store"))
            if read or written:
                spans.append((call.start, call.end, read, written))
    for time, (read, written) in steps(spans):
        args: dict[str, Json] = {"read": read, "written": written}
        yield _counter(UNITS, "off-chip bytes per cycle", time, args)


def steps(
    spans: Iterable[tuple[int, int, int, int]],
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Rates over time, where they change, of spans (start, end, and two amounts)."""
    changes: dict[int, tuple[Fraction, Fraction]] = {}
    for start, end, first, second in spans:
        length = max(1, end - start)
        for time, sign in ((start, 1), (start + length, -1)):
            one, two = changes.get(time, (Fraction(0), Fraction(0)))
            more = Fraction(sign * first, length), Fraction(sign * second, length)
            changes[time] = (one + more[0], two + more[1])
    one = two = Fraction(0)
    for time in sorted(changes):
        more = changes[time]
        one, two = one + more[0], two + more[1]
        if any(more):
            yield time, (round(float(one), 3), round(float(two), 3))


def occupancy_counters(uses: Iterable[SlotUse]) -> Iterator[Json]:
    """Entries of each memory that hold what is still used."""
    changes: dict[str, Counter[int]] = {}
    for use in uses:
        mine = changes.setdefault(use.memory, Counter())
        mine[use.start] += use.entries
        mine[use.end] -= use.entries
    for memory, mine in changes.items():
        held = 0
        for time in sorted(mine):
            held += mine[time]
            yield _counter(MEMORIES, f"{memory} entries in use", time, {"entries": held})


def _counter(process: int, name: str, time: int, args: dict[str, Json]) -> Json:
    return {
        "name": name, "cat": "counter", "ph": "C", "pid": process, "tid": 0, "ts": time,
        "args": args,
    }  # fmt: skip


def _args(call: RecordedCall) -> dict[str, Json]:
    args: dict[str, Json] = {"cycles": call.cycles}
    if call.site >= 0:
        args["site"] = call.site
    if call.waited:
        args |= {"waited for a port": call.waited, "of": call.waited_for}
    if call.extents:
        args["extents"] = list(call.extents)
    loops: dict[str, Json] = dict(call.loops)
    operands: dict[str, Json] = {t.operand: str(t) for t in call.touched}
    return args | {k: v for k, v in (("loops", loops), ("operands", operands)) if v}


def _memories(uses: tuple[SlotUse, ...]) -> Iterator[Json]:
    threads = list(dict.fromkeys(_thread(u) for u in uses))
    if not threads:
        return
    yield from _named(MEMORIES, "memories", threads)
    for use in uses:
        args: dict[str, Json] = {
            "tensor": use.tensor,
            "entries": f"{use.base}..{use.base + use.entries - 1}",
            "calls": use.calls,
        }
        yield _complete(
            use.buffer, "slot", MEMORIES, threads.index(_thread(use)) + 1, use.start, use.end, args
        )


def _banks(
    uses: tuple[BankUse, ...], recording: Recording, hardware: HardwareSpec
) -> Iterator[Json]:
    """A thread per bank with the calls that hold it, and one with those that wait for it."""
    threads = [
        m.bank_name(bank) + suffix
        for m in hardware.of_kind("scratchpad")
        if m.banks is not None
        for bank in range(m.banks.count)
        for suffix in ("", WAITS)
    ]
    if not threads:
        return
    yield from _named(BANKS, "banks", threads)
    for use in uses:
        call = use.call
        args: dict[str, Json] = {"unit": call.unit, "operands": list(use.operands)}
        thread = threads.index(use.row) + 1
        yield _complete(call.name, "bank", BANKS, thread, call.start, call.end, args)
    for call in recording.calls:
        if call.waited:
            thread = threads.index(call.waited_for + WAITS) + 1
            begin = call.start - call.waited
            waits: dict[str, Json] = {"unit": call.unit}
            yield _complete(call.name, "wait", BANKS, thread, begin, call.start, waits)


def _thread(use: SlotUse) -> str:
    return f"{use.memory}: {use.buffer} slot {use.slot}"


def _complete(
    name: str, kind: str, process: int, thread: int, start: int, end: int, args: dict[str, Json]
) -> Json:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": args,
    }
