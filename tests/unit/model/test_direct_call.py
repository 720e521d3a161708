"""Calls of compiled kernels: quick where C reads the arrays as they are, the same everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import hwgen
from hwgen.autoschedule.options import Options
from hwgen.errors import HwgenError
from hwgen.kernel import Kernel
from hwgen.model.c_compiler import have_compiler
from hwgen.model.compiled import CompiledKernel, compile_model
from hwgen.model.direct_call import DirectCall, direct_call
from hwgen.model.native import compile_portable
from hwgen.model.numeric import STORAGE

Array = npt.NDArray[Any]
pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

EVENTS = 20
"""Functions entered at most by a call with two inputs, a third of what the checks with all their
messages take. Their number is the same on every machine, a time is not."""


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    sizes = {"M": 3, "N": 8, "K": 5}
    return hwgen.build("matmul", "cpu_generic", sizes=sizes, options=Options(attempts=1))


@pytest.fixture(scope="module")
def compiled(kernel: Kernel) -> CompiledKernel:
    return compile_portable(kernel.compilation.source, kernel.hardware)


@pytest.fixture(scope="module")
def call(kernel: Kernel, compiled: CompiledKernel) -> DirectCall:
    made = direct_call(compiled, kernel.workload)
    assert made is not None
    return made


def arrays() -> tuple[Any, Any, Any]:
    """Two inputs and their product, whose sums are exact in any order."""
    a = np.reshape(np.arange(15, dtype=np.float32), (3, 5))
    b = np.reshape(np.arange(40, dtype=np.float32) - 20, (5, 8))
    return a, b, a @ b


def frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array


def entered(run: Callable[[], object]) -> int:
    """The functions that a call enters, of Python and of C."""
    seen: list[str] = []
    sys.setprofile(lambda _, event, __: seen.append(event))
    try:
        run()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in seen)


def test_few_functions_are_entered(kernel: Kernel) -> None:
    a, b, expected = arrays()
    assert np.array_equal(kernel(a, b), expected)
    assert entered(lambda: kernel(a, b)) <= EVENTS
    assert entered(lambda: kernel(np.asfortranarray(a), b)) > EVENTS


def test_arrays_that_c_reads_as_they_are(call: DirectCall) -> None:
    a, b, expected = arrays()
    for places, named in (
        ((a, b), {}), ((a,), {"b": b}), ((), {"b": b, "a": a}), ((frozen(a.copy()), b), {}),
        ((np.stack([a, a])[1], b), {}),
    ):  # fmt: skip
        found = call(places, named)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ((), {}),
        (("a",), {}),
        (("a", "b", "b"), {}),
        (("a", "b"), {"b": "b"}),
        (("a",), {"c": "b"}),
    ],
)
def test_other_inputs_are_left_to_the_checks(
    kernel: Kernel, call: DirectCall, places: tuple[str, ...], named: Mapping[str, str]
) -> None:
    a, b, _ = arrays()
    given = {"a": a, "b": b}
    by_place, by_name = tuple(given[n] for n in places), {k: given[n] for k, n in named.items()}
    assert call(by_place, by_name) is None
    with pytest.raises(HwgenError, match="H051"):
        kernel(*by_place, **by_name)


def test_arrays_that_c_does_not_read_as_they_are(kernel: Kernel, call: DirectCall) -> None:
    """They are copied, and the result is the same."""
    a, b, expected = arrays()
    shifted = np.ndarray(a.shape, a.dtype, b"\0" + a.tobytes(), offset=1)
    for other in (np.asfortranarray(a), shifted, np.stack([a, a], axis=2)[..., 1]):
        assert call((other, b), {}) is None
        assert np.array_equal(kernel(other, b), expected)
    wide: Any = np.broadcast_to(a[0, 0], a.shape)
    assert call((wide, b), {}) is None
    assert np.array_equal(kernel(wide, b), wide @ b)


def test_another_type_or_shape_is_refused(kernel: Kernel, call: DirectCall) -> None:
    a, b, _ = arrays()
    types = (a.astype(np.float64), a.astype(">f4"), a.view(np.int32))
    for other in (*types, a.T, a[:2], a[None], a.reshape(-1)):
        assert call((other, b), {}) is None
        with pytest.raises(HwgenError, match="H053"):
            kernel(other, b)


def test_every_result_is_a_new_array(kernel: Kernel) -> None:
    a, b, expected = arrays()
    first = kernel(a, b)
    second = kernel(a * 2, b)
    assert np.array_equal(first, expected)
    assert np.array_equal(second, expected * 2)


def test_arrays_begin_at_the_multiples_that_the_c_needs(
    kernel: Kernel, compiled: CompiledKernel
) -> None:
    """NumPy's own begin at fewer bytes; those of the caller are copied, a result is made so."""
    source, align = compiled.source, 1 << 12
    inputs = tuple(replace(p, align=align) for p in source.inputs)
    outputs = tuple(replace(p, align=align) for p in source.outputs)
    strict = CompiledKernel(replace(source, inputs=inputs, outputs=outputs), compiled.loaded)
    call = direct_call(strict, kernel.workload)
    assert call is not None
    a, b, expected = arrays()
    room = np.zeros(3 << 12, np.uint8)
    start = -room.ctypes.data % align
    placed: list[Array] = []
    for number, array in enumerate((a, b)):
        made = np.ndarray(array.shape, array.dtype, room.data, start + number * align)
        made[...] = array
        placed.append(made)
    found = call(tuple(placed), {})
    assert isinstance(found, np.ndarray)
    assert found.ctypes.data % align == 0
    assert np.array_equal(found, expected)
    off = np.ndarray(a.shape, a.dtype, room.data, start + 64)
    assert call((off, placed[1]), {}) is None


def test_numbers_and_several_outputs() -> None:
    workload = hwgen.workload(
        "two",
        tensors={"x": "float32[8]", "s": "float32", "high": "float32[8]", "sum": "float32"},
        compute=["high[i] = max(x[i], s)", "sum += x[i]"],
    )
    kernel = hwgen.build(workload, "cpu_generic")
    x = np.arange(8, dtype=np.float32)
    found = kernel(x, np.array(3, np.float32))
    assert isinstance(found, tuple)
    high, total = found
    assert np.array_equal(high, np.maximum(x, 3))
    assert total.shape == ()
    assert total == 28


def test_a_kernel_whose_c_has_other_parameters_is_called_by_names(
    kernel: Kernel, compiled: CompiledKernel
) -> None:
    swapped = replace(compiled.source, inputs=compiled.source.inputs[::-1])
    assert direct_call(CompiledKernel(swapped, compiled.loaded), kernel.workload) is None


def test_what_a_status_means_is_raised() -> None:
    """The function of the model stops where one of its checks fails."""
    made = hwgen.build("relu", "vta", sizes={"M": 4, "N": 32}, engine="c")
    source = made.compilation.source
    head = f"int {source.function}("
    at = source.model.rindex(head)
    broken = source.model[:at] + source.model[at:].replace("{", "{ return 3;", 1)
    kernel = compile_model(replace(source, model=broken))
    call = direct_call(kernel, made.workload)
    assert call is not None
    inputs = [np.zeros(p.shape, STORAGE[p.dtype]) for p in source.inputs]
    with pytest.raises(HwgenError, match="H702"):
        call(tuple(inputs), {})
