"""Workloads that one nest of loops does not hold: once refused, now compiled, run and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH, tiered

ROOT = Path(__file__).parents[2]
SATURATING = ROOT / "tests" / "specs" / "saturating.yaml"
MAC = "int16(clip(y[m, n] + (x[m, k] * {}[n, k] >> 4), -2047, 2047))"

Case = tuple[dict[str, str], list[Any]]


def square(names: str) -> dict[str, str]:
    return dict.fromkeys(names, "[8, 8]")


def over(do: str, **loops: int) -> dict[str, Any]:
    return {"do": do, "loops": loops}


CASES: dict[str, Case] = {
    "rewritten by a later phase": (
        square("xwab"),
        [
            "a[i, j] += x[i, k] * w[k, j]",
            "b[i, j] += a[i, k] * w[k, j]",
            "a[i, j] = a[i, j] + b[i, j]",
        ],
    ),
    "rewritten twice, and read between": (
        square("xwabc"),
        [
            "a[i, j] += x[i, k] * w[k, j]",
            "a[i, j] = max(a[i, j], 0)",
            "b[i, j] += a[i, k] * w[k, j]",
            "a[i, j] = a[i, j] + b[i, j]",
            "c[i, j] += a[i, k] * w[k, j]",
        ],
    ),
    "a version whose name another tensor has": (
        {**square("xwab"), "a_0": "[8, 8]"},
        [
            "a[i, j] += x[i, k] * w[k, j]",
            "b[i, j] += a[i, k] * w[k, j]",
            "a_0[i, j] = b[i, j] + 1.0",
            "a[i, j] = a[i, j] + a_0[i, j]",
        ],
    ),
    "parts of an output": (
        {**square("xw"), "s": "[8]", "t": "[8]", "y": "[16]"},
        [
            "s[m] += x[m, k]",
            over("y[i] = s[i] + 1.0", i=8),
            "t[m] += w[m, k]",
            over("y[i + 8] = t[i] + 1.0", i=8),
        ],
    ),
    "sums that lie between others": (
        {"x": "[4, 8]", "w": "[8, 8]", "y": "[8, 8]"},
        [over("y[2 * i + j, n] += x[i, k] * w[k, n]", i=4, j=2, n=8, k=8)],
    ),
    "parts that a third phase reads": (
        {**square("xw"), "s": "[8]", "t": "[8]", "y": "[16]", "z": "[16]"},
        [
            "s[m] += x[m, k]",
            over("y[i] = s[i] + 1.0", i=8),
            "t[m] += w[m, k]",
            over("y[i + 8] = t[i] + 1.0", i=8),
            over("z[i] = y[i] * 2.0", i=16),
        ],
    ),
    "a part rewritten, and all read": (
        square("xwaby"),
        [
            "a[i, j] += x[i, k] * w[k, j]",
            "b[i, j] += a[i, k] * w[k, j]",
            over("a[i, j] = b[i, j] + 1.0", i=4, j=8),
            "y[i, j] += a[i, k] * w[k, j]",
        ],
    ),
    "a part of an output rewritten": (
        square("xwab"),
        [
            "a[i, j] += x[i, k] * w[k, j]",
            "b[i, j] += a[i, k] * w[k, j]",
            over("a[i, j] = b[i, j] + 1.0", i=4, j=8),
        ],
    ),
    "a halo of a sum": (
        {"a": "[9, 16]", "b": "[16]", "s": "[9]", "y": "[8]"},
        ["s[m] += a[m, k] * b[k]", over("y[i] = s[i] + s[i + 1]", i=8)],
    ),
    "a halo": (
        {"a": "[10, 8]", "s": "[10, 8]", "y": "[8, 8]"},
        ["s[m, n] = max(a[m, n], 0)", over("y[i, n] = s[i, n] + s[i + 2, n]", i=8, n=8)],
    ),
    "two sums": (
        {"a": "[8, 16]", "b": "[8, 16]", "s": "[8, 8]", "t": "[8]", "y": "[8]"},
        ["s[m, n] += a[m, k] * b[n, k]", "t[m] += s[m, n]", "y[m] = max(t[m], 0)"],
    ),
    "what follows a sum, over its loop": (
        {"a": "[8, 16]", "t": "[8, 16]", "s": "[8]", "u": "[8, 16]", "y": "[8, 16]"},
        [
            "t[i, j] = max(a[i, j], 0)",
            "s[i] += t[i, j]",
            "u[i, j] = t[i, j] * s[i]",
            "y[i, j] = u[i, j] + 1.0",
        ],
    ),
    "caches that stages read in other orders": (
        {"x": "[9, 8]", "e": "[8, 8]", "y": "[8, 8]"},
        [
            over("e[i, j] = (x[i, j] + x[i + 1, j]) * x[i, j]", i=8, j=8),
            over("y[i, j] = (e[i, j] + x[i + 1, j]) * x[i, j]", i=8, j=8),
        ],
    ),
    "outputs with other loops": (
        {"w": "[32, 64]", "v": "[32, 64]", "e": "[32, 64]", "y": "[32, 64]"}
        | {"x": "[32, 32, 64]", "z": "[32, 32, 64]"},
        [
            "e[j, k] = w[j, k] + 1.0",
            "y[j, k] = e[j, k] * v[j, k]",
            "z[i, j, k] = x[i, j, k] * e[j, k]",
        ],
    ),
}

IN_ORDER: dict[str, Case] = {
    "begun with what is computed": (
        {"b": "int16[10]"},
        ["y[m, n] = max(b[n], 0)", over(f"y[m, n] = {MAC.format('w')}", m=3, n=10, k=16)],
    ),
    "begun with what another left": (
        {"b": "int16[10]", "v": "int8[10, 16]"},
        [
            "y[m, n] = b[n]",
            over(f"y[m, n] = {MAC.format('w')}", m=3, n=10, k=16),
            over(f"y[m, n] = {MAC.format('v')}", m=3, n=10, k=16),
        ],
    ),
    "begun with what was changed": (
        {"b": "int16[10]", "v": "int8[10, 16]"},
        [
            "y[m, n] = b[n]",
            over(f"y[m, n] = {MAC.format('w')}", m=3, n=10, k=16),
            "y[m, n] = max(y[m, n], 0)",
            over(f"y[m, n] = {MAC.format('v')}", m=3, n=10, k=16),
        ],
    ),
}


def held(made: Kernel) -> None:
    """It fits the chip and is right, in the simulator and as C; its script makes it again."""
    workload, hardware = made.workload, made.hardware
    check_program(made.program, hardware, workload)
    inputs = draw_inputs(workload, 1, "small")
    examine(made, inputs)
    if have_compiler():
        examine(made, inputs, "c")
    again = compile_script(workload, hardware, made.script)
    assert again.source.c == made.source.c


@pytest.mark.parametrize("name", tiered([*CASES], [*CASES][::3]))
def test_units_compute_it(name: str) -> None:
    shapes, compute = CASES[name]
    tensors = {t: f"float32{shape}" for t, shape in shapes.items()}
    workload = parse_workload({"name": "whole", "tensors": tensors, "compute": compute})
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    held(compile_kernel(workload, chip, options=QUICK))


@pytest.mark.parametrize("name", IN_ORDER)
def test_units_that_add_in_order_go_on_from_it(name: str) -> None:
    more, compute = IN_ORDER[name]
    tensors = {"x": "int8[3, 16]", "w": "int8[10, 16]", **more, "y": "int16[3, 10]"}
    workload = parse_workload({"name": "whole", "tensors": tensors, "compute": compute})
    held(compile_kernel(workload, load_hardware(SATURATING), options=QUICK))


def test_elements_that_no_statement_sets_alone_have_no_beginning() -> None:
    tensors = {"x": "int8[3, 16]", "w": "int8[10, 16]", "b": "int16[10]", "y": "int16[3, 10]"}
    compute = ["y[m, n] = b[n]", over(f"y[m, n] = {MAC.format('w')}", m=3, n=8, k=16)]
    workload = parse_workload({"name": "part", "tensors": tensors, "compute": compute})
    with pytest.raises(HwgenError, match="goes on from elements that no call sets") as refused:
        compile_kernel(workload, load_hardware(SATURATING))
    assert refused.value.code == "H305"


@pytest.mark.parametrize(
    ("tensors", "compute"),
    [
        (
            {"a": "int8[9, 16]", "b": "int8[16]", "s": "int32[9]", "y": "int8[8]"},
            ["s[m] += a[m, k] * b[k]", over("y[i] = int8(max(s[i], s[i + 1]))", i=8)],
        ),
        (
            {"a": "int8[8, 16]", "b": "int8[8, 16]", "s": "int32[8, 8]", "t": "int32[8]"}
            | {"y": "int8[8]"},
            ["s[m, n] += a[m, k] * b[n, k]", "t[m] += s[m, n]", "y[m] = int8(t[m])"],
        ),
    ],
    ids=["halo", "two sums"],
)
def test_a_host_goes_on_from_blocks_that_calls_lay_out_otherwise(
    tensors: dict[str, str], compute: list[Any]
) -> None:
    """Without it, on vta, they cannot meet: no call moves elements from lane to lane."""
    workload = parse_workload({"name": "whole", "tensors": tensors, "compute": compute})
    held(compile_workload(workload, load_hardware(ROOT / "hw_specs" / "vta.yaml"), options=QUICK))


HOSTED = ("rewritten twice, and read between", "parts that a third phase reads", "two sums")


HOSTS = ("vta", "gemmini", "davinci_core")


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        pytest.param(name, spec, marks=THOROUGH if (n + s) % 3 else ())
        for n, name in enumerate(HOSTED)
        for s, spec in enumerate(HOSTS)
    ],
)
def test_a_host_does_what_units_cannot(name: str, spec: str) -> None:
    chip = load_hardware(ROOT / "hw_specs" / f"{spec}.yaml")
    held(compile_workload(integers(name, chip), chip, options=QUICK))


def integers(name: str, chip: HardwareSpec) -> Any:
    """The workload in the types that a chip loads and adds up."""
    shapes, compute = CASES[name]
    dtype = "float32" if chip.name == "davinci_core" else "int32"
    tensors = {t: f"{dtype}{shape}" for t, shape in shapes.items()}
    text = [s if isinstance(s, str) else {**s, "do": s["do"].replace(".0", "")} for s in compute]
    return parse_workload(
        {"name": "whole", "tensors": tensors, "compute": text if dtype == "int32" else compute}
    )
