"""The trace against the format's rules and the timing model."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.report.text import measure
from hwgen.report.trace_events import MEMORIES, UNITS, steps, trace
from hwgen.spec.load import load_hardware, load_workload
from tests.samples import chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK

Event = dict[str, Any]


@cache
def compiled(size: int) -> Kernel:
    if size < 100:
        return compile_kernel(gemm_requant_workload(32, size, size), chip(), options=QUICK)
    return compile_kernel(gemm_workload(size, size, size), chip(), options=QUICK)


def events(text: str) -> list[Event]:
    found: list[Event] = json.loads(text)["traceEvents"]
    return found


@pytest.mark.parametrize(("size", "traced"), [(64, 10_000), (256, 30)])
def test_events_have_the_fields_of_the_format(size: int, traced: int) -> None:
    found = events(trace(compiled(size), traced))
    assert {e["ph"] for e in found} == {"M", "X", "s", "f", "C"}
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
    assert busy == Counter({u.unit: u.busy for u in c.timing.units})
    assert calls == Counter(dict(c.timing.calls))


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
    assert other["calls"] == c.timing.operations
    assert other["calls one by one"] == 30
    found = [e for e in events(text) if e["ph"] == "X" and e["pid"] == UNITS]
    rest = [e for e in found if e["cat"] == "rest"]
    assert len(found) - len(rest) == 30
    busy = sum(e["args"]["busy cycles not shown"] for e in rest)
    shown = sum(e["dur"] for e in found if e["cat"] == "call")
    assert busy + shown == sum(u.busy for u in c.timing.units)


def test_the_same_kernel_gives_the_same_bytes() -> None:
    again = compile_kernel(gemm_requant_workload(32, 64, 64), chip(), options=QUICK)
    assert trace(again) == trace(compiled(64))


def test_an_arrow_leads_from_a_call_that_has_ended_to_the_one_that_waits() -> None:
    c = compiled(64)
    found = events(trace(c))
    begins = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    pushes = str(c.program).count("push ")
    assert len(begins) >= pushes > 0
    slices = [e for e in found if e["ph"] == "X" and e["pid"] == UNITS]
    for number, begin in begins.items():
        end = ends[number]
        assert begin["ts"] <= end["ts"]
        assert begin["tid"] != end["tid"]
        giving = [
            s for s in slices
            if s["tid"] == begin["tid"] and s["ts"] <= begin["ts"] <= s["ts"] + s["dur"]
        ]  # fmt: skip
        waiting = [s for s in slices if s["tid"] == end["tid"] and s["ts"] == end["ts"]]
        assert giving
        assert waiting
        assert min(s["ts"] + s["dur"] for s in giving) <= end["ts"]


def test_a_token_that_is_given_past_the_end_has_no_arrow() -> None:
    found = events(trace(compiled(256), 30))
    begins = [e["id"] for e in found if e["ph"] == "s"]
    assert begins
    assert sorted(begins) == sorted(e["id"] for e in found if e["ph"] == "f")


def integral(found: list[Event], name: str, key: str, end: int) -> float:
    """A counter's values, each times the cycles for which it holds."""
    samples = [(e["ts"], e["args"][key]) for e in found if e["ph"] == "C" and e["name"] == name]
    assert samples == sorted(samples, key=lambda s: s[0])
    times = [*(t for t, _ in samples), end]
    return sum(v * (times[n + 1] - t) for n, (t, v) in enumerate(samples))


def test_the_bus_counter_adds_up_to_the_off_chip_bytes() -> None:
    c = compiled(64)
    found = events(trace(c))
    traffic = measure(c).traffic
    for key, moved in (
        ("read", sum(t.loaded for t in traffic)),
        ("written", sum(t.stored for t in traffic)),
    ):
        assert integral(found, "off-chip bytes per cycle", key, c.cycles) == pytest.approx(
            moved, rel=1e-3
        )


def test_the_memories_never_hold_more_than_they_have_and_end_empty() -> None:
    c = compiled(64)
    found = [e for e in events(trace(c)) if e["ph"] == "C" and e["pid"] == MEMORIES]
    assert {e["name"] for e in found} == {f"{b.memory} entries in use" for b in c.program.buffers}
    for memory in {b.memory for b in c.program.buffers}:
        mine = [e for e in found if e["name"] == f"{memory} entries in use"]
        held = [e["args"]["entries"] for e in mine]
        most = max(b.end for b in c.program.buffers if b.memory == memory)
        assert min(held) >= 0
        assert 0 < max(held) <= most
        assert max(mine, key=lambda e: e["ts"])["args"]["entries"] == 0


def test_rates_add_where_spans_overlap() -> None:
    assert list(steps([(0, 10, 20, 0), (5, 10, 5, 5), (10, 10, 3, 0)])) == [
        (0, (2.0, 0.0)), (5, (3.0, 1.0)), (10, (3.0, 0.0)), (11, (0.0, 0.0)),
    ]  # fmt: skip


def test_a_processor_has_an_event_for_each_block_one_after_another() -> None:
    root = Path(__file__).resolve().parents[3]
    c = compile_nest(
        load_workload(root / "workloads" / "gemm_requant.yaml", {"M": 64}),
        load_hardware(root / "hw_specs" / "cpu_generic.yaml"),
    )
    text = trace(c)
    assert text == trace(c)
    blocks = [e for e in events(text) if e["ph"] == "X"]
    assert [b["name"] for b in blocks] == [b.block for b in c.cost.blocks]
    for one, other in pairwise(blocks):
        assert one["ts"] + one["dur"] == other["ts"]
    assert blocks[-1]["ts"] + blocks[-1]["dur"] == pytest.approx(c.cycles, abs=1)
