"""The cost of trees: by hand, against a walk of every iteration, and with its bound."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from hwgen.polyhedral.search.cost import cycles, least
from hwgen.polyhedral.search.cost_tree import (
    Array,
    Block,
    Counts,
    Machine,
    Node,
    Repeat,
    blocks,
    taken,
)

NO_HOST = Machine({})


def one(number: float) -> Array:
    return np.full(1, float(number))


def count(number: int) -> Counts:
    return np.full(1, number, np.int64)


def block(name: str, unit: str, each: float, reads: str = "", writes: str = "") -> Block:
    """Buffers are letters."""
    time = one(each)
    return Block(name, unit, time, tuple(reads), tuple(writes))


def total(*nodes: Node, machine: Machine = NO_HOST, **versions: int) -> float:
    return float(cycles(nodes, machine, {n: count(k) for n, k in versions.items()})[0])


def tiles(number: int, load: float, work: float, store: float) -> Repeat:
    """Loads, work on them, and stores of its results."""
    body = (
        block("load", "l", load, "", "a"),
        block("work", "c", work, "a", "b"),
        block("store", "s", store, "b"),
    )
    return Repeat("i", count(number), body, ("a", "b"))


def test_two_versions_let_units_work_at_once() -> None:
    """The first load and the last store stand alone; between them the slowest unit decides."""
    assert total(tiles(100, 10, 30, 5), a=2, b=2) == 10 + 100 * 30 + 5
    assert total(tiles(100, 40, 30, 5), a=2, b=2) == 100 * 40 + 30 + 5
    assert total(tiles(100, 10, 30, 50), a=2, b=2) == 10 + 30 + 100 * 50


def test_with_one_version_a_load_waits_for_the_work_on_the_last() -> None:
    assert total(tiles(100, 10, 30, 5), a=1, b=2) == 100 * (10 + 30) + 5
    assert total(tiles(100, 10, 30, 25), a=2, b=1) == 10 + 100 * (30 + 25)


def test_a_version_for_every_write_waits_for_nothing() -> None:
    assert total(tiles(100, 40, 30, 5), a=0, b=0) == total(tiles(100, 40, 30, 5), a=2, b=2)


def test_what_runs_ahead_is_there_when_its_unit_has_stored() -> None:
    """One unit loads and stores: in order behind a store, a load would wait for all work."""
    load, work, store = (
        block("load", "d", 10, "", "a"),
        block("work", "c", 30, "a", "b"),
        block("store", "d", 10, "b"),
    )
    plain = Repeat("i", count(50), (load, work, store), ("a", "b"))
    assert total(plain, a=2, b=2) == 50 * (10 + 30 + 10)
    ahead = replace(load, shift=-1)
    shifted = Repeat("i", count(50), (ahead, work, store), ("a", "b"))
    assert total(ahead, shifted, a=2, b=2) == 10 + 50 * 30 + 10


def test_a_load_of_the_first_pass_is_done_once() -> None:
    kept = replace(block("load", "l", 100, "", "a"), at=(("o", 0),))
    inner = Repeat("i", count(4), (kept, block("work", "c", 30, "a")), ("a",))
    outer = Repeat("o", count(10), (inner,))
    assert total(outer, a=0) == 4 * 100 + 30 + 9 * 4 * 30


def test_the_last_iteration_of_a_loop_may_be_shorter() -> None:
    work = replace(block("work", "c", 30), ends=(("i", one(1 / 3)),))
    assert total(Repeat("i", count(9), (work,))) == 8 * 30 + 10
    nest = Repeat("o", count(3), (Repeat("i", count(9), (work,)),))
    assert total(nest) == pytest.approx(3 * (8 * 30 + 10))
    both = replace(work, ends=(("o", one(1 / 2)), ("i", one(1 / 3))))
    nest = Repeat("o", count(3), (Repeat("i", count(9), (both,)),))
    assert total(nest) == pytest.approx(2.5 * (8 * 30 + 10))
    assert least([nest], NO_HOST, {}).cycles[0] == pytest.approx(625)


def test_what_waits_for_the_last_iteration_waits_less_where_that_is_short() -> None:
    """Two tiles of seven and of one: all but the last is stored while units work."""
    load, work, store = tiles(2, 70, 140, 70).body
    short = [replace(x, ends=(("i", one(1 / 7)),)) for x in (load, work, store)]
    assert total(tiles(2, 70, 140, 70), a=2, b=2) == 70 + 140 + 140 + 70
    assert total(Repeat("i", count(2), tuple(short), ("a", "b")), a=2, b=2) == 70 + 140 + 70 + 10


def test_a_bus_that_is_busy_for_longer_than_any_unit_decides() -> None:
    loads = (
        replace(block("one", "l", 10, "", "a"), bus="b", beats=one(8)),
        replace(block("other", "c", 10, "a"), bus="b", beats=one(9)),
    )
    assert total(Repeat("i", count(20), loads, ("a",)), a=2) == 20 * 17


def test_a_host_waits_for_room_in_a_queue() -> None:
    """Sixteen calls of a load fill its queue: until eight are done no work is issued."""
    machine = Machine({"l": 8, "c": 8})
    load = replace(block("load", "l", 160, "", "a"), calls=one(16), issuing=one(16))
    work = replace(block("work", "c", 10, "", "b"), calls=one(1), issuing=one(1))
    body = (load, work)
    alone = total(Repeat("i", count(1), body), machine=machine, a=0, b=0)
    assert alone == 1 + 160
    # The work begins when half of the load's calls are done.
    end = total(work, load, work, machine=Machine({"l": 8, "c": 8}), a=0, b=0)
    assert end == 2 + 160


def every(nodes: Sequence[Node]) -> Iterator[Block | str]:
    """All iterations of a tree, one after the other: blocks, and buffers of which the next version
    begins."""
    for node in nodes:
        if isinstance(node, Block):
            yield node
            continue
        for n in range(int(node.count[0])):
            yield from node.fresh
            last = n == node.count[0] - 1
            yield from every([_shorter(x, node.name) if last else x for x in node.body])


def _shorter(node: Node, loop: str) -> Node:
    """What a tree is in the last iteration of a loop."""
    if isinstance(node, Repeat):
        return replace(node, body=tuple(_shorter(x, loop) for x in node.body))
    return replace(node, cycles=node.cycles * dict(node.ends).get(loop, one(1)))


def walked(nodes: Sequence[Node], versions: dict[str, int]) -> float:
    """Cycles of a tree without shifts, by a walk of all of it."""
    free: dict[str, float] = {}
    written: dict[str, float] = {}
    read: dict[str, list[float]] = {name: [0.0] for name in versions}
    for block in every(nodes):
        if isinstance(block, str):
            read[block].append(0.0)
            continue
        start = free.get(block.unit, 0.0)
        for name in block.reads:
            start = max(start, written.get(name, 0.0))
        for name in block.writes:
            before = read[name][: -versions[name]]
            start = max([start, *before])
        end = free[block.unit] = start + float(block.cycles[0])
        for name in block.reads:
            read[name][-1] = max(read[name][-1], end)
        for name in block.writes:
            written[name] = end
    return max(free.values())


def drawn(draw: random.Random) -> tuple[tuple[Node, ...], dict[str, int]]:
    """Loads into buffers at two depths, work on them, and a store behind the inner loop."""
    a, b, work, store = (float(draw.randint(1, 60)) for _ in range(4))
    inner = Repeat(
        "i",
        count(draw.randint(2, 30)),
        (block("b", "l", b, "", "b"), block("work", "c", work, "abc", "c")),
        ("b",),
    )
    inner = replace(inner, body=tuple(_ending(draw, x, "o", "i") for x in blocks([inner])))
    outer = (
        _ending(draw, block("a", "l", a, "", "a"), "o"),
        inner,
        _ending(draw, block("store", "s", store, "c"), "o"),
    )
    versions = {name: draw.randint(1, 3) for name in "abc"}
    return (Repeat("o", count(draw.randint(2, 30)), outer, ("a", "c")),), versions


def _ending(draw: random.Random, given: Block, *loops: str) -> Block:
    """A block that is shorter in the last iterations of some loops."""
    return replace(given, ends=tuple((n, one(draw.choice((1, 0.75, 0.25)))) for n in loops))


@pytest.mark.parametrize("seed", range(40))
def test_a_few_iterations_tell_of_all(seed: int) -> None:
    nodes, versions = drawn(random.Random(seed))
    counts = {n: count(k) for n, k in versions.items()}
    cost, exact = float(cycles(nodes, NO_HOST, counts)[0]), walked(nodes, versions)
    assert cost == pytest.approx(exact, rel=0.05)
    assert float(least(nodes, NO_HOST, counts).cycles[0]) <= exact


def test_a_point_costs_what_it_does_alone() -> None:
    """However many others there are, of other extents."""
    draw = random.Random(1)
    extents, inner = (
        np.array([draw.randint(1, 12) for _ in range(30)], np.int64) for _ in range(2)
    )
    times = np.array([float(draw.randint(1, 50)) for _ in range(30)])
    versions = np.array([draw.randint(1, 3) for _ in range(30)], np.int64)
    parts = np.array([draw.choice((1, 0.5)) for _ in range(30)])
    load = Block("load", "l", times, (), ("a",), shift=-1, ends=(("i", parts),))
    work = Block("work", "c", one(20), ("a",), ("b",), ends=(("o", parts), ("i", parts)))
    store = Block("store", "l", one(15), ("b",))
    nest = Repeat("i", inner, (load, work), ("a",))
    nodes = (load, Repeat("o", extents, (nest, store), ("b",)))
    held = {"a": np.maximum(versions, 2), "b": versions}
    together = cycles(nodes, NO_HOST, held)
    for n in range(30):
        mine, own = taken(nodes, held, np.array([n]), 30)
        assert cycles(mine, NO_HOST, own)[0] == together[n]


@pytest.mark.parametrize("seed", range(20))
def test_a_last_iteration_may_be_as_long_as_others(seed: int) -> None:
    """It is then walked like them, but for what runs ahead into one that is shorter."""
    draw = random.Random(seed)
    load, more, work, store = (float(draw.randint(1, 60)) for _ in range(4))
    extents = [draw.choice((1, 2, 2, 3, 8, 16)) for _ in range(3)]
    short = draw.choice((1, 0.5))

    def cost(other: float) -> float:
        ends = (("w", one(other)), ("h", one(short)), ("t", one(other)))
        ahead = replace(block("load", "l", load, "", "a"), shift=-1, ends=ends)
        sums = replace(block("work", "c", work, "ac", "b"), ends=ends)
        loaded = block("more", "l", 4 * more, "", "c")
        stored = replace(block("store", "s", store, "b"), ends=ends[:2])
        node: Repeat = Repeat("t", count(extents[2]), (ahead, sums), ("a",))
        node = Repeat("h", count(extents[1]), (loaded, node, stored), ("b", "c"))
        return total(ahead, Repeat("w", count(extents[0]), (node,)), a=2, b=2, c=2)

    assert cost(1) == pytest.approx(cost(1 - 1e-12), abs=1e-3)


def test_loops_of_two_iterations_are_walked_each_time() -> None:
    """With three versions a load is two iterations ahead before it waits for work."""
    tile = (block("tile", "l", 10, "", "c"), block("work", "c", 30, "cd"))
    inner = Repeat("i", count(2), tile, ("c",))
    outer = Repeat("o", count(50), (block("load", "l", 100, "", "d"), inner), ("d",))
    assert total(outer, c=3, d=2) == walked([outer], {"c": 3, "d": 2}) == 50 * 120 + 30 + 20
