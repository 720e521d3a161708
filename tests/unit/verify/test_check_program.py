"""Each static check passes the samples and refuses the defect that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hwgen.codegen.nodes import Loop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import HwgenError
from hwgen.spec.expression import Access, Cast, Const, Name, add
from hwgen.verify.check_program import CHECKS, check_program
from tests.planted.parts import with_kernel
from tests.samples import (
    chip,
    gemm_requant_workload,
    gemm_workload,
    load_bound_gemm,
    tiled_gemm_requant,
)

PROGRAM = tiled_gemm_requant(256, 256, 256)
WORKLOAD = gemm_requant_workload(256, 256, 256)


def test_the_samples_pass() -> None:
    check_program(load_bound_gemm(), chip(), gemm_workload(1, 256, 256))
    check_program(PROGRAM, chip(), WORKLOAD)
    check_program(PROGRAM, chip())


def with_image(name: str, change: Callable[[Image], Image]) -> Program:
    images = tuple(change(i) if i.name == name else i for i in PROGRAM.images)
    return replace(PROGRAM, images=images)


def with_buffer(name: str, change: Callable[[Buffer], Buffer]) -> Program:
    buffers = tuple(change(b) if b.name == name else b for b in PROGRAM.buffers)
    return replace(PROGRAM, buffers=buffers)


def kernel(name: str, change: Callable[[MicroKernelDef], MicroKernelDef]) -> Program:
    return with_kernel(PROGRAM, change(PROGRAM.kernel[name]))


def outer_loop() -> Loop:
    loop = PROGRAM.body[1]
    assert isinstance(loop, Loop)
    return loop


C_INDEX = PROGRAM.image["c_image"].index

DEFECTS: dict[str, tuple[Callable[[], Program], str, str]] = {
    "another chip": (lambda: replace(PROGRAM, hardware="other"), "H731", "other"),
    "two buffers of one name": (
        lambda: with_buffer("a_local", lambda b: replace(b, name="b_local")),
        "H731",
        "b_local",
    ),
    "a missing kernel": (lambda: replace(PROGRAM, kernels=PROGRAM.kernels[1:]), "H731", "reset_t"),
    "a missing buffer": (lambda: replace(PROGRAM, buffers=PROGRAM.buffers[1:]), "H731", "a_local"),
    "a site twice": (lambda: replace(PROGRAM, body=PROGRAM.body * 2), "H731", "0, 1, 2"),
    "a buffer past its memory": (
        lambda: with_buffer("acc_local", lambda b: replace(b, base=1025)),
        "H732",
        "1025:2049",
    ),
    "a buffer in no memory": (
        lambda: with_buffer("acc_local", lambda b: replace(b, memory="dram")),
        "H731",
        "acc_local",
    ),
    "an empty buffer": (
        lambda: with_buffer("bias_local", lambda b: replace(b, slots=0)),
        "H732",
        "bias_local",
    ),
    "buffers that overlap": (
        lambda: with_buffer("acc_local", lambda b: replace(b, base=15)),
        "H733",
        "acc[15:1039]",
    ),
    "a kernel's extent": (
        lambda: kernel(
            "reset_tile", lambda k: replace(k, loops=(KernelLoop(16384, (0,)), KernelLoop(1, (0,))))
        ),
        "H734",
        "16384",
    ),
    "a kernel's step": (
        lambda: kernel(
            "reset_tile", lambda k: replace(k, loops=(KernelLoop(2, (2048,)), KernelLoop(1, (0,))))
        ),
        "H734",
        "2048",
    ),
    "a kernel's loops": (
        lambda: kernel("reset_tile", lambda k: replace(k, loops=(KernelLoop(1, (0,)),) * 3)),
        "H734",
        "3",
    ),
    "a kernel's address": (
        lambda: kernel("reset_tile", lambda k: replace(k, bases=((2048,),))),
        "H734",
        "2048..2048",
    ),
    "a sequence's address": (
        lambda: kernel("gemm_tile", lambda k: replace(k, sequence=(KernelLoop(8, (1, 0, 200)),))),
        "H734",
        "0..1400",
    ),
    "a kernel's variants": (
        lambda: kernel("reset_tile", lambda k: replace(k, bases=((16,),) * 100)),
        "H734",
        "100",
    ),
    "a kernel's immediate": (
        lambda: kernel("shift_tile", lambda k: replace(k, immediates=(("imm", 32),))),
        "H734",
        "32",
    ),
    "a kernel without immediate": (
        lambda: kernel("shift_tile", lambda k: replace(k, immediates=())),
        "H734",
        "none",
    ),
    "an address written again": (
        lambda: kernel(
            "gemm_tile",
            lambda k: replace(k, sequence=(KernelLoop(2, (0, 1, 0)), KernelLoop(2, (1, 0, 0)))),
        ),
        "H734",
        "operation 2 writes entry 0 past its base",
    ),
    "too many operations": (
        lambda: kernel("gemm_tile", lambda k: replace(k, sequence=(KernelLoop(512, (1, 0, 0)),))),
        "H735",
        "2050 operations up to gemm_tile",
    ),
    "an output twice in its image": (
        lambda: with_image("c_image", lambda i: replace(i, index=(C_INDEX[0], C_INDEX[0]))),
        "H736",
        "c[",
    ),
    "an output not wholly in its image": (
        lambda: with_image(
            "c_image", lambda i: replace(i, index=(C_INDEX[0], add(C_INDEX[1], Const(1))))
        ),
        "H736",
        "c[0, 0] has no position",
    ),
    "an image of no tensor": (
        lambda: with_image("a_image", lambda i: replace(i, tensor="z")),
        "H736",
        "z",
    ),
    "an image that loses": (
        lambda: with_image("bias_image", lambda i: replace(i, dtype="int16")),
        "H736",
        "int16",
    ),
    "an image that loses the number supplied": (
        lambda: with_image("bias_image", lambda i: replace(i, dtype="int8", supplied=128)),
        "H736",
        "int8",
    ),
    "an output converted": (
        lambda: with_image("c_image", lambda i: replace(i, dtype="int32")),
        "H736",
        "int32",
    ),
    "an image's unknown name": (
        lambda: with_image("c_image", lambda i: replace(i, index=(Name("p9"), C_INDEX[1]))),
        "H736",
        "p9",
    ),
    "an output without image": (
        lambda: replace(PROGRAM, outputs=("c", "d")),
        "H736",
        "d",
    ),
    "an unbound name": (lambda: replace(PROGRAM, body=outer_loop().body), "H737", "nt"),
    "a hidden loop": (
        lambda: replace(PROGRAM, body=(replace(outer_loop(), variable="mt"),)),
        "H737",
        "mt",
    ),
    "no integer bound": (
        lambda: replace(PROGRAM, body=(replace(outer_loop(), upper=Cast("int8", Const(3))),)),
        "H737",
        "int8(3)",
    ),
    "an access as a bound": (
        lambda: replace(PROGRAM, body=(replace(outer_loop(), upper=Access("a", (Const(0),))),)),
        "H737",
        "a[0]",
    ),
    "a push without queue": (
        lambda: replace(PROGRAM, body=(*PROGRAM.body, Push("load", "store"))),
        "H739",
        "load -> store",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_refused(name: str) -> None:
    make, code, found = DEFECTS[name]
    with pytest.raises(HwgenError) as error:
        check_program(make(), chip(), WORKLOAD)
    assert error.value.code == code
    assert found in error.value.diagnostic.found
    assert error.value.diagnostic.allowed


def test_every_check_has_a_name_and_a_code() -> None:
    assert len({c.name for c in CHECKS}) == len({c.code for c in CHECKS}) == len(CHECKS)


def test_large_blocked_outputs_are_not_enumerated() -> None:
    """A proof by mixed radix: 2 ** 36 elements."""
    size = 1 << 18
    image = replace(PROGRAM.image["c_image"], outer=(size, size // 16))
    program = replace(
        PROGRAM, images=tuple(image if i.name == image.name else i for i in PROGRAM.images)
    )
    tensors = tuple(
        replace(t, shape=(size, size)) if t.name == "c" else t for t in WORKLOAD.tensors
    )
    check_program(program, chip(), replace(WORKLOAD, tensors=tensors))


@pytest.mark.parametrize(("distance", "passes"), [(1, True), (2, False), (3, False)])
def test_how_soon_an_address_may_be_written_again(distance: int, passes: bool) -> None:
    hardware = chip()
    gemm = hardware.intrinsic["gemm"]
    assert gemm.micro_kernel is not None
    micro = replace(gemm.micro_kernel, rewrite_distance=distance)
    others = [i for i in hardware.intrinsics if i.name != "gemm"]
    edited = replace(hardware, intrinsics=(*others, replace(gemm, micro_kernel=micro)))
    sums = kernel("gemm_tile", lambda k: replace(k, sequence=(KernelLoop(2, (0, 1, 0)),)))
    if passes:
        check_program(sums, edited)
        return
    with pytest.raises(HwgenError, match="operation 1 writes entry 0 past its base"):
        check_program(sums, edited)
