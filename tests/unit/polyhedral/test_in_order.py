"""Accumulations in order: `acc = f(acc, ...)`, each value made from the last one."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from hwgen.codegen.hardware_loops import Order, Walk, absorb, cuttable
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.dependences import dependences
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.tree import legality
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.conftest import Mutate
from tests.fuzz.edits import catch
from tests.planted.order import order_mutations
from tests.planted.programs import mutations
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).parents[3]
SATURATING = ROOT / "tests/specs/saturating.yaml"
MAC = "int16(clip(y[m, n] + (x[m, c, k] * w[n, c, k] >> 4), -2047, 2047))"


def chip() -> HardwareSpec:
    return load_hardware(SATURATING)


def changed(semantics: str = "", mat: str = "4 KiB") -> HardwareSpec:
    """The chip with another product, or another size of the memory of its blocks."""
    spec = cast("dict[str, Any]", read_document(SATURATING).data)
    if semantics:
        spec["intrinsics"]["multiply"]["semantics"] = semantics
    spec["memories"]["mat"]["size"] = mat
    return parse_hardware(spec)


def saturating(
    c: int, k: int, *, value: str = MAC, begin: str = "0", order: str = "mnck"
) -> Workload:
    extents = {"m": 3, "n": 10, "c": c, "k": k}
    bias = {"b": "int16[10]"} if begin == "b[n]" else {}
    return parse_workload(
        {
            "name": "saturating",
            "tensors": {
                "x": f"int8[3, {c}, {k}]",
                "w": {"type": f"int8[10, {c}, {k}]", "constant": True},
                **bias,
                "y": "int16[3, 10]",
            },
            "compute": [
                f"y[m, n] = {begin}",
                {"do": f"y[m, n] = {value}", "loops": {n: extents[n] for n in order}},
            ],
        }
    )


def test_the_reference_takes_each_value_from_the_last_one() -> None:
    workload = saturating(2, 24, begin="b[n]")
    inputs = random_inputs(workload, 3)
    x, w, b = (inputs[n].tolist() for n in ("x", "w", "b"))
    expected = [list(b) for _ in range(3)]
    for m, n, c, k in product(range(3), range(10), range(2), range(24)):
        step = expected[m][n] + (x[m][c][k] * w[n][c][k] >> 4)
        expected[m][n] = min(max(step, -2047), 2047)
    assert run_reference(workload, inputs)["y"].tolist() == expected


@pytest.mark.parametrize(
    ("c", "k", "begin", "order"),
    [(1, 8, "0", "mnck"), (3, 16, "b[n]", "mcnk"), (2, 32, "0", "ckmn")],
)
def test_a_chip_that_adds_in_order_does_it_bit_for_bit(
    c: int, k: int, begin: str, order: str
) -> None:
    """The last one does not fit on the chip: its reduction runs in tiles, in order."""
    workload = saturating(c, k, begin=begin, order=order)
    compilation = compile_kernel(
        workload, changed(mat="4 KiB" if k < 32 else "64 B"), options=QUICK
    )
    loops = [x.loop for x in compilation.tiling.loops]
    assert k < 32 or {"c", "k"} <= {*loops}
    inputs = random_inputs(workload, 1)
    examine(compilation, inputs)
    if have_compiler():
        examine(compilation, inputs, "c")


def test_a_beginning_that_no_intrinsic_sets_is_named() -> None:
    with pytest.raises(HwgenError, match="no intrinsic sets out to 7") as caught:
        compile_kernel(saturating(1, 8, begin="7"), chip())
    assert caught.value.code == "H305"


def test_the_dependences_of_an_accumulation_in_order_bind() -> None:
    found = dependences(build_scop(saturating(1, 8)))
    assert "S1[m, n, c = 0, k] -> S1[m' = m, n' = n, c' = 0, k']" in str(found.binding)
    assert found.reductions.is_empty()


@pytest.mark.parametrize(
    "semantics",
    [
        "dst[o] = int16(clip(dst[o] + (a[i] * b[o, i] >> 4), -2047, 2046))",
        "dst[o] = int16(clip((dst[o] >> 1) + (a[i] * b[o, i] >> 4), -2047, 2047))",
        "dst[o] += int16(a[i] * b[o, i] >> 4)",
    ],
)
def test_only_the_same_step_matches(semantics: str) -> None:
    with pytest.raises(HwgenError) as caught:
        compile_kernel(saturating(1, 8), changed(semantics))
    assert caught.value.code == "H301"


def test_a_sum_is_not_computed_by_steps_that_saturate() -> None:
    workload = parse_workload(
        {
            "name": "sums",
            "tensors": {"x": "int8[3, 8]", "w": "int8[10, 8]", "y": "int16[3, 10]"},
            "compute": ["y[m, n] += int16(x[m, k] * w[n, k] >> 4)"],
        }
    )
    with pytest.raises(HwgenError) as caught:
        compile_kernel(workload, chip())
    assert caught.value.code == "H301"


@pytest.mark.parametrize(("c", "k", "order"), [(1, 12, "mnck"), (2, 8, "mnkc")])
def test_lanes_take_consecutive_iterations_only(c: int, k: int, order: str) -> None:
    """A last block that is no whole one would add what is no iteration; eight of the outer loop
    are not consecutive."""
    with pytest.raises(HwgenError) as caught:
        compile_kernel(saturating(c, k, order=order), chip())
    assert caught.value.code == "H302"


WALKS = (Walk(4, (0, 8, 1)), Walk(3, (5, 0, 0)), Walk(2, (0, 1, 64)))
"""A loop that comes back to its entries around one that does not, and another inside."""


def test_a_loop_nest_keeps_the_order_of_what_comes_back() -> None:
    order = Order(0, WALKS)
    outer, apart, inner = WALKS
    assert order.holds(WALKS)
    assert order.holds((apart, outer, inner))
    assert order.holds((Walk(2, (0, 16, 2)), apart, Walk(2, (0, 8, 1)), inner))
    assert not order.holds((inner, apart, outer))
    assert not order.holds((Walk(2, (0, 8, 1)), Walk(2, (0, 16, 2)), inner))
    assert Order(0, None).holds((inner, apart, outer))
    assert [cuttable(WALKS, n, 0) for n in range(3)] == [True, True, False]


def test_hardware_loops_take_the_iterations_in_order() -> None:
    multiply = chip().intrinsic["multiply"]
    walks = (Walk(2, (0, 3, 5)), Walk(7, (0, 1, 1)))
    for candidate in (walks, walks[::-1]):
        found = absorb(multiply, candidate, ordered=True)
        nest = (*found.outer, *found.hardware)
        assert [w for w in nest if w.extent > 1] == list(candidate)


CPU = load_hardware(ROOT / "hw_specs/cpu_generic.yaml")
CUDA = load_hardware(ROOT / "hw_specs/cuda_generic.yaml")


@pytest.mark.parametrize("hardware", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("begin", tiered(["0", "7", "b[n]"], ["b[n]"]))
def test_a_processor_adds_in_order(hardware: HardwareSpec, begin: str) -> None:
    workload = saturating(2, 9, begin=begin)
    compilation = compile_nest(workload, hardware)
    inputs = random_inputs(workload, 2)
    examine(compilation, inputs)
    if hardware is CPU and have_compiler():
        examine(compilation, inputs, "c")


EDITS: tuple[tuple[str, tuple[str | int, ...]], ...] = (
    ("H411", ("reorder", "k", "c")),
    ("H412", ("parallel", "k")),
    ("H413", ("rfactor", "y", "c")),
    ("H413", ("pad", "k", 16)),
)


@pytest.mark.parametrize(("code", "edit"), EDITS)
def test_edits_that_would_reorder_it_are_refused(code: str, edit: tuple[str | int, ...]) -> None:
    schedule = Schedule(saturating(2, 9), CPU)
    with pytest.raises(HwgenError) as caught:
        getattr(schedule, str(edit[0]))(*edit[1:])
    assert caught.value.code == code


def test_threads_do_not_share_it() -> None:
    with pytest.raises(HwgenError) as caught:
        Schedule(saturating(2, 9), CUDA).bind("k", "threadIdx.x")
    assert caught.value.code == "H412"


def test_edits_that_keep_the_order_are_accepted() -> None:
    workload = saturating(2, 9)
    script = """
outer, inner = s.split('k', factor=4)
s.reorder('c', 'm', outer)
s.decompose_reduction('y', 'c')
copy = s.cache_write('y', 'heap')
"""
    compilation = compile_nest(workload, CPU, script=script, auto=False)
    inputs = random_inputs(workload, 1)
    examine(compilation, inputs)
    if have_compiler():
        examine(compilation, inputs, "c")


def test_steps_in_another_order_are_caught() -> None:
    """Two reduction loops in tiles, one inside them: each of them backwards gives other results."""
    workload = saturating(2, 32, order="ckmn")
    compilation = compile_kernel(workload, changed(mat="64 B"), options=QUICK)
    program, hardware = compilation.program, compilation.hardware
    inputs = random_inputs(workload, 1)
    (mutation,) = order_mutations(hardware)
    assert mutation.name in {m.name for m in mutations(hardware)}
    mutants = {str(m): m for m in (mutation.mutate(program, seed) for seed in range(8))}
    assert len(mutants) == 3
    for mutant in mutants.values():
        assert mutant is not None
        assert catch(mutant, hardware, workload, inputs) in mutation.caught_by
    assert catch(program, hardware, workload, inputs) == ""
    assert not order_mutations(load_hardware(ROOT / "hw_specs/vta.yaml"))


def test_without_the_check_of_edits_the_result_is_wrong(mutate: Mutate) -> None:
    """Two truths: what legality refuses (H411, above) the reference refuses too."""

    def nothing(*_: object) -> None:
        """No violation."""

    mutate(legality, "_misordered", nothing)
    workload = saturating(2, 9)
    compilation = compile_nest(workload, CPU, script="s.reorder('k', 'c')", auto=False)
    with pytest.raises(HwgenError) as caught:
        examine(compilation, random_inputs(workload, 2))
    assert caught.value.code == "H790"
