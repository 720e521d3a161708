"""The few combinations that tests try in place of all."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import pytest

from tests import sampling

ROOT = Path(__file__).resolve().parents[2]
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


def test_what_is_not_quick_is_marked_as_thorough() -> None:
    one, other = sampling.tiered(["a", "b"], ["a"])
    assert one == "a"
    assert other == pytest.param("b", marks=sampling.THOROUGH)
    pairs = [(1, 2), (3, 4)]
    assert sampling.tiered(pairs, pairs[:1])[1].values == (3, 4)
    assert sampling.tiered(pairs, pairs[:1], values=True)[1].values == ((3, 4),)


def test_ci_leaves_nothing_out() -> None:
    makefile, ci = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/run"))
    assert f'test: LEFT_OUT := -m "not {sampling.THOROUGH.name}"\n' in makefile
    assert "\nmake test-all " in ci
    assert "make test " not in ci
