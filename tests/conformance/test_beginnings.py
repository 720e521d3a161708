"""Where `max=` and `min=` begin on a chip that sets accumulators to zero only."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import hwgen
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.match.operations import Operation
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec

ROOT = Path(__file__).parents[2]


def spec() -> Spec:
    return cast(Spec, deepcopy(read_document(ROOT / "hw_specs" / "vta.yaml").data))


@cache
def chip() -> HardwareSpec:
    return parse_hardware(spec())


def pooled(op: str, dtype: str, value: str = "x[n, k]") -> Workload:
    tensors = {"x": f"{dtype}[20, 6]", "t": "int32[20]", "y": "int8[20]"}
    compute = [f"t[n] {op} {value}", "y[n] = int8(clip(t[n], -128, 127))"]
    return hwgen.workload("pooled", tensors=tensors, compute=compute)


def begun(compilation: Kernel) -> list[tuple[str, int | float]]:
    """The calls that begin, each with its immediate."""

    def number(o: Operation) -> int | float:
        return next((v for _, v in o.immediates), 0)

    operations = compilation.match.selection.operations
    return [(o.intrinsic.name, number(o)) for o in operations if o.kind == "init"]


@pytest.mark.parametrize(
    ("op", "dtype", "value", "calls"),
    [
        ("max=", "int8", "x[n, k]", [("reset", 0), ("add_imm", -128)]),
        ("min=", "int8", "x[n, k]", [("reset", 0), ("add_imm", 127)]),
        # No term is below zero, or above.
        ("max=", "uint8", "x[n, k]", [("reset", 0)]),
        ("max=", "int8", "max(x[n, k], 0)", [("reset", 0)]),
        # -2147483648 fits no immediate: the first element is one that no term is below.
        ("max=", "int32", "x[n, k]", [("load_acc", 0)]),
        ("min=", "int32", "x[n, k]", [("load_acc", 0)]),
    ],
)
def test_what_changes_nothing_is_made(
    op: str, dtype: str, value: str, calls: list[tuple[str, int | float]]
) -> None:
    workload = pooled(op, dtype, value)
    compilation = hwgen.compile_kernel(workload, chip())
    assert begun(compilation) == calls
    for style in ("random", "extremes"):
        examine(compilation, draw_inputs(workload, 1, style))
    again = compile_script(workload, chip(), compilation.script)
    assert again.source.c == compilation.source.c


def test_the_emitted_c_begins_as_the_program_does() -> None:
    workload = pooled("max=", "int8")
    examine(hwgen.compile_kernel(workload, chip()), draw_inputs(workload, 2), engine="c")


def test_terms_that_may_be_beyond_what_can_be_set() -> None:
    """Neither an input's first element nor a number that fits: refused, with the number."""
    workload = pooled("max=", "int32", "x[n, k] + 5")
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.compile_kernel(workload, chip())
    assert caught.value.code == "H305"
    assert "sets acc to -2147483648" in str(caught.value)


def test_who_writes_last_is_one_that_the_update_accepts() -> None:
    changed = spec()
    accepted = [n for n in changed["intrinsics"] if n != "add_imm"]
    changed["intrinsics"]["max"]["operands"]["dst"]["written_by"] = [
        n for n in accepted if "acc" in str(changed["intrinsics"][n]["operands"]["dst"]["memory"])
    ]
    workload = pooled("max=", "int8")
    compilation = hwgen.compile_kernel(workload, parse_hardware(changed))
    assert begun(compilation) == [("reset", 0), ("min_imm", -128)]
    examine(compilation, draw_inputs(workload, 1))


def test_a_maximum_moves_nothing_down() -> None:
    changed = spec()
    kept = [n for n in changed["intrinsics"] if n not in ("add_imm", "min_imm")]
    changed["intrinsics"]["max"]["operands"]["dst"]["written_by"] = [
        n for n in kept if "acc" in str(changed["intrinsics"][n]["operands"]["dst"]["memory"])
    ]
    workload = pooled("max=", "int8")
    compilation = compile_workload(workload, parse_hardware(changed))
    examine(compilation, {"x": np.full((20, 6), -5, np.int8)})
