"""A tensor that reaches the accumulators by two copies: from off-chip memory to another memory of
the chip, and on from there."""

from __future__ import annotations

from copy import deepcopy
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


def staged(rows: int) -> HardwareSpec:
    """A chip whose accumulators, of so many rows each, are filled from a memory in between."""
    spec = cast(Spec, read_document(ROOT / "hw_specs" / "vta.yaml").data)
    spec["parameters"]["BATCH"]["value"] = rows
    spec["memories"]["staging"] = {
        "kind": "scratchpad", "dtype": "int32", "entry": ["BATCH", "BLOCK_OUT"], "size": "64 KiB",
        "identifiers": {"id": 5, "out_id": 6},
    }  # fmt: skip
    first = spec["intrinsics"].pop("load_acc")
    second = deepcopy(first)
    first["operands"]["dst"] = {"memory": "staging", "address": "0..255"}
    second["operands"]["src"] = {"memory": "staging", "address": "0..255"}
    second["cycles"] = "5 + iterations"
    second["loops"] = deepcopy(spec["intrinsics"]["add"]["loops"])
    del second["emit"]
    second["emit"] = "copy_up({{ src.address }}, {{ dst.address }});"
    spec["intrinsics"] |= {"load_staging": first, "copy_up": second}
    spec["buses"]["axi"]["priority"] = ["fetch", "load_uop", "load_inp", "load_wgt", "load_staging"]
    return parse_hardware(spec)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_bias_comes_by_two_copies(rows: int) -> None:
    workload = hwgen.workload(
        "biased",
        tensors={
            "a": "int8[8, 32]", "b": "int8[32, 32]", "bias": "int32[32]", "acc": "int32[8, 32]",
            "y": "int8[8, 32]",
        },
        compute=[
            "acc[m, n] += a[m, k] * b[n, k]",
            "y[m, n] = int8(clip((acc[m, n] + bias[n]) >> 8, -128, 127))",
        ],
    )  # fmt: skip
    compilation = hwgen.compile_kernel(workload, staged(rows))
    assert "copy_up" in str(compilation.match)
    examine(compilation, draw_inputs(workload, 3))
