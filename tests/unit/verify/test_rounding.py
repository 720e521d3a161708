"""The bound of rounding errors: right results pass, wrong ones do not, and it is not slack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.spec.load import make_workload
from hwgen.spec.workload import Workload
from hwgen.verify import rounding
from hwgen.verify.compare import Comparison, compare, outside, unexplained
from hwgen.verify.data import draw_inputs, first_difference
from hwgen.verify.rounding import Leeway, rounding_bounds

Floats = npt.NDArray[np.float32]


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


def one_pass(rows: int, columns: int) -> Workload:
    """The root of a difference that may be nothing but rounding."""
    return make_workload(
        name="one_pass",
        sizes={},
        tensors={
            "x": f"float32[{rows}, {columns}]",
            "q": f"float32[{rows}]",
            "a": f"float32[{rows}]",
            "y": f"float32[{rows}]",
        },
        compute=[
            "q[m] += x[m, n] * x[m, n]",
            "a[m] += x[m, n]",
            f"y[m] = rsqrt(q[m] * (1.0 / {columns}) - (a[m] * (1.0 / {columns})) * "
            f"(a[m] * (1.0 / {columns})))",
        ],
    )


def in_order(x: Floats) -> dict[str, Array]:
    """The same, summed one element after the other in single precision."""
    count = np.float32(1.0 / x.shape[1])
    q, a = (np.zeros(len(x), np.float32) for _ in range(2))
    for n in range(x.shape[1]):
        q, a = q + x[:, n] * x[:, n], a + x[:, n]
    with np.errstate(all="ignore"):
        return {"y": np.float32(1) / np.sqrt(q * count - (a * count) * (a * count))}


def test_where_the_error_reaches_a_singularity_there_is_no_bound_and_the_verdict_says_so() -> None:
    workload = one_pass(3, 256)
    x = np.full((3, 256), 100.1, np.float32)
    x[2] = np.arange(256)  # A row whose variance is larger than any rounding.
    outputs = in_order(x)
    reference = run_reference(workload, {"x": x})
    assert first_difference(outputs, reference) is not None
    found = compare(workload, {"x": x}, outputs, reference)
    assert found.difference is None
    (y,) = found.tensors
    assert (y.elements, y.nan, y.unbounded, y.count) == (3, 0, 2, 1)
    assert y.leap.startswith("rsqrt(q[m]")
    assert "2 of 3 elements of y are not compared" in found.verdict()
    assert found.verdict().startswith("y equal to the reference")
    outputs["y"][2] *= np.float32(1.01)
    assert unexplained(workload, {"x": x}, outputs, reference) is not None, "that one has a bound"


def test_where_no_element_has_a_bound_nothing_was_compared() -> None:
    workload = one_pass(2, 256)
    x = np.full((2, 256), 100.1, np.float32)
    outputs = in_order(x)
    found = compare(workload, {"x": x}, outputs, run_reference(workload, {"x": x}))
    assert found.vacuous
    assert found.verdict().startswith("nothing was compared; 2 of 2 elements of y")


def unary(value: str, shape: str = "[4]", dtype: str = "float32") -> Workload:
    return make_workload(
        name="unary",
        sizes={},
        tensors={"x": f"float32{shape}", "y": f"{dtype}{shape}"},
        compute=[f"y[i] = {value}"],
    )


def compared(
    workload: Workload, x: Sequence[float], y: Sequence[float], leeway: Leeway | None = None
) -> Comparison:
    inputs = {"x": np.array(x, np.float32)}
    reference = run_reference(workload, inputs)
    outputs = {"y": np.array(y).astype(reference["y"].dtype)}
    return compare(workload, inputs, outputs, reference, leeway or Leeway())


def test_nan_is_never_equal_in_silence() -> None:
    nan = float("nan")
    relu = unary("max(x[i], 0)")
    half = compared(relu, [nan, 1, nan, -1], [nan, 1, nan, 0])
    assert half.verdict() == (
        "y equal to the reference; 2 of 4 elements of y are NaN here and in the reference"
    )
    whole = compared(relu, [nan] * 4, [-nan] * 4)
    assert whole.vacuous
    assert whole.verdict() == (
        "nothing was compared; 4 of 4 elements of y are NaN here and in the reference"
    )
    assert compared(relu, [nan, 1, 2, -1], [0, 1, 2, 0]).difference is not None
    assert compared(relu, [3, 1, 2, -1], [nan, 1, 2, 0]).difference is not None


@pytest.mark.parametrize(
    ("value", "x", "right", "wrong"),
    [
        ("x[i] + 1", [np.inf, -np.inf, 1, 2], [np.inf, -np.inf, 2, 3], [np.inf, np.inf, 2, 3]),
        ("x[i] - x[i]", [np.inf, 1, 2, 3], [np.nan, 0, 0, 0], [0, 0, 0, 0]),
        ("x[i] * x[i]", [1e30, 1, 2, 3], [np.inf, 1, 4, 9], [3e38, 1, 4, 9]),
        ("x[i] * 0.0", [np.inf, 1, 2, 3], [np.nan, 0, 0, 0], [0, 0, 0, 0]),
        ("log(x[i])", [0, 1, -1, np.inf], [-np.inf, 0, np.nan, np.inf], [-88, 0, np.nan, np.inf]),
        ("sqrt(x[i])", [0, 1, -1, np.inf], [0, 1, np.nan, np.inf], [0, 1, 0, np.inf]),
        ("exp(x[i])", [100, 0, -200, -np.inf], [np.inf, 1, 0, 0], [3e38, 1, 0, 0]),
        ("abs(x[i])", [-np.inf, -1, -0.0, 1e-45], [np.inf, 1, 0, 1e-45], [np.inf, 1, 0, 3e-45]),
        ("1.0 / x[i]", [np.inf, 1, 2, 4], [0, 1, 0.5, 0.25], [np.nan, 1, 0.5, 0.25]),
        ("select(x[i] > 0, x[i], 0)", [np.nan, 1, -1, 2], [0, 1, 0, 2], [np.nan, 1, 0, 2]),
    ],
)
def test_infinities_and_nan_that_are_certain_are_compared(
    value: str, x: list[float], right: list[float], wrong: list[float]
) -> None:
    workload = unary(value)
    good = compared(workload, x, right)
    assert good.difference is None
    assert all(t.unbounded == 0 for t in good.tensors)
    assert compared(workload, x, wrong).difference is not None


def test_the_sign_of_a_zero_is_no_part_of_a_result() -> None:
    assert compared(unary("max(x[i], 0)"), [-0.0, 0, 1, 2], [-0.0, -0.0, 1, 2]).difference is None
    found = compared(unary("1.0 / x[i]"), [0, 1, 2, 4], [-np.inf, 1, 0.5, 0.25])
    assert [t.unbounded for t in found.tensors] == [1]


def test_a_product_that_is_added_unrounded_need_not_overflow() -> None:
    workload = make_workload(
        name="dot",
        tensors={"a": "float32[2, 2]", "b": "float32[2]", "y": "float32[2]"},
        compute=["y[i] += a[i, k] * b[k]"],
    )
    inputs = {
        "a": np.array([[4, -2], [4, 1]], np.float32),
        "b": np.array([1e38, 1.5e38], np.float32),
    }
    reference = run_reference(workload, inputs)
    outputs = {"y": np.array([np.inf, np.inf], np.float32)}
    found = compare(workload, inputs, outputs, reference)
    assert found.difference is None
    assert [(t.unbounded, t.leap) for t in found.tensors] == [(1, "a[i, k] * b[k]")]


def test_floats_are_clamped_to_an_integers_ends() -> None:
    workload = unary("int8(x[i] * 3.0)", dtype="int8")
    x = [1e9, -1e9, np.nan, 1]
    assert compared(workload, x, [127, -128, 0, 3]).difference is None
    assert compared(workload, x, [127, 127, 0, 3]).difference is not None


def test_a_chip_that_says_nothing_of_nan_is_not_asked_about_it() -> None:
    x, y = [np.nan, 1, -1, 2], [0, 1, 0, 2]
    assert compared(unary("max(x[i], 0)"), x, y).difference is not None
    free = compared(unary("max(x[i], 0)"), x, y, Leeway(any_nan=True))
    assert free.difference is None
    assert [(t.unbounded, t.leap) for t in free.tensors] == [(1, "max(x[i], 0)")]


@pytest.mark.parametrize("workload", [matmul(), softmax(), one_pass(4, 40)], ids=lambda w: w.name)
@pytest.mark.filterwarnings("error")
def test_special_values_stay_within_the_bounds_and_warn_of_nothing(workload: Workload) -> None:
    for seed in range(20):
        inputs = draw_inputs(workload, seed, "special")
        reference = run_reference(workload, inputs)
        assert unexplained(workload, inputs, reference, reference) is None
        for name, bound in rounding_bounds(workload, inputs).items():
            assert not outside(reference[name], workload.tensor[name].dtype, bound).any()


def test_numbers_have_the_type_of_their_partner() -> None:
    """A kernel multiplies by 0.3 as float32 has it; the bound is about that number."""
    workload = make_workload(
        name="scale", tensors={"x": "float32[1000]", "y": "float32[1000]"},
        compute=["y[i] = x[i] * 0.3"],
    )  # fmt: skip
    inputs = {"x": np.random.default_rng(0).uniform(1, 2, 1000).astype(np.float32)}
    found = rounding_bounds(workload, inputs)["y"]
    assert not outside(run_reference(workload, inputs)["y"], "float32", found).any()


def test_inexact_tensors_widen_the_bound_by_what_they_make() -> None:
    workload = matmul()
    inputs = draw_inputs(workload, 1)
    plain = rounding_bounds(workload, inputs)["c"]
    inexact = {"a": np.full((8, 300), 2.0**-10), "c": 1.0}
    wide = rounding_bounds(workload, inputs, Leeway(inexact=inexact))["c"]
    more = 1.0 + 2.0**-10 * np.abs(inputs["b"].astype(np.float64)).sum(0)
    assert np.allclose(wide.error, plain.error + more, rtol=1e-5)


def test_sums_of_products_have_the_bound_of_each_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way gives the same values, and bounds that are hardly different."""
    workload = matmul()
    inputs = draw_inputs(workload, 2)
    leeway = Leeway(inexact={"a": 1e-3, "b": 1e-4})
    short = rounding_bounds(workload, inputs, leeway)["c"]

    def never(_: object) -> None:
        return None

    analysis = rounding._Analysis  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(analysis, "_sum_of_products", never)
    long = rounding_bounds(workload, inputs, leeway)["c"]
    assert np.allclose(short.value, long.value, rtol=1e-12, atol=1e-12)
    assert np.allclose(short.error, long.error, rtol=1e-4)


def test_the_greatest_of_numbers_is_not_rounded() -> None:
    """So that a softmax of large numbers has a bound."""
    workload = softmax()
    inputs = {"x": np.full((6, 40), 4.8e9, np.float32)}
    assert np.isfinite(rounding_bounds(workload, inputs)["y"].error).all()
