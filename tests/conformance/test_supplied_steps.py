"""A store that shifts and saturates serves values that need neither."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import cast

import pytest

import hwgen
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec

ROOT = Path(__file__).parents[2]


@cache
def chip() -> HardwareSpec:
    spec = cast(Spec, deepcopy(read_document(ROOT / "hw_specs" / "vta.yaml").data))
    store = spec["intrinsics"]["store_out"]
    store["semantics"] = "dst[b, o] = int8(clip(src[b, o] >> shift, -128, 127))"
    store["immediates"] = {"shift": {"dtype": "int32", "range": "0..31"}}
    store["emit"] = "store({{ src.address }}, {{ dst.address }}, {{ shift }});"
    return parse_hardware(spec)


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("int8(clip(s[m] >> 5, -128, 127))", []),
        ("int8(clip(s[m], -128, 127))", []),
        ("int8(clip(s[m] >> 0, -128, 127))", []),
        ("int8(clip(s[m] >> 3, 0, 100))", ["shr_imm", "max_imm", "min_imm"]),
    ],
)
def test_what_changes_nothing_is_supplied(value: str, steps: list[str]) -> None:
    workload = hwgen.workload(
        "stored",
        tensors={"x": "int8[5, 16]", "w": "int8[16]", "s": "int32[5]", "y": "int8[5]"},
        compute=["s[m] += x[m, k] * w[k]", f"y[m] = {value}"],
    )
    compilation = hwgen.compile_kernel(workload, chip())
    done = [o.intrinsic.name for o in compilation.match.selection.operations if o.kind == "map"]
    assert done == steps
    for style in ("random", "extremes"):
        examine(compilation, draw_inputs(workload, 1, style))
