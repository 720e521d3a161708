"""Runs of calls: every iteration once, steps within the rules, few calls; and their C loops."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.hardware_loops import Part, Walk, _absorb, absorb, absorb_in_parts
from hwgen.codegen.nodes import Call, CallOperand, Loop, Node
from hwgen.codegen.program import Program
from hwgen.codegen.software_loops import written_out
from hwgen.errors import HwgenError
from hwgen.spec.expression import Const, evaluate
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Range
from hwgen.spec.load import load_hardware
from tests.fuzz.tree_campaign import drawn_pair

SPECS = Path(__file__).parents[2] / "specs"
RELAXED = settings(deadline=None, derandomize=True)


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(SPECS / f"{name}.yaml")


def points(walks: tuple[Walk, ...], start: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """Every iteration's operand addresses, with multiplicity."""
    result: Counter[tuple[int, ...]] = Counter()
    for step in product(*(range(w.extent) for w in walks)):
        moved = (sum(i * w.strides[k] for i, w in zip(step, walks, strict=True))
                 for k in range(len(start)))  # fmt: skip
        result[tuple(s + m for s, m in zip(start, moved, strict=True))] += 1
    return result


def covered(parts: list[Part]) -> Counter[tuple[int, ...]]:
    total: Counter[tuple[int, ...]] = Counter()
    for part in parts:
        total += points((*part.absorbed.outer, *part.absorbed.hardware), part.offsets)
    return total


def within_rules(intrinsic: Intrinsic, part: Part) -> None:
    assert not part.absorbed.sequence
    count = intrinsic.software_loops
    for loop, walk in zip(intrinsic.loops, part.absorbed.hardware, strict=True):
        assert walk.extent in loop.extent
        for operand, stride in zip(intrinsic.operands, walk.strides, strict=True):
            assert stride in loop.stride(operand.name).range
    assert part.absorbed.repeated == prod(w.extent for w in part.absorbed.hardware[:count])


def nests(operands: int) -> st.SearchStrategy[list[Walk]]:
    step = st.integers(-3, 9)
    walk = st.builds(Walk, st.integers(1, 11), st.tuples(*[step] * operands))
    return st.lists(walk, max_size=4).filter(lambda n: prod(w.extent for w in n) <= 600)


RUNS = (
    ("row_array", "load_rows"), ("row_array", "multiply"), ("row_array", "store"),
    ("token_rows", "load_left"), ("token_rows", "multiply"), ("block_rows", "load_left"),
    ("block_rows", "multiply"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "which"), RUNS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_every_iteration_is_in_one_call(name: str, which: str, data: st.DataObject) -> None:
    intrinsic = chip(name).intrinsic[which]
    operands = len(intrinsic.operands)
    nest = data.draw(nests(operands))
    start = (0,) * operands
    wanted = points(tuple(nest), start)
    try:
        whole = absorb(intrinsic, nest)
    except HwgenError as error:
        if error.code != "H614":
            raise
        return
    within_rules(intrinsic, Part(start, whole))
    assert covered([Part(start, whole)]) == wanted
    parts = absorb_in_parts(intrinsic, nest)
    for part in parts:
        within_rules(intrinsic, part)
    assert covered(parts) == wanted
    assert sum(p.absorbed.issued for p in parts) <= whole.issued


def fewest(intrinsic: Intrinsic, nest: list[Walk]) -> int:
    """The fewest calls of one run, by trying every factor of every loop as the hardware loop."""
    (loop,) = intrinsic.loops[intrinsic.software_loops :]
    total = prod(w.extent for w in nest)
    best = total if 1 in loop.extent else 10**9
    for walk in nest:
        fits = all(
            stride in loop.stride(o.name).range
            for o, stride in zip(intrinsic.operands, walk.strides, strict=True)
        )
        for inner in range(1, walk.extent + 1):
            if fits and walk.extent % inner == 0 and inner in loop.extent:
                best = min(best, total // inner)
    return best


@given(nests(3))
@RELAXED
def test_a_run_has_no_more_calls_than_any_cut_into_factors(nest: list[Walk]) -> None:
    intrinsic = chip("row_array").intrinsic["multiply"]
    # Loops that continue each other are one loop to the hardware, so there may be even fewer.
    assert absorb(intrinsic, nest).issued <= fewest(intrinsic, nest)


def test_a_long_loop_is_cut_where_the_last_full_call_ends() -> None:
    intrinsic = chip("row_array").intrinsic["load_rows"]
    parts = absorb_in_parts(intrinsic, [Walk(19, (1, 5))])
    assert [(p.offsets, p.absorbed.hardware[-1].extent, p.absorbed.issued) for p in parts] == [
        ((0, 0), 8, 2),
        ((16, 80), 3, 1),
    ]
    assert absorb(intrinsic, [Walk(19, (1, 5))]).issued == 19


def test_what_keeps_the_stationary_operand_stands_inside() -> None:
    intrinsic = chip("row_array").intrinsic["multiply"]
    # c, a, b: two loops move b; the other two do not, of which one moves the sums.
    nest = [Walk(3, (8, 64, 0)), Walk(2, (0, 0, 8)), Walk(5, (0, 1, 0)), Walk(4, (40, 0, 1))]
    found = absorb(intrinsic, nest).hardware[: intrinsic.software_loops]
    active = [w for w in found if w.extent > 1]
    held = [bool(w.strides[2]) for w in active]
    assert held == sorted(held, reverse=True)
    assert Counter(active) == Counter(nest)
    still = [w for w in active if not w.strides[2]]
    assert [bool(w.strides[0]) for w in still] == [False, True]


def test_more_loops_than_may_be_written_stay_in_the_program() -> None:
    intrinsic = chip("block_rows").intrinsic["load_left"]
    nest = [Walk(2, (1, 70)), Walk(3, (3, 11)), Walk(2, (10, 1000)), Walk(3, (29, 301))]
    found = absorb(intrinsic, nest)
    assert found.calls * found.repeated * found.hardware[-1].extent == prod(w.extent for w in nest)
    assert found.calls > 1


# C loops around calls.


def program_of(call: Call) -> Program:
    return Program("k", "row_array", "w", (), (), (), (), (), (call,))


def call_of(intrinsic: Intrinsic, extents: list[int], strides: list[tuple[int, ...]]) -> Call:
    operands = tuple(
        CallOperand(o.name, f"{o.name}_buffer", Const(100 * k), tuple(Const(s[k]) for s in strides))
        for k, o in enumerate(intrinsic.operands)
    )
    return Call(0, intrinsic.name, intrinsic.unit, operands, tuple(map(Const, extents)))


def executed(nodes: tuple[Node, ...], values: dict[str, int]) -> list[tuple[tuple[int, ...], bool]]:
    """Addresses of each call in order, and whether its stationary operand is fresh."""
    result: list[tuple[tuple[int, ...], bool]] = []
    for node in nodes:
        match node:
            case Loop(variable, Const(low), Const(high), body):
                for n in range(int(low), int(high)):
                    result += executed(body, values | {variable: n})
            case Call():
                at = tuple(int(evaluate(o.address, values)) for o in node.operands)
                assert node.fresh is not None
                result.append((at, bool(evaluate(node.fresh, values))))
            case _:
                raise AssertionError(node)
    return result


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.tuples(*[st.integers(0, 3)] * 3)), min_size=5, max_size=5
    ).filter(lambda loops: prod(e for e, _ in loops) <= 150)
)
@RELAXED
def test_c_loops_run_every_iteration_and_bring_in_every_new_block(
    loops: list[tuple[int, tuple[int, ...]]],
) -> None:
    hardware = chip("row_array")
    intrinsic = hardware.intrinsic["multiply"]
    extents, strides = [e for e, _ in loops] + [8], [s for _, s in loops] + [(1, 1, 0)]
    made = written_out(program_of(call_of(intrinsic, extents, strides)), hardware)
    found = executed(made.body, {})
    expected = [
        tuple(100 * k + sum(i * s[k] for i, (_, s) in zip(step, loops, strict=True))
              for k in range(3))
        for step in product(*(range(e) for e, _ in loops))
    ]  # fmt: skip
    assert [at for at, _ in found] == expected
    held: int | None = None
    for at, fresh in found:
        held = at[2] if fresh else held
        assert held == at[2]


def test_a_call_that_nothing_repeats_is_fresh() -> None:
    hardware = chip("row_array")
    intrinsic = hardware.intrinsic["multiply"]
    call = call_of(intrinsic, [1, 1, 1, 1, 1, 8], [(0, 0, 0)] * 5 + [(1, 1, 0)])
    (only,) = written_out(program_of(call), hardware).body
    assert only == replace(call, fresh=Const(1))


def test_the_loops_of_other_calls_stay_as_they_are() -> None:
    hardware = chip("block_rows")
    intrinsic = hardware.intrinsic["zero"]
    call = call_of(intrinsic, [3], [(2,)])
    assert written_out(program_of(call), hardware).body == (call,)


def test_the_longest_loop_a_field_takes_may_be_any() -> None:
    intrinsic = chip("row_array").intrinsic["load_rows"]
    wide = replace(intrinsic.loops[-1], extent=Range(2, 8))
    intrinsic = replace(intrinsic, loops=(*intrinsic.loops[:-1], wide))
    with pytest.raises(HwgenError) as caught:
        absorb(intrinsic, [Walk(7, (2, 5))])
    assert caught.value.code == "H614"


def test_a_deep_nest_is_cut_in_few_steps() -> None:
    """The ways to cut all of its loops are thousands, where calls have short loops."""
    extents = (2, 16, 16, 3, 3, 8, 5)
    strides = [(0, 2048, 98304), (1, 1, 768), (768, 16, -48), (240, 0, 15), (16, 4352, 1)]
    strides += [(0, 256, 12288), (48, 0, 3)]
    intrinsic = drawn_pair(None, 1633021)[0].intrinsic["multiply"]
    assert [x.extent.maximum for x in intrinsic.loops if not x.software] == [2, 5]
    before = _absorb.cache_info().misses
    absorb_in_parts(intrinsic, list(map(Walk, extents, strides)))
    assert _absorb.cache_info().misses - before < 100
