"""A chip that no shipped spec resembles compiles with no change of code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.reference import random_inputs, run_reference
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.sampling import QUICK, THOROUGH

SPEC = Path(__file__).parents[1] / "specs" / "two_stage.yaml"


def linear_relu(m: int, n: int, k: int) -> Workload:
    return hwgen.workload(
        "linear_relu",
        tensors={
            "x": f"float32[{m}, {k}]",
            "w": f"float32[{k}, {n}]",
            "b": f"float32[{n}]",
            "acc": f"float32[{m}, {n}]",
            "y": f"float32[{m}, {n}]",
        },
        compute=["acc[m, n] += x[m, k] * w[k, n]", "y[m, n] = max(acc[m, n] + b[n], 0)"],
    )


def gemm(m: int, n: int, k: int) -> Workload:
    return hwgen.workload(
        "gemm",
        tensors={"x": f"float32[{m}, {k}]", "w": f"float32[{k}, {n}]", "y": f"float32[{m}, {n}]"},
        compute=["y[m, n] += x[m, k] * w[k, n]"],
    )


@pytest.mark.parametrize("shape", list(product((1, 2), repeat=3)), ids=str)
def test_loops_of_one_iteration(shape: tuple[int, int, int]) -> None:
    """Lanes that no loop runs along hold nothing that counts, however many there are."""
    workload = gemm(*shape)
    inputs = random_inputs(workload, seed=1)
    examine(hwgen.compile_kernel(workload, hwgen.load_hardware(SPEC), options=QUICK), inputs)


def add(m: int, n: int, _: int) -> Workload:
    return hwgen.workload(
        "add",
        tensors={"a": f"float32[{m}, {n}]", "b": f"float32[{m}, {n}]", "y": f"float32[{m}, {n}]"},
        compute=["y[m, n] = a[m, n] + b[m, n]"],
    )


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((1, 64, 48), marks=THOROUGH),
        (5, 30, 48),
        pytest.param((33, 17, 70), marks=THOROUGH),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [linear_relu, gemm, add])
def test_kernels_are_right(
    make: Callable[[int, int, int], Workload], shape: tuple[int, int, int]
) -> None:
    workload = make(*shape)
    random = np.random.default_rng(0)
    # Small integers: every sum is exact in float32, whatever its order.
    inputs = {t.name: random.integers(-4, 5, t.shape).astype(t.dtype) for t in workload.inputs}
    compiled = hwgen.compile_kernel(workload, hwgen.load_hardware(SPEC), options=QUICK)
    examine(compiled, inputs)
    if have_compiler():
        outputs = compile_model(compiled.source).run(inputs)
        np.testing.assert_array_equal(outputs["y"], run_reference(workload, inputs)["y"])
