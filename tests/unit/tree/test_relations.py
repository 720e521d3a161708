"""What schedules are asked: read as isl reads it, and the order of instances said both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from unittest.mock import Mock

import pytest

from hwgen import HwgenError, Schedule
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree import legality, site_checks
from hwgen.polyhedral.tree.edit import replace_loop
from hwgen.polyhedral.tree.legality import check, overtaken, violation
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, map_blocks
from hwgen.polyhedral.tree.relations import Side, before, conjoin, not_before, same, shared
from hwgen.polyhedral.tree.site_checks import check_inside
from hwgen.spec.expression import Access, Binary, Const, Name
from tests.conftest import Mutate
from tests.sampling import tiered
from tests.unit.tree.toy import BLUR, CHAIN, MATMUL, start

TILES = """\
rows, columns, i, j = s.tile('c_i', 'c_j', 16, 12)
a = s.cache_read('a', 'local')
s.set_scope('b', 'local')
s.compute_at('b', columns)
s.compute_at(a, columns)
"""
SUMS = """\
c = s.cache_write('c', 'local')
rows, columns, i, j = s.tile('c_0', 'c_1', 16, 16)
s.compute_at(c, columns)
tiles, k = s.split('k', factor=16)
s.reorder(tiles, 'i', 'j', k)
begin = s.decompose_reduction(c, tiles)
"""
KEPT = """\
b = s.cache_read('b', 'local')
rows, columns, i, j = s.tile('i', 'j', 16, 16)
s.compute_at(b, columns)
s.retain(b, rows)
"""
BAND = SUMS + "s.sink('c', tiles, 'last')\ns.shift('c', [rows, columns, tiles], 1)\n"
SCHEDULES = {
    "as written": (CHAIN, ""),
    "tiles": (CHAIN, TILES),
    "moved": (CHAIN, TILES + "s.shift(a, columns, -1)"),
    "sums": (MATMUL, SUMS),
    "a band": (MATMUL, BAND),
    "kept": (MATMUL, KEPT),
    "kept, in a band": (MATMUL, KEPT + "s.shift(b, [rows, columns], -1)"),
}


def ways(a: Side, b: Side) -> str:
    """The order of two instances by its definition, one way after another."""
    mine, other = a.times, b.times
    common = next(
        n
        for n, (x, y) in enumerate(zip(a.site.places, b.site.places, strict=False))
        if x != y or n >= len(a.names) or n >= len(b.names) or a.site.names[n] != b.site.names[n]
    )
    equal = [f"{x} = {y}" for x, y in zip(mine[:common], other[:common], strict=True)]
    found = [
        conjoin(equal[:d], [f"{mine[d]} < {other[d]}"]) for d in range(common)
    ]  # fmt: skip
    if a.site.places[common] < b.site.places[common]:
        found.append(conjoin(equal))
    return " or ".join(f"({way})" for way in found) or "0 = 1"


def sides(schedule: Schedule) -> list[tuple[Side, Side]]:
    sites = schedule.state.sites
    return [
        (Side(schedule.state, x, "'"), Side(schedule.state, y, "''"))
        for x, y in product(sites, sites)
    ]


def text(a: Side, b: Side, *conditions: str) -> str:
    return f"{{ {a.tuple} -> {b.tuple} : {conjoin(a.domain, b.domain, conditions)} }}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_of_two_ways_to_say_the_order_holds(name: str) -> None:
    """At every depth, where the loops outside are in the same iteration."""
    program, script = SCHEDULES[name]
    for a, b in sides(start(program, "npu").replay(script)):
        shared = [x == y for x, y in zip(a.site.names, b.site.names, strict=False)]
        for depth in range(([*shared, False]).index(False) + 1):
            at = same(a, b, depth)
            whole = isl.Map(text(a, b, *at))
            first = isl.Map(text(a, b, *at, before(a, b, depth)))
            others = isl.Map(text(a, b, *at, not_before(a, b, depth)))
            assert first.is_disjoint(others)
            assert first.union(others).is_equal(whole)
            assert first.is_equal(isl.Map(text(a, b, *at, before(a, b))))


@pytest.mark.parametrize("name", [n for n in SCHEDULES if "a band" not in n])
def test_the_order_is_that_of_the_loops_from_outside_in(name: str) -> None:
    program, script = SCHEDULES[name]
    pairs = sides(start(program, "npu").replay(script))
    for a, b in pairs:
        found = isl.Map(text(a, b, before(a, b)))
        assert found.is_equal(isl.Map(text(a, b, f"({ways(a, b)})")))
    assert any(not isl.no_pair(text(a, b, before(a, b))) for a, b in pairs)


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_home_is_further_in(name: str) -> None:
    """Where indices and conditions tell at once that none is, isl says so, too."""
    program, script = SCHEDULES[name]
    state = start(program, "npu").replay(script).state
    homes = check(state)
    for stage in state.stages:
        around = state.users[stage.tensor]
        inmost = min(shared(around[0], s) for s in around)
        for depth in range(len(homes[stage.tensor]) + 1, inmost + 1):
            broken = violation(state, stage, depth, output=False)
            output = state.tensor[stage.tensor].role == "output"
            assert broken or output or overtaken(state, [stage.tensor], depth)


PARTIAL = {
    "tails": (CHAIN, TILES.replace("16, 12", "17, 13")),
    "fused": (CHAIN, "o, i = s.split('c_i', factor=2)\nt = s.fuse(i, 'c_j')\ns.compute_at('b', t)"),
    "a sum": (MATMUL, "s.cache_write('c', 'local')"),
    "tails of tiles": (
        MATMUL,
        SUMS.replace("s.compute_at", "o, t = s.split(rows, factor=3)\ns.compute_at"),
    ),
    "no beginning": (MATMUL, SUMS.partition("begin")[0]),
    "a window": (BLUR, "o, i = s.split('c_i', factor=8)\ns.compute_at('b', o)"),
}


def changed(state: LoopTree) -> Iterator[LoopTree]:
    """The same; with one block in some iterations of a loop around it, or none, a loop shorter by
    one, or what a block binds an iterator to moved by one or another's."""
    yield state

    def instead(old: Block, new: Block) -> LoopTree:
        blocks = map_blocks(state.root, lambda b: new if b == old else b)
        return replace(state, root=blocks)

    for site in state.sites:
        block = site.block
        for loop in site.loops:
            name = Name(loop.name)
            for less in (
                Binary("<", name, Const(loop.extent - 1)),
                Binary("==", name, Const(0)),
                Binary("==", name, Const(loop.extent)),
            ):
                yield instead(block, replace(block, predicate=(*block.predicate, less)))
            if loop.extent > 1:
                short = replace(loop, extent=loop.extent - 1)
                yield replace(state, root=replace_loop(state.root, loop.name, lambda _: (short,)))  # noqa: B023
        for n, (iterator, value) in enumerate(block.bindings):
            others = [e for i, e in block.bindings if i != iterator]
            moved = (Binary("+", value, Const(1)), Binary("-", value, Const(1)))
            for other in (*moved, *others):
                bindings = (*block.bindings[:n], (iterator, other), *block.bindings[n + 1 :])
                yield instead(block, replace(block, bindings=bindings))


def broken(state: LoopTree) -> Iterator[bool]:
    """What is illegal: blocks outside their stages; at each depth of a home, dependences, and slots
    that are taken again."""
    for site in state.sites:
        try:
            check_inside(state, site)
            yield False
        except HwgenError:
            yield True
    inmost = min(shared(x, y) for x, y in product(state.sites, repeat=2))
    for stage, depth in product(state.stages, range(inmost + 1)):
        yield violation(state, stage, depth, output=False) is not None
        yield overtaken(state, [stage.tensor], depth) is not None


def no_more(_one: Side, _a: Access, _other: Side, _b: Access, depth: int = 0) -> int:
    """Of the outermost loops, those that are known to be in the same iteration."""
    return depth


@pytest.mark.parametrize("name", tiered([*SCHEDULES, *PARTIAL], [*SCHEDULES][::4] + [*PARTIAL][:1]))
def test_indices_tell_no_more_than_isl(name: str, mutate: Mutate) -> None:
    """What legality sees without asking, isl says too, of legal schedules and broken ones."""
    program, script = (SCHEDULES | PARTIAL)[name]
    states = [*changed(start(program, "npu").replay(script).state)]
    found = [[*broken(state)] for state in states]
    for shortcut in ("makes_read", "makes_all", "never_read", "first_is_first", "_in_step"):
        mutate(legality, shortcut, Mock(return_value=False))
    mutate(legality, "together", no_more)
    mutate(site_checks, "stays_inside", Mock(return_value=False))
    assert found == [[*broken(state)] for state in states]


@pytest.mark.parametrize(
    ("relation", "none"),
    [
        ("{ a[i'] -> b[j''] : 0 <= i' < 4 and 0 <= j'' < 4 and i' = j'' + 3 }", False),
        ("{ a[i'] -> b[j''] : 0 <= i' < 4 and 0 <= j'' < 4 and i' = j'' + 4 }", True),
        ("{ a[i] -> b[i] : 0 <= i < 4 and i >= 4 }", True),
        ("{ a[i, i] -> b[j] : 0 <= i < 4 and 0 <= j < 4 and (i < j or i = 3) }", False),
        ("{ a[i] -> b[j] : 0 <= i < 4 and 0 <= i < 2 and 0 <= j < 9 and i = 2 }", True),
        ("{ a[i] -> b[j] : (0 <= i < 4 and i = 7) or (0 <= i < 2 and j = 1) }", False),
        ("{ a[i] -> b[j] : 0 <= i < 4 and not (0 <= j < 3 and j = 1) and j = 1 }", True),
        ("{ a[i] -> b[j] : exists (k : 0 <= k < 4 and i = 5 k) and 0 <= i < 5 and i > 0 }", True),
        ("{ a[i] -> b[j] : 0 <= j < 1 and i = 7 or 0 <= i < 1 and j = 8 }", False),
        ("{ a[i] -> b[j] : i = 7; a[i] -> b[j] : 0 <= j < 1 and j = 8 }", False),
        ("{ [a[i] -> b[j]] -> c[k] : 0 <= j < 1 and 0 <= k < 4 and j = k - 3 }", False),
        ("{ a[] -> b[j] : 0 <= j < 1 }", False),
        ("{ a[i] -> b[j] }", False),
    ],
)
def test_ranges_are_read_apart_from_other_conditions(relation: str, none: bool) -> None:
    assert isl.Map(relation).is_empty() is none
    assert isl.no_pair(relation) is none
    assert (isl.some_pair(relation) is None) is none
