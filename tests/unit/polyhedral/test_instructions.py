"""Instructions of scalar code, counted by hand for a compiler's loops."""

from __future__ import annotations

import pytest

import hwgen
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.instructions import retired
from hwgen.spec.hardware import HardwareSpec
from tests.samples import ROOT

M, N, K = 6, 16, 24
BLOCK = 10
"""Around the loops of each statement."""


def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "gemmini.yaml")


def counted(compute: list[str], **tensors: str) -> dict[str, float]:
    """By statement, of the tensors that it names, all at home in the kernel."""
    text = " ".join(compute)
    tensors = {name: shape for name, shape in tensors.items() if f"{name}[" in text}
    workload = hwgen.workload("w", tensors=tensors, compute=compute)
    schedule = Schedule(workload, chip())
    costs = chip().machine.instructions
    assert costs is not None
    return dict(retired(schedule.resolved, costs))


@pytest.mark.parametrize(
    ("value", "element"),
    [
        # Two loads, a sum, two choices, a store, a step of each address, a branch.
        ("clip(int32(a[m, n]) + b[m, n], -128, 127)", 2 + 1 + 4 + 1 + 3 + 1),
        # What is read twice is loaded once, and an equal part is computed once.
        ("(int32(a[m, n]) + 3) * (int32(a[m, n]) + 3)", 1 + 1 + 1 + 1 + 2 + 1),
        # The sign of a narrow element, masked where it is negative.
        ("max(a[m, n], 0)", 1 + 5 + 1 + 2 + 1),
        # Bounds of loops decide conditions; one or nothing is the condition itself.
        ("select(m >= 0 and n < 16, a[m, n] * 3, 0)", 1 + 1 + 1 + 2 + 1),
        ("select(a[m, n] < 0, 1, 0)", 1 + 1 + 1 + 2 + 1),
        # A power of two divides what is not negative in one operation.
        ("(int32(a[m, n]) + 128) // 4", 1 + 1 + 1 + 1 + 2 + 1),
        ("int32(a[m, n]) // 4", 1 + 7 + 1 + 2 + 1),
        # A plane's element is loaded without its sign.
        ("(int32(a[m, n]) + 256) % 256", 1 + 1 + 2 + 1),
    ],
)
def test_elements(value: str, element: int) -> None:
    found = counted(
        [f"c[m, n] = int8({value})"],
        a=f"int8[{M}, {N}]", b=f"int8[{M}, {N}]", c=f"int8[{M}, {N}]",
    )  # fmt: skip
    accesses = 2 + ("b[" in value)
    rows = M * (1 + 2 * accesses)
    assert found["c"] == BLOCK + rows + M * N * element


def test_sums_stay_in_registers() -> None:
    found = counted(
        ["c[m, n] += a[m, k] * b[n, k]"],
        a=f"float32[{M}, {K}]", b=f"float32[{N}, {K}]", c=f"float32[{M}, {N}]",
    )  # fmt: skip
    step = 2 + 2 + 2 + 1  # Loads, product and sum, addresses, branch.
    result = 1 + 1 + (1 + 2 + 2)  # Where it begins, its store; branch, steps and starts.
    row = 1 + 2 + 2
    assert found["c"] == BLOCK + M * (row + N * (result + K * step))


def test_values_are_computed_outside_of_loops_that_do_not_move_them() -> None:
    found = counted(
        ["c[m, n] = a[m, n] * (s[m] + 1.0)"],
        a=f"float32[{M}, {N}]", s=f"float32[{M}]", c=f"float32[{M}, {N}]",
    )  # fmt: skip
    row = 1 + 1 + (1 + 3 + 2)  # Load, sum; branch, steps and starts.
    assert found["c"] == BLOCK + M * (row + N * (1 + 1 + 1 + 2 + 1))


@pytest.mark.parametrize(("value", "byte"), [("a[m, n]", 0.44), ("int32(0)", 0.16)])
def test_copies_and_zeros_are_calls_of_the_library(value: str, byte: float) -> None:
    """Of as many rows as two loops put in a row."""
    found = counted([f"c[m, n] = {value}"], a=f"int32[{M}, {N}]", c=f"int32[{M}, {N}]")
    assert found["c"] == pytest.approx(BLOCK + 60 + byte * M * N * 4)


def test_loops_of_one_iteration_are_none() -> None:
    one = counted(["c[m, n] = -a[m, n]"], a=f"int32[1, {N}]", c=f"int32[1, {N}]")
    assert one["c"] == BLOCK + N * (1 + 1 + 1 + 2 + 1)
