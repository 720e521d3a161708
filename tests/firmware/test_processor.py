"""Kernels for firmware that are loops on a processor: the same results in a caller's workspace."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hwgen
from hwgen.codegen.nodes import Allocate, Code, Routine, nodes
from hwgen.codegen.processor.emit import NestFirmware, emit_nest, emit_nest_firmware
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.weights import Constant, weights_file
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.firmware import harness
from tests.shim.harness import compile_c

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-unknown-pragmas")
FREE = ("-ffreestanding", "-nostdlib", "-fno-builtin")


@cache
def cpu() -> HardwareSpec:
    return hwgen.load_hardware("cpu_generic", {"CORES": 2})


def layers(rows: int) -> Workload:
    """Three layers; what is between them is kept in the heap."""
    return hwgen.workload(
        "layers",
        tensors={
            "x": f"int32[{rows}, 8]", "p": f"int32[{rows}, 12]", "q": f"int32[{rows}, 12]",
            "y": f"int32[{rows}]", "w": {"type": "int32[8, 12]", "constant": True},
        },
        compute=[
            "p[i, j] += x[i, k] * w[k, j]",
            "q[i, j] = max(p[i, j], 0)",
            "y[i] += q[i, j]",
        ],
    )  # fmt: skip


Edits = tuple[str, ...]
PLAIN: Edits = ()
INSIDE: Edits = ("s.compute_at('p', 'q_i')",)
PARALLEL: Edits = ("s.compute_at('p', 'q_i')", "s.parallel('q_i')")
BESIDE: Edits = ("s.parallel('q_i')",)


def program(edits: Edits, rows: int = 6) -> tuple[Code, Workload]:
    workload = layers(rows)
    s = Schedule(workload, cpu())
    s.replay("\n".join(edits), "test")
    return lower_nest(s.resolved, s.homes, cpu())[0], workload


def made(edits: Edits, weights: frozenset[str] = frozenset(), rows: int = 6) -> NestFirmware:
    lowered, workload = program(edits, rows)
    return emit_nest_firmware(lowered, cpu(), workload, weights)


def _arrays(source: CSource, workload: Workload) -> list[NDArray[Any]]:
    inputs = harness.draw({t.name: (t.dtype, t.shape) for t in workload.inputs}, 3)
    outputs = {t.name: np.zeros(t.shape, t.dtype) for t in workload.outputs}
    return [*(inputs[p.name] for p in source.inputs), *(outputs[p.name] for p in source.outputs)]


def result(
    edits: Edits, weights: frozenset[str], seed: int, missing: int = 0
) -> tuple[bytes, bool]:
    """What a firmware kernel computes, and whether it left what is around its workspace alone."""
    lowered, workload = program(edits)
    own = emit_nest_firmware(lowered, cpu(), workload, weights)
    files = {"k.c": own.source.c, f"{own.source.function}.h": own.source.header}
    inputs = harness.draw({t.name: (t.dtype, t.shape) for t in workload.inputs}, 3)
    constants = [Constant(text, "int32", inputs[n]) for n, text in own.constants]
    files["weights.c"] = weights_file(own.source.function, "constants", constants)
    loaded = harness.library(files)
    arrays = _arrays(own.source, workload)
    size = harness.macro(own.source.header, f"{own.source.function}_WORKSPACE_BYTES") - missing
    function = loaded[own.source.function]
    function.restype = None
    _, guarded = harness.call(function, arrays, size, seed)
    return arrays[-1].tobytes(), guarded


@needs_compiler
@pytest.mark.parametrize("weights", [frozenset[str](), frozenset({"w"})], ids=["given", "inside"])
@pytest.mark.parametrize("edits", [PLAIN, INSIDE, BESIDE], ids=["plain", "inside", "beside"])
def test_it_gives_what_the_host_target_gives(edits: Edits, weights: frozenset[str]) -> None:
    lowered, workload = program(edits)
    host = emit_nest(lowered, cpu(), workload)
    arrays = _arrays(host, workload)
    loaded = harness.library({"k.c": host.c})[host.function]
    loaded.restype = None
    loaded(*map(harness.pointer, arrays))
    for seed in range(2):
        assert result(edits, weights, seed) == (arrays[-1].tobytes(), True)


@needs_compiler
@pytest.mark.parametrize("edits", [PLAIN, INSIDE], ids=["plain", "inside"])
def test_a_workspace_one_byte_too_small_is_caught(edits: Edits) -> None:
    assert not result(edits, frozenset(), 0, missing=1)[1]


@needs_compiler
@pytest.mark.parametrize("edits", [PLAIN, INSIDE], ids=["plain", "inside"])
def test_it_wants_nothing_but_memory_functions(edits: Edits) -> None:
    source = made(edits).source
    folder = harness.folder({"k.c": source.c, f"{source.function}.h": source.header})
    compile_c([*STRICT, "-O2", *FREE, "-c", folder / "k.c", "-o", folder / "k.o"])
    assert harness.undefined(folder / "k.o") <= {"memcpy", "memset"}
    host = emit_nest(*program(edits)[:1], cpu(), program(edits)[1])
    folder = harness.folder({"k.c": host.c})
    compile_c([*STRICT, *FREE, "-c", folder / "k.c", "-o", folder / "k.o"])
    assert {"aligned_alloc", "free", "abort"} <= harness.undefined(folder / "k.o")


def test_scopes_inside_one_another_follow_each_other() -> None:
    """No two buffers that are live together share bytes, and the header says how many there are."""
    own = made(INSIDE)
    lowered, _ = program(INSIDE)
    places = dict(own.room.places)
    spans = sorted((p, p + lowered.array[n].bytes) for n, p in places.items())
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert own.room.bytes == max(stop for _, stop in spans)
    assert all(place % own.room.alignment == 0 for place in places.values())


def test_a_routine_that_keeps_buffers_takes_the_workspace() -> None:
    """A function of its own gets the pointer where something in it has a place."""
    lowered, workload = program(PLAIN)
    room = next(n for n in nodes(lowered.body) if isinstance(n, Allocate))
    own = emit_nest_firmware(replace(lowered, body=(Routine("all", (room,)),)), cpu(), workload)
    heads = [x for x in own.source.c.splitlines() if x.startswith("static void")]
    assert [x.endswith(", void *workspace)") for x in heads if "_all(" in x] == [True]
    assert "_all(x, y, w, workspace);" in own.source.c


def test_loop_variables_are_as_wide_as_they_must_be() -> None:
    assert made(PLAIN).room.index == "int32_t"
    assert "int64_t" not in made(PLAIN).source.c
    assert made(PLAIN, rows=1 << 29).room.index == "int64_t"


def test_iterations_that_run_at_once_are_refused() -> None:
    with pytest.raises(HwgenError) as caught:
        made(PARALLEL)
    assert caught.value.code == "H042"
    assert "set_scope to stack" in caught.value.diagnostic.repair


def test_blocks_have_no_firmware() -> None:
    gpu = hwgen.load_hardware("cuda_generic")
    compilation = hwgen.compile_nest(hwgen.load_workload("relu"), gpu, auto=False)
    with pytest.raises(HwgenError) as caught:
        emit_nest_firmware(compilation.program.codes[0], gpu, compilation.workload)
    assert caught.value.code == "H041"
