"""What a tree brings into a cache, against caches that are simulated element by element."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import pytest

from hwgen import Schedule
from hwgen.polyhedral.tree.cache_traffic import TreeTraffic
from hwgen.polyhedral.tree.cost import estimate_nest, nest_bound
from hwgen.polyhedral.tree.loop_tree import Block, Loop, Node
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec
from tests.unit.tree import toy

PRODUCT = toy.make(
    "product",
    {"a": "float32[16, 16]", "b": "float32[16, 16]", "c": "float32[16, 16]"},
    ["c[i, j] += a[i, k] * b[k, j]"],
)
PRODUCTS = toy.make(
    "products",
    {
        "x": "float32[16, 8]", "v": "float32[8, 16]", "w": "float32[16, 16]",
        "h": "float32[16, 16]", "y": "float32[16, 16]",
    },
    ["h[i, j] += x[i, k] * v[k, j]", "y[i, j] += h[i, k] * w[k, j]"],
)  # fmt: skip


def chip(line_bytes: int = 4) -> HardwareSpec:
    hardware = toy.chip("cpu")
    assert hardware.processor is not None
    return replace(hardware, processor=replace(hardware.processor, line_bytes=line_bytes))


def traffic(s: Schedule, workers: int = 1) -> TreeTraffic:
    return TreeTraffic(s.resolved, s.homes, chip().machine, frozenset(), workers)


def total(s: Schedule, capacity: float) -> float:
    return sum(traffic(s).brought(capacity).values())


def simulated(name: str, capacity: int) -> float:
    """Bytes that come into a cache which forgets what was used least recently."""
    held: OrderedDict[tuple[object, ...], None] = OrderedDict()
    missed = 0
    for place in _touched(name):
        if place in held:
            held.move_to_end(place)
            continue
        missed += 4
        held[place] = None
        if 4 * len(held) > capacity:
            held.popitem(last=False)
    return missed


@cache
def _touched(name: str) -> list[tuple[object, ...]]:
    """Elements in the order in which instances touch them, of one iteration's room where their
    tensor is at home inside loops."""
    s = SCHEDULES[name]()
    state = s.resolved

    def walk(nodes: tuple[Node, ...], at: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
        for node in nodes:
            match node:
                case Loop():
                    for n in range(node.extent):
                        yield from walk(node.body, {**at, node.name: n})
                case Block():
                    stage = state.stage[node.stage]
                    if not all(evaluate(p, at) for p in node.predicate):
                        continue
                    values = {n: evaluate(e, at) for n, e in node.bindings}
                    for access in (*stage.reads_in(node.part), stage.target):
                        home = s.homes.get(access.tensor, ())
                        still = {n: 0 if n in home else v for n, v in at.items()}
                        room = {n: evaluate(e, still) for n, e in node.bindings} if home else values
                        yield (access.tensor, *(evaluate(i, room) for i in access.indices))

    return list(walk(state.root, {}))


def merged(s: Schedule, first: str, second: str) -> Schedule:
    s.merge(s.loops(first)[0], s.loops(second)[0])
    return s


def tiled() -> Schedule:
    s = Schedule(PRODUCT, chip())
    s.tile("i", "j", 4, 8)
    return s


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "rows": lambda: Schedule(toy.ROWSUM, chip()),
    "chain": lambda: Schedule(toy.CHAIN, chip()),
    "chain in one loop": lambda: merged(Schedule(toy.CHAIN, chip()), "b", "c"),
    "norm": lambda: Schedule(toy.NORM, chip()),
    "norm in one loop": lambda: merged(Schedule(toy.NORM, chip()), "t", "b"),
    "window": lambda: Schedule(toy.BLUR, chip()),
    "product": lambda: Schedule(PRODUCT, chip()),
    "product in tiles": tiled,
    "products": lambda: Schedule(PRODUCTS, chip()),
    "products in one loop": lambda: merged(Schedule(PRODUCTS, chip()), "h", "y"),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("capacity", [1 << n for n in range(6, 14)])
def test_it_is_what_a_cache_of_that_size_misses(name: str, capacity: int) -> None:
    """At the border of what fits, the model may be a loop apart."""
    found, wanted = total(SCHEDULES[name](), capacity), simulated(name, capacity)
    assert 0.9 * wanted <= found <= 2 * wanted


def test_a_merged_loop_keeps_what_is_between() -> None:
    apart, together = (
        TreeTraffic(s.resolved, s.homes, s.hardware.machine, frozenset())
        for s in (SCHEDULES[n]() for n in ("chain", "chain in one loop"))
    )
    size = 64 * 48 * 4
    assert sum(apart.brought(1024).values()) == 4 * size
    assert apart.brought(1024)["c"] == 2 * size
    assert together.brought(1024)["c"] == size, "of b nothing comes again"


def test_weights_that_do_not_fit_together_are_brought_again() -> None:
    capacity = 16 * 16 * 4 + 512
    apart, together = (
        total(SCHEDULES[n](), capacity) for n in ("products", "products in one loop")
    )
    assert together > apart


def test_each_worker_brings_its_part() -> None:
    s = Schedule(toy.CHAIN, chip())
    s.parallel("i")
    one, four = traffic(s).brought(1024), traffic(s, 4).brought(1024)
    assert four["b"] == one["b"] / 4
    assert four["c"] == one["c"], "its loop is not shared"


def test_rows_shorter_than_a_line_bring_all_of_it() -> None:
    s = Schedule(toy.ROWSUM, chip(64))
    i, k = s.loops("b")
    s.reorder(k, i)
    lines = TreeTraffic(s.resolved, s.homes, s.hardware.machine, frozenset())
    assert lines.brought(1024)["b"] > 16 * total(s, 1024) / 2


def test_cycles_are_no_fewer_than_the_bound() -> None:
    for name, make in SCHEDULES.items():
        s = make()
        bound = nest_bound(s.state, s.hardware.machine)
        assert estimate_nest(s.resolved, s.homes, s.hardware).cycles >= bound, name
