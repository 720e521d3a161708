"""Kernels for firmware on chips with units: they give what those for a host give."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.cli.firmware import part_of
from hwgen.codegen.emit_c import FirmwareSource
from hwgen.codegen.firmware_build import example
from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.vendor_stub import stub, vendor_headers
from hwgen.model.compiled import have_compiler
from tests.firmware import harness
from tests.firmware.cases import CASES, Case, compiled, drawn, firmware
from tests.sampling import tiered
from tests.shim.harness import STRICT, compile_c

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

FREE = ("-ffreestanding", "-nostdlib", "-fno-builtin")
SUPPLIED = {"memcpy", "memset"}
"""What the page says that a program supplies."""


@cache
def on_the_host(
    chip: str, workload: str, sizes: tuple[tuple[str, int], ...]
) -> dict[str, NDArray[Any]]:
    key = (chip, workload, sizes)
    return harness.run_host(compiled(*key).source, drawn(*key))


@pytest.mark.parametrize("case", tiered(CASES, CASES[::4]), ids=str)
def test_it_gives_what_the_host_target_gives(case: Case) -> None:
    """Bit for bit on the chip's model, whatever is in the workspace, of which it leaves the
    outside alone."""
    key = (case.chip, case.workload, case.sizes)
    made, inputs = firmware(case), drawn(*key)
    loaded = harness.model(made, inputs)
    for seed in range(2):
        ran = harness.run(made, loaded, inputs, seed)
        assert (ran.status, ran.guarded) == (0, True)
        for name, expected in on_the_host(*key).items():
            assert ran.outputs[name].tobytes() == expected.tobytes()


@pytest.mark.parametrize("case", [c for c in CASES if not c.weights][1:], ids=str)
def test_a_workspace_one_byte_too_small_is_caught(case: Case) -> None:
    made, inputs = firmware(case), drawn(case.chip, case.workload, case.sizes)
    ran = harness.run(made, harness.model(made, inputs), inputs, missing_bytes=1)
    assert not ran.guarded


def _stubs(case: Case, made: FirmwareSource, text: str) -> dict[str, str]:
    hardware = compiled(case.chip, case.workload, case.sizes).hardware
    texts = [(made.source.function, made.source.header + text)]
    return {
        path: stub(texts, path, hardware.name) for path in vendor_headers(hardware.code.includes)
    }


@pytest.mark.parametrize("case", tiered(CASES, CASES[::4]), ids=str)
def test_it_stands_without_a_c_library(case: Case) -> None:
    """Strict C99 without a heap, and with no symbol but the vendor's, its own and two of memory."""
    made = firmware(case)
    stubs = _stubs(case, made, made.source.c)
    name = made.source.function
    files = {f"{name}.c": made.source.c, f"{name}.h": made.source.header, **stubs}
    folder = harness.folder(files)
    compile_c(
        [*STRICT, "-O2", *FREE, f"-I{folder}", "-c", folder / f"{name}.c", "-o", folder / "k.o"]
    )
    wanted = harness.undefined(folder / "k.o")
    assert wanted
    own = {c.name for c in made.plan.constants()}
    vendors = {w for w in wanted if f"{w}(" in "".join(stubs.values())}
    assert wanted <= SUPPLIED | own | vendors
    assert not {w for w in wanted if w in ("malloc", "calloc", "free", "abort", "printf")}


def test_the_check_of_symbols_can_fail() -> None:
    """The host target's text wants a heap."""
    case = CASES[2]
    made = firmware(case)
    text = compiled(case.chip, case.workload, case.sizes).source.c
    folder = harness.folder({"k.c": text, **_stubs(case, made, text)})
    compile_c([*STRICT, *FREE, f"-I{folder}", "-c", folder / "k.c", "-o", folder / "k.o"])
    assert {"malloc", "free"} <= harness.undefined(folder / "k.o")


def test_constants_are_packed_by_a_file_of_their_own() -> None:
    """`NAME_pack_W` writes what the kernel takes, and needs no heap."""
    case = CASES[2]
    made, inputs = firmware(case), drawn(case.chip, case.workload, case.sizes)
    name, plan = made.source.function, made.plan
    folder = harness.folder({"pack.c": made.pack})
    compile_c([*STRICT, *FREE, "-c", folder / "pack.c", "-o", folder / "pack.o"])
    assert harness.undefined(folder / "pack.o") <= SUPPLIED
    loaded = harness.library({"pack.c": made.pack})
    packed = {
        p.name: a for p, a in zip(made.source.inputs, harness.arguments(made, inputs), strict=True)
    }
    for tensor in ("w", "bias"):
        size = harness.macro(made.source.header, f"{name}_PACKED_BYTES_{tensor}")
        assert size == plan.blob_bytes(tensor)
        own = harness.aligned(size)
        loaded[f"{name}_pack_{tensor}"](*map(harness.pointer, (inputs[tensor], own)))
        np.testing.assert_array_equal(own, packed[tensor])


def _places(plan: HostPlan) -> dict[str, str]:
    """Of each image, where the host has it."""
    assert plan.workspace is not None
    return {
        i.name: "array" if i.name in plan.direct
        else "workspace" if i.name in plan.workspace.offsets
        else "packed" if i.tensor in {t.name for t in plan.packed_tensors}
        else "nowhere"
        for i in plan.program.images
    }  # fmt: skip


def test_only_what_must_be_packed_is_staged() -> None:
    """An array that is its image is copied as it is, or is where the chip reads it."""
    assert set(_places(firmware(CASES[0]).plan).values()) == {"array"}
    assert _places(firmware(CASES[2]).plan) == {
        "bias_image": "packed", "xp_image": "workspace", "w_image": "packed",
        "y_image": "workspace",
    }  # fmt: skip
    apart = firmware(CASES[2]).plan
    assert apart.workspace is not None
    assert dict(apart.workspace.offsets) == {"xp_image": 0, "y_image": 0}
    assert apart.workspace.bytes == max(
        apart.program.image[n].bytes for n in ("xp_image", "y_image")
    )
    shared = firmware(CASES[6])
    assert shared.plan.workspace is not None
    spans = sorted(
        (start, start + shared.plan.program.image[name].bytes)
        for name, start in shared.plan.workspace.offsets.items()
    )
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert "workspace" in {
        _places(shared.plan)[i.name] for i in shared.plan.program.images if i.role == "temporary"
    }
    assert "malloc" not in shared.source.c
    assert "free(" not in shared.source.c


def test_memory_of_the_chips_own_is_the_specs_to_give() -> None:
    """Its calls stay; where the host shares memory there are none."""
    apart, shared = firmware(CASES[2]), firmware(CASES[5])
    assert "VTABufferAlloc(" in apart.source.c
    assert "(`allocate`, `free`)" in apart.source.header
    assert "(`allocate`, `free`)" not in shared.source.header
    assert "malloc" not in shared.source.c


@pytest.mark.parametrize("case", [CASES[4], CASES[7]], ids=str)
def test_every_file_is_strict_c(case: Case) -> None:
    """The model, packing, constants, the example; and the header in C++ too."""
    made, inputs = firmware(case), drawn(case.chip, case.workload, case.sizes)
    name, stubs = made.source.function, _stubs(case, made, made.source.c)
    texts = {
        "model.c": made.source.model, "pack.c": made.pack,
        "weights.c": harness.constants(made, inputs), "main.c": example([part_of(made)]),
    }  # fmt: skip
    folder = harness.folder({f"{name}.h": made.source.header, **texts, **stubs})
    checked = ["-fsyntax-only", f"-I{folder}"]
    compile_c([*STRICT, *checked, *(folder / file for file in texts if texts[file])])
    if shutil.which("c++"):
        other = ["c++", "-std=c++11", *STRICT[1:], *checked, "-x", "c++", folder / "main.c"]
        done = subprocess.run(other, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
