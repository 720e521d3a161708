"""The exact bounds search against enumeration."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.spec.affine import Affine, affine
from hwgen.spec.bounds import SearchLimitError, cases, find_point
from hwgen.spec.expression import evaluate
from hwgen.spec.grammar import parse_expression


def _form(i: int, j: int, k: int, constant: int) -> Affine:
    return Affine(tuple((n, c) for n, c in (("i", i), ("j", j), ("k", k)) if c), constant)


_small = st.integers(-3, 3)
_forms = st.builds(_form, _small, _small, _small, st.integers(-8, 8))
_extents = st.fixed_dictionaries({n: st.integers(1, 6) for n in "ijk"})


def _value(form: Affine, point: dict[str, int]) -> int:
    return form.constant + sum(c * point[n] for n, c in form.terms)


@settings(max_examples=200, deadline=None)
@given(st.lists(_forms, min_size=1, max_size=4), _extents)
def test_search_agrees_with_enumeration(forms: list[Affine], extents: dict[str, int]) -> None:
    points = (
        dict(zip("ijk", p, strict=True)) for p in product(*(range(extents[n]) for n in "ijk"))
    )
    exists = any(all(_value(f, p) >= 0 for f in forms) for p in points)
    found = find_point(tuple(forms), extents)
    assert (found is not None) == exists
    if found is not None:
        assert all(0 <= found[n] < extents[n] for n in "ijk")
        assert all(_value(f, found) >= 0 for f in forms)


_CONDITIONS = [
    "i >= 1 and i < 4",
    "not (i == j or j > 2)",
    "i != j and not (i + j <= 3)",
    "2*i - j > 1 or (i < 2 and j != 3)",
    "not not i < 3",
    "(i - 1)*3 >= j - -2",
]


@pytest.mark.parametrize("text", _CONDITIONS)
@pytest.mark.parametrize("holds", [True, False])
def test_cases_cover_exactly_the_condition(text: str, holds: bool) -> None:
    condition = parse_expression(text)
    disjuncts = cases(condition, holds)
    for i, j in product(range(-1, 6), repeat=2):
        point = {"i": i, "j": j}
        covered = any(all(_value(f, point) >= 0 for f in case) for case in disjuncts)
        assert covered == (bool(evaluate(condition, point)) == holds)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2*(i + 3) - i", "i + 6"),
        ("-i*4 + i*2*2", "0"),
        ("3 - 2*j", "-2*j + 3"),
        ("i*j", None),
        ("i//2", None),
        ("min(i, j)", None),
        ("1.5*i", None),
    ],
)
def test_affine_forms(text: str, form: str | None) -> None:
    found = affine(parse_expression(text))
    assert (None if found is None else str(found)) == form


def test_large_extents_cost_nothing() -> None:
    big = 1 << 30
    extents = {"i": big, "j": big, "k": big}
    inside = (Affine((("i", 1), ("j", 1)), -5), Affine((("i", -1), ("j", -1)), big + 4))
    outside = Affine((("i", 1), ("j", 1)), -(big + 5))
    assert find_point((*inside, outside), extents) is None
    assert find_point((Affine((("i", 3), ("j", -7)), 0), Affine((("k", 1),), 1 - big)), extents)


def test_parity_is_seen_where_one_form_shows_it() -> None:
    extents = dict.fromkeys("ijk", 1 << 20)
    assert find_point((_form(6, 10, -14, -1), _form(-6, -10, 14, 1)), extents) is None
    assert find_point((_form(6, 10, -15, -1), _form(-6, -10, 15, 1)), extents) is not None


def test_the_search_is_bounded() -> None:
    # i + j = 2k + 1 and i - j = 2m have no integer solution, which no interval shows.
    extents = dict.fromkeys("ijkm", 1 << 20)
    odd = Affine((("i", 1), ("j", 1), ("k", -2)), -1)
    even = Affine((("i", 1), ("j", -1), ("m", -2)), 0)
    none = Affine((), 0)
    with pytest.raises(SearchLimitError):
        find_point((odd, none.plus(odd, -1), even, none.plus(even, -1)), extents)
