"""Floats rounded to whole numbers, to nearest and even, without a call of a library."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.codegen.c_value import value_helpers
from hwgen.model.c_compiler import have_compiler, load_library
from hwgen.model.folders import FOLDER_VARIABLE
from hwgen.model.numeric import STORAGE

FLAGS = (("-O2",), ("-O3", "-march=native"), ("-O0",))


def numbers(dtype: str) -> NDArray[Any]:
    """Numbers of all sizes and both signs, halves, whole ones, and what is next to these."""
    bits, fraction = (32, 23) if dtype == "float32" else (64, 52)
    whole = np.dtype(f"uint{bits}")
    random = np.random.default_rng(0).integers(0, 1 << bits, 1 << 17, whole, False)
    steps: NDArray[np.float64] = np.arange(-(1 << 12), 1 << 12) / 2.0
    exact: NDArray[Any] = np.concatenate([steps, 2.0**fraction + steps, steps - 2.0**fraction])
    exact = exact.astype(STORAGE[dtype])
    ends: list[NDArray[Any]] = [np.nextafter(exact, exact.dtype.type(e)) for e in (-np.inf, np.inf)]
    return np.concatenate([np.frombuffer(random.tobytes(), STORAGE[dtype]), exact, *ends])


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_c_rounds_as_numpy_does(
    dtype: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    helpers = value_helpers("t")
    c = "float" if dtype == "float32" else "double"
    call = helpers.call(f"rint_{dtype}", "from[i]")
    text = "\n".join(
        [
            "#include <math.h>",
            *helpers.definitions(),
            f"void run(long n, const {c} *from, {c} *to)",
            f"{{\n  for (long i = 0; i < n; ++i)\n    to[i] = {call};\n}}",
        ]
    )
    assert "rint" not in text.split("#if")[1].split("#else")[0]
    library = load_library(text, "rounding", ("-std=c99", "-Wall", "-Wextra", "-Werror", *flags))
    values = numbers(dtype)
    found = np.zeros_like(values)
    arrays = (ctypes.c_void_p(a.ctypes.data) for a in (values, found))
    library.run(ctypes.c_long(values.size), *arrays)
    with np.errstate(invalid="ignore"):
        expected = np.rint(values)
    np.testing.assert_array_equal(found, expected)
    whole = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[whole], np.signbit(expected)[whole])
