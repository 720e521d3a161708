"""What is computed of a sum and stored transposed: not in the sum's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

SPECS = Path(__file__).parents[2] / "hw_specs"


def product(y: str, dtype: str, sums: str, result: str) -> Workload:
    tensors = {"a": f"{dtype}[8, 16]", "b": f"{dtype}[16, 16]"}
    return make_workload(
        "transposed",
        tensors={**tensors, "s": f"{sums}[8, 16]", "y": f"{dtype}[{y}]"},
        compute=["s[m, n] += a[m, k] * b[k, n]", result],
    )


def test_a_unit_that_works_in_place_alone_is_not_proposed() -> None:
    chip = load_hardware(SPECS / "x86_avx2.yaml")
    straight = product("8, 16", "float32", "float32", "y[m, n] = max(s[m, n], 0)")
    assert "'relu'" in compile_kernel(straight, chip, options=QUICK).script
    given = product("16, 8", "float32", "float32", "y[n, m] = max(s[m, n], 0)")
    with pytest.raises(HwgenError) as caught:
        select(build_scop(given), chip)
    assert caught.value.code == "H301"
    found = compile_workload(given, chip, QUICK)
    examine(found, draw_inputs(given, 1), "both")


def test_where_a_copy_can_be_made_it_is() -> None:
    chip = load_hardware(SPECS / "vta.yaml")
    given = product("16, 8", "int8", "int32", "y[n, m] = int8(clip(s[m, n], 0, 127))")
    found = compile_kernel(given, chip, options=QUICK)
    examine(found, draw_inputs(given, 1), "both")
