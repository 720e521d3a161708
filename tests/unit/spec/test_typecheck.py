"""Types of expressions: C's promotions, no silent narrowing, no silent mixing."""

from __future__ import annotations

import pytest

from hwgen.spec.expression import Access, Name
from hwgen.spec.grammar import parse_assign, parse_expression
from hwgen.spec.typecheck import ExpressionTypeError, check_assign, dtype_of

TYPES = {
    "i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "u32": "uint32", "i64": "int64",
    "f16": "float16", "bf": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip


def type_of(node: Access | Name) -> str:
    return TYPES[node.tensor] if isinstance(node, Access) else "int32"


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("i8[i]", "int8"),
        ("i8[i] * i8[i]", "int32"),
        ("u8[i] + i8[i]", "int32"),
        ("i32[i] + u32[i]", "uint32"),
        ("u32[i] + i64[i]", "int64"),
        ("i8[i] >> 3", "int32"),
        ("i64[i] << 40", "int64"),
        ("-i8[i]", "int32"),
        ("-f16[i]", "float16"),
        ("max(i8[i], 0)", "int8"),
        ("max(i8[i], 200)", "int32"),
        ("min(i8[i], i16[i])", "int16"),
        ("clip(i32[i], -128, 127)", "int32"),
        ("select(i < 3, i8[i], 0)", "int8"),
        ("select(i8[i] > u8[i] or not i == 2, i8[i], i32[i])", "int32"),
        ("f16[i] * f32[i]", "float32"),
        ("f32[i] + 1", "float32"),
        ("f32[i] / 3", "float32"),
        ("exp(f16[i])", "float16"),
        ("float32(i8[i]) * 0.5", "float32"),
        ("int8(i32[i] >> 8)", "int8"),
        ("abs(i8[i])", "int32"),
        ("i8[i] // 4 % 3", "int32"),
        ("i8[i] + i", "int32"),
        ("7", "int32"),
        ("5000000000", "int64"),
        ("1.5", "float32"),
    ],
)
def test_types(text: str, dtype: str) -> None:
    assert dtype_of(parse_expression(text), type_of) == dtype


@pytest.mark.parametrize(
    "text",
    [
        "i8[i] + f32[i]", "f16[i] + bf[i]", "i8[i] / 2", "f32[i] // 2", "f32[i] >> 1",
        "1 << f32[i]",
        "exp(i8[i])", "i8[i] and i < 3", "select(i8[i], 1, 0)", "(i < 3) + 1", "int8(i < 3)",
        "i8[i] + 0.5", "i32[i] >> 32", "i32[i] << -1", "i8[i] // 0", "1 << 40", "i < 3", "-(i < 3)",
        "1 / 2",
        "min(i < 3, i > 2)",
    ],
)  # fmt: skip
def test_ill_typed(text: str) -> None:
    with pytest.raises(ExpressionTypeError):
        dtype_of(parse_expression(text), type_of)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("i8[i] = i8[i]", True),
        ("i32[i] += i8[i] * u8[i]", True),
        ("i8[i] = i8[i] + i8[i]", False),
        ("i8[i] = int8(i8[i] + i8[i])", True),
        ("i8[i] = 127", True),
        ("i8[i] = 128", False),
        ("u8[i] = -1", False),
        ("i8[i] = u8[i]", False),
        ("i16[i] = u8[i]", True),
        ("f32[i] = i32[i]", False),
        ("f32[i] = 3", True),
        ("i32[i] = f32[i]", False),
        ("i32[i] = 0.5", False),
        ("f16[i] = f32[i]", False),
        ("f32[i] = f16[i]", True),
        ("f16[i] = bf[i]", False),
        ("i8[i] = i < 3", False),
    ],
)
def test_assignments(text: str, accepted: bool) -> None:
    if accepted:
        check_assign(parse_assign(text), type_of)
    else:
        with pytest.raises(ExpressionTypeError):
            check_assign(parse_assign(text), type_of)
