"""Every binary operator on every ordered pair of types, and on constants: C and the reference
compute what C's conversions give."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from hwgen.codegen.c_expr import Helpers
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.c_value import ValueText, value_helpers
from hwgen.model.compiled import have_compiler
from hwgen.model.numeric import STORAGE, Array, Value, evaluate, load, store
from hwgen.spec.expression import DTYPES, Access, Const, Expr, Unary
from hwgen.spec.typecheck import (
    ExpressionTypeError,
    dtype_of,
    integer_range,
    is_float,
    promoted,
)
from tests.drawn_values import CONSTANTS, OPERATORS, joined, well_typed
from tests.sampling import THOROUGH, tiered
from tests.unit.emit.test_expressions import compiled

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

INTEGERS = tuple(d for d in DTYPES if not is_float(d))
REALS = tuple(d for d in DTYPES if is_float(d))
P, Q = Access("p", ()), Access("q", ())


def samples(dtype: str) -> list[int]:
    low, high = integer_range(dtype)
    return [n for n in (low, low + 1, -300, -3, -2, -1, 0, 1, 2, 3, 31, high - 1, high)
            if low <= n <= high]  # fmt: skip


# What C says, on Python's integers: promotion, the common type, wrap-around.


def wrapped(value: int, dtype: str) -> int:
    low, _ = integer_range(dtype)
    return (value - low) % (1 << 8 * DTYPES[dtype]) + low


def meeting(a: str, b: str) -> str:
    """C's usual arithmetic conversions of two integer types."""
    one, other = promoted(a), promoted(b)
    if DTYPES[one] != DTYPES[other]:
        return max(one, other, key=DTYPES.__getitem__)
    return "uint32" if "uint32" in (one, other) else one


COMPARED: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
COMPUTED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": lambda a, b: a // b,
    "%": operator.mod, "min": min, "max": max,
}  # fmt: skip


def in_c(op: str, a: int, left: str, b: int, right: str) -> int | None:
    """The operator's value; None where there is none."""
    if op in ("<<", ">>"):
        kind = promoted(left)
        if not 0 <= b < 8 * DTYPES[kind]:
            return None
        return wrapped(a << b if op == "<<" else a >> b, kind)
    kind = meeting(left, right)
    a, b = wrapped(a, kind), wrapped(b, kind)
    if op in COMPARED:
        return int(COMPARED[op](a, b))
    if op in ("//", "%") and b == 0:
        return None
    return wrapped(COMPUTED[op](a, b), kind)


def of_number(value: int, other: str) -> str:
    """The type of a written number: that of what it meets, if that holds it, else C's."""
    low, high = integer_range(promoted(other))
    if low <= value <= high:
        return promoted(other)
    return "int32" if -(1 << 31) <= value < 1 << 31 else "int64"


@dataclass(frozen=True, slots=True)
class Case:
    """An operator on elements `p` and `q`, either of which may be a number instead."""

    op: str
    left: str | int
    right: str | int

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    @property
    def types(self) -> tuple[str, str]:
        match self.left, self.right:
            case int(number), str(other) if self.op in ("<<", ">>"):
                return of_number(number, "int32"), other
            case int(number), str(other):
                return of_number(number, other), other
            case str(other), int(number):
                return other, of_number(number, other)
            case str(left), str(right):
                return left, right
            case _:
                raise AssertionError(self)

    @property
    def expr(self) -> Expr:
        one = Const(self.left) if isinstance(self.left, int) else P
        other = Const(self.right) if isinstance(self.right, int) else Q
        return joined(self.op, one, other)

    @property
    def held(self) -> dict[str, str]:
        sides = {"p": self.left, "q": self.right}
        return {name: side for name, side in sides.items() if isinstance(side, str)}

    @property
    def dtype(self) -> str:
        return dtype_of(self.expr, lambda a: self.held[a.tensor] if isinstance(a, Access) else "")

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """Operands and the value that C gives."""
        one, other = (samples(s) if isinstance(s, str) else [s] for s in (self.left, self.right))
        for a, b in product(one, other):
            found = in_c(self.op, a, self.types[0], b, self.types[1])
            if found is not None:
                yield a, b, found


def cases() -> list[Case]:
    found = [Case(op, *pair) for op in OPERATORS for pair in product(INTEGERS, INTEGERS)]
    for op, dtype, number in product(OPERATORS, INTEGERS, CONSTANTS):
        for case in (Case(op, dtype, number), Case(op, number, dtype)):
            if accepted(case) and any(case.pairs()):
                found.append(case)
    return found


def accepted(case: Case) -> bool:
    try:
        return bool(case.dtype)
    except ExpressionTypeError:
        return False


CASES = cases()
assert len(CASES) > 5000
PARTS = 5
"""Of the cases: each has every operator, and each type on either side of it."""


def shown(wrong: dict[str, list[tuple[int, ...]]]) -> str:
    first = [f"{case}: {found}" for case, found in list(wrong.items())[:5]]
    return "\n".join([f"{len(wrong)} of {len(CASES)}; operands, expected, found:", *first])


def differences(
    columns: list[npt.NDArray[np.int64]], found: npt.NDArray[np.int64]
) -> list[tuple[int, ...]]:
    rows = [*columns, found]
    return [tuple(int(c[i]) for c in rows) for i in np.flatnonzero(found != columns[2])[:3]]


def columns_of(case: Case) -> list[npt.NDArray[np.int64]]:
    return [np.array(column, np.int64) for column in zip(*case.pairs(), strict=True)]


def test_the_reference_converts_as_c_does() -> None:
    wrong: dict[str, list[tuple[int, ...]]] = {}
    for case in CASES:
        columns = columns_of(case)
        given = dict(zip("pq", columns, strict=False))

        def read(
            access: Access, _: object, held: dict[str, str] = case.held,
            given: dict[str, npt.NDArray[np.int64]] = given,
        ) -> Value:  # fmt: skip
            kind = held[access.tensor]
            return load(given[access.tensor].astype(STORAGE[kind]), kind)

        value = evaluate(case.expr, read, {})
        # It has the type that checking gives, but for what narrow types keep.
        assert value.numbers or value.dtype == promoted(case.dtype), f"{case}: {value.dtype}"
        result = np.broadcast_to(value.array.astype(np.int64), columns[2].shape)
        if found := differences(columns, result):
            wrong[str(case)] = found
    assert not wrong, shown(wrong)


def function(number: int, given: dict[str, str], value: str, kind: str) -> str:
    """A C function that puts a value for each `i` into `r`."""
    parameters = [f"const {C_TYPES[dtype]} *{name}" for name, dtype in given.items()]
    head = f"void f{number}({', '.join([*parameters, f'{kind} *r', 'int n'])})"
    return f"{head};\n{head}\n{{\n  for (int i = 0; i < n; ++i)\n    r[i] = {value};\n}}"


def file_of(helpers: Helpers, functions: list[str]) -> str:
    includes = ["#include <math.h>", "#include <stdint.h>"]
    return "\n".join([*includes, *helpers.definitions(), *functions])


@needs_compiler
@pytest.mark.parametrize("part", tiered(range(PARTS), [0]))
def test_c_converts_its_operands(part: int, tmp_path: Path) -> None:
    cases = CASES[part::PARTS]
    helpers = value_helpers("t")
    bodies: list[str] = []
    for number, case in enumerate(cases):
        held = case.held
        text = ValueText(helpers, lambda a, held=held: (f"{a.tensor}[i]", held[a.tensor]), {})
        value = text.stored(text(case.expr), case.dtype)
        given = [f"const {C_TYPES[dtype]} *{name}" for name, dtype in held.items()]
        head = f"void f{number}({', '.join([*given, 'int64_t *r, int n'])})"
        bodies.append(
            f"{head};\n{head}\n{{\n  for (int i = 0; i < n; ++i)\n    r[i] = {value};\n}}"
        )
    includes = ["#include <math.h>", "#include <stdint.h>"]
    text = "\n".join([*includes, *helpers.definitions(), *bodies])
    library = compiled(tmp_path, text, "-Wno-type-limits", "-O0")
    wrong: dict[str, list[tuple[int, ...]]] = {}
    for number, case in enumerate(cases):
        columns = columns_of(case)
        given = dict(zip("pq", columns, strict=False))
        arrays = [given[name].astype(STORAGE[dtype]) for name, dtype in case.held.items()]
        result = np.zeros(columns[2].shape, np.int64)
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (*arrays, result))
        library[f"f{number}"](*pointers, ctypes.c_int(result.size))
        if found := differences(columns, result):
            wrong[str(case)] = found
    assert not wrong, shown(wrong)


# Expressions of several operators: what one converts, the next one reads.


def stored_samples(dtype: str) -> Array:
    if not is_float(dtype):
        return np.array(samples(dtype), STORAGE[dtype])
    numbers = [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 300.0, -3.75, 65504.0, 1e-7, -6.0e4]
    return store(Value(np.array(numbers), "float64"), dtype)


@needs_compiler
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=THOROUGH) for n in range(1, 8))])
def test_c_and_the_reference_agree_on_expressions(seed: int, tmp_path: Path) -> None:
    pick, helpers = Random(seed), value_helpers("t")
    drawn_cases: list[tuple[Expr, str, str, str]] = []
    for _ in range(1500):
        p, q = pick.choice(tuple(DTYPES)), pick.choice(tuple(DTYPES))
        expr, dtype = well_typed(pick, 3, {P: p, Q: q})
        drawn_cases.append((expr, p, q, dtype))
    bodies: list[str] = []
    for number, (expr, p, q, dtype) in enumerate(drawn_cases):
        types = {"p": p, "q": q}
        text = ValueText(helpers, lambda a, types=types: (f"{a.tensor}[i]", types[a.tensor]), {})
        value = text.stored(text(expr), dtype)
        bodies.append(function(number, types, value, C_TYPES[dtype]))
    library = compiled(tmp_path, file_of(helpers, bodies), "-w", "-O0")
    wrong: list[str] = []
    for number, (expr, p, q, dtype) in enumerate(drawn_cases):
        left, right = stored_samples(p), stored_samples(q)
        arrays = [np.repeat(left, len(right)), np.tile(right, len(left))]
        held = {"p": (arrays[0], p), "q": (arrays[1], q)}
        with np.errstate(all="ignore"):
            made = evaluate(expr, lambda a, _, held=held: load(*held[a.tensor]), {})
            expected = np.broadcast_to(store(made, dtype), arrays[0].shape)
        found = np.zeros(expected.shape, STORAGE[dtype])
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (*arrays, found))
        library[f"f{number}"](*pointers, ctypes.c_int(found.size))
        # gcc 12 makes -0.0 of `0.0f - (float)u` where u is 0: the sign of zero is no difference.
        numbers, given = (load(x, dtype).array for x in (expected, found))
        same = numbers == given
        if is_float(dtype):
            same |= np.logical_and(np.isnan(numbers), np.isnan(given))
        if not same.all():
            i = int(np.argmin(same))
            where = f"{p} {arrays[0][i]}, {q} {arrays[1][i]}"
            wrong.append(f"{dtype} {expr}, {where}: {expected[i]}, C {found[i]}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(drawn_cases)}", *wrong[:8]])


@needs_compiler
@pytest.mark.parametrize("dtype", REALS)
def test_a_negative_zero_stays_one(dtype: str, tmp_path: Path) -> None:
    helpers = value_helpers("t")
    text = ValueText(helpers, lambda _: ("p[i]", dtype), {})
    own = function(0, {"p": dtype}, text.stored(text(Unary("-", P)), dtype), C_TYPES[dtype])
    library = compiled(tmp_path, file_of(helpers, [own]))
    for number in (0.0, -0.0, 1.5):
        given = store(Value(np.array(number), "float64"), dtype)
        found = np.zeros((), STORAGE[dtype])
        library.f0(*(ctypes.c_void_p(x.ctypes.data) for x in (given, found)), ctypes.c_int(1))
        assert found.tobytes() == store(Value(np.array(-number), "float64"), dtype).tobytes()
