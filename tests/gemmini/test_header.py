"""The executing header: hand-written kernels against NumPy, and every rule that it enforces."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.model.compiled import have_compiler
from tests.gemmini import harness
from tests.gemmini.harness import Run, Signature, Tensor
from tests.gemmini.mutations import MUTATIONS, Mutation

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

SOURCE = (harness.HERE / "kernels.c").read_text()
Array = NDArray[Any]


def _tensors(**shapes: tuple[str, tuple[int, ...]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, dtype, shape) for name, (dtype, shape) in shapes.items())


def _i8(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "int8", shape


def _i32(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "int32", shape


SIGNATURES = {
    s.function: s
    for s in (
        Signature(
            "gemm_ws", _tensors(A=_i8(32, 32), B=_i8(32, 48), bias=_i32(48)),
            _tensors(C=_i8(32, 48)),
        ),
        Signature("gemm_tails", _tensors(A=_i8(21, 19), B=_i8(19, 37)), _tensors(C=_i32(21, 37))),
        Signature(
            "gemm_os", _tensors(A=_i8(14, 40), B=_i8(40, 11), D=_i8(14, 11)),
            _tensors(C=_i32(14, 11)),
        ),
        Signature("ws_a_transposed", _tensors(A=_i8(13, 9), B=_i8(13, 5)), _tensors(C=_i32(9, 5))),
        Signature(
            "ws_b_transposed", _tensors(A=_i8(9, 13), B=_i8(5, 13), D=_i8(7, 5)),
            _tensors(C=_i32(9, 5)),
        ),
        Signature("os_transposed", _tensors(A=_i8(13, 9), B=_i8(5, 13)), _tensors(C=_i32(9, 5))),
        Signature(
            "blocks", _tensors(X=_i8(7, 57), Y=_i8(8, 40)), _tensors(U=_i8(7, 57), V=_i8(8, 40))
        ),
        Signature(
            "acc_moves", _tensors(X=_i32(3, 6), Y=_i8(2, 40)),
            _tensors(U=_i32(3, 6), V=_i8(2, 40), W=_i32(3, 6)),
        ),
        Signature("masked", _tensors(A=_i8(16, 4), B=_i8(4, 16)), _tensors(C=_i32(16, 16))),
        Signature(
            "padded", _tensors(A=_i8(16, 16), B=_i8(16, 16)),
            _tensors(C=_i32(16, 16), E=_i32(16, 16)),
        ),
        Signature("both", _tensors(A=_i8(16, 16), B=_i8(16, 16)), _tensors(C=_i32(16, 16))),
    )
}  # fmt: skip


def _inputs(function: str, seed: int = 0) -> dict[str, Array]:
    """Arrays over the whole range of their type."""
    random = np.random.default_rng(seed)
    return {
        t.name: random.integers(
            np.iinfo(t.dtype).min, np.iinfo(t.dtype).max, t.shape, t.dtype, endpoint=True
        )
        for t in SIGNATURES[function].inputs
    }


def _round(values: Array, scale: float) -> Array:
    """As the moves do it: float32 throughout, half to even, saturated to int8."""
    product = values.astype(np.float32) * np.float32(scale)
    return np.minimum(np.maximum(np.rint(product), -128), 127).astype(np.int8)


def _product(a: Array, b: Array) -> NDArray[np.int64]:
    return a.astype(np.int64) @ b.astype(np.int64)


def expected(function: str, x: dict[str, Array]) -> dict[str, Array]:
    """What a kernel computes, in int64 and then wrapped to the output's type."""
    match function:
        case "gemm_ws":
            wide = (_product(x["A"], x["B"]) + x["bias"]).astype(np.int32)
            return {"C": np.maximum(_round(wide, 0.0078125), 0)}
        case "gemm_tails":
            return {"C": _product(x["A"], x["B"]).astype(np.int32)}
        case "gemm_os":
            return {"C": (_product(x["A"], x["B"]) + x["D"]).astype(np.int32)}
        case "ws_a_transposed":
            return {"C": _product(np.transpose(x["A"]), x["B"]).astype(np.int32)}
        case "ws_b_transposed":
            product = _product(x["A"], np.transpose(x["B"]))
            product[:7] += x["D"]
            return {"C": product.astype(np.int32)}
        case "os_transposed":
            return {"C": _product(np.transpose(x["A"]), np.transpose(x["B"])).astype(np.int32)}
        case "blocks":
            return {"U": _round(x["X"], 0.5), "V": x["Y"]}
        case "acc_moves":
            twice = (2 * x["X"].astype(np.int64)).astype(np.int32)
            twice[1, :2] = 0
            return {"U": twice, "V": _round(x["Y"], 1.5), "W": twice}
        case "masked":
            return {"C": _product(x["A"], x["B"]).astype(np.int32)}
        case "padded":
            c, e = np.zeros((16, 16), np.int32), np.zeros((16, 16), np.int32)
            c[:, :9] = _product(x["A"][:, :5], x["B"][:5, :9])
            e[:, :9] = _product(x["A"][:, :7], x["B"][:7, :9])
            e[:4, :3] += x["B"][:4, :3]
            return {"C": c, "E": e}
        case _:
            return {"C": (3 * _product(x["A"], x["B"])).astype(np.int32)}


@cache
def _program(flags: tuple[str, ...] = ("-O2",), standard: str = "c99") -> harness.Program:
    return harness.build(SOURCE, tuple(SIGNATURES.values()), flags=flags, standard=standard)


def _agree(function: str, result: Run, inputs: dict[str, Array]) -> None:
    assert (result.code, result.error) == ("", "")
    wanted = expected(function, inputs)
    assert result.outputs.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(result.outputs[name], array)


@pytest.mark.parametrize("function", SIGNATURES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernel(function: str, seed: int) -> None:
    inputs = _inputs(function, seed)
    _agree(function, harness.run(_program(), function, inputs), inputs)


@pytest.mark.parametrize("function", SIGNATURES)
def test_kernel_under_sanitizers(function: str) -> None:
    inputs = _inputs(function)
    program = _program(("-O1", "-g", *harness.SANITIZE), "c11")
    _agree(function, harness.run(program, function, inputs), inputs)


def test_small_products_are_not_all_saturated() -> None:
    """The scale's rounding is seen, ties included, and not only its saturation."""
    inputs = _inputs("gemm_ws")
    inputs["A"] //= 16
    inputs["B"] //= 16
    inputs["bias"][:] = np.arange(-8, 40) * 384
    result = harness.run(_program(), "gemm_ws", inputs)
    _agree("gemm_ws", result, inputs)
    assert len(np.unique(result.outputs["C"])) > 20


def test_rounding_is_half_to_even_and_saturates() -> None:
    function = Signature("copy", _tensors(X=_i32(16, 16)), _tensors(Y=_i8(16, 16)))
    source = """
        #include "include/gemmini.h"
        void copy(const int32_t *X, int8_t *Y)
        {
          gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
          gemmini_config_ld(64);
          gemmini_extended_config_st(16, NO_ACTIVATION, SCALE);
          gemmini_mvin(X, 0x80000000u);
          gemmini_mvout(Y, 0x80000000u);
          gemmini_fence();
        }
        """
    values = np.reshape(np.arange(-128, 128, dtype=np.int32), (16, 16))
    large = np.array([2**31 - 1, -(2**31), 2**24 + 1, 3 * 2**24 - 1], np.int32)
    large = np.reshape(np.repeat(large, 64), (16, 16))
    for scale, array in ((0.5, values * 2 + 1), (0.1, values * 13), (2**-25, large)):
        program = harness.build(source, (function,), flags=(f"-DSCALE={scale}f",))
        result = harness.run(program, "copy", {"X": array.astype(np.int32)})
        np.testing.assert_array_equal(result.outputs["Y"], _round(array, scale))


def test_counts() -> None:
    result = harness.run(_program(), "gemm_ws", _inputs("gemm_ws"))
    assert result.instructions == {
        "config_ex": 1, "config_ld": 3, "config_st": 1, "mvin": 2, "mvin2": 2, "mvin3": 6,
        "preload": 12, "compute_preloaded": 12, "compute_accumulated": 0, "mvout": 2,
        "fence": 1, "flush": 1,
    }  # fmt: skip
    # The bias row is read again for each of 16 rows.
    bias = 2 * 48 * 16 * 4
    assert result.traffic == {
        "A": (32 * 32, 0), "B": (32 * 48, 0), "bias": (bias, 0), "C": (0, 32 * 48),
    }  # fmt: skip


def _mutant(number: int) -> str:
    return f"mutant_{number}"


@cache
def _mutants() -> harness.Program:
    parts = [SOURCE[: SOURCE.index("/* C = relu")]]
    signatures: list[Signature] = []
    for number, mutation in enumerate(MUTATIONS):
        parts.append(mutation.apply(SOURCE, _mutant(number)))
        signatures.append(replace(SIGNATURES[mutation.kernel], function=_mutant(number)))
    return harness.build("\n".join(parts), signatures, flags=("-O1", "-Wno-unused-parameter"))


@pytest.mark.parametrize(
    ("number", "mutation"),
    list(enumerate(MUTATIONS)),
    ids=[f"{n}-{m.code}-{m.kernel}" for n, m in enumerate(MUTATIONS)],
)
def test_broken_rule_is_reported(number: int, mutation: Mutation) -> None:
    result = harness.run(_mutants(), _mutant(number), _inputs(mutation.kernel))
    assert result.code == mutation.code, result.error
    assert "(instruction " in result.error
    assert result.outputs == {}


def test_every_rule_has_a_mutation() -> None:
    text = "".join((harness.HERE / name).read_text() for name in ("machine.h", "moves.h"))
    codes = set(re.findall(r'"([A-Z][A-Z_]+)"', text)) - {"HARNESS"}
    assert codes == {m.code for m in MUTATIONS}
    assert len(codes) >= 20


def test_a_crash_is_reported() -> None:
    function = Signature("f", (), _tensors(Y=_i8(1)))
    source = "#include <stdlib.h>\nvoid f(int8_t *Y) { (void)Y; abort(); }\n"
    program = harness.build("#include <stdint.h>\n" + source, (function,))
    assert harness.run(program, "f", {}).code == "CRASH"


def test_static_arrays_and_status() -> None:
    """An array of file scope can be a stop on the way; a returned status is passed on."""
    source = """
        #include "include/gemmini.h"
        static int8_t packed[2 * 16];
        int f(const int8_t *X, int8_t *Y)
        {
          for (int i = 0; i < 32; ++i)
            packed[i] = X[31 - i];
          gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
          gemmini_config_ld(16);
          gemmini_config_st(16);
          gemmini_extended_mvin(packed, 0, 16, 2);
          gemmini_extended_mvout(Y, 0, 16, 2);
          gemmini_fence();
          return 3;
        }
        """
    function = Signature("f", _tensors(X=_i8(32)), _tensors(Y=_i8(32)), status=True)
    x = np.arange(32, dtype=np.int8)
    program = harness.build(source, (function,), statics=("packed",))
    result = harness.run(program, "f", {"X": x})
    assert (result.code, result.status) == ("", 3)
    np.testing.assert_array_equal(result.outputs["Y"], x[::-1])
    assert result.traffic["packed"] == (32, 0)
    unregistered = harness.run(harness.build(source, (function,)), "f", {"X": x})
    assert unregistered.code == "DRAM_RANGE"
