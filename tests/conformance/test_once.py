"""What constants alone decide is computed where they are packed."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from hwgen.codegen.once import split_once
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

K, N = 37, 45


@cache
def compiled(*, constant: bool = True, rows: int = K) -> Kernel:
    """Signed bytes by signed bytes: units take unsigned activations, so that a sum of the weights
    is taken off."""
    workload = parse_workload(
        {
            "name": "of_signed",
            "tensors": {
                "a": f"int8[19, {rows}]",
                "b": {"type": f"int8[{rows}, {N}]", "constant": constant},
                "y": f"int32[19, {N}]",
            },
            "compute": ["y[m, n] += int32(a[m, k]) * int32(b[k, n])"],
        }
    )
    return compile_workload(workload, load_hardware("x86_vnni"), QUICK)


def test_sums_of_weights_are_no_work_of_a_call() -> None:
    kernel = compiled()
    examine(kernel, draw_inputs(kernel.workload, 3, "extremes"))
    once, each = kernel.program.codes
    assert (once.once, once.inputs, once.cycles) == (True, ("b",), 0)
    assert (each.once, each.inputs) == (False, ("a",))
    assert each.cycles > 0
    rest, workload, found = split_once(kernel.program, kernel.workload)
    assert (found, rest.codes) == (once, (each,))
    (made,) = once.outputs
    assert workload.tensor[made].constant
    assert made in rest.inputs


@pytest.mark.parametrize("case", ["no constant", "larger than what it is made of"])
def test_other_sums_are_of_each_call(case: str) -> None:
    """Weights may change between calls; and sums of three bytes would take more room than they."""
    kernel = compiled(constant=False) if case == "no constant" else compiled(rows=3)
    examine(kernel, draw_inputs(kernel.workload, 3, "extremes"))
    assert not any(code.once for code in kernel.program.codes)


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_packed_kernels_take_what_was_computed_once() -> None:
    """Called with sums of other weights, a kernel gives another result: it computes none itself."""
    source = compiled().source
    library = load_library(source.model, source.function, ("-std=c11", "-O1", "-w"))
    inputs = draw_inputs(compiled().workload, 0)
    sums, y, z = np.zeros(N, np.int32), np.zeros((19, N), np.int32), np.zeros((19, N), np.int32)
    name = source.function
    size = library[f"{name}_packed_bytes_b"]
    size.restype = ctypes.c_size_t
    blob = np.zeros(size(), np.uint8)
    a, b, packed, made, out, whole = (
        x.ctypes.data_as(ctypes.c_void_p) for x in (inputs["a"], inputs["b"], blob, sums, y, z)
    )
    library[f"{name}_derive"](b, made)
    library[f"{name}_pack_b"](b, packed)
    assert library[f"{name}_prepacked"](a, packed, made, out) == 0
    assert library[name](a, b, whole) == 0
    expected = inputs["a"].astype(np.int32) @ inputs["b"].astype(np.int32)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(z, expected)
    np.testing.assert_array_equal(sums, -128 * inputs["b"].sum(axis=0, dtype=np.int32))
    sums += 1
    assert library[f"{name}_prepacked"](a, packed, made, out) == 0
    np.testing.assert_array_equal(y, expected + 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_part_of_a_constant_is_no_packed_one(first: int) -> None:
    """The core copies what it reads of its weights: three of four columns, which is no whole tensor
    that could be kept between calls."""
    workload = parse_workload(
        {
            "name": "columns",
            "tensors": {
                "x": "float32[3, 49]",
                "w": {"type": f"float32[16, 3, {3 + first}]", "constant": True},
                "s": "float32[16, 24]",
                "y": "float32[16, 24]",
            },
            "compute": [
                {
                    "do": f"s[o, h] += x[c, 2*h + u] * w[o, c, u + {first}]",
                    "loops": {"o": 16, "h": 24, "c": 3, "u": 3},
                },
                "y[o, h] = s[o, h]",
            ],
        }
    )
    kernel = compile_workload(workload, load_hardware("x86_bf16"), QUICK)
    examine(kernel, draw_inputs(kernel.workload, 3, "extremes"))
    assert any(code.once for code in kernel.program.codes) == (first == 0)
