"""Quasi-affine expressions: whatever is done to them, they stay the same function."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.polyhedral import isl
from hwgen.polyhedral.tree import terms
from hwgen.spec.expression import Binary, Const, Expr, Name, Unary
from hwgen.spec.grammar import parse_expression

EXTENTS = {"i": 5, "j": 3, "k": 7}


def value(expr: Expr, at: Mapping[str, int]) -> int:
    """The expression at a point."""
    match expr:
        case Const(int(number)):
            return number
        case Name(name):
            return at[name]
        case Unary("-", operand):
            return -value(operand, at)
        case Binary("+", left, right):
            return value(left, at) + value(right, at)
        case Binary("-", left, right):
            return value(left, at) - value(right, at)
        case Binary("*", left, right):
            return value(left, at) * value(right, at)
        case Binary("//", left, right):
            return value(left, at) // value(right, at)
        case Binary("%", left, right):
            return value(left, at) % value(right, at)
        case _:
            raise AssertionError(expr)


def points() -> list[dict[str, int]]:
    return [{"i": i, "j": j, "k": k} for i in range(5) for j in range(3) for k in range(7)]


constants = st.integers(-20, 20).map(Const)


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Unary, st.just("-"), inner),
        st.builds(Binary, st.sampled_from(["+", "-"]), inner, inner),
        st.builds(Binary, st.just("*"), inner, constants),
        st.builds(Binary, st.sampled_from(["//", "%"]), inner, st.integers(1, 9).map(Const)),
    )


expressions: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(constants, st.sampled_from([Name("i"), Name("j"), Name("k")])), grown, max_leaves=8
)


@settings(deadline=None, max_examples=150)
@given(expressions)
def test_simplify_keeps_the_function(expr: Expr) -> None:
    simple = terms.simplify(expr, EXTENTS)
    low, high = terms.interval(expr, EXTENTS)
    for at in points():
        assert value(simple, at) == value(expr, at)
        assert low <= value(expr, at) <= high
        assert value(terms.total(terms.addends(expr)), at) == value(expr, at)


@settings(deadline=None, max_examples=60)
@given(expressions)
def test_isl_text_is_the_same_function(expr: Expr) -> None:
    text = terms.isl_text(expr)
    for at in points()[::17]:
        where = " and ".join(f"{n} = {v}" for n, v in at.items())
        # islpy reads numbers, names, floor and mod: the point at which the text equals the value.
        found = isl.Set(f"{{ [i, j, k] : {where} and {text} = {value(expr, at)} }}")
        assert not found.is_empty()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(i * 32 + j) // 32", "i"),
        ("(i * 32 + j) % 32", "j"),
        ("(i * 6 + j * 2 + 1) // 2", "i * 3 + j"),
        ("i + j - i", "j"),
        ("k % 7", "k"),
        ("k // 7", "0"),
        ("k % 6", "k % 6"),
        ("i - 3 + 1", "i - 2"),
        ("(i + 64) % 32", "i"),
        ("0 * i + 4", "4"),
        ("k // 3 * 3 + k % 3", "k"),
        ("(k + i) % 4 * 2 + j + (k + i) // 4 * 8", "j + k * 2 + i * 2"),
        ("k // 3 * 3 + k % 4", "k // 3 * 3 + k % 4"),
    ],
)
def test_simplify_drops_what_intervals_decide(before: str, after: str) -> None:
    assert str(terms.simplify(parse_expression(before), EXTENTS)) == after


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("i", (0, 4)),
        ("-i * 2 + k", (-8, 6)),
        ("(i + 3) % 8", (3, 7)),
        ("(i + 6) % 8", (0, 7)),
        ("k // 3 - j", (-2, 2)),
    ],
)
def test_interval(text: str, bounds: tuple[int, int]) -> None:
    assert terms.interval(parse_expression(text), EXTENTS) == bounds


def test_apply() -> None:
    split = {"k": parse_expression("i * 3 + j")}
    assert str(terms.apply(parse_expression("k % 3 + k"), split, EXTENTS)) == "j * 2 + i * 3"


def test_conditions_have_isl_text() -> None:
    condition = parse_expression("i < 3 and not (j == 1 or k >= 2)")
    inside = isl.Set(f"{{ [i, j, k] : {terms.isl_text(condition)} }}")
    assert not inside.intersect(isl.Set("{ [2, 0, 1] }")).is_empty()
    assert inside.intersect(isl.Set("{ [2, 1, 1] }")).is_empty()
    with pytest.raises(AssertionError):
        terms.isl_text(parse_expression("max(i, j)"))
