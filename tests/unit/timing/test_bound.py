"""The lower bound, against direct counts, and never above the simulated cycles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Push
from hwgen.codegen.program import Program
from hwgen.model import touched as touching
from hwgen.model.bound import lower_bound, write_bound
from hwgen.model.bus import split_rows, write_cycles
from hwgen.model.columns import count_calls, count_tokens
from hwgen.model.timing import estimate_cycles
from hwgen.model.touched import Access, nested_calls, touched_entries
from hwgen.model.trace import CallEvent, walk
from tests.samples import chip, load_bound_gemm, tiled_gemm_requant
from tests.unit.timing.nests import gemm_nest


def test_resources_of_a_gemm() -> None:
    bound = dict(lower_bound(tiled_gemm_requant(256, 256, 256), chip()).per_resource)
    matrix, sums = 256 * 16 * 16, 256 * 16
    # Reset and three immediate operations, one of two operands; the bias is 16 entries.
    assert bound["unit compute"] == matrix + 4 * sums + 2 * sums + 16 * 8
    assert bound["unit load"] == 2 * 256 * 256 // 8
    assert bound["bus axi read"] == 2 * 256 * 256 // 8 + 16 * 8
    assert bound["unit store"] == sums // 8 * (3 * 8 + 21)


def test_the_largest_resource_is_named() -> None:
    bound = lower_bound(load_bound_gemm(), chip())
    assert (bound.resource, bound.cycles) == ("bus axi read", (256 * 256 + 256) // 8)


def test_tails_and_partial_bursts() -> None:
    bound = dict(lower_bound(gemm_nest((3, 1, 1), (4, 1, 1), tail_rows=1), chip()).per_resource)
    # Nine rows of one entry: the image itself is dense, so the longest bursts hold eight.
    assert bound["unit store"] == (3 * 8 + 21) + (3 * 1 + 21)
    assert bound["unit load"] == 9 * 2 + 32


def touched(program: Program, name: str, span: int = 1) -> tuple[int, int]:
    """Entries of an image touched, `span` at once: by the closed form, and by walking every
    call."""
    accesses = [
        Access(n, o, span)
        for n in nested_calls(program.body)
        for o in n.call.operands
        if o.buffer == name
    ]
    entries: set[int] = set()
    for event in walk(program):
        if not isinstance(event, CallEvent):
            continue
        for operand, address, strides in zip(
            event.call.operands, event.addresses, event.strides, strict=True
        ):
            if operand.buffer == name:
                found = [address]
                for extent, stride in zip(event.extents, strides, strict=True):
                    found = [a + i * stride for a in found for i in range(extent)]
                entries.update(a + i for a in found for i in range(span))
    return touched_entries(accesses, program.image[name].entries + span - 1), len(entries)


@settings(max_examples=20, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5)),
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 3),
)
def test_counts_agree_with_a_walk(
    tiles: tuple[int, int, int], tile: tuple[int, int, int], tail: int
) -> None:
    program = gemm_nest(tiles, tile, tail_rows=tail % tile[0])
    for name in ("a", "b", "bias", "c"):
        closed, walked = touched(program, name)
        assert closed == walked
        for span in (2, 3, 7):
            closed, walked = touched(program, name, span)
            assert closed == walked, span
    events = list(walk(program))
    assert count_calls(program, chip()) == sum(isinstance(e, CallEvent) for e in events)
    pushes, pops = count_tokens(program, chip())[("load", "compute")]
    assert pushes == pops == sum(e == Push("load", "compute") for e in events)
    assert lower_bound(program, chip()).cycles <= simulate_timing(program, chip()).cycles


def test_conditional_accesses_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tiled_gemm_requant(256, 256, 256)
    for name in ("a_image", "b_image", "bias_image", "c_image"):
        closed, walked = touched(program, name)
        assert closed == walked
    monkeypatch.setattr(touching, "POINTS", 1)
    for name in ("a_image", "b_image", "bias_image", "c_image"):
        closed, walked = touched(program, name)
        assert closed <= walked


def test_cost_does_not_grow_with_the_problem() -> None:
    program = gemm_nest((512, 512, 512), (16, 4, 4), tail_rows=3)
    bound = lower_bound(program, chip())
    per_tile = 16 * 4 * 4 * 512 + 16 * 4
    assert dict(bound.per_resource)["unit compute"] >= 512 * 512 * per_tile
    assert bound.cycles <= estimate_cycles(program, chip()).cycles


def test_a_chip_that_writes_several_bursts_at_once() -> None:
    chip_with = replace(
        chip(),
        buses=tuple(
            replace(b, write=replace(b.write, in_flight_bursts=4, cycles_per_entry=0))
            for b in chip().buses
        ),
    )
    bound = dict(lower_bound(tiled_gemm_requant(256, 256, 256), chip_with).per_resource)
    assert bound["unit store"] == 256 * 256 // 8


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from((1, 4, 8, 32)),
    st.sampled_from((1, 4, 16)),
    st.sampled_from((8, 32, 48, 4096)),
    st.sampled_from((1, 2, 16)),
    st.sampled_from((0, 3)),
    st.sampled_from((1, 4, 16, 24, 64)),
    st.integers(1, 40),
)
def test_no_write_is_faster_than_its_bound(
    beat: int, beats: int, boundary: int, flight: int, per_entry: int, size: int, entries: int
) -> None:
    write = replace(
        chip().buses[0].write,
        latency_cycles=10, in_flight_bursts=flight, cycles_per_entry=per_entry,
    )  # fmt: skip
    bus = replace(
        chip().buses[0],
        beat_bytes=beat, burst_beats=beats, burst_boundary_bytes=boundary, write=write,
    )  # fmt: skip
    dense = split_rows(bus, 0, entries * size, (), (), size)
    rows = split_rows(bus, 0, size, (entries,), (size,), size)
    bound = write_bound(bus, size, entries)
    assert bound <= min(write_cycles(write, dense), write_cycles(write, rows))
    whole = boundary % beat == 0 and boundary % min(beat * beats, boundary) == 0
    if whole and not per_entry and flight == 1:
        assert bound == write_cycles(write, dense)
