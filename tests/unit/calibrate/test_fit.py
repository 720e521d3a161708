"""Costs fitted to synthetic measurements are those that made them."""

from __future__ import annotations

import numpy as np
import pytest

from hwgen.calibrate.fit import Floats, fitted, non_negative
from hwgen.errors import HwgenError

COSTS = np.array([1.0, 3.0, 40.0, 0.25])


def counts(kernels: int = 60) -> Floats:
    """How often each kernel pays each cost; most often one of them."""
    random = np.random.default_rng(0)
    most = np.eye(len(COSTS))[np.arange(kernels) % len(COSTS)]
    return random.uniform(1, 20, (kernels, len(COSTS))) * (1 + 9 * most) / COSTS


def test_exact_measurements_give_exact_costs() -> None:
    found = fitted(counts(), np.ones(4), counts() @ COSTS)
    assert found.costs == pytest.approx(COSTS)
    assert (found.errors < 1e-6).all()


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_costs_by_their_standard_errors(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(1, 0.03, 60)
    found = fitted(counts(), np.ones(4), counts() @ COSTS * noise)
    assert (np.abs(found.costs - COSTS) < 4 * found.errors).all()
    assert (found.errors < 0.2 * COSTS).all()


def test_a_cost_that_changes_is_noticed() -> None:
    """A core with another price for one operation gets another proposal for this one alone."""
    other = COSTS * np.array([1.0, 2.0, 1.0, 1.0])
    found = fitted(counts(), COSTS, counts() @ other)
    assert found.costs == pytest.approx(other)


def test_kernels_that_no_costs_explain_have_little_weight() -> None:
    measured = counts() @ COSTS
    measured[:4] /= 3
    found = fitted(counts(), np.ones(4), measured)
    assert found.costs == pytest.approx(COSTS, rel=0.05)
    plain = non_negative(counts() / measured[:, None], np.ones(60))
    assert np.abs(plain / COSTS - 1).max() > 0.3


def test_costs_that_kernels_cannot_tell_apart_stay() -> None:
    """Two costs that every kernel pays equally often: one is fixed, the other has the rest."""
    twice = np.column_stack([counts(), counts()[:, 1]])
    found = fitted(twice, np.array([1.0, 1.0, 1.0, 1.0, 1.0]), counts() @ COSTS)
    fixed = np.isinf(found.errors)
    assert fixed.sum() == 1
    assert fixed[1] or fixed[4]
    assert found.costs[1] + found.costs[4] == pytest.approx(COSTS[1])
    assert found.costs[[0, 2, 3]] == pytest.approx(COSTS[[0, 2, 3]])


def test_a_cost_that_no_kernel_has_stays() -> None:
    unused = np.column_stack([counts(), np.zeros(60)])
    found = fitted(unused, np.array([1.0, 1.0, 1.0, 1.0, 7.0]), counts() @ COSTS)
    assert (found.costs[4], found.errors[4]) == (7.0, np.inf)


def test_no_cost_is_negative() -> None:
    wanted = counts() @ np.array([1.0, 3.0, 40.0, -0.25])
    assert np.linalg.lstsq(counts(), wanted, rcond=None)[0].min() < 0
    solution = non_negative(counts(), wanted)
    assert solution.min() == 0
    slopes = (wanted - counts() @ solution) @ counts()  # The optimum's conditions.
    assert slopes[solution > 0] == pytest.approx(0, abs=1e-6 * np.abs(slopes).max())
    assert (slopes[solution == 0] <= 0).all()
    assert fitted(counts(), np.ones(4), wanted).costs[3] == 1.0


@pytest.mark.parametrize("kernels", [0, 3, 4])
def test_too_few_kernels_are_refused(kernels: int) -> None:
    with pytest.raises(HwgenError, match="H056"):
        fitted(counts(kernels), np.ones(4), counts(kernels) @ COSTS)
