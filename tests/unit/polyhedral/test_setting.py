"""Which intrinsic begins sums for another: one that does the same wherever the other is called."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import pytest

import hwgen
from hwgen.codegen.nodes import calls
from hwgen.model.reference import random_inputs
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec
from tests.sampling import QUICK

ARRAY = cast(
    Spec, read_document(Path(__file__).parents[2] / "specs" / "row_array.yaml").data
)  # fmt: skip
ZERO: Spec = {
    "unit": "array", "iterators": {"c": "J"}, "semantics": "dst[c] = 0",
    "operands": {"dst": {"memory": "sums"}}, "cycles": 1, "emit": "array_zero({{ dst.address }});",
}  # fmt: skip
PRODUCT = hwgen.workload(
    "product",
    tensors={"x": "int8[9, 11]", "w": "int8[11, 6]", "y": "int32[9, 6]"},
    compute=["y[m, n] += x[m, k] * w[k, n]"],
)


@pytest.mark.parametrize(
    ("operand", "fields", "begins"),
    [
        ("c", {}, True),
        ("c", {"address": "0..127"}, True),
        ("c", {"address": "64..127"}, False),
        ("b", {"address": "2..9"}, False),
        ("a", {"written_by": ["load_rows"]}, False),
    ],
)
def test_it_reaches_all_that_the_other_reaches(operand: str, fields: Spec, begins: bool) -> None:
    spec = copy.deepcopy(ARRAY)
    spec["intrinsics"]["zero"] = ZERO
    spec["intrinsics"]["multiply_first"]["operands"][operand].update(fields)
    compilation = hwgen.compile_kernel(PRODUCT, parse_hardware(spec), options=QUICK)
    examine(compilation, random_inputs(PRODUCT, 3))
    used = {call.intrinsic for call in calls(compilation.program.body)}
    assert ("multiply_first" in used, "zero" in used) == (begins, not begins)


def test_it_must_be_a_writer_that_is_accepted() -> None:
    spec = copy.deepcopy(ARRAY)
    spec["intrinsics"]["zero"] = ZERO
    spec["intrinsics"]["multiply"]["operands"]["c"]["written_by"] = ["zero", "multiply"]
    compilation = hwgen.compile_kernel(PRODUCT, parse_hardware(spec), options=QUICK)
    examine(compilation, random_inputs(PRODUCT, 3))
    assert "multiply_first" not in {call.intrinsic for call in calls(compilation.program.body)}
