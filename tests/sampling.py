"""How much a test looks at: enough to find what breaks, or everything (`make campaign`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

from hwgen.pipeline import SearchOptions

T = TypeVar("T")

EVERYTHING = os.environ.get("HWGEN_CAMPAIGN", "") not in ("", "0")
"""Whether every combination is tried."""

THOROUGH = pytest.mark.thorough
"""Marks what shows, of more chips, sizes or seeds, what other tests show already: `make test`
leaves it out, `make test-all` runs it."""

WHOLE = SearchOptions()
QUICK = WHOLE if EVERYTHING else SearchOptions(work=100_000)
"""For tests to which any schedule will do: a search that simulates one or two."""


def examples(few: int) -> int:
    """Examples of one test: a few, or as many as the environment's HWGEN_EXAMPLES says."""
    return int(os.environ.get("HWGEN_EXAMPLES", few))


def some(cases: Sequence[T], of: int) -> list[T]:
    """All cases in a campaign, else the first and every `of`-th after it."""
    return list(cases if EVERYTHING else cases[::of])


def tiered(cases: Sequence[Any], quick: Sequence[Any], *, values: bool = False) -> list[Any]:
    """All cases, those that are not among the quick ones marked as thorough; `values`: each case is
    one value, also where it is a tuple."""
    assert quick
    assert all(case in cases for case in quick)
    return [case if case in quick else _thorough(case, values) for case in cases]


def _thorough(case: Any, values: bool) -> Any:
    if isinstance(case, type(pytest.param())):  # With an id, or marks of its own.
        return pytest.param(*case.values, marks=(*case.marks, THOROUGH), id=case.id)
    return pytest.param(*_given(case, values or not isinstance(case, tuple)), marks=THOROUGH)


def _given(case: Any, alone: bool) -> Sequence[Any]:
    return (case,) if alone else case


def products(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis: all of them in a campaign, else a few in which any
    two values of two axes meet.

    Greedy, and the same every time: of all combinations the one with the most pairs that no
    earlier one has, the first of several.
    """
    points = list(product(*(range(len(axis)) for axis in axes)))
    if not EVERYTHING and len(axes) > 2:
        points = _pairwise(points)
    return [tuple(axis[n] for axis, n in zip(axes, p, strict=True)) for p in points]


def _pairwise(points: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    pairs = {p: frozenset(combinations(enumerate(p), 2)) for p in points}
    missing = set[object]().union(*pairs.values())
    chosen: list[tuple[int, ...]] = []
    while missing:
        best = max(points, key=lambda p: len(pairs[p] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return sorted(chosen)
