"""Immediates as C: literals that read back to the same bits, typed parameters, range checks."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from sys import byteorder

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.codegen.c_constants import element_text, integer, number_text
from hwgen.codegen.c_names import immediate_type
from hwgen.codegen.c_words import uses_math
from hwgen.codegen.model_intrinsic import IntrinsicFunctions
from hwgen.codegen.model_order import Order
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.model.compiled import find_compiler, have_compiler
from hwgen.model.numeric import Value, store
from hwgen.spec.expression import Binary, Name
from hwgen.spec.hardware import Immediate
from hwgen.spec.ranges import Range
from tests.unit.emit import toy

LARGEST = float(np.finfo(np.float32).max)
NUMBERS = (
    0.0, -0.0, 1.0, -3.0, 0.3, 1 / 3, 16777216.0, 1e10, 1e-45, -1e-40, LARGEST, 5e-324, 1e300,
    float("inf"), float("-inf"),
)  # fmt: skip
SINGLES = tuple(float(np.float32(v)) for v in NUMBERS if abs(v) <= LARGEST or np.isinf(v))


def test_types() -> None:
    found = {d: immediate_type(d) for d in ("int8", "float16", "bfloat16", "float32", "float64")}
    assert found == {
        "int8": "int8_t", "float16": "float", "bfloat16": "float", "float32": "float",
        "float64": "double",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-7, "int16", "-7"),
        (float(np.float32(0.3)), "float32", "0.3f"),
        (0.3, "float64", "0.3"),
        (2.0, "float32", "2.0f"),
        (1e30, "float64", "1.0e+30"),
        (-0.0, "float32", "-0.0f"),
        (0.5, "bfloat16", "0.5f"),
        (float("-inf"), "float32", "-INFINITY"),
    ],
)
def test_literals(value: int | float, dtype: str, text: str) -> None:
    assert number_text(value, dtype) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_single_is_the_nearest_to_its_digits(value: float) -> None:
    text = number_text(value, "float32")
    assert text.endswith("f")
    assert np.float32(text[:-1]).tobytes() == np.float32(value).tobytes()


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_compiler_reads_back_the_same_bits(tmp_path: Path) -> None:
    compiler = find_compiler()
    assert compiler is not None
    singles = ", ".join(number_text(v, "float32") for v in SINGLES)
    doubles = ", ".join(number_text(v, "float64") for v in NUMBERS)
    source = tmp_path / "literals.c"
    source.write_text(
        "#include <math.h>\n"
        f"const float singles[] = {{{singles}}};\nconst double doubles[] = {{{doubles}}};\n"
    )
    library = tmp_path / "literals.so"
    options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, *options, "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    read = bytes((ctypes.c_char * (4 * len(SINGLES))).in_dll(loaded, "singles"))
    assert read == np.array(SINGLES, np.float32).tobytes()
    read = bytes((ctypes.c_char * (8 * len(NUMBERS))).in_dll(loaded, "doubles"))
    assert read == np.array(NUMBERS, np.float64).tobytes()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (Immediate("k", "float32", None), 0.5, "-0x1.fffffe0000000p+127, 0x1.fffffe0000000p+127"),
        (
            Immediate("k", "float32", Range(-1, 2)),
            0.5,
            "-0x1.0000000000000p+0, 0x1.0000000000000p+1",
        ),
        (Immediate("k", "int8", Range(-1, 2)), 1, "INT64_C(-1), INT64_C(2)"),
    ],
)
def test_micro_kernels_check_what_they_hold(
    field: Immediate, value: int | float, expected: str
) -> None:
    scaled = toy.intrinsic(
        "scaled",
        (toy.operand("dst", "local", "write"), toy.operand("src", "local", "read")),
        "",
        (toy.DST, "=", Binary("*", toy.SRC, Name("k"))),
        immediates=(field,),
    )
    chip = toy.chip(scaled)
    order = Order("p", Program("scaled", "toy", "scaled", (), ()), chip)
    functions = IntrinsicFunctions("p", chip, [scaled], order)
    kernel = MicroKernelDef(
        "tile", "scaled", (), (KernelLoop(2, (1, 1)),), ((0, 8),), (("k", value),)
    )
    text = "\n".join(functions.define_kernel(kernel))
    literal = number_text(value, field.dtype)
    helper = "within_float" if field.is_float else "within"
    assert f'p_TRY(p_{helper}({literal}, {expected}, "immediate k"));' in text
    assert f"a1, {literal}))" in text
    parameter = f"{immediate_type(field.dtype)} imm0)"
    assert any(parameter in line for line in functions.define(scaled))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (-(1 << 31), "(-2147483647 - 1)"),
        (1 << 31, "INT64_C(2147483648)"),
        (-(1 << 63), "(-INT64_C(9223372036854775807) - 1)"),
    ],
)
def test_integers_have_a_type_wide_enough(value: int, text: str) -> None:
    assert integer(value) == text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_not_finite_has_the_macros_of_math_h(dtype: str) -> None:
    found = [number_text(v, dtype) for v in (np.inf, -np.inf, np.nan)]
    assert found == ["INFINITY", "-INFINITY", "NAN"]
    assert all(map(uses_math, found))
    assert number_text(1e300, "float32") == "INFINITY"


@given(st.one_of(st.floats(), st.integers(-(1 << 53), 1 << 53)))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elements_of_16_bits_are_what_the_simulator_stores(dtype: str, value: float) -> None:
    stored = store(Value(np.asarray(value, np.float64), "float64"), dtype)
    assert int(element_text(value, dtype), 16) == int.from_bytes(stored.tobytes(), byteorder)


def test_comments_and_strings_use_no_library() -> None:
    assert not uses_math('/* exp(x) */ puts("INFINITY"); // rintf\n#include <math.h>\n')
    assert uses_math("y = rintf(x);")
