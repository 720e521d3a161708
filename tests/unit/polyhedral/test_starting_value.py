"""What a sum may start from: only where the sum's value is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.match.starting_value import starting_value
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.sampling import QUICK

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
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
    found = starting_value(build_scop(workload(*epilogue, **changed)))
    if found is None:
        return None
    index = ", ".join(str(i) for i in found.value.indices)
    return f"{found.value.tensor}[{index}]", str(found.statements[-1].value)


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
            "int8(min(max(acc[m, n] + 16 >> 5, -128), 127))",
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


def test_sums_that_are_an_output_are_what_they_are() -> None:
    made = hwgen.workload(
        "sums",
        tensors={**{n: TENSORS[n] for n in "xwb"}, "acc": "int32[6, 5]", "y": "int32[6, 5]"},
        compute=["acc[m, n] += x[m, k] * w[k, n]", "y[m, n] = acc[m, n] + b[n]"],
    )
    scop = build_scop(made)
    found = starting_value(scop)
    is_output = made.tensor["acc"].role == "output"
    assert (found is None) == is_output


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
    assert found == ("b[m]", "int8(acc[m, n])")


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
    hardware = load_hardware(SPEC)
    (selection, *_) = select(build_scop(made), hardware)
    assert selection.start
    compiled = hwgen.compile_kernel(made, hardware, options=QUICK)
    # Over the whole range of int32, so that some sums wrap.
    inputs = random_inputs(made, 3)
    examined = examine(compiled, inputs)
    assert (examined.outputs["y"] == run_reference(made, inputs)["y"]).all()
