"""Layouts that repeat: legal as long as no element is needed after another has taken its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.errors import HwgenError
from hwgen.nest_pipeline import compile_nest
from hwgen.polyhedral.tree.rolling import rolls
from hwgen.schedule import Schedule
from hwgen.spec.grammar import parse_expression
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

CPU = load_hardware(Path(__file__).parents[3] / "hw_specs" / "cpu_generic.yaml")


def window(rows: int, back: int) -> Workload:
    """Each result reads an element and the one so many rows before it."""
    shape = f"float32[{rows}, 5]"
    return hwgen.Workload(
        "window",
        tensors={"a": shape, "b": shape, "c": shape},
        compute=[
            "b[i, j] = a[i, j] * 2",
            f"c[i, j] = b[i, j] + select(i >= {back}, b[i - {back}, j], 0)",
        ],
    )


def script(kept: int) -> str:
    return f"s.merge('c_i', 'i')\ns.transform_layout('b', '[i, j] -> [i % {kept}, j]')\n"


@given(st.integers(2, 12), st.integers(0, 4), st.integers(1, 8))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rows_are_kept_as_long_as_they_are_read(rows: int, back: int, kept: int) -> None:
    workload = window(rows, back)
    if kept > back or rows <= kept or back >= rows:
        made = compile_nest(workload, CPU, script(kept), auto=False)
        examine(made, draw_inputs(workload, 1))
        return
    with pytest.raises(HwgenError, match=r"H411[^\n]*\n[^\n]*in its place"):
        compile_nest(workload, CPU, script(kept), auto=False)


@pytest.mark.parametrize("factor", [3, 4, 5])
def test_loops_of_two_extents_are_merged(factor: int) -> None:
    """A block of rows is made in each of the first iterations, one is read in each of all."""
    workload = window(13, 1)
    edits = f"s.split('i', factor={factor})\ns.merge('c_i', 'i_o')\n"
    made = compile_nest(workload, CPU, edits, auto=False)
    examine(made, draw_inputs(workload, 1))
    assert made.schedule.loops("b")[0] == "c_i"


def test_of_what_the_caller_sees_nothing_repeats() -> None:
    for tensor in ("a", "c"):
        with pytest.raises(HwgenError, match=r"H41[35]"):
            Schedule(window(8, 1), CPU).transform_layout(tensor, "[i, j] -> [i % 4, j]")


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("d0 % 4, d1", True),
        ("d1, (d0 + 1) % 4", True),
        ("d0, d1", False),
        ("d0 // 4, d0 % 4", False),
        ("d0 % 4 % 2, d1", False),
    ],
)
def test_what_repeats(layout: str, expected: bool) -> None:
    assert rolls([parse_expression(x) for x in layout.split(", ")]) == expected
