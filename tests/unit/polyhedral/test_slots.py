"""Slots of buffers at the points of a search: as many as fit, and fewer where that costs least."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hwgen.polyhedral.match.matching import Match, match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.estimate_shape import Cache, Shape
from hwgen.polyhedral.search.slots import slots_of
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).parents[3]
TILES = {"n": (1, 2, 4), "i": (7, 14), "j": (7, 14), "o": (1, 2, 4), "c": (1, 4, 16)}


@cache
def convolution() -> tuple[HardwareSpec, Match]:
    """Four images of 14 x 14 x 256 on an array; two of them are half of its scratchpad."""
    chip = load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    sizes = {"N": 4, "H": 14, "W": 14, "C": 256, "O": 256}
    scop = build_scop(load_workload(ROOT / "workloads" / "conv2d_scaled.yaml", sizes))
    return chip, next(iter(match(scop, select(scop, chip))))


def shape_of(tiles: list[dict[str, int]], images: int, weights: int) -> Shape:
    chip, found = convolution()
    placement = {"xp_spad": images, "w_spad": weights, "acc_acc": 4}
    loops = ("n", "o", "i", "j", "r", "s", "c")
    grid = {
        name: np.array([t.get(name, count) for t in tiles]) for name, count in found.count.items()
    }
    return Shape(chip, found, grid, loops, 4, placement, Cache(), 2)


def slots_at(shape: Shape, point: int) -> dict[str, int]:
    found, _ = slots_of(shape, {n: shape.entries(n) for n in shape.placement})
    return {n: int(np.broadcast_to(v, len(shape.grid["n"]))[point]) for n, v in found.items()}


def test_what_is_streamed_past_a_large_operand_keeps_its_slots() -> None:
    """Two images take one slot, twice; weights that come for each of them take turns."""
    shape = shape_of([{"n": 2, "o": 1, "c": 1}], images=1, weights=7)
    assert slots_at(shape, 0) == {"xp_spad": 1, "w_spad": 3, "acc_acc": 2}


@given(
    st.lists(st.fixed_dictionaries({n: st.sampled_from(v) for n, v in TILES.items()}), min_size=1),
    st.integers(0, 2),
    st.integers(0, 7),
)
def test_no_buffer_has_room_for_more(
    tiles: list[dict[str, int]], images: int, weights: int
) -> None:
    """Whatever points come together; and where none fits, not even single slots do."""
    shape = shape_of(tiles, images, weights)
    room = {n: np.broadcast_to(shape.entries(n), len(tiles)) for n in shape.placement}
    counts = {n: np.broadcast_to(shape.counts(d), len(tiles)) for n, d in shape.placement.items()}
    _, fits = slots_of(shape, {n: shape.entries(n) for n in shape.placement})
    selection = shape.match.selection
    for point, tile in enumerate(tiles):
        slots = slots_at(shape, point)
        assert slots == slots_at(shape_of([tile], images, weights), 0)
        for memory in ("spad", "acc"):
            mine = [s.name for s in selection.storages if s.memory == memory]
            usable = selection.usable_entries(shape.hardware, memory)
            used = sum(slots[n] * int(room[n][point]) for n in mine)
            assert not fits[point] or used <= usable
            for n in mine:
                most = min(3 if n != "acc_acc" else 2, int(counts[n][point]))
                assert 1 <= slots[n] <= most
                assert slots[n] == most or not fits[point] or used + int(room[n][point]) > usable
        least: dict[str, int] = dict.fromkeys(("spad", "acc"), 0)
        for s in selection.storages:
            least[s.memory] += int(room[s.name][point])
        possible = all(v <= selection.usable_entries(shape.hardware, m) for m, v in least.items())
        assert possible == bool(fits[point])


def test_one_slot_is_for_what_least_is_moved_through() -> None:
    """Where two of each fit, no buffer has a single one; where one of either would do, it is that
    of what comes less often."""
    every = [dict(zip(TILES, sizes, strict=True)) for sizes in product(*TILES.values())]
    shape = shape_of(every, images=1, weights=7)
    found, _ = slots_of(shape, {n: shape.entries(n) for n in shape.placement})
    usable = shape.match.selection.usable_entries(shape.hardware, "spad")

    def at(values: NDArray[np.int64], point: int) -> int:
        return int(np.broadcast_to(values, len(every))[point])

    seen: Counter[str] = Counter()
    for point in range(len(every)):
        x, w = (at(shape.entries(n), point) for n in ("xp_spad", "w_spad"))
        x_times, w_times = (at(shape.counts(d), point) for d in (1, 7))
        slots = at(found["xp_spad"], point), at(found["w_spad"], point)
        two = min(2, x_times), min(2, w_times)
        if two[0] * x + two[1] * w <= usable:
            assert slots >= two
            seen["two"] += 1
        elif max(x + two[1] * w, two[0] * x + w) <= usable and two == (2, 2):
            less = x * x_times <= w * w_times
            assert (slots[0] == 1) == less
            assert (slots[1] == 1) == (not less)
            seen["one"] += 1
    assert min(seen["two"], seen["one"]) > 0
