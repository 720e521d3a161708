"""What issuing a call costs the host, against the C loops that are emitted for it, counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.codegen.nodes import Call, CallOperand
from hwgen.codegen.software_loops import run_loops
from hwgen.model.issuing import issuing_cycles
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec, Issue, Range, Unroll
from hwgen.spec.load import load_hardware

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
CHIP = load_hardware(SPEC)
LOOPS = 5


def _chip(unrolled: int, *, cycles: int = 1, operand: int = 0, loop: int = 0) -> HardwareSpec:
    unroll = Unroll(Range(2, unrolled), "") if unrolled > 1 else None
    return replace(CHIP, issue=Issue(cycles, operand, loop, unroll))


def _call(name: str, extents: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Call:
    """`strides`: of each loop, by operand."""
    operands = tuple(
        CallOperand(o.name, o.name, Const(0), tuple(Const(s[k]) for s in (*strides, (1, 1, 0))))
        for k, o in enumerate(CHIP.intrinsic[name].operands)
    )
    return Call(0, name, "array", operands, tuple(map(Const, (*extents, 8))))


def test_a_call_alone() -> None:
    call = _call("multiply", (1,) * LOOPS, ((0, 0, 0),) * LOOPS)
    assert issuing_cycles(call, (1,) * LOOPS + (8,), _chip(0, operand=10, loop=100)) == 2 + 3 * 10


@pytest.mark.parametrize(
    ("unrolled", "addresses", "turns"),
    [
        # Sums in both loops, rows in the inner one, weights in the outer one: of the three
        # iterations inside, the first stands alone.
        (0, 4 * (1 + 2) + (1 + 4 * 2) + 4, 4 + 4 * 2),
        # Two iterations without a loop: rows are computed once for all, as constants.
        (3, 4 * (1 + 2) + (1 + 2) + 4, 4),
    ],
)
def test_addresses_and_turns(unrolled: int, addresses: int, turns: int) -> None:
    extents = (1, 1, 1, 4, 3)
    call = _call("multiply", extents, (*(((0, 0, 0),) * 3), (24, 0, 8), (8, 8, 0)))
    found = issuing_cycles(call, (*extents, 8), _chip(unrolled, operand=1000, loop=10**6))
    assert found == 2 * 12 + 1000 * addresses + 10**6 * turns


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.tuples(*[st.integers(0, 3)] * 3)),
        min_size=LOOPS, max_size=LOOPS,
    ).filter(lambda loops: prod(e for e, _ in loops) <= 150),
    st.integers(0, 4),
)  # fmt: skip
@settings(deadline=None, derandomize=True)
def test_instructions_are_all_there_and_no_address_is_computed_twice_in_a_turn(
    loops: list[tuple[int, tuple[int, ...]]], unrolled: int
) -> None:
    """However loops are cut: one for each iteration, and at most one address an operand for it; at
    least as many addresses as there are different ones."""
    extents, strides = tuple(e for e, _ in loops), tuple(s for _, s in loops)
    call = _call("multiply", extents, strides)
    count = prod(extents)
    assert issuing_cycles(call, (*extents, 8), _chip(unrolled)) == 2 * count
    found = issuing_cycles(call, (*extents, 8), _chip(unrolled, operand=1000)) - 2 * count
    different = [
        len({sum(i * s[k] for i, s in zip(at, strides, strict=True))
             for at in product(*map(range, extents))})
        for k in range(3)
    ]  # fmt: skip
    assert 1000 * (different[0] + different[1] + different[2]) <= found <= 3000 * count


def test_unrolling_never_computes_more() -> None:
    call = _call(
        "multiply", (1, 2, 3, 4, 3), ((0, 0, 0), (9, 4, 0), (7, 0, 3), (5, 0, 1), (2, 1, 0))
    )
    extents = (1, 2, 3, 4, 3, 8)
    rolled, unrolled = (issuing_cycles(call, extents, _chip(n, operand=1, loop=1)) for n in (0, 4))
    assert unrolled < rolled
    assert run_loops(call, _chip(0)) != run_loops(call, _chip(4))
