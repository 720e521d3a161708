"""Absorbed loops execute exactly the iterations that they replace, within the rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.codegen.hardware_loops import Absorption, Walk, absorb, addresses, hazard
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareLoop, HardwareSpec, Intrinsic, Range

SPEC = Path(__file__).parents[3] / "hw_specs" / "vta.yaml"


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(SPEC)


def points(walks: tuple[Walk, ...], operands: int) -> Counter[tuple[int, ...]]:
    """Every iteration's operand addresses, with multiplicity."""
    result: Counter[tuple[int, ...]] = Counter()
    for step in product(*(range(w.extent) for w in walks)):
        result[
            tuple(
                sum(i * w.strides[k] for i, w in zip(step, walks, strict=True))
                for k in range(operands)
            )
        ] += 1
    return result


def everything(found: Absorption) -> tuple[Walk, ...]:
    return (*found.outer, *found.hardware, *found.sequence)


def within_rules(intrinsic: Intrinsic, found: Absorption) -> None:
    for loop, walk in zip(intrinsic.loops, found.hardware, strict=True):
        assert walk.extent in loop.extent
        for operand, stride in zip(intrinsic.operands, walk.strides, strict=True):
            rule = loop.stride(operand.name)
            if rule.dense_after:
                names = [x.name for x in intrinsic.loops]
                below = found.hardware[names.index(rule.dense_after)]
                position = [o.name for o in intrinsic.operands].index(operand.name)
                assert stride == below.strides[position] * below.extent
            else:
                assert stride in rule.range


def walks(operands: int, limit: int) -> st.SearchStrategy[list[Walk]]:
    return st.lists(
        st.builds(
            Walk,
            st.integers(1, 5),
            st.tuples(*[st.sampled_from([0, 1, 2, 3, 5, 6, 30, limit])] * operands),
        ),
        max_size=5,
    )


@settings(max_examples=150, deadline=None)
@given(walks(3, 2047))
def test_multiply_accumulate_loops_are_covered(loops: list[Walk]) -> None:
    intrinsic = chip().intrinsic["gemm"]
    found = absorb(intrinsic, loops)
    assert points(everything(found), 3) == points(tuple(loops), 3)
    within_rules(intrinsic, found)
    sequence = addresses(found.sequence, 0)
    for distance in (1, 2):
        assert not (sequence[distance:] == sequence[:-distance]).any()


@settings(max_examples=150, deadline=None)
@given(walks(2, 65535))
def test_copy_loops_are_covered(loops: list[Walk]) -> None:
    intrinsic = chip().intrinsic["load_inp"]
    found = absorb(intrinsic, loops)
    assert points(everything(found), 2) == points(tuple(loops), 2)
    within_rules(intrinsic, found)


@settings(max_examples=100, deadline=None)
@given(st.permutations([Walk(4, (6, 0)), Walk(6, (1, 1)), Walk(3, (0, 6))]))
def test_vector_operations_keep_their_distance(loops: list[Walk]) -> None:
    intrinsic = chip().intrinsic["add"]
    found = absorb(intrinsic, loops)
    assert points(everything(found), 2) == points(tuple(loops), 2)
    assert not hazard(intrinsic, (*found.hardware, *found.sequence), 0)


def test_hazard_is_seen() -> None:
    assert hazard(chip().intrinsic["add"], (Walk(2, (1, 0)), Walk(3, (0, 1))), 0)
    assert not hazard(chip().intrinsic["gemm"], (Walk(3, (0, 1, 1)),), 0)


def test_dense_tile_is_one_call() -> None:
    found = absorb(chip().intrinsic["load_inp"], [Walk(8, (4, 16)), Walk(4, (1, 1))])
    assert found.calls == 1
    assert found.hardware == (Walk(8, (4, 16)), Walk(4, (1, 1)))


def test_contiguous_entries_are_one_row() -> None:
    """Sixteen rows of one entry would be sixteen bursts."""
    found = absorb(chip().intrinsic["load_inp"], [Walk(16, (1, 1))])
    assert [w.extent for w in found.hardware] == [1, 16]
    found = absorb(chip().intrinsic["store_out"], [Walk(16, (1, 1))])
    assert [w.extent for w in found.hardware] == [1, 16]


def test_padded_rows_need_a_call_each() -> None:
    found = absorb(chip().intrinsic["load_inp"], [Walk(8, (5, 16)), Walk(4, (1, 1))])
    assert found.calls == 8


def test_too_wide_a_step_is_left_outside() -> None:
    found = absorb(chip().intrinsic["load_inp"], [Walk(8, (4, 65536)), Walk(4, (1, 1))])
    assert found.calls == 8


def test_result_latency_holds_without_a_micro_kernel() -> None:
    """Four sums into one entry follow each other in one call only where no latency forbids it."""
    intrinsic = replace(chip().intrinsic["gemm"], micro_kernel=None)
    loops = [Walk(4, (0, 1, 1))]
    quick = absorb(replace(intrinsic, result_latency_iterations=1), loops)
    slow = absorb(replace(intrinsic, result_latency_iterations=2), loops)
    assert (quick.calls, slow.calls) == (1, 4)
    assert not hazard(replace(intrinsic, result_latency_iterations=2), slow.hardware, 0)
    assert points(everything(slow), 3) == points(tuple(loops), 3)


@pytest.mark.parametrize(("iterations", "fits"), [(1, False), (2, True), (5, False), (6, True)])
def test_a_loop_that_runs_at_least_twice(iterations: int, fits: bool) -> None:
    intrinsic = chip().intrinsic["gemm"]
    strides = intrinsic.loops[0].strides
    loop = HardwareLoop("n", Range(2, 4), strides)
    intrinsic = replace(intrinsic, loops=(loop,), micro_kernel=None, result_latency_iterations=0)
    loops = [Walk(iterations, (1, 1, 1))]
    if fits:
        found = absorb(intrinsic, loops)
        within_rules(intrinsic, found)
        assert points(everything(found), 3) == points(tuple(loops), 3)
        return
    with pytest.raises(HwgenError) as caught:
        absorb(intrinsic, loops)
    assert caught.value.code == "H614"
    known = caught.value.diagnostic
    assert known.field == "intrinsics.gemm.loops"
    assert known.found == f"loops of {iterations} iterations"
    assert known.allowed == "n 2..4"
