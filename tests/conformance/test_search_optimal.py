"""The search's choice against every schedule of small kernels, each one simulated."""

from __future__ import annotations

import pytest

from tests.conformance.exhaustive import FEW, SMALL, Case, judge, schedules
from tests.sampling import EVERYTHING, tiered

WITHIN = 1.05
SECONDS = 5.0


def test_there_are_enough_spaces() -> None:
    assert len(set(SMALL)) == len(SMALL) >= 30


@pytest.mark.parametrize(
    "case", SMALL if EVERYTHING else tiered(FEW, [FEW[0], *FEW[8::2]]), ids=str
)
def test_choice_is_close_to_the_best_schedule(case: Case) -> None:
    found = judge(case)
    search = found.compilation.account.search
    assert found.ratio <= WITHIN, found.compilation.tiling
    assert found.seconds <= SECONDS
    assert found.below == (), "a schedule beats the bound that prunes"
    assert search.exhausted
    assert search.cycles == found.compilation.cycles >= found.compilation.bound.cycles > 0
    assert search.left_out == 0
    assert str(found.compilation.tiling) in map(str, schedules(found.compilation.match))
