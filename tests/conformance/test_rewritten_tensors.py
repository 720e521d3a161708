"""Tensors that statements rewrite: whoever reads one afterwards reads what was written last."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import pytest

from hwgen.pipeline import compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import make_workload, parse_hardware
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec
from tests.sampling import QUICK

SPEC = Path(__file__).parents[2] / "hw_specs" / "npu_shared_buffer.yaml"


def chip(moved: bool) -> HardwareSpec:
    """The chip, or one whose products read a memory of their own, which moves fill."""
    spec = copy.deepcopy(cast(Spec, read_document(SPEC).data))
    if moved:
        intrinsics = spec["intrinsics"]
        spec["memories"]["tile"] = {"kind": "scratchpad", "dtype": "float32", "size": "16 KiB"}
        intrinsics["move"] = {
            "unit": "vector",
            "semantics": "dst[] = x[]",
            "operands": {"dst": {"memory": "tile"}, "x": {"memory": "local"}},
            "loops": {"c": {"extent": "1..4096", "strides": {"dst": 1, "x": 1}}},
            "cycles": "4 + c",
            "emit": "move({{ dst.address }}, {{ x.address }}, {{ c.extent }});",
        }
        for name in "xy":
            intrinsics["mul"]["operands"][name] = {"memory": "tile"}
    return parse_hardware(spec)


def workload(compute: list[str]) -> Workload:
    return make_workload(
        "rewritten", tensors=dict.fromkeys("xtuy", "float32[8, 16]"), compute=compute
    )


def check(wanted: Workload, hardware: HardwareSpec) -> None:
    """Raises where an output differs from the reference."""
    found = examine(compile_kernel(wanted, hardware, options=QUICK), draw_inputs(wanted, 1))
    assert found.functional is not None


BETWEEN = [
    "t[i, j] = x[i, j] + 1.0",
    "u[i, j] = t[i, j] * t[i, j]",
    "t[i, j] = max(t[i, j], 0)",
    "y[i, j] = t[i, j] * u[i, j]",
]
"""t is copied for the product, rewritten, and copied again."""


@pytest.mark.parametrize("moved", [False, True])
def test_a_copy_is_made_again_when_its_tensor_is_rewritten(moved: bool) -> None:
    check(workload(BETWEEN), chip(moved))


def test_a_copy_serves_both_factors_and_later_statements() -> None:
    """It is made once for as long as its tensor stays as it is."""
    kernel = compile_kernel(workload([*BETWEEN[:2], BETWEEN[3]]), chip(moved=True), options=QUICK)
    names = [o.intrinsic.name for o in kernel.match.selection.operations]
    assert names.count("move") == 2
    check(kernel.workload, kernel.hardware)


@pytest.mark.parametrize("moved", [False, True])
def test_what_is_written_last_stays_for_the_next_phase(moved: bool) -> None:
    """Only that is kept whole."""
    wanted = make_workload(
        "rewritten",
        tensors=dict.fromkeys("xtuy", "float32[8, 16]")
        | {"w": "float32[16, 8]", "a": "float32[8, 8]"},
        compute=[*BETWEEN, "a[i, n] += t[i, k] * w[k, n]"],
    )
    kernel = compile_kernel(wanted, chip(moved), options=QUICK)
    whole = [s.tensor for s in kernel.parts[0].match.selection.storages if s.shape]
    assert whole == ["t"]
    check(wanted, chip(moved))


@pytest.mark.parametrize("moved", [False, True])
def test_an_output_that_is_rewritten_after_it_was_read(moved: bool) -> None:
    check(workload([*BETWEEN, "t[i, j] = t[i, j] * 3.0"]), chip(moved))


def test_tensors_called_as_buffers_would_be() -> None:
    """Buffers get names of their own."""
    compute = ["y[i, j] = x[i, j] + x_local[i, j]", "y_local[i, j] = x[i, j] * 3.0"]
    names: list[str] = ["x", "x_local", "y", "y_local"]
    tensors = dict.fromkeys(names, "float32[8, 16]")
    check(make_workload("names", tensors=tensors, compute=compute), chip(moved=False))
