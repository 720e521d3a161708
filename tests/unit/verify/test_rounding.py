"""The bound of rounding errors: right results pass, wrong ones do not, and it is not slack."""

from __future__ import annotations

import numpy as np
import pytest

from hwgen.model.reference import run_reference
from hwgen.spec.load import make_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs, first_difference
from hwgen.verify.rounding import rounding_bounds, unexplained


def matmul() -> Workload:
    return make_workload(
        name="matmul",
        sizes={},
        tensors={"a": "float32[8, 300]", "b": "float32[300, 8]", "c": "float32[8, 8]"},
        compute=["c[m, n] += a[m, k] * b[k, n]"],
    )


def softmax() -> Workload:
    return make_workload(
        name="softmax",
        sizes={},
        tensors={
            "x": "float32[6, 40]",
            "top": "float32[6]",
            "e": "float32[6, 40]",
            "s": "float32[6]",
            "y": "float32[6, 40]",
        },
        compute=[
            "top[i] max= x[i, j]",
            "e[i, j] = exp(x[i, j] - top[i])",
            "s[i] += e[i, j]",
            "y[i, j] = e[i, j] / s[i]",
        ],
    )


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_any_order_pass(seed: int) -> None:
    workload = matmul()
    inputs = draw_inputs(workload, seed)
    a, b = inputs["a"].astype(np.float32), inputs["b"].astype(np.float32)
    order = np.random.default_rng(seed).permutation(300)
    total = np.zeros((8, 8), np.float32)
    for k in order:
        total = (total + a[:, k, None] * b[None, k, :]).astype(np.float32)
    outputs = {"c": total}
    difference = first_difference(outputs, run_reference(workload, inputs))
    assert difference is not None, "the orders round differently, or this test shows nothing"
    assert unexplained(workload, inputs, outputs, run_reference(workload, inputs)) is None


@pytest.mark.parametrize("workload", [matmul(), softmax()], ids=lambda w: w.name)
def test_a_wrong_element_is_found(workload: Workload) -> None:
    inputs = draw_inputs(workload, 3)
    outputs = run_reference(workload, inputs)
    (name,) = outputs
    wrong = np.array(outputs[name])
    wrong[2, 5] = wrong[2, 5] * np.float32(1.001) + np.float32(1e-3)
    difference = first_difference({name: wrong}, outputs)
    assert difference is not None
    found = unexplained(workload, inputs, {name: wrong}, outputs)
    assert found is not None
    assert found.index == (2, 5)
    assert found.count == 1


def test_a_missing_contribution_is_found() -> None:
    workload = matmul()
    inputs = draw_inputs(workload, 4)
    left_out = {**inputs, "a": np.array(inputs["a"])}
    left_out["a"][:, 299] = 0
    outputs = run_reference(workload, left_out)
    difference = first_difference(outputs, run_reference(workload, inputs))
    assert difference is not None
    assert unexplained(workload, inputs, outputs, run_reference(workload, inputs)) is not None


@pytest.mark.parametrize("workload", [matmul(), softmax()], ids=lambda w: w.name)
def test_bounds_hold_the_reference_and_are_tight(workload: Workload) -> None:
    inputs = draw_inputs(workload, 5)
    reference = run_reference(workload, inputs)
    for name, bound in rounding_bounds(workload, inputs).items():
        distance = np.abs(reference[name].astype(np.float64) - bound.value)
        assert np.all(distance <= bound.error)
        scale = np.max(np.abs(bound.value))
        assert np.max(bound.error) < 1e-3 * scale


def test_integers_stay_exact() -> None:
    workload = make_workload(
        name="scale",
        sizes={},
        tensors={"x": "int32[9]", "y": "int32[9]"},
        compute=["y[i] = x[i] + 1"],
    )
    inputs = draw_inputs(workload, 6)
    outputs = {"y": run_reference(workload, inputs)["y"] + np.int32(1)}
    difference = first_difference(outputs, run_reference(workload, inputs))
    assert difference is not None
    assert unexplained(workload, inputs, outputs, run_reference(workload, inputs)) == difference


def test_integers_of_inexact_floats_may_differ_as_far_as_these() -> None:
    workload = make_workload(
        name="scaled",
        sizes={},
        tensors={"a": "float32[64, 500]", "t": "float32[64]", "q": "int32[64]"},
        compute=["t[i] += a[i, k]", "q[i] = int32(t[i] * 1000000.0)"],
    )
    inputs = draw_inputs(workload, 1)
    total = np.zeros(64, np.float32)
    for k in range(499, -1, -1):
        total = total + inputs["a"].astype(np.float32)[:, k]
    outputs = {"q": (total * np.float32(1e6)).astype(np.int32)}
    reference = run_reference(workload, inputs)
    difference = first_difference(outputs, reference)
    assert difference is not None, "the orders round differently, or this test shows nothing"
    assert unexplained(workload, inputs, outputs, run_reference(workload, inputs)) is None
    wrong = {"q": outputs["q"] + np.int32(100_000)}
    assert unexplained(workload, inputs, wrong, reference) is not None
