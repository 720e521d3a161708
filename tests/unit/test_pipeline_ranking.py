"""Pipelines of loop bodies: all ranked at once as arrays, as one after the other, and how they
start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest

from hwgen.passes.pipeline_ranking import CLOSE, COMPILED, STEADY, Body, Edge, Work

SEEDS = range(12)


def body(seed: int) -> Body:
    """A few blocks of three units, who needs whom, and places that some of them write."""
    draw = Random(seed)
    count = draw.randint(3, 6)
    blocks = tuple(
        Work(f"b{n}", f"b{n}", draw.choice("xyz"), draw.randint(1, 60) / 4, f"p{n}", ())
        for n in range(count)
    )
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = tuple(
        Edge(a, b, draw.choice((0.0, 0.5, 0.9))) for a, b in draw.sample(pairs, min(5, len(pairs)))
    )
    carried = ((count - 1, draw.randrange(count)),) if draw.random() < 0.4 else ()
    users = {
        f"p{n}": (n, *(e.target for e in edges if e.source == n)) for n in range(count) if n % 3
    }
    outer = {"p0": (0, count - 1)}
    slots = {place: draw.randint(1, 2) for place in (*users, *outer)}
    return Body(blocks, edges, carried, users, outer, slots, draw.choice((2, 5, STEADY, 40)))


def choices(found: Body) -> set[tuple[int, ...]]:
    """Delays, one choice of handovers after the other."""
    edges, units = found.edges, [b.unit for b in found.blocks]
    handovers = [n for n, e in enumerate(edges) if units[e.source] != units[e.target]]
    result: set[tuple[int, ...]] = set()
    for taken in product((0, 1), repeat=len(handovers)):
        late = dict(zip(handovers, taken, strict=True))
        delays = [0] * len(units)
        order = sorted(enumerate(edges), key=lambda x: x[1].target)
        for _ in range(1 + len(found.carried)):
            for n, e in order:
                delays[e.target] = max(delays[e.target], delays[e.source] + late.get(n, 0))
            for source, target in found.carried:
                delays[target] = max(delays[target], delays[source])
        for block in {*range(len(units))} - {e.target for e in edges}:
            mine = [delays[e.target] - late.get(n, 0) for n, e in order if e.source == block]
            delays[block] = min(mine, default=0)
        result.add(tuple(delays))
    return result


def cycles(found: Body, delays: Sequence[int], slots: Mapping[str, int]) -> float:
    """How long the iterations of one choice take, block by block."""
    if any(delays[source] > delays[target] for source, target in found.carried):
        return inf
    most = max(delays)
    count = min(found.trips, most + STEADY)
    starts, ends = ([[inf] * count for _ in found.blocks] for _ in range(2))
    free: dict[str, float] = {}
    steady: list[float] = []
    for time in range(count + most):
        for n, block in enumerate(found.blocks):
            at = time - delays[n]
            if not 0 <= at < (1 if block.once else count):
                continue
            start, last = free.get(block.unit, 0.0), 0.0
            for e in (e for e in found.edges if e.target == n):
                made = 0 if found.blocks[e.source].once else at
                begun, done = starts[e.source][made], ends[e.source][made]
                start = max(start, begun + (done - begun) * (1 - e.overlap))
                last = max(last, done + block.cycles * (1 - e.overlap))
            waits = [(s, at - 1) for s, target in found.carried if target == n]
            others = [u for u in found.users.get(block.place, ()) if u != n]
            waits += [(u, at - slots.get(block.place, 1)) for u in others]
            start = max([start, *(ends[m][before] for m, before in waits if before >= 0)])
            if start == inf:
                return inf
            starts[n][at] = start
            ends[n][at] = free[block.unit] = max(start + block.cycles, last)
        if most <= time < count:
            steady.append(max(free.values()))
    total = max(free.values())
    if count < found.trips:
        half = len(steady) // 2
        each = (steady[-1] - steady[half - 1]) / (len(steady) - half)
        total += each * (found.trips - count)
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_all_at_once_is_one_after_the_other(seed: int) -> None:
    found = body(seed)
    every = found.choices()
    assert len(every) == len({*every})
    assert {*every} == choices(found)
    slots = [found.needed(delays, seed % 2) for delays in every]
    with np.errstate(invalid="ignore"):
        assert found.cycles(np.array(every), slots).tolist() == [
            cycles(found, delays, room) for delays, room in zip(every, slots, strict=True)
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_come_first(seed: int) -> None:
    found = body(seed)
    now = cycles(found, [0] * len(found.blocks), found.slots)
    ranked = sorted((cycles(found, d, found.needed(d, 1)), sum(d), d) for d in choices(found))
    best = [(taken, d) for taken, _, d in ranked if taken * CLOSE < now][:COMPILED]
    assert found.ranked == best


def test_some_bodies_gain_and_some_are_not_in_order() -> None:
    """Else the tests above would say little."""
    bodies = [body(seed) for seed in SEEDS]
    assert any(found.ranked for found in bodies)
    every = [cycles(found, d, found.needed(d, 0)) for found in bodies for d in choices(found)]
    assert inf in every
    assert min(every) < inf


def with_load(seed: int) -> Body:
    """A random body, and what is loaded once for two of its blocks."""
    found = body(seed)
    return found.with_loads([(Work("w", "w", "x", 7.0, "w", (), once=True), (1, 2))])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_loaded_once_as_one_after_the_other(seed: int) -> None:
    found = with_load(seed)
    every = [(*d, load) for d in body(seed).choices() for load in range(3)]
    slots = [found.needed(delays, 0) for delays in every]
    with np.errstate(invalid="ignore"):
        assert found.cycles(np.array(every), slots).tolist() == [
            cycles(found, delays, room) for delays, room in zip(every, slots, strict=True)
        ]


SUMS = Body(
    blocks=(
        Work("x", "x", "dma", 10, "x", ()),
        Work("s_init", "s", "vector", 20, "s", ()),
        Work("s", "s", "matrix", 30, "s", ()),
        Work("y", "y", "vector", 40, "y", ()),
    ),
    edges=(Edge(0, 2, 0), Edge(1, 2, 0), Edge(2, 3, 0)),
    carried=(),
    users={"x": (0, 2), "s": (1, 2, 3)},
    outer={},
    slots={"x": 1, "s": 1},
    trips=4,
).with_loads([(Work("w", "w", "dma", 200, "w", (), once=True), (2,))])
"""Sums that a vector unit begins and finishes, for a matrix unit; rows come one by one, and a table
for all of them once."""

FIRST = (0, 0, 0, 1)


def test_what_waits_for_nothing_begins_while_a_table_is_loaded() -> None:
    before = (1, 1, 1, 2, 0)
    best = SUMS.started(FIRST, lambda d: SUMS.needed(d, 0))
    assert best is not None
    # All sums begin before the first is finished.
    assert best[3] - best[1] >= 3
    assert min(best) == 0
    # The last results wait for the table, a row's sums and all before them alone.
    least = cycles(SUMS, best, SUMS.needed(best, 0))
    assert least <= 210 + 30 + 4 * 40
    assert least < cycles(SUMS, before, SUMS.needed(before, 1))


def test_without_room_nothing_begins_sooner() -> None:
    def room(delays: Sequence[int]) -> Mapping[str, int] | None:
        slots = SUMS.needed(delays, 0)
        return slots if slots["s"] <= 2 else None

    best = SUMS.started(FIRST, room)
    assert SUMS.needed(best or (1, 1, 1, 2, 0), 0)["s"] <= 2


def test_a_load_comes_before_who_needs_it() -> None:
    for seed in SEEDS:
        found = with_load(seed)
        for _, delays in body(seed).ranked:
            best = found.started(delays, lambda d, found=found: found.needed(d, 1))
            if best is not None:
                assert best[-1] < min(best[1], best[2])


def test_a_start_without_a_gain_is_none() -> None:
    assert SUMS.started(FIRST, lambda _: None) is None


def test_pieces_of_a_table_are_used_while_others_come() -> None:
    """The sums of the first row take half of its pieces before the last one comes."""
    found = SUMS.in_pieces(4, 2, 2)
    assert [e.overlap for e in found.edges] == [0, 0, 0, 1 / 2]

    def room(delays: Sequence[int]) -> Mapping[str, int]:
        return found.needed(delays, 0)

    best = SUMS.started(FIRST, room)
    assert best is not None
    # The row itself comes behind the table: only in front of it is there something to gain.
    now = SUMS.least(best, room)
    assert found.least(best, room) == now
    assert found.least(best, room, (4, 2)) == now - 30 / 2
    faster = found.faster(best, room)
    assert faster is not None
    assert found.least(faster, room) <= now - 30 / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_as_one_after_the_other(seed: int) -> None:
    found = with_load(seed)
    edge = found.edges[seed % len(found.edges)]
    found = found.in_pieces(edge.source, edge.target, 3)
    every = [(*d, 0) for d in body(seed).choices()]
    slots = [found.needed(delays, 0) for delays in every]
    with np.errstate(invalid="ignore"):
        assert found.cycles(np.array(every), slots).tolist() == [
            cycles(found, delays, room) for delays, room in zip(every, slots, strict=True)
        ]
