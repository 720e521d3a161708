"""Templates of TOSA's operators against the specification's loops, written out in NumPy.

`python -m benchmarks.tosa` compares all of them with the reference model, whose package is not
among those that the tests need.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.tosa_operators import ENTRIES
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.network.graph import Attribute, Graph, Operator, Tensor
from hwgen.network.operators.statements import Statements

RNG = np.random.default_rng(3)
ZEROS = -7, 11
"""Zero points of the activations and the weights."""


def output(
    kind: str, given: Mapping[str, Array], shape: tuple[int, ...], dtype: str,
    attributes: Mapping[str, Attribute],
) -> Array:  # fmt: skip
    """The output of an operator; all of its inputs but the first are constant."""
    tensors = [
        Tensor(name, values.shape, str(values.dtype), n, None, values if n else None)
        for n, (name, values) in enumerate(given.items())
    ]
    tensors.append(Tensor("y", shape, dtype, len(tensors)))
    operator = Operator(kind, 0, tuple(given), ("y",), attributes)
    graph = Graph("one", "one.tosa", tuple(tensors), (operator,), ("x",), ("y",))
    layer = ENTRIES[kind](Statements(graph, operator))
    assert layer.computation is not None
    workload = layer.computation.workload("one")
    (own,) = (name for name, _ in layer.inputs)
    x = np.reshape(given["x"], workload.tensor[own].shape)
    found = run_reference(workload, {own: x, **layer.constants})[layer.output[0]]
    return np.reshape(found, shape)


def numbers(*shape: int) -> NDArray[np.int8]:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def given_products(x: Array, w: Array, channels: int) -> dict[str, Array]:
    bias = RNG.integers(-1000, 1000, channels).astype(np.int32)
    zeros = (np.array([z], np.int8) for z in ZEROS)
    return dict(zip(("x", "w", "bias", "x zero", "w zero"), (x, w, bias, *zeros), strict=True))


@pytest.mark.parametrize(("top", "left"), [(0, 0), (1, 2), (-1, 0)])
def test_a_transposed_convolution_subtracts_both_zero_points(top: int, left: int) -> None:
    """Elements of the block around the image are the zero point, and add nothing."""
    x, w, (stride, other) = numbers(1, 4, 3, 5), numbers(2, 3, 2, 5), (2, 3)
    given = given_products(x, w, 2)
    rows, columns = 3 * stride + 3 + top, 2 * other + 2 + left
    full = np.zeros((rows + 4, columns + 4, 2), np.int64)
    wide, taps = x[0].astype(np.int64) - ZEROS[0], w.astype(np.int64) - ZEROS[1]
    for i, j, r, s in product(range(4), range(3), range(3), range(2)):
        row, column = i * stride + top + r, j * other + left + s
        if row >= 0 and column >= 0:
            full[row, column] += taps[:, r, s] @ wide[i, j]
    wanted = full[:rows, :columns] + given["bias"].astype(np.int64)
    attributes = {"strides": (stride, other), "pads": (-top, -left, 0, 0)}
    found = output("TRANSPOSE_CONV2D", given, (1, rows, columns, 2), "int32", attributes)
    assert np.array_equal(found[0], wanted)


def test_a_convolution_is_padded_by_the_zero_point() -> None:
    x, w = numbers(1, 5, 4, 3), numbers(2, 3, 3, 3)
    given = given_products(x, w, 2)
    wide = np.zeros((7, 6, 3), np.int64)
    wide[1:6, 1:5] = x[0].astype(np.int64) - ZEROS[0]
    taps = w.astype(np.int64) - ZEROS[1]
    wanted = np.zeros((5, 4, 2), np.int64) + given["bias"].astype(np.int64)
    for i, j, r, s in product(range(5), range(4), range(3), range(3)):
        wanted[i, j] += taps[:, r, s] @ wide[i + r, j + s]
    attributes = {"strides": (1, 1), "pads": (1, 1, 1, 1)}
    found = output("CONV2D", given, (1, 5, 4, 2), "int32", attributes)
    assert np.array_equal(found[0], wanted)


@pytest.mark.parametrize("unsigned", [0, 1])
def test_rescale_rounds_once(unsigned: int) -> None:
    x = RNG.integers(-(1 << 22), 1 << 22, (6, 3)).astype(np.int32)
    by, shift = np.array([1 << 30, 3 << 28, 1 << 29], np.int32), np.array([31, 40, 33], np.int8)
    given: dict[str, Array] = {"x": x, "by": by, "shift": shift}
    given |= {"x zero": np.zeros(1, np.int32), "y zero": np.array([-5], np.int8)}
    attributes = {"unsigned_input": 0, "unsigned_output": unsigned}
    found = output("RESCALE", given, (6, 3), "int8", attributes)
    right: NDArray[np.int64] = shift.astype(np.int64)
    half: NDArray[np.int64] = np.left_shift(np.int64(1), right - 1)
    scaled: NDArray[np.int64] = x.astype(np.int64) * by.astype(np.int64)
    rounded: NDArray[np.int64] = np.right_shift(scaled + half, right)
    low, high, zero = (0, 255, 251) if unsigned else (-128, 127, -5)
    assert np.array_equal(found, np.minimum(np.maximum(rounded + zero, low), high).astype(np.int8))
