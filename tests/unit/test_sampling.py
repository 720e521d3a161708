"""The few combinations that tests try in place of all."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests import sampling

AXES = ((1, 7, 17, 255, 257), (0, 1), ("a", "b", "c"), (2, 3, 5, 7))


def test_any_two_values_of_two_axes_meet() -> None:
    chosen = sampling.products(*AXES)
    assert len(chosen) == len(set(chosen)) <= 24
    for (i, one), (j, other) in combinations(enumerate(AXES), 2):
        assert {(p[i], p[j]) for p in chosen} == set(product(one, other))


def test_two_axes_are_tried_whole_and_a_campaign_tries_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampling.products(*AXES[:2]) == list(product(*AXES[:2]))
    monkeypatch.setattr(sampling, "EVERYTHING", True)
    assert sampling.products(*AXES) == list(product(*AXES))
