"""The expression language: binding, printing, positions of errors, bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    evaluate,
)
from hwgen.spec.grammar import ExpressionError, parse_assign, parse_expression


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a * b // c % d", "((a * b) // c) % d"),
        ("a + b >> c", "(a + b) >> c"),
        ("a << b < c", "(a << b) < c"),
        ("a < b and c > d or e == f", "((a < b) and (c > d)) or (e == f)"),
        ("not a < b and c != d", "(not (a < b)) and (c != d)"),
        ("-a * b", "(-a) * b"),
        ("a - -b", "a - (-b)"),
        ("order + nothing", "(order) + (nothing)"),
    ],
)
def test_operators_bind_as_in_python(text: str, grouped: str) -> None:
    assert parse_expression(text) == parse_expression(grouped)


def test_nodes() -> None:
    assert parse_assign("c[i, j] max= int8(clip(a[i + 1, j], -3, 1.5))") == Assign(
        Access("c", (Name("i"), Name("j"))),
        "max=",
        Cast(
            "int8",
            Call(
                "clip",
                (
                    Access("a", (Binary("+", Name("i"), Const(1)), Name("j"))),
                    Const(-3),
                    Const(1.5),
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("a +", "H020", 4),
        ("a b", "H020", 3),
        ("", "H020", 1),
        ("a < b < c", "H020", 7),
        ("a = b", "H020", 3),
        ("(a", "H020", 3),
        ("x[,]", "H020", 3),
        ("x[", "H020", 3),
        ("f.g", "H020", 2),
        ("a ; b", "H020", 3),
        ("012x", "H020", 1),
        ("1 + sin(x)", "H021", 5),
        ("min(a, b, c)", "H022", 1),
        ("int8(a, b)", "H022", 1),
        ("1 + 9223372036854775808", "H023", 5),
        ("1e999", "H023", 1),
        ("a" * 2001, "H023", 1),
        ("+".join(["a"] * 200), "H023", 1),
        ("-" * 100 + "a", "H023", 1),
        ("(" * 900 + "a" + ")" * 900 + "+", "H020", 1803),
    ],
)
def test_errors_have_a_code_and_a_column(text: str, code: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert (caught.value.code, caught.value.offset + 1) == (code, column)


def test_an_access_may_have_no_index() -> None:
    assert parse_expression("x[]") == Access("x", ())
    parsed = parse_assign("dst[] max= x[] * imm")
    assert parsed == Assign(Access("dst", ()), "max=", Binary("*", Access("x", ()), Name("imm")))
    assert str(parsed) == "dst[] max= x[] * imm"
    assert parse_assign(str(parsed)) == parsed


def test_inf_is_a_number() -> None:
    assert parse_expression("inf") == Const(float("inf"))
    assert parse_expression("-inf") == Const(float("-inf"))
    assert parse_expression("max(x[], -inf)") == Call("max", (Access("x", ()), Const(-math.inf)))
    assert parse_expression("infinity + inf_") == Binary("+", Name("infinity"), Name("inf_"))
    assert str(parse_assign("dst[] = -inf")) == "dst[] = -inf"


@pytest.mark.parametrize(
    "text", ["a[i]", "a[i] == 1", "a + b = 1", "1 = a[i]", "a[i] -= 1", "a[i] =="]
)
def test_not_a_statement(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_assign(text)


def test_a_shift_cannot_exhaust_memory() -> None:
    with pytest.raises(OverflowError):
        evaluate(parse_expression("1 << 1000000000000"), {})


_names = st.sampled_from(["a", "b", "i", "maximum"]).map(Name)
_leaves: st.SearchStrategy[Expr] = st.one_of(
    _names,
    st.integers(0, 1 << 40).map(Const),
    st.floats(0, 1e6, allow_subnormal=False).map(lambda v: Const(float(v))),
)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "<<", ">>"])
    comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    logic = st.sampled_from(["and", "or"])
    return st.one_of(
        st.builds(Binary, operators, inner, inner),
        st.builds(Binary, comparisons, inner, inner),
        st.builds(Binary, logic, inner, inner),
        st.builds(Unary, st.just("-"), _names),
        st.builds(Unary, st.just("not"), inner),
        st.tuples(inner, inner).map(lambda pair: Call("min", pair)),
        st.builds(Cast, st.just("int16"), inner),
        inner.map(lambda index: Access("t", (index, Name("i")))),
    )


@settings(max_examples=200, deadline=None)
@given(st.recursive(_leaves, _grow, max_leaves=12))
def test_printing_and_parsing_are_inverse(expr: Expr) -> None:
    text = str(expr)
    if len(text) <= 2000:
        assert parse_expression(text) == expr
