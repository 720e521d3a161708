"""Rearranged inputs and copies that several phases read."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.phases import split_phases
from hwgen.spec.load import load_hardware, make_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

SPEC = Path(__file__).parents[2] / "hw_specs" / "npu_shared_buffer.yaml"
PRODUCTS = ["a[m, n] += v[m, k] * w[k, n]", "b[m, n] += v[m, k] * u[k, n]"]

VIEWS: dict[str, list[str]] = {
    "turned": ["v[m, k] = x[k, m]", *PRODUCTS],
    "copied": ["v[m, k] = x[m, k]", *PRODUCTS],
    "padded": ["v[m, k] = select(m >= 1 and k < 23, x[m - 1, k], 0)", *PRODUCTS],
    "of what another phase keeps": [
        "a[m, n] += x[m, k] * w[k, n]",
        "v[m, k] = x[k, m]",
        "b[m, n] += v[m, k] * u[k, n]",
    ],
}
"""v rearranges the input x."""


def check(compute: list[str]) -> Kernel:
    """The kernel of statements, which computes what the reference does."""
    text = " ".join(compute)
    sizes = {"x": "[24, 24]", "w": "[24, 33]", "u": "[24, 17]", "a": "[24, 33]", "b": "[24, 17]"}
    sizes["x"] = "[23, 23]" if "select" in text else sizes["x"]
    tensors = sizes | {n: "[24, 24]" for n in "tvz" if f"{n}[" in text}
    workload = make_workload(
        "views", tensors={n: f"float32{s}" for n, s in tensors.items()}, compute=compute
    )
    kernel = compile_kernel(workload, load_hardware(SPEC), options=QUICK)
    examine(kernel, draw_inputs(workload, 1))
    assert kernel.account.phases
    return kernel


@pytest.mark.parametrize("name", VIEWS)
def test_each_phase_packs_the_view_that_it_reads(name: str) -> None:
    kernel = check(VIEWS[name])
    again = compile_script(kernel.workload, kernel.hardware, kernel.script)
    assert again.program == kernel.program
    assert len(kernel.account.phases) == 2
    assert not kernel.account.spills
    first, second = split_phases(kernel.workload)
    assert first.leaves == second.takes == ()
    view = next(s for s in kernel.workload.statements if s.target.tensor == "v")
    assert view in second.workload.statements
    assert (view in first.workload.statements) == ("of what" not in name)


def test_a_copy_of_a_view_goes_through_off_chip_memory() -> None:
    """It lies in the buffer that the view is loaded into, which is not its own."""
    kernel = check(
        ["v[m, k] = x[k, m]", "z[m, k] = v[m, k]", PRODUCTS[0], "b[m, n] += z[m, k] * u[k, n]"]
    )
    assert [s.tensor for s in kernel.account.spills] == ["z"]
    assert "z has no buffer of its own to stay in" in kernel.account.spills[0].reason


def test_a_tensor_and_its_copy_that_both_leave_a_phase() -> None:
    check([
        "t[m, k] = x[m, k] + 1.0",
        "z[m, k] = t[m, k]",
        "a[m, n] += t[m, k] * w[k, n]",
        "b[m, n] += z[m, k] * u[k, n]",
    ])  # fmt: skip
