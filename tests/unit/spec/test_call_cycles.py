"""Cycles of runs of calls against the sum over their iterations, one by one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import groupby, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.spec.call_cycles import best_rate, repeats, run_cycles
from hwgen.spec.expression import Binary, Call, Const, Expr, Name
from hwgen.spec.hardware import Intrinsic, Range, Stationary
from hwgen.spec.load import load_hardware

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
LOOPS = 5
"""C loops of the chip's intrinsics; one hardware loop stands inside."""


@cache
def intrinsic(name: str) -> Intrinsic:
    return load_hardware(SPEC).intrinsic[name]


def with_cycles(cycles: Expr, held: int | None, *, overlaps: bool = True) -> Intrinsic:
    stationary = None if held is None else Stationary("b", held, overlaps)
    return replace(intrinsic("multiply"), cycles=cycles, stationary=stationary)


runs = st.tuples(
    st.lists(st.integers(1, 4), min_size=LOOPS, max_size=LOOPS).filter(lambda e: prod(e) <= 200),
    st.lists(st.integers(0, 2), min_size=LOOPS, max_size=LOOPS),
)


def stays(extents: list[int], steps: list[int]) -> list[int]:
    """Lengths of the groups of consecutive iterations in which no loop that moves the operand, nor
    one around such a loop, goes on."""
    moving = [n for n in range(len(extents)) if steps[n] and extents[n] > 1]
    last = max(moving, default=-1)
    counters = product(*(range(e) for e in extents))
    return [len(list(group)) for _, group in groupby(counters, key=lambda c: c[: last + 1])]


@settings(deadline=None, derandomize=True)
@given(runs)
def test_an_operand_stays_in_the_innermost_loops_that_do_not_move_it(
    run: tuple[list[int], list[int]],
) -> None:
    extents, steps = run
    groups = stays(extents, steps)
    assert set(groups) == {repeats(extents, steps)}
    assert sum(groups) == prod(extents)


@settings(deadline=None, derandomize=True)
@given(runs, st.integers(1, 8), st.integers(0, 20))
def test_a_run_with_a_stationary_operand(
    run: tuple[list[int], list[int]], rows: int, held: int
) -> None:
    extents, steps = run
    made = with_cycles(Call("max", (Name("i"), Const(3))), held)
    each = max(rows, 3)
    total = sum(max(held, each) + (length - 1) * each for length in stays(extents, steps))
    assert run_cycles(made, [*extents, rows], [*steps, 0], {}) == total


@settings(deadline=None, derandomize=True)
@given(runs, st.integers(1, 8), st.integers(0, 20))
def test_a_run_whose_stationary_operand_comes_while_nothing_runs(
    run: tuple[list[int], list[int]], rows: int, held: int
) -> None:
    extents, steps = run
    made = with_cycles(Call("max", (Name("i"), Const(3))), held, overlaps=False)
    total = prod(extents) * max(rows, 3) + len(stays(extents, steps)) * held
    assert run_cycles(made, [*extents, rows], [*steps, 0], {}) == total


@settings(deadline=None, derandomize=True)
@given(runs, st.integers(1, 8))
def test_a_run_without_one(run: tuple[list[int], list[int]], rows: int) -> None:
    extents, steps = run
    made = with_cycles(Binary("+", Name("i"), Const(2)), None)
    assert run_cycles(made, [*extents, rows], [*steps, 0], {}) == prod(extents) * (rows + 2)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 500))
def test_a_transfer_counts_once(count: int, rows: int, transfer: int) -> None:
    extents = [1, 1, 1, 1, count, rows]
    cycles = run_cycles(intrinsic("load_rows"), extents, [], {"transfer": transfer})
    assert cycles == 3 * count + transfer


def test_iterations_are_those_of_one_call() -> None:
    made = with_cycles(Name("iterations"), None)
    assert run_cycles(made, [1, 1, 1, 2, 3, 4], [0] * 6, {"iterations": 24}) == 2 * 3 * 4


def test_a_call_that_nothing_repeats() -> None:
    chip = load_hardware(SPEC.with_name("two_stage.yaml"))
    made = replace(chip.intrinsic["multiply"], cycles=Binary("*", Name("n"), Const(3)))
    assert not made.software_loops
    assert run_cycles(made, [5], [], {"iterations": 5}) == 15


def formulas() -> st.SearchStrategy[Expr]:
    number = st.integers(1, 9).map(Const)
    return st.recursive(
        st.one_of(number, st.just(Name("i")), st.just(Name("iterations"))),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda t: Binary("+", *t)),
            st.tuples(inner, inner).map(lambda t: Binary("*", *t)),
            st.tuples(inner, inner).map(lambda t: Call("max", t)),
        ),
        max_leaves=5,
    )


@settings(deadline=None, derandomize=True)
@given(formulas(), st.integers(1, 6), st.integers(1, 6))
def test_no_call_is_better_than_the_best_rate(cycles: Expr, low: int, more: int) -> None:
    made = with_cycles(cycles, None)
    loops = (*made.loops[:-1], replace(made.loops[-1], extent=Range(low, low + more)))
    made = replace(made, loops=loops)
    rates = [
        Fraction(run_cycles(made, [1] * LOOPS + [rows], [0] * (LOOPS + 1), {})) / rows
        for rows in range(low, low + more + 1)
    ]
    assert best_rate(made) == min(rates)


@pytest.mark.parametrize("name", ["multiply", "load_rows", "store"])
def test_the_chips_own_rates(name: str) -> None:
    expected = {"multiply": Fraction(1), "load_rows": Fraction(3, 8), "store": Fraction(3, 8)}
    assert best_rate(intrinsic(name)) == expected[name]


def test_the_operations_of_a_micro_kernel_share_its_overhead() -> None:
    made = load_hardware(SPEC.parents[2] / "hw_specs" / "vta.yaml").intrinsic["gemm"]
    assert made.micro_kernel is not None
    once = tuple(replace(loop, extent=Range(1, 1)) for loop in made.loops)
    most = made.micro_kernel.capacity_operations
    assert best_rate(replace(made, loops=once)) == Fraction(most + 7, most)
