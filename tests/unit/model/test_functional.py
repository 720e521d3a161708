"""Whole programs: right results, traffic, and each check with the defect that it catches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hwgen.codegen.nodes import Call, Node, rewritten
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.model.functional import run
from hwgen.model.images import pack
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.spec.expression import Binary, Const, Name, add
from tests.planted.parts import with_kernel, with_operand, with_stride
from tests.samples import (
    chip,
    gemm_requant_workload,
    gemm_workload,
    load_bound_gemm,
    tiled_gemm_requant,
)


def requant_inputs(m: int, n: int, k: int, seed: int = 0) -> dict[str, Array]:
    """Random tensors whose results are not all clipped."""
    inputs = random_inputs(gemm_requant_workload(m, n, k), seed)
    return {**inputs, "bias": np.right_shift(inputs["bias"], 15)}


def test_load_bound_gemm() -> None:
    workload = gemm_workload(1, 256, 256)
    inputs = random_inputs(workload, 3)
    result = run(load_bound_gemm(), chip(), inputs)
    np.testing.assert_array_equal(result.outputs["c"], run_reference(workload, inputs)["c"])
    assert result.calls == 17
    assert result.iterations["gemm"] == 256
    assert result.micro_operations == {"uop": 8}
    # Each byte of a, b and c crosses the off-chip boundary once.
    assert result.traffic_bytes("dram", "a", "read") == 256
    assert result.traffic_bytes("dram", "b", "read") == 65536
    assert result.traffic_bytes("dram", "c", "write") == 256
    assert result.traffic_bytes("dram") == 256 + 65536 + 256


@pytest.mark.parametrize(
    "sizes", [(16, 16, 16), (64, 64, 64), (16, 512, 48), (256, 128, 1040), (32, 16, 8192)]
)
def test_tiled_gemm(sizes: tuple[int, int, int]) -> None:
    workload = gemm_requant_workload(*sizes)
    inputs = requant_inputs(*sizes)
    result = run(tiled_gemm_requant(*sizes), chip(), inputs, shapes={"c": sizes[:2]})
    expected = run_reference(workload, inputs)["c"]
    assert len(np.unique(expected)) > 16
    np.testing.assert_array_equal(result.outputs["c"], expected)


def test_sums_wrap_around() -> None:
    inputs = requant_inputs(16, 16, 16)
    inputs["bias"] = np.full(16, (1 << 31) - 1, np.int32)
    expected = run_reference(gemm_requant_workload(16, 16, 16), inputs)["c"]
    assert set(np.unique(expected).tolist()) == {-128, 127}
    result = run(tiled_gemm_requant(16, 16, 16), chip(), inputs)
    np.testing.assert_array_equal(result.outputs["c"], expected)


def test_inputs_are_left_alone_and_runs_repeat() -> None:
    inputs = requant_inputs(32, 32, 32)
    before = {name: np.array(array) for name, array in inputs.items()}
    program = tiled_gemm_requant(32, 32, 32)
    first, second = (run(program, chip(), inputs).outputs["c"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    for name, array in before.items():
        np.testing.assert_array_equal(inputs[name], array)


def test_padded_outputs_need_their_shape() -> None:
    """An output of 5 x 20 in an image of 16 x 32."""
    program = tiled_gemm_requant(16, 32, 16)
    inputs = requant_inputs(16, 32, 16)
    whole = run(program, chip(), inputs).outputs["c"]
    part = run(program, chip(), inputs, shapes={"c": (5, 20)}).outputs["c"]
    np.testing.assert_array_equal(part, whole[:5, :20])


def test_a_narrower_tensor_may_fill_a_wider_image() -> None:
    program = tiled_gemm_requant(16, 16, 16)
    inputs = requant_inputs(16, 16, 16)
    narrow = inputs["bias"].astype(np.int16)
    wide = run(program, chip(), {**inputs, "bias": narrow.astype(np.int32)}).outputs["c"]
    bias = next(i for i in program.images if i.tensor == "bias")
    assert pack(bias, narrow, "int16").dtype == np.int32
    result = run(program, chip(), {**inputs, "bias": narrow}).outputs["c"]
    np.testing.assert_array_equal(result, wide)


# One defect for each check.

Defect = Callable[[Program], Program]


def edit_site(program: Program, site: int, change: Callable[[Call], Call]) -> Program:
    def edit(node: Node) -> tuple[Node, ...]:
        return (change(node),) if isinstance(node, Call) and node.site == site else (node,)

    return replace(program, body=rewritten(program.body, edit))


def moved(site: int, operand: int, by: int) -> Defect:
    """An operand's address off by some entries."""

    def change(call: Call) -> Call:
        old = call.operands[operand]
        return with_operand(call, operand, replace(old, address=add(old.address, Const(by))))

    return lambda program: edit_site(program, site, change)


def stepping(site: int, operand: int, level: int, stride: int) -> Defect:
    def change(call: Call) -> Call:
        return with_operand(
            call, operand, with_stride(call.operands[operand], level, Const(stride))
        )

    return lambda program: edit_site(program, site, change)


def sized(site: int, *extents: int) -> Defect:
    return lambda p: edit_site(
        p, site, lambda call: replace(call, extents=tuple(map(Const, extents)))
    )


def without(site: int) -> Defect:
    def edit(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, Call) and node.site == site else (node,)

    return lambda program: replace(program, body=rewritten(program.body, edit))


def kernel_edit(name: str, change: Callable[[MicroKernelDef], MicroKernelDef]) -> Defect:
    return lambda program: with_kernel(program, change(program.kernel[name]))


def immediate(site: int, kernel: str, value: int) -> Defect:
    def change(program: Program) -> Program:
        stated = (("imm", value),)
        program = with_kernel(program, replace(program.kernel[kernel], immediates=stated))
        return edit_site(program, site, lambda call: replace(call, immediates=stated))

    return change


def single_row_add(program: Program) -> Program:
    """The bias added over one column block, column by column: consecutive writes to one entry."""
    loops = (KernelLoop(64, (8, 0)), KernelLoop(8, (0, 0)))
    program = with_kernel(program, replace(program.kernel["bias_tile"], loops=loops))
    program = stepping(5, 0, 1, 0)(program)
    return stepping(5, 1, 1, 0)(program)


DEFECTS: dict[str, tuple[Defect, str, str]] = {
    "below the memory": (moved(1, 0, -1000), "H713", "-1000..-1000"),
    "past the image": (moved(9, 0, 4096), "H711", "c_image[4096"),
    "past the memory": (sized(2, 1, 3000), "H711", "inp[0..2999]"),
    "past the buffer": (moved(9, 1, 1000), "H712", "acc[1016..1527]"),
    "into the next slot": (moved(2, 0, 1), "H712", "inp[1..1024]"),
    "past the address field": (moved(9, 1, 2048), "H713", "2064..2064"),
    "past the extent field": (sized(2, 1, 65536), "H714", "65536"),
    "no extent": (sized(2, 0, 1024), "H714", "0"),
    "past the stride field": (stepping(9, 0, 0, 65536), "H715", "65536"),
    "not dense": (stepping(9, 1, 0, 9), "H715", "9"),
    "a stride that must be 1": (stepping(9, 0, 1, 2), "H715", "2"),
    "an immediate too large": (immediate(8, "high_tile", 40000), "H716", "40000"),
    "a shift too large": (immediate(6, "shift_tile", 32), "H716", "32"),
    "no reset": (without(3), "H717", "acc[16], 512 such entries"),
    "no bias": (without(0), "H717", "acc[0], 8 such entries"),
    "no weights": (without(1), "H717", "wgt[0], 128 such entries"),
    "stored as loaded": (
        lambda p: edit_site(
            sized(9, 1, 8)(p),
            9,
            lambda c: with_operand(
                c, 1, replace(c.operands[1], buffer="bias_local", address=Const(0))
            ),
        ),
        "H718",
        "acc[0] was written by load_acc",
    ),
    "too many operations": (
        kernel_edit("gemm_tile", lambda k: replace(k, sequence=(KernelLoop(2000, (0, 0, 0)),))),
        "H720",
        "operation 1 writes where operation 0 does",
    ),
    "operations past the capacity": (
        kernel_edit("gemm_tile", lambda k: replace(k, sequence=(KernelLoop(2048, (1, 0, 0)),))),
        "H719",
        "2049 micro-operations in 2 variants so far",
    ),
    "operation two later": (
        kernel_edit(
            "gemm_tile",
            lambda k: replace(k, sequence=(KernelLoop(2, (0, 0, 0)), KernelLoop(2, (1, 0, 0)))),
        ),
        "H720",
        "operation 2 writes where operation 0 does",
    ),
    "result too late": (single_row_add, "H721", "iteration 1 touches what 0 wrote"),
    "no such variant": (
        lambda p: edit_site(p, 3, lambda c: replace(c, variant=Const(2))),
        "H722",
        "2",
    ),
    "too many variants": (
        kernel_edit("reset_tile", lambda k: replace(k, bases=((16,), (528,)) * 50)),
        "H722",
        "100",
    ),
    "another base": (
        kernel_edit("reset_tile", lambda k: replace(k, bases=((17,), (528,)))),
        "H723",
        "[16]",
    ),
    "another loop": (
        kernel_edit(
            "reset_tile", lambda k: replace(k, loops=(KernelLoop(63, (8,)), KernelLoop(8, (1,))))
        ),
        "H723",
        "64 by [8], 8 by [1]",
    ),
    "no store": (without(9), "H724", "c[0, 0] (65536 of 65536 elements missing)"),
    "an unknown buffer": (
        lambda p: replace(p, buffers=p.buffers[1:]),
        "H728",
        "a_local",
    ),
    "an unknown intrinsic": (
        lambda p: edit_site(p, 9, lambda c: replace(c, intrinsic="store")),
        "H728",
        "store",
    ),
    "another unit": (
        lambda p: edit_site(p, 9, lambda c: replace(c, unit="load")),
        "H728",
        "load",
    ),
    "an address that is no number": (
        lambda p: edit_site(
            p,
            9,
            lambda c: with_operand(
                c, 1, replace(c.operands[1], address=Binary("//", Name("nt"), Const(0)))
            ),
        ),
        "H728",
        "nt // 0",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_caught(name: str) -> None:
    defect, code, found = DEFECTS[name]
    program = tiled_gemm_requant(256, 256, 256)
    with pytest.raises(HwgenError) as error:
        run(defect(program), chip(), requant_inputs(256, 256, 256))
    assert error.value.code == code
    assert found in error.value.diagnostic.found
    assert error.value.diagnostic.allowed


def test_an_error_prints_the_call() -> None:
    program = moved(9, 1, 1000)(tiled_gemm_requant(256, 256, 256))
    with pytest.raises(HwgenError) as error:
        run(program, chip(), requant_inputs(256, 256, 256))
    assert str(error.value) == (
        "error[H712]: operand src lies outside its buffer\n"
        "  field:   store_out(dst=c_image@0 step [16, 1], src=acc_local@1016 step [8, 1]) "
        "over 64 x 8 [site 9, nt=0, mt=0]\n"
        "  found:   acc[1016..1527]\n"
        "  allowed: 16..1039, that is acc_local"
    )


def test_unchecked_runs_still_keep_bounds() -> None:
    inputs = requant_inputs(64, 64, 64)
    program = tiled_gemm_requant(64, 64, 64)
    checked = run(program, chip(), inputs).outputs["c"]
    np.testing.assert_array_equal(run(program, chip(), inputs, check=False).outputs["c"], checked)
    poisoned = run(without(3)(program), chip(), inputs, check=False).outputs["c"]
    assert (poisoned != checked).any()
    with pytest.raises(HwgenError, match="H711"):
        run(moved(9, 0, 999)(program), chip(), inputs, check=False)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"a": None}, "b, bias"),
        ({"a": np.zeros((16, 16), np.float32)}, "float32 in int8"),
        ({"a": np.zeros(256, np.int8)}, "int8[256]"),
        ({"a": np.zeros((16, 16), np.complex64)}, "complex64"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(change: dict[str, Array | None], found: str) -> None:
    inputs = requant_inputs(16, 16, 16)
    given = {n: a for n, a in {**inputs, **change}.items() if a is not None}
    with pytest.raises(HwgenError) as error:
        run(tiled_gemm_requant(16, 16, 16), chip(), given)
    assert error.value.code in ("H725", "H726")
    assert found in str(error.value)
