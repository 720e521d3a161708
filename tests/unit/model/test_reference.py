"""The reference against definitions written out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from hwgen.errors import HwgenError
from hwgen.model import reference
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.spec.load import load_workload, make_workload
from hwgen.spec.workload import Workload
from tests.samples import ROOT, gemm_requant_workload


def load(name: str, **sizes: int) -> Workload:
    return load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)


Integers = npt.NDArray[np.int64]


def wrap32(numbers: Integers) -> Integers:
    """The low 32 bits, signed."""
    return numbers.astype(np.int32).astype(np.int64)


def requantised(sums: Integers) -> Array:
    """int8(clip(sums >> 8, -128, 127)), the sums wrapped to int32 first."""
    return np.minimum(np.maximum(wrap32(sums) >> 8, -128), 127).astype(np.int8)


def framed(images: Integers, pad: int) -> Integers:
    """Images inside a frame of zeros."""
    n, c, h, w = images.shape
    result = np.zeros((n, c, h + 2 * pad, w + 2 * pad), np.int64)
    result[:, :, pad : pad + h, pad : pad + w] = images
    return result


def padded_convolution(inputs: Mapping[str, Array], pad: int, stride: int) -> Integers:
    """Direct convolution in int64, wrapped to int32 at the end."""
    x = framed(inputs["x"].astype(np.int64), pad)
    w = inputs["w"].astype(np.int64)
    height = (x.shape[2] - w.shape[2]) // stride + 1
    width = (x.shape[3] - w.shape[3]) // stride + 1
    sums = np.zeros((x.shape[0], w.shape[0], height, width), np.int64)
    for r, s in product(range(w.shape[2]), range(w.shape[3])):
        part = x[:, :, r : r + stride * height : stride, s : s + stride * width : stride]
        sums += np.einsum("nchw,oc->nohw", part, w[:, :, r, s])
    return wrap32(sums)


@pytest.mark.parametrize("points", [20, 300, 1 << 22])
@pytest.mark.parametrize(("pad", "stride"), [(0, 1), (1, 1), (3, 2)])
def test_convolution(points: int, pad: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "BOX_POINTS", points)
    workload = load("conv2d_requant", C=3, H=7, W=5, O=4, R=3, P=pad, S=stride)
    inputs = random_inputs(workload, 5)
    sums = padded_convolution(inputs, pad, stride)
    bias = inputs["bias"].astype(np.int64)[None, :, None, None]
    expected = requantised(sums + bias)
    result = run_reference(workload, inputs, intermediates=True)
    np.testing.assert_array_equal(result["acc"], sums)
    np.testing.assert_array_equal(result["y"], expected)


def test_gemm_wraps_around_in_int32() -> None:
    workload = gemm_requant_workload(3, 5, 7)
    inputs = random_inputs(workload, 1)
    inputs["bias"][:] = (1 << 31) - 1
    a, b = (inputs[name].astype(np.int64) for name in ("a", "b"))
    sums: Integers = np.add(np.matmul(a, np.transpose(b)), inputs["bias"])
    assert sums.max() >= 1 << 31
    expected = requantised(sums)
    np.testing.assert_array_equal(run_reference(workload, inputs)["c"], expected)


def make(compute: list[str], sizes: dict[str, int], **tensors: str) -> Workload:
    return make_workload(name="w", sizes=sizes, tensors=tensors, compute=compute)


@pytest.mark.parametrize("points", [1, 8, 1 << 22])
@pytest.mark.parametrize(("op", "function"), [("+=", np.sum), ("max=", np.max), ("min=", np.min)])
def test_reductions_start_from_their_neutral_element(
    op: str, function: Callable[..., Integers], points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "BOX_POINTS", points)
    workload = make([f"y[i] {op} x[j, i]"], {"N": 5, "M": 6}, x="int32[M, N]", y="int32[N]")
    inputs = random_inputs(workload, 2)
    expected = function(inputs["x"].astype(np.int64), axis=0)
    np.testing.assert_array_equal(run_reference(workload, inputs)["y"], wrap32(expected))


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32", "int64"])
def test_wide_products_stay_exact(dtype: str) -> None:
    """Products beyond 2 ** 53 must not go through floating point."""
    workload = make(
        ["y[i, j] += a[i, k] * b[k, j]"],
        {"N": 4, "K": 9},
        a=f"{dtype}[N, K]",
        b=f"{dtype}[K, N]",
        y=f"{'int32' if dtype == 'int16' else dtype}[N, N]",
    )
    inputs = random_inputs(workload, 3)
    result = run_reference(workload, inputs)["y"]
    for i, j in product(range(4), range(4)):
        exact = sum(int(inputs["a"][i, k]) * int(inputs["b"][k, j]) for k in range(9))
        bits = 8 * result.dtype.itemsize
        assert (int(result[i, j]) - exact) % (1 << bits) == 0


def test_float_sums_are_formed_in_double_precision() -> None:
    workload = make(
        ["y[i] += a[i, k] * x[k]"],
        {"M": 3, "K": 1000},
        a="float32[M, K]",
        x="float32[K]",
        y="float32[M]",
    )
    inputs = random_inputs(workload, 3)
    expected = inputs["a"].astype(np.float64) @ inputs["x"].astype(np.float64)
    result = run_reference(workload, inputs)["y"]
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected.astype(np.float32))


def test_depthwise_convolution() -> None:
    workload = load("depthwise_conv2d", C=3, H=5, W=6)
    inputs = random_inputs(workload, 4)
    x = framed(inputs["x"].astype(np.int64), 1)
    w = inputs["w"].astype(np.int64)
    sums = np.zeros((1, 3, 5, 6), np.int64)
    for r, s in product(range(3), range(3)):
        sums += x[:, :, r : r + 5, s : s + 6] * w[None, :, r, s, None, None]
    expected = requantised(sums << 4)
    np.testing.assert_array_equal(run_reference(workload, inputs)["y"], expected)


def test_inputs_are_deterministic_and_hold_the_extremes() -> None:
    workload = gemm_requant_workload(16, 16, 16)
    one, same, other = (random_inputs(workload, seed) for seed in (1, 1, 2))
    for name, array in one.items():
        np.testing.assert_array_equal(array, same[name])
        assert (array != other[name]).any()
        limits = np.iinfo(str(array.dtype))
        assert (array.min(), array.max()) == (limits.min, limits.max)


def test_a_missing_or_misshapen_input_is_refused() -> None:
    workload = gemm_requant_workload(2, 3, 4)
    inputs = random_inputs(workload, 0)
    for name, wrong in (
        ("a", None),
        ("a", np.transpose(inputs["a"])),
        ("b", inputs["b"].astype(np.int16)),
    ):
        given: dict[str, Array] = {n: array for n, array in inputs.items() if n != name}
        if wrong is not None:
            given[name] = wrong
        with pytest.raises(HwgenError, match="H726"):
            run_reference(workload, given)
