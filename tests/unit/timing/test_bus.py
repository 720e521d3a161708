"""Bursts and the sharing of a bus, against the measured formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.model.bus import FOREVER, Bursts, ReadBus, Reader, split_rows, write_cycles
from hwgen.spec.hardware import Bus, Channel

BUS = Bus("axi", 8, 16, 128, Channel(20, 16), Channel(21, 1, 3), ("fetch", "first", "second"))


def equal_bursts(count: int, beats: int) -> Bursts:
    return Bursts((beats,) * count, (1,) * count)


@pytest.mark.parametrize(
    ("start", "row", "rows", "stride", "beats"),
    [
        (0, 256, 1, 0, (16, 16)),
        (16, 256, 1, 0, (14, 16, 2)),
        (112, 32, 1, 0, (2, 2)),
        # Rows at bytes 0, 48 and 96; the last one has 32 bytes before the boundary.
        (0, 48, 3, 48, (6, 6, 4, 2)),
        (0, 16, 3, 0, (2, 2, 2)),
        (4, 8, 1, 0, (2,)),
    ],
)
def test_bursts_cover_one_row_and_cross_no_boundary(
    start: int, row: int, rows: int, stride: int, beats: tuple[int, ...]
) -> None:
    assert split_rows(BUS, start, row, (rows,), (stride,), 16).beats == beats


@given(
    st.integers(0, 200),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(1, 4), st.integers(-160, 400)), max_size=3),
)
def test_rows_of_nested_loops_are_those_of_each_row(
    start: int, row: int, loops: list[tuple[int, int]]
) -> None:
    starts = [start]
    for count, stride in loops:
        starts = [at + n * stride for at in starts for n in range(count)]
    counts, strides = (tuple(x[n] for x in loops) for n in (0, 1))
    found = split_rows(BUS, start, row, counts, strides, 16)
    alone = [split_rows(BUS, at, row, (), (), 16) for at in starts]
    assert found.beats == tuple(b for part in alone for b in part.beats)
    assert found.entries == tuple(e for part in alone for e in part.entries)


def test_burst_length_is_limited_without_a_boundary() -> None:
    wide = replace(BUS, burst_boundary_bytes=4096)
    assert split_rows(wide, 0, 300, (), (), 16).beats == (16, 16, 6)
    assert split_rows(wide, 4032, 128, (), (), 16).beats == (8, 8)


@pytest.mark.parametrize("latency", [1, 20, 100, 400])
@pytest.mark.parametrize("beats", [1, 2, 7, 16])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 200])
def test_read_alone_follows_the_window_formula(latency: int, beats: int, count: int) -> None:
    bus = ReadBus(replace(BUS, read=Channel(latency, 16)))
    groups = -(-count // 16)
    if latency + beats > 16 * beats:
        last = count - 16 * (groups - 1)
        expected = (groups - 1) * (latency + beats) + latency + last * beats
    else:
        expected = latency + count * beats
    assert bus.read_cycles(equal_bursts(count, beats)) == expected


@pytest.mark.parametrize("latency", [5, 20, 400])
@pytest.mark.parametrize("beats", [1, 2, 3, 16])
@pytest.mark.parametrize("blocks", [False, True])
def test_skipping_equal_bursts_changes_nothing(latency: int, beats: int, blocks: bool) -> None:
    channel = Channel(latency, 16, last_beat_blocks_request=blocks)
    fast, slow = (ReadBus(replace(BUS, read=channel)) for _ in range(2))
    tagged = equal_bursts(150, beats)
    plain = equal_bursts(150, beats)
    plain.uniform = 0
    for horizon in (40, 90, 777, FOREVER):
        for bus, bursts in ((fast, tagged), (slow, plain)):
            if not bus.readers:
                bus.readers.append(Reader(0, 1, 3, bursts))
            when, reader = bus.next_request()
            bus.advance(when, reader, max(when + 1, horizon))
        assert (fast.ends, fast.last_issue) == (slow.ends, slow.last_issue)
        assert fast.readers[0].index == slow.readers[0].index


def finish_times(bus: ReadBus) -> dict[int, int]:
    ends: dict[int, int] = {}
    while bus.readers:
        when, reader = bus.next_request()
        if bus.advance(when, reader, FOREVER):
            bus.readers.remove(reader)
            ends[reader.owner] = bus.ends[-1]
    return ends


def test_lower_priority_gets_the_beats_left_over() -> None:
    bus = ReadBus(BUS)
    bus.readers += [Reader(0, 1, 0, equal_bursts(64, 16)), Reader(1, 2, 1, equal_bursts(64, 16))]
    # The first has all sixteen requests out before it lets the other one in.
    assert finish_times(bus) == {0: 20 + 64 * 16, 1: 20 + 128 * 16}


def test_a_late_reader_waits_behind_the_requests_already_made() -> None:
    bus = ReadBus(BUS)
    bus.readers += [Reader(0, 2, 0, equal_bursts(64, 16)), Reader(1, 1, 500, equal_bursts(1, 1))]
    # Bursts end at 36 + 16 i; the request at 500 takes the entry freed then, with 15 in front.
    assert finish_times(bus)[1] == 500 + 15 * 16 + 1


def test_store_is_three_cycles_an_entry_and_a_response_a_burst() -> None:
    bursts = split_rows(BUS, 0, 256, (2,), (256,), 16)
    assert bursts.entries == (8, 8, 8, 8)
    assert write_cycles(BUS.write, bursts) == 4 * (3 * 8 + 20 + 1)
    assert write_cycles(Channel(6, 4), equal_bursts(8, 2)) == 8 * 2 + 6


def requests(bus: ReadBus) -> list[tuple[int, int]]:
    """Owner and cycle of every request, issued one at a time."""
    made: list[tuple[int, int]] = []
    while bus.readers:
        when, reader = bus.next_request()
        if bus.advance(when, reader, when + 1):
            bus.readers.remove(reader)
        made.append((reader.owner, when))
    return made


def test_requests_of_another_reader_lie_between_those_of_one() -> None:
    """One reader's go out at 40, 42, 44, ...; another's, of lower priority, at 41 and 43."""
    bus = ReadBus(replace(BUS, read=Channel(20, 16, request_cycles=2)))
    bus.readers += [Reader(0, 1, 40, equal_bursts(4, 16)), Reader(1, 2, 40, equal_bursts(2, 16))]
    assert requests(bus) == [(0, 40), (1, 41), (0, 42), (1, 43), (0, 44), (0, 46)]


def test_no_request_is_made_while_a_last_beat_arrives() -> None:
    """Bursts of two beats end at 7, 9, 11, 13: nothing is requested in 6, 8, 10 and 12."""
    channel = Channel(5, 16, last_beat_blocks_request=True)
    bus = ReadBus(replace(BUS, read=channel))
    bus.readers.append(Reader(0, 1, 0, equal_bursts(10, 2)))
    assert [at for _, at in requests(bus)] == [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]


@pytest.mark.parametrize(("spacing", "cycles"), [(1, 20 + 40), (2, 20 + 79), (3, 20 + 118)])
def test_bursts_shorter_than_the_time_between_requests(spacing: int, cycles: int) -> None:
    bus = ReadBus(replace(BUS, read=Channel(20, 64, request_cycles=spacing)))
    assert bus.read_cycles(equal_bursts(40, 1)) == cycles


Drawn = tuple[int, int, int, int]


def plainly(
    latency: int, window: int, spacing: int, blocks: bool, readers: list[Drawn]
) -> dict[int, int]:
    """Ends by the rules alone, one cycle after another: at most one request in each, the first
    reader's that may make one while fewer than `window` bursts are under way; `blocks`: and in
    which no burst's last beat arrives."""
    left = {n: count for n, (_, _, count, _) in enumerate(readers)}
    ready = {n: start for n, (_, start, _, _) in enumerate(readers)}
    under_way: list[int] = []
    ends: dict[int, int] = {}
    cycle = data = 0
    while left:
        under_way = [end for end in under_way if end > cycle]
        asking = [n for n in left if ready[n] <= cycle]
        if blocks and cycle + 1 in under_way:
            asking = []
        if asking and len(under_way) < window:
            n = min(asking, key=lambda n: readers[n][0])
            data = max(cycle + latency, data) + readers[n][3]
            under_way.append(data)
            ready[n], left[n], ends[n] = cycle + spacing, left[n] - 1, data
            left = {n: count for n, count in left.items() if count}
        cycle += 1
    return ends


@given(
    st.integers(0, 200),
    st.integers(1, 6),
    st.integers(1, 5),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 9)), min_size=1,
             max_size=3),
)  # fmt: skip
def test_readers_share_the_bus_as_the_rules_say(
    latency: int, window: int, spacing: int, blocks: bool, drawn: list[tuple[int, int, int]]
) -> None:
    readers = [(n, start, count, beats) for n, (start, count, beats) in enumerate(drawn)]
    channel = Channel(latency, window, request_cycles=spacing, last_beat_blocks_request=blocks)
    bus = ReadBus(replace(BUS, read=channel))
    for n, (priority, start, count, beats) in enumerate(readers):
        bus.readers.append(Reader(n, priority, start, equal_bursts(count, beats)))
    assert finish_times(bus) == plainly(latency, window, spacing, blocks, readers)


@pytest.mark.parametrize("flight", [1, 4])
def test_writes_are_requested_no_faster(flight: int) -> None:
    bursts = equal_bursts(10, 2)
    assert write_cycles(Channel(6, flight, request_cycles=20), bursts) == 9 * 20 + 2 + 6
