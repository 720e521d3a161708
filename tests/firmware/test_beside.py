"""`NAME_run` of kernels that a processor beside the units computes a part of: on buffers of the
chip's, and layers that hand each other theirs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hwgen
from hwgen.codegen import workspace_places
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.emit_c import FirmwareSource, emit_firmware
from hwgen.codegen.exported import Exported, exported
from hwgen.codegen.nodes import Code
from hwgen.codegen.processor.firmware import room
from hwgen.model.compiled import have_compiler
from hwgen.model.images import pack, unpack
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.workload import Workload
from tests.firmware import harness
from tests.gemmini import harness as machine
from tests.sampling import QUICK
from tests.shim.harness import SHIM

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

Values = dict[str, NDArray[Any]]

PRODUCT = "s[m, n] += x[m, k] * w[k, n]"
NARROW = "int8(clip({} // 100, -128, 127))"


def _constant(shape: str) -> dict[str, object]:
    return {"type": f"int8[{shape}]", "constant": True}


WORKLOADS: dict[str, Workload] = {
    # The processor's result is what it leaves; two turns of both sides.
    "turns": hwgen.workload(
        "turns",
        tensors={
            "x": "int8[5, 20]", "w": _constant("20, 24"), "s": "int32[5, 24]",
            "h": "int8[5, 24]", "v": _constant("24, 8"), "t": "int32[5, 8]", "y": "int8[5, 8]",
        },
        compute=[
            PRODUCT, f"h[m, n] = {NARROW.format('s[m, n]')}",
            "t[m, o] += h[m, g] * v[g, o]", f"y[m, o] = {NARROW.format('t[m, o]')}",
        ],
    ),
    # Both read the input, and the processor a constant.
    "shared": hwgen.workload(
        "shared",
        tensors={
            "x": "int8[5, 20]", "w": _constant("20, 20"), "s": "int32[5, 20]",
            "b": {"type": "int32[20]", "constant": True}, "y": "int8[5, 20]",
        },
        compute=[PRODUCT, "y[m, n] = int8(clip((s[m, n] + b[n]) // 100 + x[m, n], -128, 127))"],
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel, its text, and what it takes."""

    compiled: Kernel
    source: FirmwareSource
    takes: Exported

    @property
    def name(self) -> str:
        return self.source.source.function

    @property
    def inputs(self) -> Values:
        given = self.compiled.workload.inputs
        return harness.draw({t.name: (t.dtype, t.shape) for t in given}, 7)

    @property
    def expected(self) -> Values:
        return run_reference(self.compiled.workload, self.inputs)

    @property
    def workspace_bytes(self) -> int:
        return harness.macro(self.source.source.header, f"{self.name}_WORKSPACE_BYTES")

    def layout(self, of: str) -> int:
        return harness.macro(self.source.source.header, f"{self.name}_LAYOUT_{of}")


@cache
def made(chip: str, workload: str, weights: frozenset[str] = frozenset()) -> Made:
    chosen = WORKLOADS.get(workload) or hwgen.load_workload(workload, {"M": 5, "N": 24, "K": 20})
    compiled = compile_workload(chosen, hwgen.load_hardware(chip), options=QUICK)
    assert compiled.program.codes
    source = emit_firmware(compiled.program, compiled.hardware, compiled.workload, weights)
    takes = exported(source.plan)
    assert takes is not None
    return Made(compiled, source, takes)


CASES = [
    ("gemmini", "turns"), ("gemmini", "shared"), ("gemmini", "quantised/fully_connected"),
    ("vta", "turns"), ("vta", "shared"), ("vta", "quantised/fully_connected"),
]  # fmt: skip


def test_both_sides_hand_each_other_nothing_of_the_callers() -> None:
    """Handles of inputs and outputs, arrays of what the processor reads and writes; where the chip
    reads the array itself, it is given once."""

    def taken(chip: str, workload: str) -> tuple[list[str], list[str]]:
        takes = made(chip, workload).takes
        return [i.name for i in takes.images], [t.name for t in takes.arrays]

    assert taken("gemmini", "turns") == (["x_image", "w_image", "v_image"], ["y"])
    assert taken("gemmini", "shared") == (["x_image", "w_image"], ["b", "y"])
    images, arrays = taken("vta", "shared")
    assert images[:2] == ["x_image", "w_image"]
    assert set(images[2:]) == made("vta", "shared").takes.inside
    assert arrays == ["x", "b", "y"]
    inside = made("gemmini", "shared", frozenset({"b", "w"})).takes
    assert [t.name for t in inside.arrays] == ["y"]


# --- memory of the chip's own --------------------------------------------------------------------


@cache
def shim() -> ctypes.CDLL:
    files: dict[str, str] = {}
    for chip, workload in CASES:
        if chip == "vta":
            source = made(chip, workload).source.source
            files |= {f"{source.function}.c": source.c, f"{source.function}.h": source.header}
    for name in ("runtime", "chip"):
        files[f"shim_{name}.c"] = (SHIM / f"{name}.c").read_text()
    loaded = harness.library(files, f"-I{SHIM}")
    loaded.VTABufferAlloc.restype = ctypes.c_void_p
    loaded.VTAShimMessage.restype = ctypes.c_char_p
    loaded.VTAShimLiveBuffers.restype = ctypes.c_size_t
    return loaded


def _copy(loaded: ctypes.CDLL, source: int, target: int, size: int, *, to_device: bool) -> None:
    ends = ctypes.c_void_p(source), ctypes.c_size_t(0), ctypes.c_void_p(target), ctypes.c_size_t(0)
    loaded.VTABufferCopy(*ends, ctypes.c_size_t(size), 1 if to_device else 2)


def _run(loaded: ctypes.CDLL, m: Made, given: Values, buffers: dict[str, int]) -> Values:
    """`NAME_run` on the caller's buffers, by image, and on others; what it left in all of them."""
    handles: dict[str, int] = {}
    for image in m.takes.images:
        handles[image.name] = buffers.get(image.name) or int(loaded.VTABufferAlloc(image.bytes))
        if image.role == "input" and image.name not in {*buffers, *m.takes.inside}:
            packed = pack(image, given[image.tensor], image.dtype)
            to = handles[image.name]
            _copy(loaded, packed.ctypes.data, to, image.bytes, to_device=True)
    arrays = {
        t.name: given[t.name] if t.role == "input" else np.zeros(t.shape, t.dtype)
        for t in m.takes.arrays
    }
    live = loaded.VTAShimLiveBuffers()
    pointers = [ctypes.c_void_p(h) for h in handles.values()]
    room = harness.aligned(m.workspace_bytes + harness.GUARD_BYTES)
    room[:] = 0xA5
    arguments = [*pointers, *map(harness.pointer, arrays.values()), harness.pointer(room)]
    loaded[f"{m.name}_run"](*arguments)
    assert loaded.VTAShimStatus() == 0, loaded.VTAShimMessage()
    assert live == loaded.VTAShimLiveBuffers(), "it allocates nothing"
    assert np.all(room[m.workspace_bytes :] == 0xA5)
    found = {t.name: arrays[t.name] for t in m.takes.arrays if t.role == "output"}
    for image in m.takes.images:
        if image.role == "output" and image.name not in m.takes.inside:
            result = np.zeros(image.outer + image.lanes, image.dtype)
            _copy(loaded, handles[image.name], result.ctypes.data, image.bytes, to_device=False)
            tensor = m.compiled.workload.tensor[image.tensor]
            found[tensor.name] = unpack(image, result, tensor.shape)
    return found


@pytest.mark.parametrize("workload", [w for c, w in CASES if c == "vta"])
@pytest.mark.parametrize("order", [1, 3])
def test_it_runs_on_buffers_of_the_chips(workload: str, order: int) -> None:
    m, loaded = made("vta", workload), shim()
    loaded.VTAShimReset(order, 0)
    found = _run(loaded, m, m.inputs, {})
    for name, values in m.expected.items():
        np.testing.assert_array_equal(found[name], values)


# --- shared memory -------------------------------------------------------------------------------


def _call(m: Made, arrays: dict[str, str], room: str) -> str:
    """The call of `NAME_run` on arrays of the caller's."""
    given = [arrays[i.tensor] for i in m.takes.images] + [arrays[t.name] for t in m.takes.arrays]
    return f"  {m.name}_run({', '.join([*given, room])});"


def _as_the_chip_reads(m: Made) -> Values:
    """The inputs; those that it does not take as they are, packed."""
    given = m.inputs
    for image in m.takes.images:
        if image.name not in m.source.plan.direct:
            given[image.tensor] = pack(image, given[image.tensor], image.dtype)
    return given


def _workspace(m: Made, room: str) -> list[str]:
    return [f"{m.name}_ALIGNED static unsigned char {room}[{m.name}_WORKSPACE_BYTES];"]


def _ran(
    kernels: list[Made], lines: list[str], given: Values, output: machine.Tensor
) -> NDArray[Any]:
    """What a function `wrapped` of these lines leaves in one output."""
    inputs = tuple(machine.Tensor(n, str(a.dtype), a.shape) for n, a in given.items())
    parameters = [f"const {C_TYPES[t.dtype]} *{t.name}" for t in inputs]
    parameters.append(f"{C_TYPES[output.dtype]} *{output.name}")
    rooms = [f"room{n}" for n, _ in enumerate(kernels)]
    text = [m.source.source.c for m in kernels]
    for m, own in zip(kernels, rooms, strict=True):
        text += _workspace(m, own)
    text += ["static int8_t between[4096];", f"void wrapped({', '.join(parameters)})", "{"]
    for own in rooms:
        text += [
            f"  memset({own}, 0xA5, sizeof {own});",
            f'  shim_register("{own}", {own}, sizeof {own}, 1, 1);',
        ]
    text += ['  shim_register("between", between, sizeof between, 1, 1);', *lines, "}"]
    signature = machine.Signature("wrapped", inputs, (output,))
    headers = {f"{m.name}.h": m.source.source.header for m in kernels}
    program = machine.build("\n".join(text), [signature], headers=headers)
    ran = machine.run(program, "wrapped", given)
    assert (ran.code, ran.error) == ("", "")
    return ran.outputs[output.name]


@pytest.mark.parametrize("workload", [w for c, w in CASES if c == "gemmini"])
def test_it_runs_on_pointers_where_memory_is_shared(workload: str) -> None:
    m = made("gemmini", workload)
    (result,) = m.compiled.workload.outputs
    names = {t.name: t.name for t in (*m.compiled.workload.inputs, result)}
    output = machine.Tensor(result.name, result.dtype, result.shape)
    found = _ran([m], [_call(m, names, "room0")], _as_the_chip_reads(m), output)
    np.testing.assert_array_equal(found, m.expected[result.name])


def test_layers_with_parts_of_a_processors_hand_each_other_buffers() -> None:
    """The processor's result is the next layer's input, as `LAYOUT` says; bit for bit."""
    first, second = made("gemmini", "shared"), made("gemmini", "quantised/fully_connected")
    assert first.layout("y") == second.layout("x_image")
    one = _as_the_chip_reads(first)
    two = {n: a for n, a in _as_the_chip_reads(second).items() if n != "x"}
    given = {**{f"one_{n}": a for n, a in one.items()}, **{f"two_{n}": a for n, a in two.items()}}
    lines = [
        _call(first, {**{n: f"one_{n}" for n in one}, "y": "between"}, "room0"),
        _call(second, {**{n: f"two_{n}" for n in two}, "x": "between", "y": "y"}, "room1"),
    ]
    output = machine.Tensor("y", "int8", (5, 24))
    found = _ran([first, second], lines, given, output)
    wanted = run_reference(second.compiled.workload, {**second.inputs, "x": first.expected["y"]})[
        "y"
    ]
    np.testing.assert_array_equal(found, wanted)


# --- the workspace -------------------------------------------------------------------------------


def _offsets(m: Made) -> dict[str, int]:
    assert m.source.plan.workspace is not None
    return dict(m.source.plan.workspace.offsets)


def test_arrays_that_are_never_held_at_once_share_bytes() -> None:
    """The sums of one product and those of the next; what lies between is apart from both."""
    m = made("gemmini", "turns")
    size = {a.name: a.bytes for a in m.compiled.program.between}
    at = _offsets(m)
    assert set(size) == {"s", "h", "t"}
    assert at["t"] < at["s"] + size["s"], "t lies where s was"
    for one in ("s", "t"):
        assert at["h"] >= at[one] + size[one] or at[one] >= at["h"] + size["h"]
    assert m.workspace_bytes < sum(size.values())


@dataclass
class _Shadow:
    """Who wrote each byte of a workspace last."""

    places: dict[str, int]
    sizes: dict[str, int]
    owner: NDArray[Any]
    lost: list[str]

    def _bytes(self, name: str) -> slice:
        return slice(self.places[name], self.places[name] + self.sizes[name])

    def write(self, *names: str) -> None:
        for name in (n for n in names if n in self.places):
            self.owner[self._bytes(name)] = name

    def read(self, *names: str) -> None:
        held = (n for n in names if n in self.places)
        self.lost += [n for n in held if not np.all(self.owner[self._bytes(n)] == n)]


def _overwritten(m: Made) -> list[str]:
    """What parts read after something else was written to its bytes, as they run in turn."""
    plan, program = m.source.plan, m.compiled.program
    assert plan.workspace is not None
    sizes = {one.name: one.bytes for one in (*program.images, *program.between)}
    shadow = _Shadow(
        dict(plan.workspace.offsets), sizes, np.full(plan.workspace.bytes, "", object), []
    )
    for part in program.parts:
        if isinstance(part, Code):
            taken, left = part.inputs, part.outputs
            shadow.read(*taken)
            own = shadow.owner[: room(part, m.compiled.hardware, "", frozenset()).bytes]
            own[:] = "room"
            shadow.write(*left)
            shadow.read(*taken, *left)
            shadow.lost += ["room"] if np.any(own != "room") else []
            continue
        taken = [i for i in part.images if i.role == "input"]
        left = [i for i in part.images if i.role == "output"]
        shadow.read(*(i.tensor for i in taken))
        shadow.write(*(i.name for i in taken))
        shadow.read(*(i.name for i in taken))
        shadow.write(*(i.name for i in left))
        shadow.write(*(i.tensor for i in left))
        shadow.read(*(i.name for i in left), *(i.tensor for i in (*taken, *left)))
    return shadow.lost


@pytest.mark.parametrize(("chip", "workload"), CASES)
def test_no_part_reads_what_another_has_overwritten(chip: str, workload: str) -> None:
    assert _overwritten(made(chip, workload)) == []


@pytest.mark.parametrize("chip", ["gemmini", "vta"])
def test_one_that_gave_its_bytes_away_too_early_would_be_found(
    chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays held by the part that makes them alone."""

    def too_short(first: int, _: int) -> frozenset[int]:
        return frozenset(range(4 * first, 4 * first + 4))

    right = made(chip, "turns")
    monkeypatch.setattr(workspace_places, "_throughout", too_short)
    compiled = right.compiled
    source = emit_firmware(compiled.program, compiled.hardware, compiled.workload, frozenset())
    assert _overwritten(replace(right, source=source)) != []
