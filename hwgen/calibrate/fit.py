"""Costs that explain measurements: non-negative least squares of relative errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hwgen.errors import HwgenError

Floats = npt.NDArray[np.float64]

ROUNDS = 30
OUTLIER = 0.1
"""Relative error from which on a measurement's weight falls (Huber's loss): no costs explain some
kernels well."""
UNDETERMINED = 0.25
"""Standard error of a cost, as a share of it, above which the cost is not determined."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Costs, and their standard errors: infinite for a cost that is not determined and so is what
    it was."""

    costs: Floats
    errors: Floats


def non_negative(matrix: Floats, wanted: Floats) -> Floats:
    """Least squares without negative solutions (Lawson and Hanson 1974, NNLS)."""
    found, free = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    while not free.all():
        gain: Floats = (wanted - matrix @ found) @ matrix
        gain[free] = -np.inf
        if gain.max() <= 1e-9:
            break
        free[np.argmax(gain)] = True
        while True:
            trial = np.zeros_like(found)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            low = free & (trial <= 0)
            if not low.any():
                break
            found = found + np.min(found[low] / (found[low] - trial[low])) * (trial - found)
            free &= found > 1e-12
        found = trial
    return found


def loss(residual: Floats) -> float:
    """Huber's loss of relative errors, which a fit makes small."""
    size = np.abs(residual)
    small = np.minimum(size, OUTLIER)
    return float(np.sum(small * (size - small / 2)))


def fitted(derivatives: Floats, start: Floats, measured: Floats) -> Fit:
    """The costs at which predictions, `derivatives @ costs`, are nearest to measurements. Costs
    that are not determined stay as in `start`; the least certain one is fixed first.

    Raises:
        HwgenError: H056 too few measurements.
    """
    free = np.flatnonzero(np.abs(derivatives).sum(axis=0))
    if len(measured) <= len(free) or not len(free):
        raise HwgenError(
            "H056", "too few kernels to calibrate these costs", found=f"{len(measured)} kernels",
            allowed=f"more kernels than the {len(free)} costs that they need",
            repair="see with `hwgen generate` why this chip refuses small kernels",
        )  # fmt: skip
    rows: Floats = derivatives / measured[:, None]
    while True:
        costs: Floats = np.array(start)
        costs[free] = 0
        own, wanted = rows[:, free], np.subtract(1, rows @ costs)
        weight, residual = np.ones(len(measured)), wanted
        for _ in range(ROUNDS):
            costs[free] = non_negative(own * weight[:, None], wanted * weight)
            residual: Floats = wanted - own @ costs[free]
            weight: Floats = np.sqrt(OUTLIER / np.maximum(np.abs(residual), OUTLIER))
        errors = np.full(len(start), np.inf)
        errors[free] = _errors(own, residual)
        share: Floats = errors[free] / np.maximum(costs[free], 1e-12)
        if not len(free) or share.max() <= UNDETERMINED:
            return Fit(costs, errors)
        free = np.delete(free, np.argmax(share))


def _errors(matrix: Floats, residual: Floats) -> Floats:
    """Standard errors of a solution by Huber's loss (Huber 1981, 7.6); huge where columns depend on
    each other."""
    cut: Floats = np.maximum(np.minimum(residual, OUTLIER), -OUTLIER)
    regular = np.count_nonzero(cut == residual) / len(residual)
    variance = float(cut @ cut) / (len(residual) - matrix.shape[1]) / max(regular, 0.01) ** 2
    scale = np.linalg.norm(matrix, axis=0)  # Columns of one length, for the inverse.
    each = matrix / scale
    square: Floats = np.einsum("ki,kj->ij", each, each) + 1e-12 * np.eye(len(scale))
    return np.sqrt(variance * np.diagonal(np.linalg.inv(square))) / scale
