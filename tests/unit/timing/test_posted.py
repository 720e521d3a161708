"""Posted writes, counted by hand: W = 20, bursts of 128 bytes, one in flight, 3 cycles an entry.

A full burst is 16 beats and 24 cycles on the channel; its response comes 21 cycles later.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Loop, Node, Pop, Push
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound, posted_bound, write_bound
from hwgen.model.bus import Bursts, split_rows, write_cycles
from hwgen.model.costs import CycleCosts
from hwgen.model.machine import Machine
from hwgen.model.posted import idle, post, posted_cycles
from hwgen.model.stream import Stream
from hwgen.model.timing_result import TimelineEntry, TimingResult
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.search.estimate import Wanted, estimate
from hwgen.polyhedral.search.estimate_shape import Cache, Shape
from hwgen.polyhedral.search.traffic import transfer_cycles
from hwgen.spec.expression import Const, Name, multiply
from hwgen.spec.hardware import Channel, HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_hardware
from hwgen.spec.source import read_document
from tests.samples import ROOT, chip
from tests.unit.timing.nests import gemm_nest, image, operand, sizes

DATA, RESPONSE, HANDED = 24, 21, 16


@cache
def posting(bursts: int, base: HardwareSpec | None = None) -> HardwareSpec:
    """A chip whose buffer holds so many bursts; the first chip where none is given."""
    given = base or chip()
    buses = tuple(replace(b, write=replace(b.write, posted_bursts=bursts)) for b in given.buses)
    return replace(given, buses=buses)


def store(entries: int) -> Call:
    return Call(
        3, "store_out", "store",
        (operand("dst", "c", 0, 0, 1), operand("src", "y", 0, 0, 1)), sizes(1, entries),
    )  # fmt: skip


def load(source: str) -> Call:
    return Call(
        1, "load_inp", "load",
        (operand("dst", "x", 0, 1, 1), operand("src", source, 0, 0, 1)), sizes(1, 1),
    )  # fmt: skip


def program(*body: Node) -> Program:
    images: tuple[Image, ...] = tuple(image(n, "int8", (4096,), (1, 16)) for n in "ac")
    return Program("p", "vta", "w", ("a",), ("c",), images, (), (), body)


def run(body: tuple[Node, ...], bursts: int) -> tuple[TimingResult, dict[str, list[TimelineEntry]]]:
    result = simulate_timing(program(*body), posting(bursts), timeline=True)
    named: dict[str, list[TimelineEntry]] = {}
    for entry in result.timeline or ():
        named.setdefault(entry.name, []).append(entry)
    return result, named


def lengths(entries: list[TimelineEntry]) -> list[int]:
    return [e.end - e.start for e in entries]


def test_a_store_ends_when_the_buffer_has_it() -> None:
    _, waiting = run((store(24),), 0)
    assert lengths(waiting["store_out"]) == [1 + 3 * (DATA + RESPONSE)]
    _, posted = run((store(24),), 3)
    assert lengths(posted["store_out"]) == [1 + 3 * HANDED]
    # A buffer of one has room for the last burst when the second is on its way.
    _, short = run((store(24),), 1)
    assert lengths(short["store_out"]) == [1 + (DATA + RESPONSE) + DATA + HANDED]


def test_the_next_store_waits_for_the_channel() -> None:
    _, named = run((store(8), store(8), store(8)), 1)
    # The first response is there at 45, the second burst on its way at 45 + 24 = 69, the third
    # can enter then. Stores take one cycle more, after the transfer.
    assert lengths(named["store_out"]) == [16 + 1, 24 - 17 + 16 + 1, 69 - 41 + 16 + 1]
    assert [e.start - named["store_out"][0].start for e in named["store_out"]] == [0, 17, 41]


def test_a_read_of_what_was_written_waits_until_it_is() -> None:
    tokens = (Push("store", "compute"), Pop("store", "compute"), Push("compute", "load"),
              Pop("compute", "load"))  # fmt: skip
    _, other = run((store(8), *tokens, load("a")), 1)
    _, same = run((store(8), *tokens, load("c")), 1)
    (stored,) = same["store_out"]
    assert same["load_inp"][0].start == stored.start + DATA + RESPONSE
    assert other["load_inp"][0].start < same["load_inp"][0].start
    (first,) = other["store_out"]
    assert other["load_inp"][0].start >= first.end


def test_the_end_waits_for_everything_that_was_posted() -> None:
    result, named = run((store(24),), 3)
    (stored,), (finish,) = named["store_out"], named["finish"]
    assert finish.start == stored.start + 3 * (DATA + RESPONSE)
    assert result.cycles == finish.end + 2
    # A chip without a completion: the last response is the end.
    bare = replace(posting(3), completion=None)
    at = simulate_timing(program(store(24)), bare, timeline=True)
    assert at.timeline is not None
    (only,) = at.timeline
    assert at.cycles == only.start + 3 * (DATA + RESPONSE) > only.end


shapes = st.lists(st.integers(1, 16), min_size=1, max_size=12)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(shapes, st.integers(0, 60)), min_size=1, max_size=4),
    st.integers(0, 30), st.integers(1, 4), st.integers(0, 3), st.integers(1, 40), st.integers(1, 6),
)  # fmt: skip
def test_the_buffer_never_delays_what_is_written(
    accesses: list[tuple[list[int], int]],
    latency: int, flight: int, per_entry: int, spacing: int, depth: int,
) -> None:  # fmt: skip
    """Against a list of all bursts: alone it takes no longer than without a buffer."""
    channel = Channel(latency, flight, per_entry, spacing, depth)
    state, clock = idle(channel), 0
    sent: list[int] = []
    answered: list[int] = []
    asked = -(1 << 30)
    for beats, gap in accesses:
        bursts = Bursts(tuple(beats), tuple(beats))
        whole = write_cycles(replace(channel, posted_bursts=0), bursts)
        handed, alone = post(channel, bursts, idle(channel))
        assert handed <= alone.answered[-1] == whole
        assert handed == posted_cycles(channel, bursts)
        clock += gap
        state = state.later(-gap)
        entered = clock
        for n in beats:
            data = per_entry * n if per_entry else n
            begin = max(entered, sent[-depth] if len(sent) >= depth else 0)
            free = answered[-flight] if len(answered) >= flight else 0
            request = max(begin, asked + spacing, sent[-1] if sent else 0, free)
            asked = request
            sent.append(request + data)
            answered.append(request + data + latency)
            entered = begin + min(n, data)
        handed, state = post(channel, bursts, state)
        assert (clock + handed, clock + state.answered[-1]) == (entered, answered[-1])
        clock += handed
        state = state.later(-handed)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12)),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6)),
    st.integers(1, 3), st.sampled_from((1, 2, 8, 64)),
)  # fmt: skip
def test_skipping_repetitions_changes_nothing(
    tiles: tuple[int, int, int], tile: tuple[int, int, int], slots: int, bursts: int
) -> None:
    nest, hardware = gemm_nest(tiles, tile, slots=slots), posting(bursts)
    machine = Machine(hardware)
    stream = Stream(nest, hardware, CycleCosts(nest, hardware), machine, skip=machine)
    stream.run()
    skipped, full = machine.result(stream), simulate_timing(nest, hardware)
    assert (skipped.cycles, skipped.units) == (full.cycles, full.units)
    assert lower_bound(nest, hardware).cycles <= full.cycles
    assert full.cycles <= simulate_timing(nest, chip()).cycles


def test_a_loop_of_stores_is_skipped_at_the_channels_rate() -> None:
    at = multiply(Name("i"), Const(8))
    call = Call(
        3, "store_out", "store",
        (operand("dst", "c", at, 0, 1), operand("src", "y", 0, 0, 1)), sizes(1, 8),
    )  # fmt: skip
    hardware = posting(4)
    # The tensor has 4096 entries: so many bursts it has at least.
    nest = program(Loop("i", Const(0), Const(3000), (call,)))
    machine = Machine(hardware)
    stream = Stream(nest, hardware, CycleCosts(nest, hardware), machine, skip=machine)
    stream.run()
    result = machine.result(stream)
    assert stream.emitted < 1500
    assert result.cycles == simulate_timing(nest, hardware).cycles
    assert lower_bound(nest, hardware).cycles == 512 * (DATA + RESPONSE)
    assert dict(lower_bound(nest, hardware).per_resource)["unit store"] == 512 * HANDED


@settings(deadline=None, derandomize=True)
@given(
    st.sampled_from((1, 4, 8)), st.sampled_from((1, 4, 16)), st.sampled_from((8, 32, 4096)),
    st.sampled_from((0, 3)), st.sampled_from((1, 4, 24)), st.integers(1, 40), st.integers(1, 4),
)  # fmt: skip
def test_nothing_is_handed_over_faster_than_the_bound_says(
    beat: int, beats: int, boundary: int, per_entry: int, size: int, entries: int, depth: int
) -> None:
    write = replace(chip().buses[0].write, cycles_per_entry=per_entry, posted_bursts=depth)
    bus = replace(
        chip().buses[0],
        beat_bytes=beat, burst_beats=beats, burst_boundary_bytes=boundary, write=write,
    )  # fmt: skip
    rows = split_rows(bus, 0, size, (entries,), (size,), size)
    handed, after = post(write, rows, idle(write))
    assert posted_bound(bus, size, entries) <= handed
    assert write_bound(bus, size, entries) <= after.answered[-1]


@cache
def waiting_gemm() -> Kernel:
    """On the chip as it is, whose responses are late."""
    slow = load_hardware(ROOT / "hw_specs" / "vta.yaml", {"WRITE_LATENCY": 40})
    path = ROOT / "workloads" / "gemm_requant.yaml"
    return compile_kernel(load_workload(path, {"M": 32, "N": 64, "K": 256}), slow)


def test_the_estimate_of_a_single_slot() -> None:
    """Each tile of sums waits until the last has left its slot, not until it is written."""
    made = waiting_gemm()
    slow = made.hardware
    match, tiling = made.match, made.tiling
    store = next(o for o in match.selection.operations if o.kind == "store")
    # Eight tiles.
    longest = max(tiling.order, key=lambda n: match.count[n])
    tiles = match.count | {longest: match.count[longest] // 8}
    grid = {n: np.full(1, t, np.int64) for n, t in tiles.items()}
    loops = (*tiling.order, *match.selection.reduction)

    # All that is loaded is there before the first tile.
    loaded = {o.written for o in match.selection.operations if o.kind == "load"}
    placement = {n: 0 if n in loaded else len(tiling.order) for n in tiling.depth}

    def shape(hardware: HardwareSpec) -> Shape:
        return Shape(hardware, match, grid, loops, len(tiling.order), placement, Cache(), 1)

    waiting, posted = shape(slow), shape(posting(512, slow))
    storage = next(s for s in store.storages if s in tiling.depth)
    count = int(waiting.counts(len(tiling.order))[0])
    before, after = (
        transfer_cycles(x.hardware, store, match, x.extents(x.placement[storage]), storage)
        for x in (waiting, posted)
    )
    assert (before.cycles == before.written).all()
    assert (before.written == after.written).all()
    saved = (count - 1) * (after.written - after.cycles)
    assert count > 1
    assert saved > 0
    cost, less = (estimate(x, Wanted(1)).cycles for x in (waiting, posted))
    assert cost - less == pytest.approx(saved)


def test_the_compiled_kernel_is_faster_where_it_waited() -> None:
    waiting = waiting_gemm()
    posted = compile_kernel(waiting.workload, posting(512, waiting.hardware))
    assert posted.bound.cycles <= posted.cycles < waiting.cycles


def test_the_word_in_a_spec() -> None:
    spec = cast("dict[str, Any]", read_document(ROOT / "hw_specs" / "vta.yaml").data)
    spec["buses"]["axi"]["write"]["posted_bursts"] = "2 * 4"
    assert parse_hardware(spec).buses[0].write.posted_bursts == 8
    spec["intrinsics"]["store_out"]["cycles"] = "max(4, transfer)"
    with pytest.raises(HwgenError) as caught:
        parse_hardware(spec)
    assert caught.value.code == "H148"
    assert "posted write" in str(caught.value)


def test_only_writes_are_posted(tmp_path: Path) -> None:
    text = (ROOT / "hw_specs" / "vta.yaml").read_text(encoding="utf-8")
    path = tmp_path / "chip.yaml"
    path.write_text(text.replace("request_cycles: 2", "posted_bursts: 2"), encoding="utf-8")
    with pytest.raises(HwgenError) as caught:
        load_hardware(path)
    assert "posted_bursts" in str(caught.value)
