"""The trace against the format's rules and the timing model."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from hwgen.pipeline import Compilation, compile_kernel
from hwgen.report.trace_events import MEMORIES, UNITS, trace
from tests.samples import chip, gemm_requant_workload, gemm_workload

Event = dict[str, Any]


@cache
def compiled(size: int) -> Compilation:
    if size < 100:
        return compile_kernel(gemm_requant_workload(32, size, size), chip())
    return compile_kernel(gemm_workload(size, size, size), chip())


def events(text: str) -> list[Event]:
    found: list[Event] = json.loads(text)["traceEvents"]
    return found


@pytest.mark.parametrize(("size", "traced"), [(64, 10_000), (256, 30)])
def test_events_have_the_fields_of_the_format(size: int, traced: int) -> None:
    found = events(trace(compiled(size), traced))
    assert {e["ph"] for e in found} == {"M", "X"}
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    for event in found:
        assert {"name", "ph", "pid", "tid", "args"} <= set(event)
        if event["ph"] == "X":
            assert isinstance(event["ts"], int)
            assert isinstance(event["dur"], int)
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["ts"] + event["dur"] <= compiled(size).cycles
            assert (event["pid"], event["tid"]) in named


@pytest.mark.parametrize(("size", "traced"), [(64, 10_000), (256, 10_000), (256, 30)])
def test_events_of_a_thread_do_not_overlap(size: int, traced: int) -> None:
    ends: dict[tuple[int, int], int] = {}
    spans = [e for e in events(trace(compiled(size), traced)) if e["ph"] == "X"]
    for event in sorted(spans, key=lambda e: (e["pid"], e["tid"], e["ts"], e["dur"])):
        thread = event["pid"], event["tid"]
        assert ends.get(thread, 0) <= event["ts"]
        ends[thread] = event["ts"] + event["dur"]


def test_units_are_busy_for_as_long_as_the_model_says() -> None:
    c = compiled(64)
    found = events(trace(c))
    names = {
        e["tid"]: e["args"]["name"]
        for e in found
        if e["name"] == "thread_name" and e["pid"] == UNITS
    }
    busy: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in found:
        if event["ph"] == "X" and event["pid"] == UNITS:
            busy[names[event["tid"]]] += event["dur"]
            calls[event["name"]] += 1
    assert busy == Counter({u.unit: u.busy for u in c.kernel.timing.units})
    assert calls == Counter(dict(c.kernel.timing.calls))


def test_slots_of_every_buffer_are_threads_of_the_memories() -> None:
    c = compiled(64)
    threads = {
        e["args"]["name"]
        for e in events(trace(c))
        if e["name"] == "thread_name" and e["pid"] == MEMORIES
    }
    assert threads == {
        f"{b.memory}: {b.name} slot {s}" for b in c.program.buffers for s in range(b.slots)
    }


def test_a_long_kernel_is_cut_and_says_so() -> None:
    c = compiled(256)
    text = trace(c, 30)
    other = json.loads(text)["otherData"]
    assert other["calls"] == c.kernel.timing.operations
    assert other["calls one by one"] == 30
    found = [e for e in events(text) if e["ph"] == "X" and e["pid"] == UNITS]
    rest = [e for e in found if e["cat"] == "rest"]
    assert len(found) - len(rest) == 30
    busy = sum(e["args"]["busy cycles not shown"] for e in rest)
    shown = sum(e["dur"] for e in found if e["cat"] == "call")
    assert busy + shown == sum(u.busy for u in c.kernel.timing.units)


def test_the_same_kernel_gives_the_same_bytes() -> None:
    again = compile_kernel(gemm_requant_workload(32, 64, 64), chip())
    assert trace(again) == trace(compiled(64))
