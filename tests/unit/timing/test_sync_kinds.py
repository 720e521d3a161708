"""Barriers, events and scoreboards: what the checker and the timing model make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Barrier, Call, Node, Signal, Wait
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.model.sync_check import check_synchronisation
from hwgen.spec.expression import Const
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Scoreboard, Synchronization
from tests.redundancy import RedundantBarrier, check_minimal, redundant
from tests.samples import chip
from tests.sampling import examples
from tests.unit.timing.nests import image, operand, sizes

UNITS = ("load", "compute", "store")
EDGES = (("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute"))
BARRIERS = Barriers(UNITS, "wait", "wait_all", 7)
COUNTED = Barriers(UNITS, "wait", "wait_all", 7, 2)
SCOREBOARD = Scoreboard(5, "fence", 11)


def events(maximum: int = 1, signal_cycles: int = 0, wait_cycles: int = 0) -> Events:
    return Events(EDGES, 4, False, maximum, "set", "wait", signal_cycles, wait_cycles)


def with_kind(kind: Synchronization) -> HardwareSpec:
    """The first chip's units, without fetch and completion, synchronised in another way."""
    return replace(chip(), synchronization=kind, completion=None, fetch=None)


_BASES = tuple((acc, inp, 0) for inp in range(4) for acc in range(3))


def load(entry: int, count: int = 1, site: int = 0) -> Call:
    operands = (operand("dst", "x", entry, count, 1), operand("src", "a", 0, count, 1))
    return Call(site, "load_inp", "load", operands, sizes(1, count))


def gemm(inp: int, acc: int, site: int = 1) -> Call:
    return Call(site, "gemm", "compute", (), (), (), "k", Const(inp * 3 + acc))


def store(acc: int, site: int = 2) -> Call:
    operands = (operand("dst", "c", 0, 1, 1), operand("src", "y", acc, 1, 1))
    return Call(site, "store_out", "store", operands, sizes(1, 1))


def program(*body: Node) -> Program:
    kernel = MicroKernelDef("k", "gemm", (KernelLoop(1, (0, 0, 0)),), (), _BASES, ())
    images = (image("a", "int8", (16,), (1, 16)), image("c", "int8", (16,), (1, 16)))
    return Program("p", "vta", "w", ("a",), ("c",), images, (), (kernel,), body)


def verdict(kind: Synchronization, *body: Node) -> str:
    try:
        check_minimal(program(*body), with_kind(kind))
    except HwgenError as error:
        return error.code
    return ""


def signal(source: str, target: str, count: int = 1) -> Signal:
    return Signal(source, target, 0, count)


def wait(source: str, target: str, count: int = 1) -> Wait:
    return Wait(source, target, 0, count)


# Barriers.


def test_a_barrier_orders_what_stands_around_it() -> None:
    assert verdict(BARRIERS, load(0), Barrier("load"), gemm(0, 0)) == ""
    assert verdict(BARRIERS, load(0), gemm(0, 0)) == "H760"
    assert verdict(BARRIERS, Barrier("load"), load(0), gemm(0, 0)) == "H760"
    assert verdict(BARRIERS, load(0), gemm(0, 0), Barrier("load")) == "H760"
    assert verdict(BARRIERS, load(0), Barrier("store"), gemm(0, 0)) == "H760"
    assert verdict(BARRIERS, load(0), Barrier(""), gemm(0, 0)) == ""


def test_a_barrier_that_orders_nothing_is_named() -> None:
    body = (load(0), Barrier("load"), Barrier("load"), gemm(0, 0))
    assert verdict(BARRIERS, *body) == "H766"
    found = redundant(program(*body), with_kind(BARRIERS))
    assert found == (RedundantBarrier("load", 0, 1), RedundantBarrier("load", 1, 1))


def test_a_counted_wait_orders_what_it_does_not_leave_running() -> None:
    """Of three loads, the wait leaves the latest ones running."""

    def after(outstanding: int, entry: int) -> str:
        loads = (load(0), load(1, site=3), load(2, site=4))
        wait_for = Barrier("load", outstanding=outstanding)
        return verdict(COUNTED, *loads, wait_for, gemm(entry, 0))

    assert [after(n, 0) for n in range(4)] == ["H766", "H766", "", "H760"]
    assert [after(n, 1) for n in range(3)] == ["H766", "", "H760"]
    assert [after(n, 2) for n in range(2)] == ["", "H760"]


def test_a_counted_wait_ends_with_the_call_it_is_for() -> None:
    loads = (load(0), load(1, site=3), load(2, site=4))
    for outstanding in range(3):
        body = (*loads, Barrier("load", outstanding=outstanding), store(2))
        times = _times(COUNTED, body)
        assert times[2][0] == times[(0, 3, 4)[2 - outstanding]][1] + 7


def test_a_barrier_reaches_through_a_third_unit() -> None:
    """The store waits for the gemm, which waited for the load."""
    body = (load(0), Barrier("load"), gemm(0, 0), Barrier("compute"), store(0))
    assert verdict(BARRIERS, *body) == ""


def timeline(kind: Synchronization, *body: Node) -> tuple[dict[str, tuple[int, int]], int]:
    result = simulate_timing(program(*body), with_kind(kind), timeline=True)
    assert result.timeline is not None
    return {e.name: (e.start, e.end) for e in result.timeline}, result.cycles


def test_a_barrier_costs_its_cycles() -> None:
    free, _ = timeline(BARRIERS, load(0), gemm(0, 0))
    assert min(start for name, (start, _) in free.items() if name != "load_inp") == 0
    held, cycles = timeline(BARRIERS, load(0), Barrier("load"), gemm(0, 0))
    first = min(start for name, (start, _) in held.items() if name != "load_inp")
    assert first == held["load_inp"][1] + 7
    assert cycles == held["gemm"][1]
    unit = simulate_timing(program(load(0), Barrier("load"), gemm(0, 0)), with_kind(BARRIERS)).unit(
        "compute"
    )
    assert unit.tokens == first


# Events.


def test_an_event_orders_signal_and_wait() -> None:
    ends = (signal("load", "compute"), wait("load", "compute"))
    assert verdict(events(), load(0), *ends, gemm(0, 0)) == ""
    assert verdict(events(), ends[0], load(0), ends[1], gemm(0, 0)) == "H760"
    assert verdict(events(), load(0), ends[0], gemm(0, 0), ends[1]) == "H760"
    assert verdict(events(), load(0), gemm(0, 0)) == "H760"
    assert verdict(events(), load(0), ends[1], gemm(0, 0)) == "H761"
    assert verdict(events(), load(0), ends[0], gemm(0, 0)) == "H762"
    assert verdict(events(), load(0), gemm(1, 0), *ends) == "H766"


def test_a_flag_is_not_signalled_above_its_maximum() -> None:
    both = (signal("load", "compute"), wait("load", "compute"))
    twice = (load(0), both[0], load(1), both[0], both[1], gemm(0, 0), both[1], gemm(1, 1))
    assert verdict(events(), *twice) == "H765"
    assert verdict(events(maximum=2), *twice) == ""
    turns = (signal("load", "compute", 2), wait("load", "compute", 2))
    assert (
        verdict(
            events(),
            load(0),
            turns[0],
            load(1),
            turns[0],
            turns[1],
            gemm(0, 0),
            turns[1],
            gemm(1, 1),
        )
        == ""
    )


def test_one_flag_is_enough_where_the_other_way_waits() -> None:
    there, taken = signal("load", "compute"), wait("load", "compute")
    back, again = signal("compute", "load"), wait("compute", "load")
    loop = (load(0), there, taken, gemm(0, 0), back, again)
    assert verdict(events(), *loop, load(0), there, taken, gemm(0, 0)) == ""
    # Without the way back, the flag may still be up.
    once = (load(0), there, taken, gemm(0, 0))
    assert verdict(events(), *once, load(1), there, taken, gemm(1, 0)) == "H765"


def test_signals_and_waits_cost_their_cycles() -> None:
    ends = (signal("load", "compute"), wait("load", "compute"))
    kind = events(signal_cycles=3, wait_cycles=4)
    found, _ = timeline(kind, load(0), *ends, gemm(0, 0))
    assert found["signal"] == (found["load_inp"][1], found["load_inp"][1] + 3)
    assert found["wait"] == (found["signal"][1], found["signal"][1] + 4)
    assert (
        min(s for n, (s, _) in found.items() if n not in ("load_inp", "signal", "wait"))
        == (found["wait"][1])
    )


def test_a_flag_that_nobody_raises_is_a_deadlock_in_time_too() -> None:
    with pytest.raises(HwgenError, match="H761"):
        timeline(events(), load(0), wait("load", "compute"), gemm(0, 0))


# Scoreboards.


def test_a_scoreboard_orders_conflicts_on_chip() -> None:
    assert verdict(SCOREBOARD, load(0), gemm(0, 0), store(0), load(0)) == ""
    found, _ = timeline(SCOREBOARD, load(0), gemm(0, 0))
    assert found["gemm"][0] == found["load_inp"][1] + 5
    apart, _ = timeline(SCOREBOARD, load(0), gemm(1, 0))
    assert apart["gemm"][0] < apart["load_inp"][1]


def test_where_a_scoreboard_renames_only_reads_wait() -> None:
    renaming = Scoreboard(5, "fence", 11, renames=True)
    reading, _ = timeline(renaming, load(0), gemm(0, 0))
    assert reading["gemm"][0] == reading["load_inp"][1] + 5
    writing, _ = timeline(renaming, gemm(0, 0), load(0))
    waiting, _ = timeline(SCOREBOARD, gemm(0, 0), load(0))
    assert writing["load_inp"][0] < waiting["load_inp"][0]
    assert waiting["load_inp"][0] == waiting["gemm"][1] + 5


def _reload(entry: int) -> Call:
    """A load of what a store wrote."""
    operands = (operand("dst", "x", entry, 1, 1), operand("src", "c", 0, 1, 1))
    return Call(7, "load_inp", "load", operands, sizes(1, 1))


def test_conflicts_off_chip_need_a_fence() -> None:
    assert verdict(SCOREBOARD, store(0), _reload(0)) == "H760"
    assert verdict(SCOREBOARD, store(0), Barrier(""), _reload(0)) == ""
    assert verdict(SCOREBOARD, store(0), Barrier(""), Barrier(""), _reload(0)) == "H766"
    assert verdict(SCOREBOARD, Barrier(""), store(0), _reload(0)) == "H760"
    found, _ = timeline(SCOREBOARD, store(0), Barrier(""), _reload(0))
    assert found["load_inp"][0] == found["store_out"][1] + 11


def test_order_on_chip_may_order_off_chip() -> None:
    """The load waits for the gemm, and the gemm for the store: the load needs no fence."""
    assert verdict(SCOREBOARD, store(0), gemm(0, 0), _reload(0)) == ""
    assert verdict(SCOREBOARD, store(0), gemm(0, 1), _reload(0)) == "H760"


# Random streams against all pairs of a transitive closure.

_CALLS = st.one_of(
    st.builds(load, st.integers(0, 3), st.integers(1, 2)),
    st.builds(gemm, st.integers(0, 3), st.integers(0, 2)),
    st.builds(store, st.integers(0, 2)),
)
_BARRIERS = st.one_of(
    st.builds(Barrier, st.sampled_from((*UNITS, ""))),
    st.builds(Barrier, st.sampled_from(UNITS), st.just(0), st.integers(1, 2)),
)
_ENDS = st.tuples(st.sampled_from((Signal, Wait)), st.sampled_from(EDGES)).map(
    lambda pair: pair[0](*pair[1], 0, 2 if pair[1][0] == "load" else 1)
)
_EXCHANGES = st.sampled_from(EDGES).map(
    lambda edge: tuple(end(*edge, 0, 2 if edge[0] == "load" else 1) for end in (Signal, Wait))
)

Touch = tuple[str, int, bool]


def _touches(call: Call) -> set[Touch]:
    if call.kernel:
        assert isinstance(call.variant, Const)
        acc, inp, _ = _BASES[int(call.variant.value)]
        return {("acc", acc, True), ("inp", inp, False)}
    place = call.operands[0] if call.unit == "load" else call.operands[1]
    assert isinstance(place.address, Const)
    assert isinstance(call.extents[1], Const)
    first, count = int(place.address.value), int(call.extents[1].value)
    if call.unit == "load":
        return {("inp", first + i, True) for i in range(count)}
    return {("acc", first, False)}


def _closed(
    count: int, before: list[tuple[int, int]]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    reach = np.eye(count, dtype=np.bool_)
    for first, second in before:
        reach[first, second] = True
    for k in range(count):
        reach |= np.outer(reach[:, k], reach[k])
    return reach


def _expected(kind: Synchronization, body: tuple[Node, ...]) -> set[str]:
    """Codes that the checker may give, by brute force; "" where there is no error."""
    before: list[tuple[int, int]] = []
    touched: dict[int, set[Touch]] = {}
    latest: dict[str, int] = {}
    calls: dict[str, list[int]] = {}
    ends: dict[tuple[type, str, str], list[int]] = {}
    barriers: list[tuple[int, list[int]]] = []
    for number, node in enumerate(body):
        match node:
            case Barrier(unit):
                every = [calls.get(u, []) for u in (UNITS if not unit else (unit,))]
                waited = [
                    n for given in every for n in given[: max(0, len(given) - node.outstanding)]
                ]
                barriers.append((number, waited))
                continue
            case Call():
                unit, touched[number] = node.unit, _touches(node)
                calls.setdefault(unit, []).append(number)
            case Signal(source, target) | Wait(source, target):
                unit = source if isinstance(node, Signal) else target
                ends.setdefault((type(node), source, target), []).append(number)
            case _:
                raise AssertionError(node)
        if unit in latest:
            before.append((latest[unit], number))
        latest[unit] = number
        for _, waited in barriers:
            before += [(w, number) for w in waited]
    unbalanced = ""
    for edge in EDGES:
        given, taken = ends.get((Signal, *edge), []), ends.get((Wait, *edge), [])
        if len(taken) > len(given):
            return {"H761"}
        unbalanced = "H762" if len(given) > len(taken) else unbalanced
        before += zip(given, taken, strict=False)
    reach = _closed(len(body), before)
    if any(reach[i, j] and reach[j, i] for i, j in combinations(range(len(body)), 2)):
        return {"H761"}
    if unbalanced:
        return {unbalanced}
    codes: set[str] = set()
    for i, j in combinations(sorted(touched), 2):
        for memory, entry, writes in touched[i]:
            against = {(memory, entry, True), *([(memory, entry, False)] if writes else [])}
            if against & touched[j] and not reach[i, j] and not reach[j, i]:
                codes.add("H760")
    for edge in EDGES if isinstance(kind, Events) else ():
        given, taken = ends.get((Signal, *edge), []), ends.get((Wait, *edge), [])
        most = 2 if edge[0] == "load" else 1
        for k in range(most, len(given)):
            if not reach[taken[k - most], given[k]]:
                codes.add("H765")
    return codes or {""}


def _found(kind: Synchronization, body: tuple[Node, ...]) -> str:
    try:
        check_synchronisation(program(*body), with_kind(kind))
    except HwgenError as error:
        return error.code
    return ""


def _sited(body: list[Node]) -> tuple[Node, ...]:
    return tuple(replace(n, site=i) if isinstance(n, Call) else n for i, n in enumerate(body))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(_CALLS, _BARRIERS), max_size=12))
def test_random_barriers_agree_with_all_pairs(body: list[Node]) -> None:
    assert _found(COUNTED, _sited(body)) in _expected(COUNTED, _sited(body))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.one_of(_CALLS, _ENDS, _EXCHANGES), max_size=10), st.booleans())
def test_random_events_agree_with_all_pairs(
    parts: list[Node | tuple[Node, ...]], apart: bool
) -> None:
    body: list[Node] = []
    for part in parts:
        body += part if isinstance(part, tuple) else (part,)
    if apart:
        body.sort(key=lambda n: isinstance(n, Wait))
    assert _found(events(), _sited(body)) in _expected(events(), _sited(body))


def _times(kind: Synchronization, body: tuple[Node, ...]) -> dict[int, tuple[int, int]]:
    """Start and end of each call, by its site."""
    result = simulate_timing(program(*body), with_kind(kind), timeline=True)
    assert result.timeline is not None
    calls = {n.site: n.intrinsic for n in body if isinstance(n, Call)}
    return {e.site: (e.start, e.end) for e in result.timeline if calls.get(e.site) == e.name}


def _conflict(first: Call, second: Call) -> bool:
    places = {(m, e): w for m, e, w in sorted(_touches(first))}
    return any((m, e) in places and (w or places[m, e]) for m, e, w in _touches(second))


@settings(max_examples=150, deadline=None)
@given(st.lists(_CALLS, max_size=14))
def test_a_scoreboard_holds_back_what_conflicts_and_nothing_else(body: list[Node]) -> None:
    calls = [n for n in _sited(body) if isinstance(n, Call)]
    times = _times(SCOREBOARD, tuple(calls))
    for first, second in combinations(calls, 2):
        if first.unit != second.unit and _conflict(first, second):
            assert times[second.site][0] >= times[first.site][1] + 5
    for number, call in enumerate(calls):
        # On-chip calls start as soon as their unit is free and what they wait for is done.
        if call.unit == "compute" and any(c.unit == "compute" for c in calls[:number]):
            before = max(times[c.site][1] for c in calls[:number] if c.unit == "compute")
            others = [c for c in calls[:number] if c.unit != "compute" and _conflict(c, call)]
            held = max([times[c.site][1] + 5 for c in others], default=0)
            assert times[call.site][0] <= max(before, held) + _LOAD_CYCLES


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(_CALLS, _BARRIERS), max_size=12))
def test_nothing_begins_before_a_barrier_is_passed(body: list[Node]) -> None:
    nodes = _sited(body)
    times = _times(COUNTED, nodes)
    for number, node in enumerate(nodes):
        if not isinstance(node, Barrier):
            continue
        waited = [
            times[n.site][1]
            for n in nodes[:number]
            if isinstance(n, Call) and node.unit in ("", n.unit)
        ]
        waited = waited[: max(0, len(waited) - node.outstanding)]
        for later in nodes[number:]:
            if isinstance(later, Call) and waited:
                assert times[later.site][0] >= max(waited) + 7


_LOAD_CYCLES = 200
"""More than a micro-kernel's load takes, which may stand between two calls."""

MUTANTS: dict[str, tuple[Callable[[], Synchronization], tuple[Node, ...], str]] = {
    "one flag less": (
        events,
        (load(0), signal("load", "compute"), load(1), signal("load", "compute"),
         wait("load", "compute"), gemm(0, 0), wait("load", "compute"), gemm(1, 0)),
        "H765",
    ),
    "no such edge": (events, (load(0), signal("load", "store"), wait("load", "store")), "H763"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_defects_by_hand(name: str) -> None:
    make, body, code = MUTANTS[name]
    assert _found(make(), _sited(list(body))) == code
