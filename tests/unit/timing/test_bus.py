"""Bursts and the sharing of a bus, against the measured formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwgen.model.bus import FOREVER, Bursts, ReadBus, Reader, split_access, write_cycles
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
    assert split_access(BUS, start, row, rows, stride, 16).beats == beats


def test_burst_length_is_limited_without_a_boundary() -> None:
    wide = replace(BUS, burst_boundary_bytes=4096)
    assert split_access(wide, 0, 300, 1, 0, 16).beats == (16, 16, 6)
    assert split_access(wide, 4032, 128, 1, 0, 16).beats == (8, 8)


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
@pytest.mark.parametrize("beats", [1, 3, 16])
def test_skipping_equal_bursts_changes_nothing(latency: int, beats: int) -> None:
    fast = ReadBus(replace(BUS, read=Channel(latency, 16)))
    slow = ReadBus(replace(BUS, read=Channel(latency, 16)))
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
    bursts = split_access(BUS, 0, 256, 2, 256, 16)
    assert bursts.entries == (8, 8, 8, 8)
    assert write_cycles(BUS.write, bursts) == 4 * (3 * 8 + 20 + 1)
    assert write_cycles(Channel(6, 4), equal_bursts(8, 2)) == 8 * 2 + 6
