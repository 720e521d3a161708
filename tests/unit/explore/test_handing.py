"""The simulation of a coordinator: bound by the workers, or by what it hands out itself."""

from __future__ import annotations

import pytest

from benchmarks.explore import simulated


@pytest.mark.parametrize("ahead", [1, 2])
def test_few_workers_are_always_at_work(ahead: int) -> None:
    found, at_work = simulated(10, 1e-6, ahead, 1.0, spread=False)
    assert found == pytest.approx(10, rel=0.05)
    assert at_work == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("ahead", [1, 2])
def test_many_workers_wait_for_the_coordinator(ahead: int) -> None:
    found, at_work = simulated(500, 0.01, ahead, 1.0, spread=False)
    assert found == pytest.approx(100, rel=0.05)
    assert at_work == pytest.approx(0.2, rel=0.05)


def test_work_ahead_hides_the_coordinator() -> None:
    alone, ahead = (simulated(2, 0.1, n, 1.0, spread=False)[0] for n in (1, 2))
    assert alone == pytest.approx(2 / 1.1, rel=0.05)
    assert ahead == pytest.approx(2, rel=0.05)


def test_the_simulation_is_the_same_each_time() -> None:
    first = simulated(20, 0.01, 2, 0.1, spread=True)
    assert simulated(20, 0.01, 2, 0.1, spread=True) == first
    assert first != simulated(20, 0.01, 2, 0.1, spread=False)
