"""The text for the chip's own library, executed: on the shim of a runtime and on a header that
checks every move; and layers that hand each other buffers of the chip's."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.emit_c import FirmwareSource
from hwgen.model.compiled import have_compiler
from hwgen.model.images import pack, unpack
from hwgen.model.reference import run_reference
from tests.firmware import harness
from tests.firmware.cases import CASES, Case, compiled, drawn, firmware
from tests.gemmini import harness as machine
from tests.sampling import tiered
from tests.shim.harness import SHIM

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

LAYERS = Case("vta", "two_shifted_layers")
ON_SHIM = (CASES[2], LAYERS)
FIRST = Case("vta", "gemm", (("M", 4), ("N", 32), ("K", 32)))
SECOND = Case("vta", "gemm", (("M", 4), ("N", 48), ("K", 32)))
ODD = Case("vta", "gemm", (("M", 4), ("N", 24), ("K", 32)))


def expected(case: Case) -> dict[str, NDArray[Any]]:
    workload = compiled(case.chip, case.workload, case.sizes).workload
    return run_reference(workload, drawn(case.chip, case.workload, case.sizes))


@cache
def shim() -> ctypes.CDLL:
    """The runtime's shim and every kernel that runs on it."""
    files: dict[str, str] = {}
    for case in (*ON_SHIM, FIRST, SECOND):
        source = firmware(case).source
        files |= {f"{source.function}.c": source.c, f"{source.function}.h": source.header}
    for name in ("runtime", "chip"):
        files[f"shim_{name}.c"] = (SHIM / f"{name}.c").read_text()
    made = harness.library(files, f"-I{SHIM}")
    made.VTABufferAlloc.restype = ctypes.c_void_p
    made.VTAShimMessage.restype = ctypes.c_char_p
    made.VTAShimLiveBuffers.restype = ctypes.c_size_t
    return made


def no_error(loaded: ctypes.CDLL) -> None:
    assert loaded.VTAShimStatus() == 0, loaded.VTAShimMessage()


@pytest.mark.parametrize("case", ON_SHIM, ids=str)
@pytest.mark.parametrize("order", [1, 3])
def test_a_runtimes_calls_give_the_reference(case: Case, order: int) -> None:
    """Buffers of the device's are given back, and a workspace of garbage keeps its guards."""
    loaded, made = shim(), firmware(case)
    loaded.VTAShimReset(order, 0)
    ran = harness.run(made, loaded, drawn(case.chip, case.workload, case.sizes), order)
    no_error(loaded)
    assert (ran.status, ran.guarded, loaded.VTAShimLiveBuffers()) == (0, True, 0)
    for name, values in expected(case).items():
        np.testing.assert_array_equal(ran.outputs[name], values)


def test_no_room_on_the_chip_is_a_status() -> None:
    loaded, made = shim(), firmware(CASES[2])
    inputs = drawn(CASES[2].chip, CASES[2].workload, CASES[2].sizes)
    for fails in range(len(made.plan.on_device)):
        loaded.VTAShimReset(0, 0)
        loaded.VTAShimFailAllocation(fails)
        ran = harness.run(made, loaded, inputs)
        loaded.VTAShimFailAllocation(-1)
        assert (ran.status, ran.guarded, loaded.VTAShimLiveBuffers()) == (1, True, 0)


def _layout(made: FirmwareSource, image: str) -> int:
    return harness.macro(made.source.header, f"{made.source.function}_LAYOUT_{image}")


def test_layers_hand_each_other_buffers() -> None:
    """Where the headers say that the layouts are the same, nothing is unpacked between them."""
    first, second = firmware(FIRST), firmware(SECOND)
    assert _layout(first, "c_image") == _layout(second, "a_image")
    one, two = drawn("vta", "gemm", FIRST.sizes), drawn("vta", "gemm", SECOND.sizes)
    loaded = shim()
    loaded.VTAShimReset(3, 0)

    def image(made: FirmwareSource, name: str, values: NDArray[Any] | None = None) -> int:
        form = made.plan.program.image[name]
        size = harness.macro(made.source.header, f"{made.source.function}_BYTES_{name}")
        assert size == form.bytes
        buffer = int(loaded.VTABufferAlloc(size))
        if values is not None:
            packed = pack(form, values, str(values.dtype))
            _copy(loaded, packed.ctypes.data, buffer, size, to_device=True)
        return buffer

    between = image(first, "c_image")
    _run(
        loaded, first, image(first, "a_image", one["a"]), image(first, "b_image", one["b"]), between
    )
    last = image(second, "c_image")
    _run(loaded, second, between, image(second, "b_image", two["b"]), last)
    no_error(loaded)
    form = second.plan.program.image["c_image"]
    result = np.zeros(form.outer + form.lanes, np.int8)
    _copy(loaded, last, result.ctypes.data, form.bytes, to_device=False)
    middle = run_reference(compiled("vta", "gemm", FIRST.sizes).workload, one)["c"]
    workload = compiled("vta", "gemm", SECOND.sizes).workload
    wanted = run_reference(workload, {"a": middle, "b": two["b"]})["c"]
    np.testing.assert_array_equal(unpack(form, result, (4, 48)), wanted)


def _copy(loaded: ctypes.CDLL, source: int, target: int, size: int, *, to_device: bool) -> None:
    ends = ctypes.c_void_p(source), ctypes.c_size_t(0), ctypes.c_void_p(target), ctypes.c_size_t(0)
    loaded.VTABufferCopy(*ends, ctypes.c_size_t(size), 1 if to_device else 2)


def _run(loaded: ctypes.CDLL, made: FirmwareSource, *buffers: int) -> None:
    names = [i.name for i in made.plan.program.images]
    ordered = [buffers["abc".index(n[0])] for n in names]
    loaded[f"{made.source.function}_run"](*map(ctypes.c_void_p, ordered))


def test_an_image_with_a_rim_of_its_own_goes_to_none() -> None:
    """24 columns end in lanes that the store leaves undefined, and that a load takes as zeros."""
    assert _layout(firmware(ODD), "c_image") != _layout(firmware(Case("vta", "gemm", (
        ("M", 4), ("N", 32), ("K", 24),
    ))), "a_image")  # fmt: skip


MOVING = [c for c in CASES if c.chip == "gemmini"]


@pytest.mark.parametrize("case", tiered(MOVING, MOVING[::3]), ids=str)
def test_moves_reach_the_workspace_and_the_constants(case: Case) -> None:
    """On shared memory the chip reads what is staged where it is; a fence ends the call."""
    made, inputs = firmware(case), drawn(case.chip, case.workload, case.sizes)
    source, name = made.source, made.source.function
    tensors = (*source.inputs, *source.outputs)
    parameters = [
        f"{'const ' if t in source.inputs else ''}{C_TYPES[t.dtype]} *{t.name}" for t in tensors
    ]
    arrays = [c.name for c in made.plan.constants()]
    wrapper = [
        f"{name}_ALIGNED static unsigned char room[{name}_WORKSPACE_BYTES];",
        f"int wrapped({', '.join(parameters)})",
        "{",
        "  memset(room, 0xA5, sizeof room);",
        '  shim_register("room", room, sizeof room, 1, 1);',
        *(f'  shim_register("{a}", (void *)(uintptr_t){a}, sizeof {a}, 1, 0);' for a in arrays),
        f"  return {name}({', '.join([*(t.name for t in tensors), 'room'])});",
        "}",
    ]
    program = machine.build(
        "\n".join([harness.constants(made, inputs), source.c, *wrapper]),
        [machine.Signature("wrapped", source.inputs, source.outputs, status=True)],
        headers={f"{name}.h": source.header},
    )
    ran = machine.run(program, "wrapped", {t.name: inputs[t.name] for t in source.inputs})
    assert (ran.code, ran.error, ran.status) == ("", "", 0)
    for output, values in expected(case).items():
        np.testing.assert_array_equal(ran.outputs[output], values)
