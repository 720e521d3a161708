"""Affine functions agree with the expressions they came from."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hwgen.spec.affine import Affine, affine, combine
from hwgen.spec.expression import Binary, Const, Expr, Name, Unary, evaluate
from hwgen.spec.grammar import parse_expression

NAMES: tuple[str, ...] = ("i", "j", "k")


@st.composite
def affine_expressions(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.one_of(st.integers(-9, 9).map(Const), st.sampled_from([Name(n) for n in NAMES]))
        )
    inner = affine_expressions(depth - 1)
    kind = draw(st.sampled_from("+-*n"))
    if kind == "n":
        return Unary("-", draw(inner))
    if kind == "*":
        return Binary("*", Const(draw(st.integers(-5, 5))), draw(inner))
    return Binary("+" if kind == "+" else "-", draw(inner), draw(inner))


@given(affine_expressions(), st.tuples(*[st.integers(0, 20)] * 3))
def test_affine_has_the_value_of_its_expression(expr: Expr, point: tuple[int, int, int]) -> None:
    values = dict(zip(NAMES, point, strict=True))
    function = affine(expr)
    assert function is not None
    assert evaluate(function.expression(), values) == evaluate(expr, values)
    assert function.fix(values) == Affine((), int(evaluate(expr, values)))


@given(affine_expressions(), st.tuples(*[st.integers(1, 4)] * 3))
def test_interval_is_tight(expr: Expr, extents: tuple[int, int, int]) -> None:
    sizes = dict(zip(NAMES, extents, strict=True))
    function = affine(expr)
    assert function is not None
    reached = [
        evaluate(expr, {"i": i, "j": j, "k": k})
        for i in range(extents[0])
        for j in range(extents[1])
        for k in range(extents[2])
    ]
    assert function.interval(sizes) == (min(reached), max(reached))


def test_products_of_variables_are_not_affine() -> None:
    assert affine(parse_expression("i * j")) is None
    assert affine(parse_expression("i // 2")) is None


def test_renaming_merges_terms() -> None:
    function = combine([("i", 2), ("j", -2)], 5)
    assert function.rename({"j": "i"}) == Affine((), 5)


@given(affine_expressions(), st.tuples(*[st.integers(1, 4)] * 3))
def test_packed_numbers_the_values_without_gaps(expr: Expr, extents: tuple[int, int, int]) -> None:
    function = affine(expr)
    assert function is not None
    sizes = dict(zip(NAMES, extents, strict=True))
    points = [dict(zip(NAMES, p, strict=True)) for p in product(*map(range, extents))]
    moved = [n for n in function.names if sizes[n] > 1]
    keys = {tuple(p[n] for n in moved): p for p in points}
    packed = function.packed(sizes)
    values = [function.fix(p).constant for p in keys.values()]
    if packed != function:
        assert sorted(packed.fix(p).constant for p in keys.values()) == [*range(len(keys))]
        assert len({*values}) == len(keys) < max(values) - min(values) + 1


def test_packed_leaves_what_has_no_gaps_or_meets_itself() -> None:
    dense, sparse = combine([("i", 2), ("r", 1)]), combine([("i", 3), ("r", 1)], 4)
    assert dense.packed({"i": 4, "r": 2}) == dense
    assert dense.packed({"i": 4, "r": 3}) == dense
    assert sparse.packed({"i": 4, "r": 2}) == combine([("i", 2), ("r", 1)])
    assert sparse.packed({"i": 4, "r": 1}) == combine([("i", 1)])
