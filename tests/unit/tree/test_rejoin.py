"""Split loops put together again: the same instances, and questions that isl answers at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.rejoin import rejoined
from hwgen.spec.expression import evaluate

SPECS = Path(__file__).parents[3] / "hw_specs"
CPU = hwgen.load_hardware(SPECS / "cpu_generic.yaml")


def points(site: Site) -> list[tuple[int | float, ...]]:
    """What the block's iterators are, instance by instance."""
    found: list[tuple[int | float, ...]] = []
    for at in product(*(range(x.extent) for x in site.loops)):
        values = dict(zip(site.names, at, strict=True))
        if all(evaluate(p, values) for p in site.block.predicate):
            found.append(tuple(evaluate(e, values) for _, e in site.block.bindings))
    return sorted(found)


def copied(shape: tuple[int, int]) -> Schedule:
    rows, columns = shape
    return Schedule(
        hwgen.workload(
            "copied",
            tensors={"x": f"int32[{rows}, {columns}]", "y": f"int32[{rows}, {columns}]"},
            compute=["y[i, j] = x[i, j] + 1"],
        ),
        CPU,
    )


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=3),
    st.booleans(),
    st.integers(0, 2),
)
def test_the_instances_stay_the_same(
    shape: tuple[int, int], splits: list[tuple[int, int]], swapped: bool, depth: int
) -> None:
    schedule = copied(shape)
    schedule.fuse("i", "j")
    for place, factor in splits:
        loops = schedule.loops("y")
        schedule.split(loops[place % len(loops)], factor=factor)
    if swapped and len(loops := schedule.loops("y")) > 1:
        schedule.reorder(*reversed(loops))
    site = schedule.state.site["y"]
    fewer = rejoined(site, depth)
    assert points(fewer) == points(site)
    assert fewer.loops[:depth] == site.loops[:depth]
    assert len(fewer.places) == len(fewer.loops) + 1
    assert fewer.places[: depth + 1] == site.places[: depth + 1]


@pytest.mark.parametrize("factors", [(4,), (4, 2), (2, 4, 2)])
def test_a_split_loop_is_one_again(factors: tuple[int, ...]) -> None:
    schedule = copied((3, 5))
    loop = schedule.fuse("i", "j")
    for factor in factors:
        loop, _ = schedule.split(loop, factor=factor)
    site = schedule.state.site["y"]
    assert len(site.loops) == len(factors) + 1
    assert len(rejoined(site, 0).loops) == 1
    assert len(rejoined(site, 1).loops) == 2


def test_a_gap_between_split_loops_is_not_closed() -> None:
    """A loop of 4 in steps of 5 leaves numbers out."""
    schedule = copied((4, 6))
    schedule.split(schedule.fuse("i", "j"), factor=5)
    site = schedule.state.site["y"]
    outer, inner = site.loops
    short = Site(site.block, (outer, replace(inner, extent=4)), site.places)
    assert rejoined(short, 0) == short


def test_what_took_isl_for_ever_takes_it_no_time() -> None:
    """Threads share a copy: `8 f + g` under `// 15` and `% 15`, with `f` and `g` projected out."""
    workload = hwgen.workload(
        "diagonal",
        tensors={"t1": "int32[32, 34, 33]", "o0": "int32[17]"},
        compute=[{"do": "o0[l] += t1[2*n + 1, 2*l, l + n]", "loops": {"l": 17, "n": 16}}],
    )
    found = compile_nest(workload, hwgen.load_hardware(SPECS / "cuda_generic.yaml"))
    assert "s.cache_read('t1', 'shared'" in found.script, "the cheapest schedule is taken"


HARD = (
    "{ t[a, b, c] : 0 <= a < 32 and 0 <= b < 34 and 0 <= c < 33 }",
    "{ t[a, b, c] : exists (o, n, f, g : 0 <= o < 3 and 0 <= n < 2 and 0 <= f < 422 "
    "and 0 <= g < 8 and 8 f + g < 3375 and a = 16 n + floor(floor((8 f + g)/15)/15) + 1 "
    "and b = 16 o + (floor((8 f + g)/15) mod 15) and c = 8 o + 8 n + ((8 f + g) mod 15)) }",
)
"""A question that isl answers after hours."""


def test_a_question_too_hard_is_given_up_whatever_was_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isl, "QUESTION_OPERATIONS", 50_000)
    for _ in range(2):
        with isl.bounded(), pytest.raises(HwgenError) as caught:
            isl.some_point(*HARD)
        assert caught.value.code == "H407"
        assert "50,000 steps for one question" in str(caught.value)
        assert isl.some_point("{ [i] : 3 < i < 5 }") == ("", (4,))
