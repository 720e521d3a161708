"""Typed arithmetic against an interpreter on Python's unbounded integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import HwgenError
from hwgen.model.numeric import (
    STORAGE,
    Array,
    Mask,
    Value,
    cast,
    evaluate,
    load,
    matrix_product,
    store,
)
from hwgen.spec.expression import Access, Binary, BinaryOp, Call, Cast, Const, Expr, Name, Unary
from hwgen.spec.grammar import parse_expression
from hwgen.spec.typecheck import integer_range, promoted

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


def wrapped(number: int, dtype: str) -> int:
    low, high = integer_range(dtype)
    return (number - low) % (high - low + 1) + low


def values(numbers: list[int], dtype: str) -> Value:
    return load(np.array(numbers, STORAGE[dtype]), dtype)


def nothing(access: Access, mask: Mask | None) -> Value:
    raise AssertionError((access, mask))


def expected(op: BinaryOp, a: int, b: int, dtype: str) -> int:
    match op:
        case "+":
            return wrapped(a + b, dtype)
        case "-":
            return wrapped(a - b, dtype)
        case "*":
            return wrapped(a * b, dtype)
        case "//":
            return wrapped(a // b, dtype)
        case "%":
            return wrapped(a % b, dtype)
        case "<":
            return int(a < b)
        case ">=":
            return int(a >= b)
        case "==":
            return int(a == b)
        case _:
            raise AssertionError(op)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(INTEGERS),
    st.sampled_from(["+", "-", "*", "//", "%", "<", ">=", "=="]),
    st.data(),
)
def test_operators_wrap_around_in_the_promoted_type(
    dtype: str, op: BinaryOp, data: st.DataObject
) -> None:
    low, high = integer_range(dtype)
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1]))
    a, b = data.draw(number), data.draw(number)
    if op in ("//", "%") and b == 0:
        b = 1
    names = {"a": values([a], dtype), "b": values([b], dtype)}
    result = evaluate(Binary(op, Name("a"), Name("b")), nothing, names)
    comparison = op in ("<", ">=", "==")
    assert result.dtype == ("int32" if comparison else promoted(dtype))
    assert result.array.tolist() == [expected(op, a, b, promoted(dtype))]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_casts_keep_the_low_bits(source: str, target: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(*integer_range(source)))
    result = cast(values([number], source), target)
    assert result.dtype == promoted(target)
    assert result.array.tolist() == [wrapped(number, target)]


@pytest.mark.parametrize(
    ("text", "names", "result"),
    [
        ("a >> 3", {"a": -17}, -3),
        ("a << 31", {"a": 3}, -(1 << 31)),
        ("clip(a, -128, 127)", {"a": 300}, 127),
        ("select(a > 0 and b // a == 2, 7, -1)", {"a": 0, "b": 4}, -1),
        ("select(a > 0 and b // a == 2, 7, -1)", {"a": 2, "b": 4}, 7),
        ("min(a, b) - max(a, b)", {"a": -5, "b": 9}, -14),
        ("-a", {"a": -(1 << 31)}, -(1 << 31)),
        ("abs(a)", {"a": -9}, 9),
        ("select(not (a == b) or a < 0, 1, 0)", {"a": 4, "b": 4}, 0),
        ("int8(a + b)", {"a": 100, "b": 100}, -56),
        ("a * 3000000000", {"a": 2}, 6000000000),
    ],
)
def test_expressions(text: str, names: dict[str, int], result: int) -> None:
    scalars = {name: values([number], "int32") for name, number in names.items()}
    assert evaluate(parse_expression(text), nothing, scalars).array.tolist() == [result]


@pytest.mark.parametrize("text", ["a >> b", "a << b"])
@pytest.mark.parametrize("amount", [-1, 32, 1 << 30])
def test_an_undefined_shift_is_an_error(text: str, amount: int) -> None:
    scalars = {"a": values([1], "int32"), "b": values([amount], "int32")}
    with pytest.raises(HwgenError, match=r"H727.*(\n.*)*0\.\.31"):
        evaluate(parse_expression(text), nothing, scalars)
    guarded = Call("select", (Const(0), parse_expression(text), Name("a")))
    assert evaluate(guarded, nothing, scalars).array.tolist() == [1]


def test_a_division_by_zero_is_an_error_unless_guarded() -> None:
    scalars = {"a": values([8, 9], "int32"), "b": values([0, 2], "int32")}
    with pytest.raises(HwgenError, match="H727"):
        evaluate(parse_expression("a // b"), nothing, scalars)
    guarded = parse_expression("select(b != 0, a // b, -1)")
    assert evaluate(guarded, nothing, scalars).array.tolist() == [-1, 4]


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        ("int8", 3.99, 3),
        ("int8", -3.99, -3),
        ("int8", 300.0, 127),
        ("uint8", -4.0, 0),
        ("int32", float("nan"), 0),
        ("int32", float("inf"), (1 << 31) - 1),
        ("int64", -1e30, -(1 << 63)),
        ("int64", 1e30, (1 << 63) - 1),
    ],
)
def test_floats_are_cut_and_clamped(dtype: str, number: float, result: int) -> None:
    value = Value(np.array([number], np.float64), "float64")
    assert store(value, dtype).tolist() == [result]


def test_float_functions_keep_their_type() -> None:
    x: Array = np.array([0.5, -1.5, 2.5], np.float32)
    scalars = {"x": Value(x, "float32")}
    for name, function in (("exp", np.exp), ("tanh", np.tanh), ("round", np.rint)):
        result = evaluate(Call(name, (Name("x"),)), nothing, scalars)
        assert result.dtype == "float32"
        np.testing.assert_array_equal(result.array, function(x))
    sums = evaluate(parse_expression("x + 0.1"), nothing, scalars)
    assert sums.dtype == "float32"


def test_bfloat16_rounds_to_even_and_back() -> None:
    numbers = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, -3.14159, np.inf], np.float32)
    bits = store(Value(numbers, "float32"), "bfloat16")
    back = load(bits, "bfloat16").array.tolist()
    assert back == [1.0, 1.0, 1.015625, -3.140625, float("inf")]
    missing = store(Value(np.array([np.nan], np.float32), "float32"), "bfloat16")
    assert np.isnan(load(missing, "bfloat16").array.astype(np.float64)).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (70, 300, 33), (3, 2, 5000), (0, 4, 2), (5, 6, 0)])
def test_matrix_products_in_parts_are_whole(shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    generator = np.random.default_rng(3)
    left = generator.integers(-9, 9, (rows, depth)).astype(np.float64)
    right = generator.integers(-9, 9, (columns, depth)).astype(np.float64)
    np.testing.assert_array_equal(matrix_product(left, right), np.matmul(left, np.transpose(right)))


def test_a_written_number_takes_the_type_it_meets() -> None:
    scalars = {"u": values([3_000_000_000], "uint32"), "l": values([1], "int64")}
    cases: list[tuple[Expr, str]] = [
        (Binary("+", Name("u"), Const(1)), "uint32"),
        (Binary("-", Const(1), Name("l")), "int64"),
        (Binary("*", Const(2), Const(3)), "int32"),
        (Unary("-", Name("u")), "uint32"),
        (Cast("int16", Name("u")), "int32"),
    ]
    for expr, dtype in cases:
        assert evaluate(expr, nothing, scalars).dtype == dtype, expr
