"""Expression matching modulo commutativity and associativity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.model.numeric import Value, evaluate
from hwgen.polyhedral.unify import as_immediate, flatten, unify
from hwgen.spec.expression import Binary, Const, Name
from hwgen.spec.grammar import parse_expression
from hwgen.spec.hardware import Immediate
from hwgen.spec.ranges import Range

FIELD = {"imm": Immediate("imm", "int32", Range(-8, 7))}


def bindings(
    pattern: str, value: str, fields: Mapping[str, Immediate] = FIELD
) -> list[dict[str, str]]:
    found = unify(parse_expression(pattern), parse_expression(value), fields)
    return [{n: str(v) for n, v in (*f.operands, *f.immediates)} for f in found]


def test_commutes() -> None:
    assert {"d": "y[j]", "s": "x[i]"} in bindings("d[i] + s[i]", "x[i] + y[j]")
    assert {"d": "x[i]", "s": "y[j]"} in bindings("d[i] + s[i]", "x[i] + y[j]")


def test_associates() -> None:
    found = bindings("d[i] + s[i]", "x[i] + (y[i] + z[i])")
    assert {"d": "y[i]", "s": "x[i] + z[i]"} in found
    assert len(found) == 6


def test_sums_and_products_of_floats_commute_and_do_not_associate() -> None:
    floats = dict.fromkeys("xyz", "float32")

    def found(pattern: str, value: str) -> list[dict[str, str]]:
        ways = unify(parse_expression(pattern), parse_expression(value), FIELD, floats)
        return [{n: str(v) for n, v in f.operands} for f in ways]

    assert found("d[i] + s[i]", "x[i] + (y[i] + z[i])") == [
        {"d": "x[i]", "s": "y[i] + z[i]"},
        {"d": "y[i] + z[i]", "s": "x[i]"},
    ]
    assert len(found("d[i] * s[i]", "x[i] * y[i] * z[i]")) == 2
    assert len(found("max(d[i], s[i])", "max(x[i], max(y[i], z[i]))")) == 6
    assert len(found("d[i] + s[i]", "int32(x[i]) + (int32(y[i]) + int32(z[i]))")) == 6


def test_a_negated_value_is_a_product_with_minus_one() -> None:
    assert bindings("d[i] * imm", "-x[i]") == [{"d": "x[i]", "imm": "-1"}]
    assert bindings("-d[i]", "-x[i]") == [{"d": "x[i]"}]
    assert bindings("d[i] * s[i]", "-x[i]") != []
    assert bindings("d[i] - s[i]", "-x[i]") == []  # 0 - 0 is no negative zero.


def test_a_division_by_a_power_of_two_is_a_product() -> None:
    fields = {"imm": floating("float32")}
    assert bindings("d[i] * imm", "x[i] / 8.0", fields) == [{"d": "x[i]", "imm": "0.125"}]
    assert bindings("d[i] * imm", "x[i] / -0.5", fields) == [{"d": "x[i]", "imm": "-2.0"}]
    for number in ("6.0", "0.0", "32768.0"):  # The last one's inverse is no normal float16.
        assert bindings("d[i] * imm", f"x[i] / {number}", fields) == []


def test_a_constant_taken_off_is_added() -> None:
    fields = {"imm": floating("float32")}
    assert bindings("d[i] + imm", "x[i] - 3.0", fields) == [{"d": "x[i]", "imm": "-3.0"}]
    assert bindings("d[i] + imm", "3.0 - x[i]", fields) == []


def test_shift_does_not_commute() -> None:
    assert bindings("d[i] >> imm", "3 >> x[i]") == []
    assert bindings("d[i] >> imm", "x[i] >> 3") == [{"d": "x[i]", "imm": "3"}]


@pytest.mark.parametrize(("value", "fits"), [("max(x[i], 7)", True), ("max(x[i], 8)", False)])
def test_immediate_must_fit_its_field(value: str, fits: bool) -> None:
    assert bool(bindings("max(d[i], imm)", value)) is fits


def test_one_operand_cannot_be_two_values() -> None:
    assert bindings("d[i] * d[i]", "x[i] * y[i]") == []
    assert bindings("d[i] * d[i]", "x[i] * x[i]") != []


def test_casts_must_agree() -> None:
    assert bindings("int8(s[i])", "int16(x[i])") == []
    assert bindings("int8(s[i])", "int8(x[i] + 1)") == [{"s": "x[i] + 1"}]


def test_flatten_keeps_other_operations_whole() -> None:
    terms = flatten("+", parse_expression("a[i] + b[i] * 2 + 3"))
    assert [str(t) for t in terms] == ["a[i]", "b[i] * 2", "3"]
    assert terms[-1] == Const(3)


def floating(dtype: str, limits: Range | None = None, exact: bool = False) -> Immediate:
    return Immediate("imm", dtype, limits, exact)


@given(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(1 << 62), 1 << 62)),
    st.sampled_from(["float32", "float64"]),
)
def test_a_float_immediate_is_what_the_reference_computes_with(
    number: int | float, dtype: str
) -> None:
    x = Value(np.ones((), dtype), dtype)
    expr = Binary("*", Name("x"), Const(number))
    reference = evaluate(expr, lambda _a, _m: x, {"x": x}).array.item()
    held = as_immediate(floating(dtype), number)
    assert held is None if np.isinf(reference) else held == reference
    assert held is None or isinstance(held, float)


@pytest.mark.parametrize(
    ("field", "number", "held"),
    [
        (floating("float32"), 0.3, 0.30000001192092896),
        (floating("float32"), 3, 3.0),
        # Through a double first, this would be one float less.
        (floating("float32"), (1 << 60) + (1 << 36) + 1, float((1 << 60) + (1 << 37))),
        (floating("float32"), 1e39, None),
        (floating("float32"), float("inf"), None),
        (floating("float64"), 0.3, 0.3),
        (floating("float32", Range(-1, 1)), 0.5, 0.5),
        (floating("float32", Range(-1, 1)), -1, -1.0),
        (floating("float32", Range(-1, 1)), 1.0000001, None),
        # Computed with as float32, where the reference has 0.3 in 24 bits.
        (floating("float16", exact=True), 0.3, None),
        (floating("float16", exact=True), 0.25, 0.25),
        (floating("bfloat16", exact=True), 0.3, None),
        (floating("bfloat16", exact=True), -1.5, -1.5),
        (floating("float32", exact=True), 0.3, None),
        (FIELD["imm"], 0.5, None),
        (FIELD["imm"], 7.0, None),
    ],
    ids=str,
)
def test_what_an_immediate_holds(
    field: Immediate, number: int | float, held: int | float | None
) -> None:
    assert as_immediate(field, number) == held
    value = Binary("+", parse_expression("x[i]"), Const(number))
    found = list(unify(parse_expression("d[] + imm"), value, {"imm": field}))
    assert [dict(f.immediates)["imm"] for f in found] == ([] if held is None else [held])


def test_one_immediate_is_one_number() -> None:
    fields = {"imm": floating("float32")}
    pattern = parse_expression("d[i] * imm + imm")
    assert list(unify(pattern, parse_expression("x[i] * 0.3 + 0.5"), fields)) == []
    found = list(unify(pattern, parse_expression("x[i] * 0.3 + 0.3"), fields))
    assert [dict(f.immediates)["imm"] for f in found] == [float(np.float32(0.3))]
