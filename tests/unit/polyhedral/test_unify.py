"""Expression matching modulo commutativity and associativity."""

from __future__ import annotations

import pytest

from hwgen.polyhedral.unify import flatten, unify
from hwgen.spec.expression import Const
from hwgen.spec.grammar import parse_expression
from hwgen.spec.hardware import Immediate
from hwgen.spec.ranges import Range

FIELD = {"imm": Immediate("imm", "int32", Range(-8, 7))}


def bindings(pattern: str, value: str) -> list[dict[str, str]]:
    found = unify(parse_expression(pattern), parse_expression(value), FIELD)
    return [{n: str(v) for n, v in (*f.operands, *f.immediates)} for f in found]


def test_commutes() -> None:
    assert {"d": "y[j]", "s": "x[i]"} in bindings("d[i] + s[i]", "x[i] + y[j]")
    assert {"d": "x[i]", "s": "y[j]"} in bindings("d[i] + s[i]", "x[i] + y[j]")


def test_associates() -> None:
    found = bindings("d[i] + s[i]", "x[i] + (y[i] + z[i])")
    assert {"d": "y[i]", "s": "x[i] + z[i]"} in found
    assert len(found) == 6


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
