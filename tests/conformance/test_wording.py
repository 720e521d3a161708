"""One computation in two wordings takes the same cycles, and gives the reference's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hwgen.model.reference import run_reference
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conformance.wordings import PAIRS, Pair, Wording
from tests.sampling import tiered

WITHIN = 1.01
"""How much longer the worse wording may take."""

QUICK = [
    "result copied, tpu_v1",
    "relu by select, vta",
    "relu in two statements, vta",
    "common factor, vta",
    "padding as a condition, vta",
    "padding, bounds reversed, vta",
    "relu in two, tpu_v1",
    "scale as a quotient, gemmini",
    "relu alone by select, gemmini",
    "quotient as a product, npu_shared_buffer",
    "difference, negated first, davinci_core",
    "shift in two, x86_vnni",
]
GOOD = [name for name, pair in PAIRS.items() if pair.worse is None]
WORSE = [name for name, pair in PAIRS.items() if pair.worse is not None]


@pytest.mark.parametrize("name", tiered(GOOD, QUICK))
def test_two_wordings_take_the_same_cycles(name: str) -> None:
    pair = PAIRS[name]
    assert pair.ratio <= WITHIN
    for wording in (pair.one, pair.other):
        assert bool(wording.kernel.program.codes) == pair.hosted
    _check_values(pair)


@pytest.mark.parametrize("name", tiered(WORSE, ["operand transposed, vta"]))
def test_what_differs_still_does_as_measured(name: str) -> None:
    """One that has become as fast as the other goes to the others: without `worse` in the table."""
    pair = PAIRS[name]
    assert pair.worse is not None
    assert WITHIN < pair.ratio <= pair.worse[0]
    _check_values(pair)


def _check_values(pair: Pair) -> None:
    """Both kernels compute what the reference does, and both references the same."""
    one, other = pair.one.workload, pair.other.workload
    drawn = draw_inputs(one, 1) | dict(pair.given)
    mine = {n: v for n, v in drawn.items() if n in one.tensor}
    theirs = {t.name: np.reshape(drawn[t.name], t.shape) for t in other.inputs}
    examine(pair.one.kernel, mine)
    examine(pair.other.kernel, theirs)
    first, second = run_reference(one, mine), run_reference(other, theirs)
    for tensor in one.outputs:
        left, right = first[tensor.name], second[tensor.name]
        assert np.array_equal(left, np.reshape(right, left.shape), equal_nan=True)


def _layer(tensors: dict[str, str], *statements: str, chip: str = "vta") -> Wording:
    types = {"a": "int8[24, 48]", "b": "int8[32, 48]", "acc": "int32[24, 32]", "y": "int8[24, 32]"}
    return Wording(chip, tuple((types | tensors).items()), statements)


_PLAIN = "acc[m, n] += a[m, k] * b[n, k]"
_SHIFTED = "y[m, n] = int8(clip({} >> 8, -128, 127))"


def _cycles(wording: Wording) -> int:
    examine(wording.kernel, draw_inputs(wording.workload, 1))
    return wording.kernel.cycles


def test_a_zero_point_leaves_the_product() -> None:
    """Half again as long as the product without it, 24 rows: a vector is made of all weights."""
    end = _SHIFTED.format("acc[m, n]")
    one = _layer({}, "acc[m, n] += (a[m, k] - 5) * b[n, k]", end)
    assert _cycles(one) <= 1.5 * _layer({}, _PLAIN, end).kernel.cycles


def test_a_zero_point_leaves_the_product_where_a_host_ends_it() -> None:
    """The host core would take 20 times as long for the products."""
    end = "y[m, n] = int8(acc[m, n] >> 8)"
    one = _layer({}, "acc[m, n] += (a[m, k] - 5) * b[n, k]", end, chip="gemmini")
    assert one.kernel.program.codes
    assert _cycles(one) <= 3 * _layer({}, _PLAIN, end, chip="gemmini").kernel.cycles


def test_two_sums_of_products_meet_on_units() -> None:
    """Added up at the end they take a sixth longer than as one sum; the other's stays as it is."""
    more = {"c": "int8[24, 48]", "d": "int8[32, 48]", "t": "int32[24, 32]"}
    second, end = "t[m, n] += c[m, k] * d[n, k]", _SHIFTED.format("(acc[m, n] + t[m, n])")
    one = _layer(more, _PLAIN, second, end)
    twice = {"a": "int8[24, 96]", "b": "int8[32, 96]"}
    other = _layer(twice, _PLAIN, _SHIFTED.format("acc[m, n]"))
    assert _cycles(one) <= 1.2 * other.kernel.cycles
