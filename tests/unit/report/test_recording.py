"""Recorded calls against the full simulation, and slots against what calls do to them."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from benchmarks.whole import simulate_timing
from hwgen.model.trace import calls as executed_calls
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.report.recording import Recording, record, slot_uses
from hwgen.spec.load import load_hardware, load_workload
from tests.samples import ROOT, chip, gemm_requant_workload, gemm_workload
from tests.sampling import QUICK


@cache
def compiled(m: int, n: int, k: int, *, requant: bool = False) -> Kernel:
    make = gemm_requant_workload if requant else gemm_workload
    return compile_kernel(make(m, n, k), chip(), options=QUICK)


def recorded(c: Kernel, limit: int) -> Recording:
    return record(c.program, c.hardware, c.timing, limit)


def test_a_complete_recording_is_the_full_simulation() -> None:
    c = compiled(32, 64, 64, requant=True)
    recording = recorded(c, 1 << 20)
    full = simulate_timing(c.program, c.hardware, timeline=True)
    assert full.timeline is not None
    assert recording.complete
    assert len(recording.calls) == full.operations == c.timing.operations
    key = Counter((e.unit, e.name, e.site, e.start, e.end) for e in full.timeline)
    assert Counter((x.unit, x.name, x.site, x.start, x.end) for x in recording.calls) == key
    assert {u.unit: u.busy for u in full.units} == dict(recording.busy)


def test_operands_are_those_that_the_program_executes() -> None:
    c = compiled(32, 64, 64, requant=True)
    in_order = sorted((x for x in recorded(c, 1 << 20).calls if x.touched), key=lambda x: x.number)
    executed = list(executed_calls(c.program))
    assert len(in_order) == len(executed)
    for found, event in zip(in_order, executed, strict=True):
        assert (found.site, found.extents) == (event.call.site, event.extents)
        assert dict(found.loops) == dict(zip(event.site.variables, event.values, strict=True))
        assert [t.first for t in found.touched] == list(event.addresses)
        for touched, steps, first in zip(
            found.touched, event.strides, event.addresses, strict=True
        ):
            reach = sum((e - 1) * s for e, s in zip(event.extents, steps, strict=True))
            assert touched.last == first + reach


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
def test_a_cut_recording_is_the_start_of_the_full_simulation(limit: int) -> None:
    # Long enough that the stream is cut: more calls than the limit and all queues together.
    c = compiled(1024, 1024, 1024)
    recording = recorded(c, limit)
    assert not recording.complete
    assert len(recording.calls) == limit
    assert {x.number for x in recording.calls} == set(range(limit))
    longer = {x.number: x for x in recorded(c, 2 * limit + 500).calls}
    assert all(longer[x.number] == x for x in recording.calls)


def test_a_recording_costs_the_same_for_every_size() -> None:
    c = compiled(8192, 8192, 8192)
    assert c.timing.operations > 100_000
    assert len(recorded(c, 100).calls) == 100


def test_slots_are_used_in_turn_and_never_twice_at_once() -> None:
    c = compiled(256, 256, 256)
    uses = slot_uses(recorded(c, 1 << 20), c.program)
    assert {u.buffer for u in uses} == {b.name for b in c.program.buffers}
    doubled = next(b for b in c.program.buffers if b.slots == 2)
    assert {u.slot for u in uses if u.buffer == doubled.name} == {0, 1}
    last: dict[tuple[str, int], int] = {}
    for use in uses:
        buffer = c.program.buffer[use.buffer]
        assert use.base == buffer.base + use.slot * buffer.slot_entries
        assert last.get((use.buffer, use.slot), 0) <= use.start < use.end
        last[use.buffer, use.slot] = use.end


def test_a_slot_is_in_use_whenever_a_call_touches_it() -> None:
    c = compiled(32, 64, 64, requant=True)
    recording = recorded(c, 1 << 20)
    uses = slot_uses(recording, c.program)
    for call in recording.calls:
        for touched in call.touched:
            if touched.buffer in c.program.buffer:
                assert any(
                    u.buffer == touched.buffer and u.start <= call.start < u.end for u in uses
                ), str(touched)


def test_a_chip_without_queues_fetch_or_micro_kernels_is_recorded_too() -> None:
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    c = compile_kernel(
        load_workload(ROOT / "workloads" / "linear_relu.yaml"), hardware, options=QUICK
    )
    recording = recorded(c, 1 << 20)
    assert recording.complete
    assert {u.unit: u.busy for u in c.timing.units} == {
        u.name: recording.busy[u.name] for u in hardware.units
    }
    assert {u.buffer for u in slot_uses(recording, c.program)} == set(c.program.buffer)
