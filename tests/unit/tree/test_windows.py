"""What windows that slide have in common is computed once (`retain`)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import copies
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.spec.expression import Binary, Const, Expr, evaluate
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

CPU = load_hardware(Path(__file__).parents[3] / "hw_specs" / "cpu_generic.yaml")


def windows(results: int, width: int, step: int = 1) -> Workload:
    """Each result adds up so many neighbours, so many further than those of the one before."""
    inside = step * (results - 1) + width
    return hwgen.workload(
        "windows",
        tensors=dict.fromkeys("ab", f"float32[{inside}]") | {"c": f"float32[{results}]"},
        compute=[
            "b[i] = a[i] * 2",
            {"do": f"c[i] += b[{step} * i + k]", "loops": {"i": results, "k": width}},
        ],
    )


def script(tile: int, kept: int = 0) -> str:
    retained = f"o, i = s.split('c_i', factor={tile})\ns.compute_at('b', o)\ns.retain('b', o)\n"
    return retained + (f"s.transform_layout('b', '[i] -> [i % {kept}]')\n" if kept else "")


def computed(state: LoopTree, tensor: str) -> int:
    """How often elements of a tensor are computed."""
    (site,) = (s for s in state.sites if s.block.stage == tensor)
    points = product(*(range(x.extent) for x in site.loops))
    named = (dict(zip(site.names, p, strict=True)) for p in points)
    return sum(all(evaluate(c, at) for c in site.block.predicate) for at in named)


@given(
    st.integers(2, 14), st.integers(1, 5), st.integers(1, 3), st.integers(1, 7), st.integers(1, 20)
)
@settings(deadline=None, derandomize=True, max_examples=80)
def test_each_element_is_computed_once(
    results: int, width: int, step: int, tile: int, kept: int
) -> None:
    """In a buffer that has room for a window; where windows have nothing in common, it is said."""
    workload = windows(results, width, step)
    inside = step * (results - 1) + width
    reach = step * (tile - 1) + width
    if tile >= results or step > width:
        return  # A single window, or what none reads between them.
    if reach <= step * tile:
        with pytest.raises(HwgenError, match="H413"):
            Schedule(workload, CPU).replay(script(tile))
        return
    assert computed(Schedule(workload, CPU).replay(script(tile)).state, "b") == inside
    if kept < min(reach, inside):
        with pytest.raises(HwgenError, match="H411"):
            compile_nest(workload, CPU, script(tile, kept), auto=False)
        return
    made = compile_nest(workload, CPU, script(tile, kept), auto=False)
    examine(made, draw_inputs(workload, 1))


def test_windows_that_slide_along_two_dimensions() -> None:
    """And in the tiles of larger tiles, over the loops of both."""
    workload = hwgen.workload(
        "planes",
        tensors=dict.fromkeys("ab", "float32[15, 12]") | {"c": "float32[13, 10]"},
        compute=[
            "b[i, j] = a[i, j] * 2",
            {
                "do": "c[i, j] += b[i + r, j + t]",
                "loops": {"i": 13, "j": 10, "r": 3, "t": 3},
            },
        ],
    )
    edits = (
        "io, jo, i, j = s.tile('c_i', 'c_j', 6, 4)\nim, i = s.split(i, factor=2)\n"
        "s.reorder(io, im, jo, i, j)\ns.compute_at('b', jo)\n"
        "s.retain('b', jo)\ns.retain('b', im)\ns.retain('b', io)\n"
    )
    made = compile_nest(workload, CPU, edits, auto=False)
    assert computed(Schedule(workload, CPU).replay(edits).state, "b") == 15 * 12
    examine(made, draw_inputs(workload, 1))


def test_an_element_too_few_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = copies.new_in

    def late(site: Site, loop: str) -> Expr | None:
        """One element later than what is new."""
        match right(site, loop):
            case Binary("or", first, Binary("and", later, Binary(op, own, Const(int(least))))):
                new = Binary("and", later, Binary(op, own, Const(least + 1)))
                return Binary("or", first, new)
            case other:
                return other

    monkeypatch.setattr(copies, "new_in", late)
    with pytest.raises(HwgenError, match="H411"):
        Schedule(windows(12, 3), CPU).replay(script(4))
