"""The emitted C text itself, compiled and executed: through the shim of the vendor's runtime in
several interleavings, and against the generated C model. Results equal the reference exactly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.codegen.emit_c import emit
from hwgen.codegen.program import Program
from hwgen.codegen.source import CSource
from hwgen.model.compiled import compile_model, find_compiler, have_compiler
from hwgen.spec.workload import Workload
from tests import samples
from tests.shim import harness, rtl_model
from tests.shim.mutations import MUTATIONS, edit

Arrays = Mapping[str, NDArray[Any]]

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


# --- helpers that other tests use too ---


def run_through_shim(
    source: CSource,
    inputs: Arrays,
    interleavings: Sequence[str] = harness.INTERLEAVINGS,
    *,
    configuration: Mapping[str, int] | None = None,
    prepacked: bool = False,
) -> list[dict[str, NDArray[Any]]]:
    """The outputs of each interleaving; fails on any error that the shim reports."""
    runs = harness.run_shim(
        source, inputs, interleavings, configuration=configuration, prepacked=prepacked
    )
    assert len(runs) == len(interleavings)
    for run in runs:
        assert run.error == 0, f"{run.interleaving}: {run.message}"
        assert run.status == 0, run.interleaving
        assert run.live_buffers == 0, f"{run.interleaving}: buffers are not given back"
    return [run.outputs for run in runs]


def modelled_cycles(source: CSource, inputs: Arrays, read: int = 20, write: int = 20) -> int:
    """Cycles of the emitted C's instruction stream under the independent timing rules, at latencies
    of reads and writes."""
    (run,) = harness.run_shim(source, inputs, ("compute_first",), trace=True)
    assert run.error == 0, run.message
    return rtl_model.run_trace(run.trace, read, write).total_cycles


def random_inputs(source: CSource, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Integers over the whole range of 8 bits, for every input."""
    random = np.random.default_rng(seed)
    return {p.name: random.integers(-128, 128, p.shape).astype(p.dtype) for p in source.inputs}


# --- the samples ---

Sample = tuple[Program, Workload]


def _gemm() -> Sample:
    return samples.load_bound_gemm(), samples.gemm_workload(1, 256, 256)


def _requant(m: int, n: int, k: int) -> Callable[[], Sample]:
    return lambda: (
        samples.tiled_gemm_requant(m, n, k),
        samples.gemm_requant_workload(m, n, k),
    )


SAMPLES: dict[str, Callable[[], Sample]] = {
    "gemm_1x256x256": _gemm,
    "gemm_requant_256x256x256": _requant(256, 256, 256),
    "gemm_requant_48x80x32": _requant(48, 80, 32),
}


@cache
def sample(name: str) -> tuple[CSource, Program, Workload]:
    program, workload = SAMPLES[name]()
    return emit(program, samples.chip(), workload), program, workload


def reference(inputs: Arrays) -> NDArray[np.int8]:
    a: NDArray[np.int32] = inputs["a"].astype(np.int32)
    b: NDArray[np.int32] = inputs["b"].astype(np.int32)
    sums: NDArray[np.int32] = np.einsum("mk,nk->mn", a, b)
    if "bias" in inputs:
        shifted: NDArray[np.int32] = (sums + inputs["bias"]) >> 8
        sums = np.minimum(np.maximum(shifted, -128), 127)
    return sums.astype(np.int8)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("prepacked", [False, True], ids=["plain", "prepacked"])
def test_shim_gives_the_reference(name: str, prepacked: bool) -> None:
    source, _, _ = sample(name)
    inputs = random_inputs(source)
    for outputs in run_through_shim(source, inputs, prepacked=prepacked):
        np.testing.assert_array_equal(outputs["c"], reference(inputs))


@pytest.mark.parametrize("name", SAMPLES)
def test_model_gives_the_reference(name: str) -> None:
    source, _, _ = sample(name)
    kernel = compile_model(source)
    for seed in range(2):
        inputs = random_inputs(source, seed)
        np.testing.assert_array_equal(kernel.run(inputs)["c"], reference(inputs))


def test_no_undefined_behaviour() -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    if not _links(flags):
        pytest.skip("the compiler has no sanitizers")
    source, _, _ = sample("gemm_requant_48x80x32")
    inputs = random_inputs(source)
    for prepacked in (False, True):
        runs = harness.run_shim(source, inputs, ("round_robin",), prepacked=prepacked, flags=flags)
        np.testing.assert_array_equal(runs[0].outputs["c"], reference(inputs))


def _links(flags: Sequence[str]) -> bool:
    source = harness.scratch() / "empty.c"
    source.write_text("int main(void)\n{\n  return 0;\n}\n")
    command = [
        *(find_compiler() or ("cc",)),
        *flags,
        str(source),
        "-o",
        str(source.with_suffix("")),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_model_is_strict_c(tmp_path: Path) -> None:
    source, _, _ = sample("gemm_requant_256x256x256")
    (tmp_path / "model.c").write_text(source.model)
    harness.compile_c(
        [*harness.STRICT, "-O3", "-c", tmp_path / "model.c", "-o", tmp_path / "model.o"]
    )


def _write(source: CSource, directory: Path) -> None:
    (directory / f"{source.function}.c").write_text(source.c)
    (directory / f"{source.function}.h").write_text(source.header)


TWO_KERNELS = """
#include <cstdio>
#include <vector>
#include <vta/runtime/runtime.h>
#include "gemm_1x256x256.h"
#include "gemm_requant_48x80x32.h"
#include "gemm_1x256x256.h"

int main()
{
  std::vector<int8_t> a(48 * 256, 1), b(256 * 256, 1), c(48 * 80), d(256);
  std::vector<int32_t> bias(80, 300);
  VTAShimReset(0, 0);
  int first = gemm_1x256x256(a.data(), b.data(), d.data());
  int second = gemm_requant_48x80x32(a.data(), b.data(), bias.data(), c.data());
  int error = VTAShimStatus();
  std::printf("%d %d %d %d %d\\n", first, second, error, (int)d[255], (int)c[48 * 80 - 1]);
}
"""


def test_two_kernels_link_from_cpp(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    objects: list[Path] = []
    for name in ("gemm_1x256x256", "gemm_requant_48x80x32"):
        source, _, _ = sample(name)
        _write(source, tmp_path)
        objects.append(tmp_path / f"{name}.o")
        command = [f"-I{harness.SHIM}", "-c", tmp_path / f"{name}.c", "-o", objects[-1]]
        harness.compile_c([*harness.STRICT, *command])
    (tmp_path / "main.cpp").write_text(TWO_KERNELS)
    strict = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic")
    command = [
        compiler, *strict, f"-I{harness.SHIM}", str(tmp_path / "main.cpp"),
        *map(str, (*objects, *harness.shim_objects())), "-o", str(tmp_path / "both"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["0", "0", "0", "0", "1"]  # int8(256); (32 + 300) >> 8


def test_header_agrees_with_the_source(tmp_path: Path) -> None:
    source, _, _ = sample("gemm_requant_48x80x32")
    _write(source, tmp_path)
    both = f'#include "{source.function}.h"\n#include "{source.function}.c"\n'
    (tmp_path / "both.c").write_text(both)
    harness.compile_c(
        [*harness.STRICT, f"-I{harness.SHIM}", "-c", tmp_path / "both.c", "-o", tmp_path / "o"]
    )


ALLOCATIONS = """
#include <stdio.h>
#include <string.h>
#undef malloc
#include <stdlib.h>
#include <vta/runtime/runtime.h>
#include "gemm_1x256x256.h"

static int left;
static long live;
void *counted_malloc(size_t size);
void counted_free(void *data);
void *counted_malloc(size_t size)
{
  if (left-- <= 0)
    return NULL;
  ++live;
  return malloc(size);
}
void counted_free(void *data)
{
  live -= data != NULL;
  free(data);
}

int main(void)
{
  static int8_t a[256], b[256 * 256], c[256];
  for (int host = 0; host <= 4; ++host)
    for (int device = 0; device <= 4; ++device) {
      VTAShimReset(0, 0);
      VTAShimFailAllocation(device);
      left = host;
      memset(c, 0x5A, sizeof c);
      int status = gemm_1x256x256(a, b, c);
      printf("%d %d %d %ld %lu %d\\n", host, device, status != 0, live,
             (unsigned long)VTAShimLiveBuffers(), VTAShimStatus());
    }
  return 0;
}
"""


def test_failed_allocations_give_everything_back(tmp_path: Path) -> None:
    source, program, _ = sample("gemm_1x256x256")
    _write(source, tmp_path)
    (tmp_path / "main.c").write_text(ALLOCATIONS)
    renamed = ("-Dmalloc=counted_malloc", "-Dfree=counted_free")
    common = [*harness.STRICT, f"-I{harness.SHIM}", f"-I{tmp_path}"]
    kernel = tmp_path / "kernel.o"
    harness.compile_c([*common, *renamed, "-c", tmp_path / f"{source.function}.c", "-o", kernel])
    program_path = tmp_path / "allocations"
    harness.compile_c(
        [*common, tmp_path / "main.c", kernel, *harness.shim_objects(), "-o", program_path]
    )
    done = subprocess.run([program_path], capture_output=True, text=True, check=True)
    needed_host, needed_device = 1, len(program.images)  # b packed, a and c as they are
    seen = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(seen) == 25
    for host, device, failed, live, live_buffers, error in seen:
        expected = host < needed_host or device < needed_device
        assert (failed, live, live_buffers, error) == (int(expected), 0, 0, 0), (host, device)


def test_nothing_on_chip_is_allocated() -> None:
    source, program, _ = sample("gemm_requant_256x256x256")
    on_host = [int(n) for n in re.findall(r"malloc\((\d+)\)", source.c)]
    packed = [i.bytes for i in program.images if i.tensor == "b"]
    assert on_host == packed  # a, c and bias are what the chip takes, byte for byte
    assert source.c.count("VTABufferAlloc(") == len(program.images)
    for buffer in program.buffers:
        assert buffer.name not in re.sub(r"/\*.*?\*/", "", source.c, flags=re.DOTALL)


def test_text_is_deterministic() -> None:
    source, program, workload = sample("gemm_requant_48x80x32")
    assert emit(program, samples.chip(), workload) == source
    script = (
        "from tests import samples\nfrom hwgen.codegen.emit_c import emit\n"
        "p, w = samples.tiled_gemm_requant(48, 80, 32), "
        "samples.gemm_requant_workload(48, 80, 32)\n"
        "s = emit(p, samples.chip(), w)\nprint(s.c, s.header, s.model)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=samples.ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{source.c} {source.header} {source.model}\n"


def test_includes_only_what_a_kernel_needs() -> None:
    source, _, _ = sample("gemm_1x256x256")
    assert re.findall(r"#include (\S+)", source.c) == [
        "<stdint.h>", "<stdlib.h>", "<string.h>", "<vta/runtime/runtime.h>",
    ]  # fmt: skip


# --- mutations: what the shim and the model must notice ---


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_shim_notices(mutation: str) -> None:
    _, program, workload = sample("gemm_requant_256x256x256")
    mutant = replace(program, body=edit(program.body, MUTATIONS[mutation]))
    assert mutant.body != program.body
    source = emit(mutant, samples.chip(), workload)
    inputs = random_inputs(source)
    runs = harness.run_shim(source, inputs, ("compute_first", "load_first", "random:1"))
    expected = reference(inputs)
    assert any(run.error for run in runs) or any(
        (run.outputs["c"] != expected).any() for run in runs
    ), mutation


def test_races_are_noticed_in_every_interleaving() -> None:
    """Even in those whose numbers happen to be right."""
    _, program, workload = sample("gemm_requant_256x256x256")
    mutant = replace(program, body=edit(program.body, MUTATIONS["dropped pair"]))
    source = emit(mutant, samples.chip(), workload)
    inputs = random_inputs(source)
    for run in harness.run_shim(source, inputs):
        assert run.error == 16, f"{run.interleaving}: {run.message}"


# --- timing ---


def test_modelled_cycles_of_the_samples() -> None:
    """The array's 65,536 cycles and the four passes of the epilogue bound the first; the weights'
    8,192 beats the second."""
    source, _, _ = sample("gemm_requant_256x256x256")
    epilogue = 5 * 256 * 16
    assert 65_536 + epilogue < modelled_cycles(source, random_inputs(source)) < 105_000
    source, _, _ = sample("gemm_1x256x256")
    assert 8_192 < modelled_cycles(source, random_inputs(source)) < 8_800
