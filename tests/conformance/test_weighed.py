"""Narrow integers that units widen and add up as products with supplied weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwgen.codegen.emit_c import emit_firmware
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.weights import images_of
from hwgen.passes.covering import all_forms, best_form
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import compile_phase
from hwgen.passes.scripting import compile_script
from hwgen.passes.start import Start
from hwgen.pipeline import SearchOptions, compile_kernel, compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.packing import packing_bytes
from tests.planted.kernels import with_program
from tests.sampling import QUICK, THOROUGH, examples

ROOT = Path(__file__).parents[2]
ENGINE = "both" if have_compiler() else "python"
NARROW = {"a": "int8[M, N]", "b": "int8[M, N]", "c": "int8[M, N]"}


@cache
def vta() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "vta.yaml")


@cache
def added() -> Kernel:
    workload = load_workload(ROOT / "workloads" / "add.yaml", {"M": 56, "N": 256})
    return compile_kernel(workload, vta())


def _weighed(made: Kernel) -> list[tuple[object, ...]]:
    """Stages and types that were weighed before the search."""
    return [e.arguments for e in made.start.edits if e.primitive == "weigh"]


def _workload(m: int, n: int, *compute: str) -> Workload:
    sizes = {"M": m, "N": n}
    return make_workload("drawn", sizes=sizes, tensors=NARROW, compute=compute)


def test_a_residual_connection_is_added_by_the_matrix_unit() -> None:
    """Three cycles of the store unit an entry: that is the bound, and not the elements brought at
    four bytes each."""
    made = added()
    assert _weighed(made) == [("c", "int8")]
    assert made.cycles <= 6110
    assert made.bound.cycles <= 5100
    plain = compile_phase(Start(made.workload, vta()), SearchOptions())
    assert plain.cycles > 3 * made.cycles
    examine(made, draw_inputs(made.workload, 1), ENGINE)


def test_what_nothing_unweighed_can_beat_is_not_searched_without_weights() -> None:
    """The bound of the form without weights is above the cycles of the kernel with them."""
    forms = all_forms(Start(added().workload, vta()))
    assert [f.does("weigh") for f in forms] == [False, True]
    looked_at: list[Start] = []
    made = best_form(forms, partial(_kernel, looked_at), SearchOptions())
    assert looked_at == forms[1:]
    assert (made.source, made.bound) == (added().source, added().bound)
    best_form(forms, partial(_kernel, looked_at), SearchOptions(objective="traffic"))
    assert looked_at[1:] == forms


def _kernel(looked_at: list[Start], form: Start) -> Kernel:
    looked_at.append(form)
    return compile_phase(form, SearchOptions())


def test_a_form_that_is_refused_leaves_the_others() -> None:
    """And where all are, the first one's reason is told, or the one that is given."""
    forms = all_forms(Start(added().workload, vta()))
    without = HwgenError("H405", "no room")

    def one_of_two(form: Start) -> Kernel:
        if form is forms[0]:
            raise without
        return added()

    for by_units in (False, True):
        made = best_form(forms, one_of_two, SearchOptions(), by_units=by_units)
        assert made.source == added().source

    def none(form: Start) -> Kernel:
        raise without if form is forms[0] else HwgenError("H502", "no room either")

    with pytest.raises(HwgenError) as refused:
        best_form(forms, none, SearchOptions())
    assert refused.value is without
    given = HwgenError("H301", "nothing computes it")
    with pytest.raises(HwgenError) as refused:
        best_form(forms, none, SearchOptions(), given)
    assert refused.value is given

    def broken(_: Start) -> Kernel:
        raise HwgenError("H701", "no refusal")

    with pytest.raises(HwgenError, match="H701"):
        best_form(forms, broken, SearchOptions())


def test_products_take_no_weights() -> None:
    product = load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 16, "N": 16, "K": 16})
    assert len(all_forms(Start(product, vta()))) == 1


def test_weights_are_no_argument_and_counted() -> None:
    made = added()
    assert made.program.inputs == ("a", "b")
    assert [p.name for p in made.source.inputs] == ["a", "b"]
    (weights,) = (i for i in made.program.images if i.supplied is not None)
    assert (weights.supplied, weights.bytes, weights.shape) == (1, 256, (1,))
    without = replace(
        made.program, images=tuple(i for i in made.program.images if i is not weights)
    )
    workload = made.workload
    with_it, without_it = (packing_bytes(p, workload, vta()) for p in (made.program, without))
    assert with_it - without_it == 1 + 3 * 256


def test_firmware_has_the_weights_compiled_in() -> None:
    made = added()
    firmware = emit_firmware(made.program, made.hardware, made.workload)
    assert [p.name for p in firmware.source.inputs] == ["a", "b"]
    assert firmware.plan.workspace is not None
    assert firmware.plan.workspace.bytes == 0
    (constant,) = images_of(firmware.plan, {})
    assert np.array_equal(constant.values.ravel(), np.eye(16, dtype="int8").ravel())


def test_a_script_says_it() -> None:
    made = added()
    script = made.script
    assert "c_times_1 = s.weigh('c', 'int8')" in script
    again = compile_script(made.workload, made.hardware, script)
    assert again.cycles == made.cycles
    assert again.source.c == made.source.c


VALUES = (
    "a[m, n] + b[m, n]",
    "a[m, n] - b[m, n]",
    "max(a[m, n], b[m, n])",
    "max(a[m, n], 0)",
    "(a[m, n] * 3 - b[m, n] * 2 + 4) >> 2",
    "a[m, n] + d[n]",
    "a[m, n] + e[m, n]",
    "a[m, n] - f[n, m]",
)
MORE = {"d": "int8[N]", "e": "int32[M, N]", "f": "int8[N, M]"}


@THOROUGH
@given(
    st.integers(1, 40),
    st.integers(1, 70),
    st.sampled_from(VALUES),
    st.sampled_from((1, 2, 4)),
    st.integers(0, 9),
)
@settings(
    max_examples=examples(6),
    deadline=None,
    derandomize=True,
    suppress_health_check=(HealthCheck.too_slow,),
)
def test_drawn_shapes(m: int, n: int, value: str, batch: int, seed: int) -> None:
    """Rows and columns that end inside of blocks too, and blocks of several rows."""
    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml", {"BATCH": batch})
    tensors = {k: t for k, t in (NARROW | MORE).items() if f"{k}[" in value or k == "c"}
    statement = f"c[m, n] = int8(clip({value}, -128, 127))"
    sizes = {"M": m, "N": n}
    workload = make_workload("drawn", sizes=sizes, tensors=tensors, compute=[statement])
    inputs = draw_inputs(workload, seed)
    examine(compile_workload(workload, chip, QUICK), inputs, ENGINE)
    bare = replace(chip, processor=None)
    try:
        made = compile_kernel(workload, bare, options=QUICK)
    except HwgenError as error:
        refused = error
    else:
        examine(made, inputs, ENGINE)
        return
    assert refused.code.startswith(("H3", "H4", "H5", "H6"))


def test_what_units_alone_could_not_compute() -> None:
    """There is no subtraction, but there is a product with -1; the processor would take longer."""
    workload = _workload(56, 256, "c[m, n] = int8(clip(a[m, n] - b[m, n], -128, 127))")
    made = compile_workload(workload, vta())
    assert made.parts
    assert _weighed(made)
    assert not made.program.codes
    assert {i.supplied for i in made.program.images} == {None, 1, -1}
    examine(made, draw_inputs(workload, 2), ENGINE)
    small = _workload(4, 16, "c[m, n] = int8(clip(a[m, n] - b[m, n], -128, 127))")
    assert compile_workload(small, vta()).program.codes


@THOROUGH
def test_a_residual_behind_a_sum() -> None:
    """What is added to finished sums, in the same accumulators."""
    tensors = {"x": "int8[M, 64]", "w": "int8[N, 64]", "acc": "int32[M, N]"}
    workload = make_workload(
        "residual",
        sizes={"M": 16, "N": 64},
        tensors={**tensors, "r": "int8[M, N]", "c": "int8[M, N]"},
        compute=[
            "acc[m, n] += int32(x[m, k]) * int32(w[n, k])",
            "c[m, n] = int8(clip((acc[m, n] >> 4) + r[m, n], -128, 127))",
        ],
    )
    made = compile_kernel(workload, vta())
    assert _weighed(made) == [("c", "int8")]
    assert made.cycles < compile_phase(Start(workload, vta()), SearchOptions()).cycles
    examine(made, draw_inputs(workload, 3), ENGINE)


def test_floats_are_not_weighed() -> None:
    workload = load_workload(
        ROOT / "workloads" / "relu.yaml", {"M": 16, "N": 64}, dtypes={"T": "float32"}
    )
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    made = compile_kernel(workload, chip, options=QUICK)
    assert not _weighed(made)


def _with_weights(program: Program, number: int) -> Program:
    images = tuple(i if i.supplied is None else replace(i, supplied=number) for i in program.images)
    return replace(program, images=images)


@pytest.mark.parametrize("number", [0, 2, -1])
def test_other_weights_are_found(number: int) -> None:
    """The simulator computes with what is supplied, not with what was meant."""
    made = added()
    inputs = draw_inputs(made.workload, 1)
    wrong = with_program(made, _with_weights(made.lowering.program, number))
    with pytest.raises((HwgenError, AssertionError)):
        examine(wrong, inputs, "python")
