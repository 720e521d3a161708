"""Where images begin: what `align` and steps of addresses promise holds for all that the chip reads
and writes, whoever allocates it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import hwgen
from hwgen.codegen.emit_c import emit_firmware
from hwgen.codegen.emit_host import MISALIGNED
from hwgen.model.compiled import aligned, compile_model, have_compiler
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import parse_document
from tests.firmware import harness
from tests.samples import ROOT
from tests.sampling import QUICK

FILE = ROOT / "tests" / "specs" / "aligned.yaml"
STEP, ROM = 128, 256
"""Bytes: of an address in `dram`, and `align` of `rom`."""

CHIP = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static float local[2048];
static int wrong, calls, live;
static int off(const void *p, int n) { ++calls; wrong |= (uintptr_t)p % n; return 0; }
void load(const float *src, int at, int to, int n)
{ off(src + at, 128); memcpy(local + to, src + at, n * sizeof *src); }
void load_rom(const float *src, int at, int to, int n)
{ off(src, 256); memcpy(local + to, src + at, n * sizeof *src); }
void add(int to, int x, int y, int n)
{ for (int i = 0; i < n; ++i) local[to + i] = local[x + i] + local[y + i]; }
void store(float *dst, int at, int from, int n)
{ off(dst + at, 128); memcpy(dst + at, local + from, n * sizeof *dst); }
void finish(void) {}
int told(int what) { return what == 0 ? wrong : what == 1 ? calls : live; }
/* As far from aligned as any library's malloc may be. */
void *odd_malloc(size_t n)
{
  char *room = malloc(n + 1024), *start = room + 512;
  start += (264 - (uintptr_t)start % 512 + 512) % 512;
  memcpy(start - sizeof room, &room, sizeof room);
  ++live;
  return start;
}
void odd_free(void *p)
{
  char *room;
  memcpy(&room, (char *)p - sizeof room, sizeof room);
  free(room);
  --live;
}
int shift;
void *get(int n, int align)
{ ++live; return (void *)(((uintptr_t)malloc(n + 2 * align) / align + 1) * align + shift); }
void put(void *p) { (void)p; --live; }
void upload(void *to, const void *from, int n) { memcpy(to, from, n); }
void download(void *to, const void *from, int n) { memcpy(to, from, n); }
"""
HEADER = """#include <stddef.h>
void load(const float *, int, int, int); void load_rom(const float *, int, int, int);
void add(int, int, int, int); void store(float *, int, int, int); void finish(void);
void *odd_malloc(size_t); void odd_free(void *);
void *get(int, int); void put(void *); void upload(void *, const void *, int);
void download(void *, const void *, int);
"""
TENSORS = {
    "x": "float32[64, 96]",
    "w": {"type": "float32[96, 64]", "constant": True},
    "y": "float32[64, 96]",
}
IN_PLACE = "y[i, j] = x[i, j] + x[i, j]"
PACKED = "y[i, j] = x[i, j] + w[j, i]"
STAGED = "y[i, j] = w[j, i] + x[j, i]"


@cache
def compiled(statement: str) -> Kernel:
    tensors: dict[str, Any] = {k: v for k, v in TENSORS.items() if f"{k}[" in statement}
    if statement == STAGED:
        tensors["x"] = "float32[96, 64]"
    workload = hwgen.workload("sums", tensors=tensors, compute=[statement])
    return compile_workload(workload, hwgen.load_hardware(FILE), options=QUICK)


def odd(text: str) -> str:
    """With a heap that aligns no more than it must."""
    text = text.replace("malloc(", "odd_malloc(").replace("free(", "odd_free(")
    return f"{HEADER}{text}"


def misaligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins where no image may."""
    room = np.empty(array.nbytes + 2 * ROM, np.uint8)
    start = -room.ctypes.data % ROM + array.itemsize
    made: NDArray[Any] = np.ndarray(array.shape, array.dtype, room.data, start)
    made[...] = array
    return made


class Run:
    """A kernel's own text on a chip that looks where transfers begin."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.source = kernel, kernel.source
        files = {"kernel.c": odd(self.source.c), "chip.c": CHIP}
        self.library = harness.library(files)

    def __call__(self, *, at: int) -> tuple[int, dict[str, NDArray[Any]]]:
        """Status and outputs; every array begins at a multiple of `at` bytes, 0: of none."""
        inputs = random_inputs(self.kernel.workload, 0)
        arrays = [inputs[p.name] for p in self.source.inputs]
        outputs = {p.name: np.zeros(p.shape, p.dtype) for p in self.source.outputs}
        given = [aligned(a, at) if at else misaligned(a) for a in (*arrays, *outputs.values())]
        function = self.library[self.source.function]
        status = int(function(*(ctypes.c_void_p(a.ctypes.data) for a in given)))
        found = zip(outputs, given[len(arrays) :], strict=True)
        return status, dict(found)

    def told(self, what: str) -> int:
        return int(self.library.told(("wrong", "calls", "live").index(what)))


needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@needs_compiler
@pytest.mark.parametrize("statement", [IN_PLACE, PACKED, STAGED])
def test_all_transfers_begin_where_the_spec_says(statement: str) -> None:
    run = Run(compiled(statement))
    status, outputs = run(at=ROM)
    expected = run_reference(run.kernel.workload, random_inputs(run.kernel.workload, 0))
    assert status == 0
    np.testing.assert_array_equal(outputs["y"], expected["y"])
    assert run.told("calls") > 0
    assert (run.told("wrong"), run.told("live")) == (0, 0)


@needs_compiler
@pytest.mark.parametrize("statement", [IN_PLACE, PACKED, STAGED])
def test_an_array_in_place_that_is_not_aligned_is_refused(statement: str) -> None:
    run = Run(compiled(statement))
    assert run(at=0)[0] == MISALIGNED
    assert (run.told("calls"), run.told("live")) == (0, 0)


@needs_compiler
def test_python_gives_aligned_arrays() -> None:
    kernel = compiled(STAGED)
    inputs = random_inputs(kernel.workload, 0)
    found = compile_model(kernel.source).run({n: misaligned(a) for n, a in inputs.items()})
    np.testing.assert_array_equal(found["y"], run_reference(kernel.workload, inputs)["y"])


def test_headers_say_where_arrays_begin() -> None:
    assert f"x must begin at a multiple of {STEP} bytes" in compiled(IN_PLACE).source.header
    kernel = compiled(PACKED)
    assert f"`packed` begins at a multiple of {ROM} bytes" in kernel.source.header
    firmware = emit_firmware(kernel.program, kernel.hardware, kernel.workload)
    assert f"WORKSPACE_ALIGNMENT {ROM}" in firmware.source.header
    assert f"at a multiple of {STEP} bytes" in firmware.source.header


@needs_compiler
def test_a_runtime_of_its_own_is_told_and_its_pointers_are_looked_at() -> None:
    text = FILE.read_text().replace(", shared: true", "")
    data = cast("dict[str, Any]", parse_document(text, "aligned.yaml").data)
    run = Run(compile_workload(compiled(PACKED).workload, parse_hardware(data), options=QUICK))
    assert [p.align for p in run.source.inputs] == [1, 1]
    status, outputs = run(at=0)
    expected = run_reference(run.kernel.workload, random_inputs(run.kernel.workload, 0))
    assert status == 0
    np.testing.assert_array_equal(outputs["y"], expected["y"])
    calls = run.told("calls")
    assert (run.told("wrong"), run.told("live"), calls > 0) == (0, 0, True)
    ctypes.c_int.in_dll(run.library, "shift").value = 8
    assert run(at=0)[0] != 0
    assert (run.told("calls"), run.told("live")) == (calls, 0)
