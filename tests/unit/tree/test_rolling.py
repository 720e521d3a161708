"""Layouts that repeat: legal as long as no element is needed after another has taken its place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import rolling
from hwgen.polyhedral.tree.loop_tree import Block, map_blocks
from hwgen.polyhedral.tree.relations import shared
from hwgen.polyhedral.tree.rolling import rolls, taken_too_early
from hwgen.spec.grammar import parse_expression
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

CPU = load_hardware(Path(__file__).parents[3] / "hw_specs" / "cpu_generic.yaml")


def window(rows: int, back: int) -> Workload:
    """Each result reads an element and the one so many rows before it."""
    shape = f"float32[{rows}, 5]"
    return hwgen.workload(
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


SCRIPTS = {
    "apart": "",
    "row by row": "s.merge('c_i', 'i')",
    "in blocks of rows": "s.split('i', factor=2)\n"
    "s.split('c_i', factor=2)\ns.merge('c_i_o', 'i_o')",
    "element by element": "s.merge('c_i', 'i')\ns.merge('c_j', 'j')",
}
"""Edits of a window's loops, legal where they stand alone."""


@pytest.mark.parametrize("name", SCRIPTS)
@given(st.integers(2, 9), st.integers(0, 4), st.integers(1, 6), st.tuples(*[st.integers(0, 2)] * 2))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_what_indices_tell_isl_says(
    name: str, rows: int, back: int, kept: int, later: tuple[int, int]
) -> None:
    """At every depth, of schedules that are legal and of others."""
    state = Schedule(window(rows, back), CPU).replay(SCRIPTS[name]).state
    layout = tuple(parse_expression(text) for text in (f"d0 % {kept}", "d1"))
    state = state.with_storage(replace(state.storage["b"], layout=layout))
    delays = dict(zip("bc", later, strict=True))
    common = min(shared(x, y) for x, y in product(state.sites, state.sites))
    loops = state.sites[0].names[: min(1, common)]

    def delayed(block: Block) -> Block:
        return replace(block, shifts=tuple((n, delays[block.stage]) for n in loops))

    state = replace(state, root=map_blocks(state.root, delayed))
    for depth in range(common + 1):
        found = taken_too_early(state, ["b"], depth)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rolling, "_one_remainder", Mock(return_value=None))
            assert (found is None) is (taken_too_early(state, ["b"], depth) is None)


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
