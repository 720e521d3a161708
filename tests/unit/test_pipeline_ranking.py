"""Pipelines of random loop bodies: all ranked at once as arrays, as one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest

from hwgen.pipeline_ranking import CLOSE, COMPILED, STEADY, Body, Edge, Work

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
            if not 0 <= at < count:
                continue
            start, last = free.get(block.unit, 0.0), 0.0
            for e in (e for e in found.edges if e.target == n):
                begun, done = starts[e.source][at], ends[e.source][at]
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
    best = [d for taken, _, d in ranked if taken * CLOSE < now][:COMPILED]
    assert found.ranked() == best


def test_some_bodies_gain_and_some_are_not_in_order() -> None:
    """Else the tests above would say little."""
    bodies = [body(seed) for seed in SEEDS]
    assert any(found.ranked() for found in bodies)
    every = [cycles(found, d, found.needed(d, 0)) for found in bodies for d in choices(found)]
    assert inf in every
    assert min(every) < inf
