"""The move `start_from`: sums start from an addend only where their value is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.covering import all_forms
from hwgen.passes.moves.inline import inline
from hwgen.passes.moves.start_from import start_from
from hwgen.passes.phase import compile_phase
from hwgen.passes.start import Start
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.sampling import QUICK

CHIPS = Path(__file__).parents[3] / "hw_specs"
HARDWARE = load_hardware(Path(__file__).parents[2] / "specs" / "row_array.yaml")
TENSORS = {
    "x": "int8[6, 9]",
    "w": "int8[9, 5]",
    "b": "int32[5]",
    "r": "int32[6]",
    "s": "int32[6, 5]",
    "h": "int8[5]",
    "t": "int32[9]",
    "acc": "int32[6, 5]",
    "y": "int8[6, 5]",
}


def workload(*epilogue: str, **changed: str) -> Workload:
    """A product and what is made of it; only the tensors that occur."""
    text = " ".join(("acc[m, n] += x[m, k] * w[k, n]", *epilogue))
    tensors = {n: d for n, d in (TENSORS | changed).items() if f"{n}[" in text.replace("int8(", "")}
    return hwgen.workload(
        "start", tensors=tensors, compute=["acc[m, n] += x[m, k] * w[k, n]", *epilogue]
    )


def started(*epilogue: str, **changed: str) -> tuple[str, str] | None:
    """What the sums start from, and the last statement without it."""
    start = Start(workload(*epilogue, **changed), HARDWARE)
    form = next(start_from(start, start.given.statements[-1].name), None)
    if form is None:
        return None
    begin, sums, *_, last = form.workload.statements
    assert sums.begins(begin)
    assert begin.target == sums.target
    return str(begin.value), str(last.value)


@pytest.mark.parametrize(
    ("epilogue", "start", "rest"),
    [
        ("y[m, n] = int8((acc[m, n] + b[n]) >> 5)", "b[n]", "int8(acc[m, n] >> 5)"),
        ("y[m, n] = int8((b[n] + acc[m, n]) >> 5)", "b[n]", "int8(acc[m, n] >> 5)"),
        ("y[m, n] = int8((acc[m, n] + r[m]) >> 5)", "r[m]", "int8(acc[m, n] >> 5)"),
        ("y[m, n] = int8(max(acc[m, n] + s[m, n], 0))", "s[m, n]", "int8(max(acc[m, n], 0))"),
        (
            "y[m, n] = int8(clip((acc[m, n] + 16 + b[n]) >> 5, -128, 127))",
            "b[n]",
            "int8(clip(acc[m, n] + 16 >> 5, -128, 127))",
        ),
        # The first addend only; the other one stays.
        ("y[m, n] = int8(acc[m, n] + b[n] + r[m])", "b[n]", "int8(acc[m, n] + r[m])"),
    ],
)
def test_an_input_that_is_added_to_every_element(epilogue: str, start: str, rest: str) -> None:
    assert started(epilogue) == (start, rest)


@pytest.mark.parametrize(
    "epilogue",
    [
        "y[m, n] = int8(acc[m, n] >> 5)",
        # Not added to the sum itself.
        "y[m, n] = int8((acc[m, n] >> 5) + b[n])",
        "y[m, n] = int8(acc[m, n] * 3 + b[n])",
        "y[m, n] = int8(acc[m, n] - b[n])",
        "y[m, n] = int8(max(acc[m, n], b[n]))",
        # Another element of the sums, or the sum twice.
        "y[m, n] = int8(acc[m, n] + acc[m, n] + b[n])",
        "y[m, n] = int8((acc[m, n] + b[n]) * acc[m, n])",
        # Narrower than the sums: a load would have to widen it.
        "y[m, n] = int8(acc[m, n] + h[n])",
    ],
)
def test_what_is_no_start(epilogue: str) -> None:
    assert started(epilogue) is None


def test_a_second_reader_of_the_sums_would_see_the_addend() -> None:
    both = ("y[m, n] = int8(acc[m, n] + b[n])", "z[m, n] = int8(acc[m, n] >> 8)")
    assert started(*both, z="int8[6, 5]") is None


def test_a_maximum_starts_from_its_first_term() -> None:
    tensors = {"x": "int32[6, 9]", "y": "int32[6]"}
    made = hwgen.workload("peak", tensors=tensors, compute=["y[m] max= x[m, k]"])
    (form,) = start_from(Start(made, HARDWARE), "S0")
    assert [str(s) for s in form.workload.statements] == ["y[m] = x[m, 0]", "y[m] max= x[m, k]"]
    assert form.trace.strip() == "s.start_from('y', 'x')"


def test_floats_are_not_added_in_another_order() -> None:
    floats = {"x": "float32[6, 9]", "w": "float32[9, 5]", "b": "float32[5]"}
    floats |= {"acc": "float32[6, 5]", "y": "float32[6, 5]"}
    assert started("y[m, n] = max(acc[m, n] + b[n], 0)", **floats) is None


def test_a_transposed_addend_keeps_its_own_indices() -> None:
    found = started("y[m, n] = int8(acc[m, n] + s[n, m])", s="int32[5, 6]")
    assert found == ("s[n, m]", "int8(acc[m, n])")


def test_sums_that_are_read_across_start_from_the_same_element() -> None:
    square = {"x": "int8[6, 9]", "w": "int8[9, 6]", "b": "int32[6]", "acc": "int32[6, 6]"}
    square["y"] = "int8[6, 6]"
    # y[n, m] = acc[m, n] + b[m], in the names of the sums' loops.
    found = started("y[m, n] = int8(acc[n, m] + b[n])", **square)
    assert found == ("b[m]", "int8(acc[n, m])")


@pytest.mark.parametrize(
    "epilogue",
    [
        "y[m, n] = int8(clip((acc[m, n] + b[n]) >> 5, -128, 127))",
        "y[m, n] = int8(clip((acc[m, n] + r[m]) >> 5, -128, 127))",
        "y[m, n] = int8(clip((s[m, n] + acc[m, n]) >> 5, -128, 127))",
    ],
)
def test_sums_that_start_from_an_input_wrap_around_as_they_must(epilogue: str) -> None:
    made = workload(epilogue)
    compiled = hwgen.compile_kernel(made, HARDWARE, options=QUICK)
    assert compiled.match.selection.start
    assert compiled.script.startswith("s.start_from('acc', ")
    # Over the whole range of int32, so that some sums wrap.
    inputs = random_inputs(made, 3)
    examined = examine(compiled, inputs)
    assert (examined.outputs["y"] == run_reference(made, inputs)["y"]).all()


def test_a_residual_is_loaded_into_the_sums_though_a_call_could_add_it() -> None:
    tensors = dict.fromkeys(("x", "y"), "int8[16, 64]") | {"w": "int8[64, 64]"}
    tensors |= dict.fromkeys(("r", "acc"), "int32[16, 64]")
    compute = [
        "acc[m, n] += x[m, k] * w[n, k]",
        "y[m, n] = int8(clip(acc[m, n] + r[m, n], -128, 127))",
    ]
    made = hwgen.workload("residual", tensors=tensors, compute=compute)
    start = Start(made, load_hardware(CHIPS / "vta.yaml"))
    plain, begun = all_forms(start)
    assert begun.does("start_from")
    kernels = [compile_phase(form, QUICK) for form in (plain, begun)]
    assert kernels[1].cycles < kernels[0].cycles
    chosen = hwgen.compile_kernel(made, start.hardware, options=QUICK)
    assert chosen.script.startswith(kernels[1].script)


def test_an_intermediate_that_sums_start_from_is_inlined_there() -> None:
    """What begins sums is a statement without a stage of its own."""
    compute = [
        "r[m] = s[m]",
        "acc[m, n] += x[m, k] * w[k, n]",
        "y[m, n] = int8((acc[m, n] + r[m]) >> 5)",
    ]
    tensors = {n: TENSORS[n] for n in ("x", "w", "acc", "r", "y")} | {"s": "int32[6]"}
    given = hwgen.workload("start", tensors=tensors, compute=compute)
    ordered = Start(given, HARDWARE).edited(lambda s: s.start_from("acc", "r"))
    assert {s.name for s in ordered.workload.statements} <= {*ordered.stages}
    (form,) = inline(ordered, "S0")
    assert str(form.workload.statements[0]).endswith("= s[m]")
