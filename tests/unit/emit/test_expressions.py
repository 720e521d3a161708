"""Expressions as C: intervals hold, and compiled text computes what the expression means."""

from __future__ import annotations

import ctypes
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.codegen.c_expr import HELPERS, Helpers, IndexText, fits_int32, fold
from hwgen.codegen.c_names import C_TYPES, NameTable, Reserved, comment, identifier
from hwgen.codegen.c_value import ValueText, dtype_interval, value_helpers
from hwgen.model.compiled import find_compiler, have_compiler
from hwgen.spec.expression import (
    Access,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    evaluate,
)
from hwgen.spec.intervals import interval

X, Y = Name("x"), Name("y")
RANGES = {"x": (-5, 6), "y": (1, 4)}


def binary(op: BinaryOp, left: Expr | int, right: Expr | int) -> Expr:
    a = Const(left) if isinstance(left, int) else left
    b = Const(right) if isinstance(right, int) else right
    return Binary(op, a, b)


INDEXES: list[Expr] = [
    binary("+", binary("*", X, 3), -2),
    binary("-", X, binary("-", Y, binary("-", X, 7))),
    binary("//", binary("-", X, 3), 4),
    binary("%", binary("*", X, 5), 7),
    binary("%", binary("+", X, 5), 3),
    binary("*", binary("//", X, Y), binary("%", X, Y)),
    binary("//", binary("%", binary("+", X, 20), 8), binary("*", Y, 2)),
    Call("min", (X, Y)),
    Call("max", (binary("-", X, Y), Const(0))),
    Call("select", (binary("<", X, Y), binary("+", X, 1), Unary("-", Y))),
    Unary("-", binary("-", X, Y)),
    binary("and", binary("<=", X, 2), binary("or", binary("!=", Y, 2), binary(">", X, 0))),
    Unary("not", binary("==", X, Y)),
    binary("+", X, 1 << 40),
]


def compiled(directory: Path, text: str, *flags: str) -> ctypes.CDLL:
    compiler = find_compiler()
    assert compiler
    (directory / "t.c").write_text(text)
    done = subprocess.run(
        [
            *compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-shared",
            "-fPIC", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", *flags,
            str(directory / "t.c"), "-o", str(directory / "t.so"), "-lm",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + text
    return ctypes.CDLL(str(directory / "t.so"))


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_index_text_means_the_expression(tmp_path: Path) -> None:
    helpers = Helpers("t", HELPERS)
    print_index = IndexText(helpers, {"x": "x", "y": "y"}, RANGES)
    bodies = [
        f"int64_t f{n}(int64_t x, int64_t y);\nint64_t f{n}(int64_t x, int64_t y)\n"
        f"{{\n  (void)x;\n  (void)y;\n  return {print_index(e)};\n}}"
        for n, e in enumerate(INDEXES)
    ]
    text = "\n".join(["#include <stdint.h>", *helpers.definitions(), *bodies])
    library = compiled(tmp_path, text)
    for number, expr in enumerate(INDEXES):
        function = library[f"f{number}"]
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_int64, ctypes.c_int64]
        for x, y in product(range(-5, 7), range(1, 5)):
            values: dict[str, int | float] = {"x": x, "y": y}
            assert function(x, y) == evaluate(expr, values), f"{expr} at {values}"
            assert evaluate(fold(expr), values) == evaluate(expr, values)


@pytest.mark.parametrize("expr", INDEXES, ids=str)
def test_bounds_hold_every_value(expr: Expr) -> None:
    low, high = interval(expr, RANGES)
    found = [evaluate(expr, {"x": x, "y": y}) for x, y in product(range(-5, 7), range(1, 5))]
    assert low <= min(found)
    assert max(found) <= high


def test_wide_expressions_are_noticed() -> None:
    assert fits_int32(binary("*", X, 1000), RANGES)
    assert not fits_int32(INDEXES[-1], RANGES)
    # The whole is small, a part of it is not.
    assert not fits_int32(binary("//", binary("*", X, 1 << 31), 1 << 31), RANGES)


def test_plain_operators_where_nothing_is_negative() -> None:
    helpers = Helpers("t", HELPERS)
    print_index = IndexText(helpers, {"t": "t"}, {"t": (0, 9)})
    assert print_index(binary("*", binary("%", Name("t"), 2), 64)) == "t % 2 * 64"
    assert print_index(binary("+", binary("*", Name("t"), 16), -4)) == "t * 16 - 4"
    assert not helpers.used


SAMPLES: dict[str, list[int | float]] = {
    "int8": [-128, -7, -1, 0, 1, 5, 127],
    "uint8": [0, 1, 200, 255],
    "int16": [-32768, 3, 32767],
    "int32": [-(1 << 31), -40000, -1, 0, 1, 3, 46341, (1 << 31) - 1],
    "uint32": [0, 1, (1 << 32) - 1],
    "int64": [-(1 << 63), -1, 0, 7, (1 << 63) - 1],
    "float32": [-2.5, 0.0, 0.5, 3e9],
    "float64": [-1e300, 1.5, 7.0],
}
P, Q = Access("p", ()), Access("q", ())


def numpy_value(expr: Expr, p: Any, q: Any) -> Any:
    """The meaning of the few forms below, on NumPy scalars promoted as C does."""
    match expr:
        case Access("p", _):
            return p
        case Access():
            return q
        case Const(value):
            return value
        case Binary(op, left, right):
            a, b = numpy_value(left, p, q), numpy_value(right, p, q)
            match op:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "/":
                    return a / b
                case ">>":
                    return a >> b
                case "<<":
                    return a << b
                case "//":
                    return a // b
                case "%":
                    return a % b
                case "<":
                    return a < b
                case _:
                    raise AssertionError(op)
        case Unary(_, operand):
            return -numpy_value(operand, p, q)
        case Cast(dtype, operand):
            inner: Any = numpy_value(operand, p, q)
            return np.array([inner]).astype(dtype)[0]
        case Call("min", (a, b)):
            return np.minimum(numpy_value(a, p, q), numpy_value(b, p, q))
        case Call("clip", (a, low, high)):
            inner = np.maximum(numpy_value(a, p, q), numpy_value(low, p, q))
            return np.minimum(inner, numpy_value(high, p, q))
        case Call("rsqrt", (Const(a),)):
            return 1 / a**0.5
        case Call("abs", (a,)):
            return abs(numpy_value(a, p, q))
        case Call("select", (c, a, b)):
            return numpy_value(a if numpy_value(c, p, q) else b, p, q)
        case _:
            raise AssertionError(expr)


FORMS: list[tuple[str, str, str, Expr]] = [
    ("int32", "int32", "int32", binary("+", P, Q)),
    ("int32", "int32", "int32", binary("-", P, binary("*", Q, Q))),
    ("int64", "int64", "int64", binary("*", P, Q)),
    ("uint32", "uint32", "uint32", binary("-", P, Q)),
    ("int8", "int8", "int32", binary("*", P, Q)),
    ("int8", "int32", "int64", binary("+", Cast("int64", Q), P)),
    ("int16", "int16", "int8", Cast("int8", binary("*", P, Q))),
    ("int32", "int8", "int8", Cast("int8", Call("clip", (binary(">>", P, 4), Const(-9), Q)))),
    ("int32", "int32", "int32", Call("min", (P, Unary("-", Q)))),
    ("int32", "int32", "int32", Call("abs", (P,))),
    ("int32", "int32", "int32", Call("select", (binary("<", P, Q), P, Const(-1)))),
    ("int32", "int32", "int32", binary("//", P, 7)),
    ("int32", "int32", "int32", binary("%", P, 7)),
    ("int32", "int32", "int32", binary("<<", P, 5)),
    ("int64", "int8", "int64", binary(">>", P, 9)),
    ("uint8", "uint8", "uint8", Cast("uint8", binary("-", P, Q))),
    ("float32", "float32", "float32", binary("-", binary("*", P, Q), Const(0.5))),
    ("float64", "float64", "float64", binary("+", P, Q)),
    # What is made of numbers alone is a number too: it takes the type of what it meets.
    ("float32", "float32", "float32",
     binary("-", P, binary("*", Q, Binary("/", Const(1.0), Const(768))))),
    ("float32", "float32", "float32", binary("*", P, Call("rsqrt", (Const(48.0),)))),
    ("float32", "int8", "int8", Cast("int8", Call("clip", (P, Const(-128.0), Const(127.0))))),
]  # fmt: skip


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_values_mean_what_numpy_computes(tmp_path: Path) -> None:
    helpers = value_helpers("t")
    bodies: list[str] = []
    for number, (p, q, result, expr) in enumerate(FORMS):
        types = {"p": p, "q": q}
        text = ValueText(helpers, lambda a, types=types: (f"*{a.tensor}", types[a.tensor]), {})
        value = text.cast(text(expr), result)
        assert not text.checks
        arguments = f"const {C_TYPES[p]} *p, const {C_TYPES[q]} *q, {C_TYPES[result]} *r"
        head = f"void f{number}({arguments})"
        bodies.append(f"{head};\n{head}\n{{\n  (void)q;\n  *r = {value.text};\n}}")
    includes = ["#include <math.h>", "#include <stdint.h>"]
    library = compiled(tmp_path, "\n".join([*includes, *helpers.definitions(), *bodies]))
    for number, (p, q, result, expr) in enumerate(FORMS):
        wide = {"int8": "int32", "uint8": "int32", "int16": "int32"}
        for a, b in product(SAMPLES[p], SAMPLES[q]):
            left, right = np.array(a, p), np.array(b, q)
            out = np.zeros((), result)
            library[f"f{number}"](*(ctypes.c_void_p(x.ctypes.data) for x in (left, right, out)))
            with np.errstate(all="ignore"):
                promoted = [x.astype(wide.get(str(x.dtype), str(x.dtype))) for x in (left, right)]
                expected = np.asarray(numpy_value(expr, *promoted)).astype(result)
            assert out == expected, f"{expr}: p = {a}, q = {b}"


def _divided(number: Expr, amount: Expr) -> Expr:
    """As quantised models round, in 64 bits."""
    half = binary(">>", binary("<<", Cast("int64", Const(1)), amount), 1)
    tie = binary("and", binary("<", number, 0), binary(">", amount, 0))
    odd = Call("select", (tie, Const(1), Const(0)))
    sums = binary("-", binary("+", Cast("int64", number), half), odd)
    return Cast("int32", binary(">>", sums, amount))


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_rounded_shifts_in_lanes_are_those_of_64_bits(tmp_path: Path) -> None:
    """For all amounts, also those that count their last bits alone."""
    helpers = value_helpers("t")
    bodies: list[str] = []
    for name, lanes in (("narrow", True), ("wide", False)):
        text = ValueText(helpers, lambda a: (f"*{a.tensor}", "int32"), {}, lanes=lanes)
        value = text.cast(text(_divided(P, Q)), "int32")
        assert ("rounded_shr" in value.text) == lanes
        assert ("int64" in value.text) != lanes
        head = f"void {name}(const int32_t *p, const int32_t *q, int32_t *r)"
        bodies.append(f"{head};\n{head}\n{{\n  *r = {value.text};\n}}")
    library = compiled(
        tmp_path, "\n".join(["#include <stdint.h>", *helpers.definitions(), *bodies])
    )
    ends = [0, 1, 2, 3, 5, 1 << 30, (1 << 31) - 2, (1 << 31) - 1]
    numbers = [*ends, *(-1 - n for n in ends), -123456789, 987654321]
    for number, amount in product(numbers, range(-70, 140)):
        given = [np.array(n, np.int32) for n in (number, amount)]
        narrow, wide = np.zeros((), np.int32), np.zeros((), np.int32)
        for name, out in (("narrow", narrow), ("wide", wide)):
            library[name](*(ctypes.c_void_p(x.ctypes.data) for x in (*given, out)))
        assert narrow == wide, (number, amount)


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(
    ("numbers", "amounts", "helper"),
    [
        ((-(1 << 31), (1 << 31) - 1), (0, 32), "rounded_shr"),
        ((-(1 << 31), (1 << 31) - 1), (-1, 31), "rounded_shr"),
        ((-(1 << 31), (1 << 31) - 1), (0, 31), "part_rounded_shr"),
        ((-(1 << 30), (1 << 30)), (0, 31), "part_rounded_shr"),
        ((-(1 << 31), 0), (1, 15), "part_rounded_shr"),
        ((1 - (1 << 31), (1 << 30) - 1), (0, 31), "plain_rounded_shr"),
        ((-(1 << 24), (1 << 24)), (1, 15), "plain_rounded_shr"),
    ],
)
def test_rounded_shifts_of_known_values_need_less(
    numbers: tuple[int, int], amounts: tuple[int, int], helper: str, tmp_path: Path
) -> None:
    helpers = value_helpers("t")
    known = {"p": numbers, "q": amounts}
    text = ValueText(helpers, lambda a: (f"*{a.tensor}", "int32"), {}, lanes=True, intervals=known)
    value = text.cast(text(_divided(P, Q)), "int32")
    assert f"t_{helper}_int32(" in value.text
    head = "void f(const int32_t *p, const int32_t *q, int32_t *r)"
    body = f"{head};\n{head}\n{{\n  *r = {value.text};\n}}"
    library = compiled(tmp_path, "\n".join(["#include <stdint.h>", *helpers.definitions(), body]))
    (low, high), (least, most) = numbers, amounts
    drawn = [n + d for n in (low, high, 0) for d in (-2, -1, 0, 1, 2)] + [12345678, -87654321]
    for a, n in product((x for x in drawn if low <= x <= high), range(max(least, 0), most + 1)):
        given = [np.array(x, np.int32) for x in (a, n)]
        out = np.zeros((), np.int32)
        library["f"](*(ctypes.c_void_p(x.ctypes.data) for x in (*given, out)))
        expected = (a + ((1 << n) >> 1) - (a < 0 and n > 0)) >> n
        assert out == expected, (a, n)
        assert value.interval[0] <= expected <= value.interval[1], (a, n)


def test_what_is_known_of_a_tensor_shortens_its_text() -> None:
    """A sum that stays in its type is signed, a shift by nothing is none, and values that may be
    more wrap around as before."""
    known = {"p": (-1000, 1000), "q": (0, 0)}
    text = ValueText(value_helpers("t"), lambda a: (f"*{a.tensor}", "int32"), {}, intervals=known)
    assert text(binary("+", P, 5)).text == "(*p + 5)"
    assert text(binary("<<", P, Q)).text == "*p"
    assert text(binary("<<", P, 4)).interval == (-16000, 16000)
    assert text(binary("<<", P, 30)).interval == dtype_interval("int32")
    assert "uint32_t" in text(binary("+", P, (1 << 31) - 1000)).text


def test_other_types_and_other_texts_are_no_rounded_shifts() -> None:
    for dtype in ("int64", "uint32"):
        text = ValueText(value_helpers("t"), lambda a, d=dtype: (f"*{a.tensor}", d), {}, lanes=True)
        assert "rounded_shr" not in text(_divided(P, Q)).text
    text = ValueText(value_helpers("t"), lambda a: (f"*{a.tensor}", "int32"), {}, lanes=True)
    match _divided(P, Q):
        case Cast(_, Binary(_, sums, amount)):
            assert amount == Q
            assert "rounded_shr" not in text(Cast("int32", binary(">>", sums, P))).text
        case _:
            raise AssertionError


def test_partial_operations_ask_for_checks() -> None:
    helpers = value_helpers("t")
    text = ValueText(helpers, lambda a: (f"*{a.tensor}", "int32"), {})
    text(binary(">>", P, Q))
    assert text.checks == ["*q >= 0", "*q <= 31"]
    text.checks.clear()
    text(binary("//", P, Q))
    assert text.checks == ["*q != 0"]


def test_dtype_intervals() -> None:
    assert dtype_interval("int8") == (-128, 127)
    assert dtype_interval("uint16") == (0, 65535)


def test_names_avoid_what_c_and_the_spec_use() -> None:
    names = NameTable(Reserved(frozenset({"cmd"})))
    given = [names[n] for n in ("int", "cmd", "a", "a.b", "a_b", "3x", "class", "_p")]
    assert given == ["int_", "cmd_", "a", "a_b", "a_b_", "v3x", "class_", "v_p"]
    assert names["a.b"] == "a_b"
    assert identifier("x-y") == "x_y"


def test_comments_cannot_be_left() -> None:
    assert "*/" not in comment("a */ int x; /* b")
    assert "\\" not in comment("ends in a backslash \\")
