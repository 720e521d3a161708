"""A kernel's calls in the Chrome trace event format, which Perfetto and chrome://tracing open.

One microsecond of the viewer is one cycle. Units are the threads of one process; the slots of the
on-chip buffers are those of another. `trace(compile_kernel(workload, hardware))` is its text.

Source: "Trace Event Format", the JSON object form with metadata (M) and complete (X) events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hwgen.report.banks import BankUse, bank_uses
from hwgen.report.figures import Json
from hwgen.report.recording import RecordedCall, Recording, SlotUse, record, slot_uses

if TYPE_CHECKING:
    from hwgen.compiled import Compiled
    from hwgen.spec.hardware import HardwareSpec

TRACED_CALLS = 10_000
"""Calls that a trace has one by one at most; the rest is one event per unit."""

UNITS, MEMORIES, BANKS = 1, 2, 3
WAITS = ": waits for it"


def trace(compilation: Compiled, traced: int = TRACED_CALLS) -> str:
    """The JSON text of a kernel's trace; at most `traced` calls are in it one by one.

    Raises:
        HwgenError: as `simulate_timing`.
    """
    c = compilation
    recording = record(c.program, c.hardware, c.timing, traced)
    uses = slot_uses(recording, c.program)
    held = bank_uses(recording, c.program, c.hardware)
    events = [*_units(recording), *_memories(uses), *_banks(held, recording, c.hardware)]
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
        for m in hardware.memories
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
