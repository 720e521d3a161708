"""Calls that move, and sums that begin apart: every iteration once, in the right place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.codegen.absorption import Walk
from hwgen.codegen.pipelining import Placing, Ranges, early, in_place, late
from hwgen.codegen.starts import at_start, starts
from hwgen.polyhedral.matching import match
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.select import select
from hwgen.polyhedral.tiling import TileLoop, Tiling

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
RELAXED = settings(deadline=None, derandomize=True)
Point = tuple[int, ...]


@st.composite
def pieces(draw: st.DrawFn) -> tuple[tuple[TileLoop, ...], Ranges]:
    """Tile loops, and some iterations of the outermost ones."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    loops = tuple(TileLoop(f"l{n}", 1, count, 1) for n, count in enumerate(counts))
    depth = draw(st.integers(1, len(loops)))
    ranges: list[tuple[int, int]] = []
    for count in counts[:depth]:
        low = draw(st.integers(0, count - 1))
        ranges.append((low, draw(st.integers(low + 1, count))))
    return loops, tuple(ranges)


def iterations(ranges: Ranges) -> Iterator[Point]:
    yield from product(*(range(low, high) for low, high in ranges))


def value(text: str, counters: Mapping[str, int]) -> int:
    """A place: a number, a counter, or one more or less."""
    words = text.split()
    first = counters[words[0]] if words[0] in counters else int(words[0])
    return first + int("".join(words[1:]) or 0)


def places(loops: tuple[TileLoop, ...], found: Iterable[Placing]) -> dict[Point, list[Point | int]]:
    """Where each iteration stands: in an iteration of the loops, or at an edge."""
    result: dict[Point, list[Point | int]] = {}
    for placed in found:
        for point in iterations(placed.ranges):
            counters = {f"{x.loop}_tile": n for x, n in zip(loops, point, strict=False)}
            at = tuple(value(text, counters) for text in placed.at)
            result.setdefault(point, []).append(placed.edge if placed.edge else at)
    return result


def turns(loops: tuple[TileLoop, ...], depth: int) -> list[Point]:
    """Iterations of the outermost loops in the order in which they run."""
    return list(product(*(range(x.count) for x in loops[:depth])))


@given(pieces(), st.booleans())
@RELAXED
def test_early_calls_stand_one_iteration_earlier(
    piece: tuple[tuple[TileLoop, ...], Ranges], within: bool
) -> None:
    loops, ranges = piece
    order = turns(loops, len(ranges))
    inner = (0,) * (len(loops) - len(ranges)) if within else ()
    found = places(loops, early(loops, ranges, within))
    assert set(found) == set(iterations(ranges))
    for point, where in found.items():
        before = order.index(point) - 1
        assert where == ([(*order[before], *inner)] if before >= 0 else [-1])


@given(pieces())
@RELAXED
def test_late_calls_stand_at_the_beginning_of_the_next_iteration(
    piece: tuple[tuple[TileLoop, ...], Ranges],
) -> None:
    loops, ranges = piece
    order = turns(loops, len(ranges))
    inner = (0,) * (len(loops) - len(ranges))
    placed = list(late(loops, ranges))
    found = places(loops, placed)
    assert set(found) == set(iterations(ranges))
    for point, where in found.items():
        after = order.index(point) + 1
        assert where == ([(*order[after], *inner)] if after < len(order) else [1])
    assert all(p.is_late != bool(p.edge) for p in placed)


@given(pieces())
@RELAXED
def test_other_calls_stand_where_their_counters_say(
    piece: tuple[tuple[TileLoop, ...], Ranges],
) -> None:
    loops, ranges = piece
    found = places(loops, [in_place(loops, ranges)])
    assert found == {point: [point] for point in iterations(ranges)}


# Sums that begin with their first products.


@cache
def convolution() -> Tiling:
    """A window of 3 x 2 over 3 blocks of channels, everything in tiles of one block."""
    workload = hwgen.Workload(
        "window",
        tensors={
            "x": "int8[7, 6, 24]",
            "w": "int8[3, 2, 24, 4]",
            "acc": "int32[5, 5, 4]",
            "y": "int8[5, 5, 4]",
        },
        compute=[
            "acc[h, w, o] += x[h + r, w + s, c] * w[r, s, c, o]",
            "y[h, w, o] = int8(clip(acc[h, w, o] >> 4, -128, 127))",
        ],
    )
    hardware = hwgen.load_hardware(SPEC)
    scop = build_scop(workload)
    chosen = match(scop, select(scop, hardware))[0]
    tiles = tuple(sorted((n, 1) for n in chosen.count))
    order = tuple(n for n in chosen.selection.spatial if n in chosen.count)
    names = [s.name for s in chosen.selection.storages]
    return Tiling(chosen, tiles, order, tuple((n, 0) for n in names), tuple((n, 1) for n in names))


def update() -> Operation:
    operations = convolution().match.selection.operations
    return next(o for o in operations if o.kind == "update")


def test_the_chip_begins_sums_with_their_first_products() -> None:
    first = update().first
    assert first is not None
    assert first.name == "multiply_first"
    assert all(o.kind != "init" for o in convolution().match.selection.operations)


@given(st.data())
@RELAXED
def test_the_first_iteration_of_a_reduction_is_apart_and_comes_first(data: st.DataObject) -> None:
    tiling = convolution()
    loops = tiling.loops
    ranges: list[tuple[int, int]] = []
    for loop in loops:
        low = data.draw(st.integers(0, loop.count - 1))
        ranges.append((low, data.draw(st.integers(low + 1, loop.count))))
    found = starts(tiling, update(), tuple(ranges))
    seen = Counter(point for some, _ in found for point in iterations(some))
    assert seen == Counter(iterations(tuple(ranges)))
    reduction = [n for n, x in enumerate(loops) if x.loop in tiling.match.selection.reduction]
    assert len(reduction) == 3
    for some, begins in found:
        for point in iterations(some):
            assert begins == all(point[n] == 0 for n in reduction)
    assert [begins for _, begins in found] == sorted((b for _, b in found), reverse=True)


def test_an_update_that_nothing_begins_stays_whole() -> None:
    plain = replace(update(), first=None)
    ranges = tuple((0, x.count) for x in convolution().loops)
    assert starts(convolution(), plain, ranges) == [(ranges, False)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
@RELAXED
def test_loops_at_their_start_do_one_iteration(extents: list[int], data: st.DataObject) -> None:
    walks = [Walk(extent, (n,)) for n, extent in enumerate(extents)]
    chosen = data.draw(st.sets(st.integers(0, len(walks) - 1)))
    found = at_start(walks, chosen)
    assert [w.strides for w in found] == [w.strides for w in walks]
    assert prod(w.extent for w in found) == prod(
        e for n, e in enumerate(extents) if n not in chosen
    )
