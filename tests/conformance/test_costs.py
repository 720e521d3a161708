"""The cost of schedules against their simulation, of every candidate that a compile tries."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from benchmarks.costs import CHIPS, compared
from hwgen.polyhedral.search.cost_tree import Block
from hwgen.polyhedral.search.leaf import Leaves
from tests.sampling import THOROUGH


@THOROUGH
def test_costs_are_near_and_the_cheapest_is_among_the_fastest() -> None:
    """As `python -m benchmarks.costs` prints; one kernel's cheapest takes 1.126 of its fastest."""
    found = [*compared(CHIPS)]
    assert len(found) >= 40
    assert mean(x.error for x in found) <= 0.025
    assert mean(x.in_order for x in found) >= 0.8
    assert mean(x.best for x in found) <= 1.01
    assert max(x.best for x in found) <= 1.13


def test_a_cost_that_leaves_out_transfers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (exact,) = compared(["tpu_v1"], "gemm_requant")
    assert exact.error <= 0.005
    assert exact.in_order == 1
    transfer = Leaves.transfer

    def less(*given: object) -> Block:
        block = transfer(*given)  # type: ignore[arg-type]
        return replace(block, cycles=block.cycles * 0.9)

    monkeypatch.setattr(Leaves, "transfer", less)
    (wrong,) = compared(["tpu_v1"], "gemm_requant")
    assert wrong.error > 0.05
