"""Sums of one phase and what other phases leave: added to them, and spilled out of their loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.sampling import QUICK, tiered
from tests.small_npu import npu_of

ROOT = Path(__file__).resolve().parents[2]
ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)
SCALED = "int8(clip(round(float32({}) * 0.0078125), -128, 127))"


@pytest.mark.parametrize("value", ["t[m, n] + s[m, n]", "s[m, n] + t[m, n]"])
def test_what_another_phase_computed_is_added_to_a_sum(value: str) -> None:
    """Sums start from what off-chip memory holds: what is on the chip goes there first."""
    shapes = {"x": "18, 20", "w": "20, 33", "u": "18, 20", "v": "20, 33"}
    workload = parse_workload(
        {
            "name": "added",
            "tensors": {
                **{name: f"int8[{shape}]" for name, shape in shapes.items()},
                **dict.fromkeys("st", "int32[18, 33]"),
                "y": "int8[18, 33]",
            },
            "compute": [
                "s[m, n] += x[m, k] * w[k, n]",
                "t[m, n] += u[m, k] * v[k, n]",
                f"y[m, n] = {SCALED.format(value)}",
            ],
        }
    )
    kernel = compile_kernel(
        workload, load_hardware(ROOT / "hw_specs" / "gemmini.yaml"), options=QUICK
    )
    assert kernel.account.phases
    assert [s.tensor for s in kernel.account.spills] == ["s"]
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 1), engine)


@pytest.mark.parametrize("shape", ["33", "18, 33"])
def test_an_input_that_two_sums_start_from(shape: str) -> None:
    index = "m, n" if "," in shape else "n"
    workload = parse_workload(
        {
            "name": "biased",
            "tensors": {
                "x": "int8[18, 20]",
                "w": "int8[20, 33]",
                "v": "int8[20, 33]",
                "b": f"int32[{shape}]",
                **dict.fromkeys("st", "int32[18, 33]"),
                **dict.fromkeys("yz", "int8[18, 33]"),
            },
            "compute": [
                "s[m, n] += x[m, k] * w[k, n]",
                f"y[m, n] = {SCALED.format(f's[m, n] + b[{index}]')}",
                "t[m, n] += x[m, k] * v[k, n]",
                f"z[m, n] = {SCALED.format(f't[m, n] + b[{index}]')}",
            ],
        }
    )
    kernel = compile_kernel(
        workload, load_hardware(ROOT / "hw_specs" / "gemmini.yaml"), options=QUICK
    )
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 1), engine)


# What is computed in the loops of a sum


SUMS = ("s[j] += t[i, j]", "s[j] max= t[i, j]")
SPILLED = [(s, *c) for s in SUMS for c in ((300, "tu"), (400, "tu"), (600, "t"), (65536, ""))]


@pytest.mark.parametrize(
    ("reduce", "size", "spills"), tiered(SPILLED, [SPILLED[0], SPILLED[4], SPILLED[7]])
)
def test_what_shares_loops_with_a_sum_leaves_them_to_be_stored(
    reduce: str, size: int, spills: str
) -> None:
    """`u` is read by a later phase alone: where it does not fit, it is stored by a phase that sums
    nothing."""
    kernel = run(size, "t[i, j] = max(x[i, j], 0)", "u[i, j] = t[i, j] * 0.5", reduce)
    assert {s.tensor for s in kernel.account.spills} == set(spills)


def test_a_term_of_a_sum_that_later_phases_read_stays_or_is_refused() -> None:
    """What the sum itself reads is computed in its loops, where no store is."""
    statements = ("t[i, j] = max(x[i, j], 0)", "s[j] += t[i, j]", "u[i, j] = t[i, j] + s[j]")
    assert not run(2048, *statements).account.spills
    with pytest.raises(HwgenError, match="H405"):
        run(400, *statements)


def run(size: int, *statements: str) -> Kernel:
    """Compiled for a memory of so many bytes, and right."""
    shapes = {name: "8" if name == "s" else "13, 8" for name in "xtusy"}
    workload = parse_workload(
        {
            "name": "summed",
            "tensors": {name: f"float32[{shape}]" for name, shape in shapes.items()},
            "compute": [*statements, "y[i, j] = u[i, j] * s[j]"],
        }
    )
    kernel = compile_kernel(workload, npu_of(size), options=QUICK)
    assert kernel.account.phases
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 1, "small"), engine)
    return kernel
