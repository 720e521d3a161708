"""A float32 product in emitted AVX-512 code against MKL's, on one thread.

python -m benchmarks.mkl

The kernel is that of `hw_specs/x86_avx512.yaml` and `workloads/schedules/matmul_panels.script`, as
`cc -O3 -march=native` compiles it; packing is part of it. MKL is what `torch.mm` calls (`pip
install torch`; without it only the kernel is timed). Both run in one process in turn, on the same
arrays, each a few times in a row, since one that follows another finds its caches cold: of these,
all but the first count. A ratio is that of two such turns next to each other, and the median of
them is printed. `of peak` is the same against a loop of independent multiply-adds on registers,
which runs in turn with them, so that a slow rival flatters nobody. `spills`: vector registers on
the stack in the innermost loops, which must be none, and all references to the stack there: gcc
12.2 keeps a loop's bound or step there at some sizes.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from hwgen.model.c_compiler import load_library
from hwgen.report.table import Cell, table
from hwgen.scripting import compile_script
from hwgen.spec.load import load_hardware, load_workload
from tests.inner_loops import disassembled, inner_loops, on_the_stack

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "workloads" / "schedules" / "matmul_panels.script"
SIZES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (127, 513, 255))
"""M, N and K."""

FLAGS = ("-std=c11", "-O3", "-march=native", "-shared", "-fPIC")
SECONDS = 4.0
"""Time for the kernel and MKL together at one size."""

IN_A_ROW = 3
"""Runs of one after another that count."""

MULTIPLY_ADDS = 24
"""Of the innermost loop."""

PEAK = """
#include <immintrin.h>
float peak(long rounds) {
  __m512 c[12], x = _mm512_set1_ps(0.5f);
  for (int n = 0; n < 12; ++n) c[n] = _mm512_set1_ps(1.0f);
  for (long r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+v"(x));
    for (int n = 0; n < 12; ++n) c[n] = _mm512_fmadd_ps(c[n], x, x);
  }
  for (int n = 1; n < 12; ++n) c[0] = _mm512_add_ps(c[0], c[n]);
  return _mm512_reduce_add_ps(c[0]);
}
"""


def peak() -> float:
    """GFLOP/s of multiply-adds on registers."""
    function = load_library(PEAK, "peak", FLAGS).peak
    function.argtypes, function.restype = [ctypes.c_long], ctypes.c_float
    rounds = 400_000
    return 12 * 32 * rounds / seconds(lambda: function(rounds)) / 1e9


def seconds(run: Callable[[], object]) -> float:
    """What one run takes."""
    start = perf_counter()
    run()
    return perf_counter() - start


def warm(run: Callable[[], object]) -> float:
    """What one run of a few in a row takes, the first left out."""
    run()
    return median(seconds(run) for _ in range(IN_A_ROW))


def rival() -> Any:
    """torch with one thread, or None."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def row(m: int, n: int, k: int, torch: Any) -> list[Cell]:
    """Of one size."""
    workload = load_workload(ROOT / "workloads" / "matmul.yaml", {"M": m, "N": n, "K": k})
    hardware = load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml")
    text = SCRIPT.read_text(encoding="utf-8")
    source = compile_script(workload, hardware, text, SCRIPT.name).source
    library = load_library(source.c, source.function, FLAGS)
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    ours, theirs = (np.zeros((m, n), np.float32) for _ in range(2))
    given = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, ours)]
    function = getattr(library, source.function)

    def kernel() -> None:
        if function(*given) != 0:
            raise SystemExit("no memory")

    flops = 2e-9 * m * n * k

    shared: list[Any] = [torch and torch.from_numpy(x) for x in (a, b, theirs)]

    def other() -> None:
        if torch is not None:
            torch.mm(*shared[:2], out=shared[2])

    first = seconds(kernel) + seconds(other)  # the first run of each brings pages in
    check(ours, a, b)
    if torch is not None:
        check(theirs, a, b)
    rates: list[tuple[float, float, float]] = []
    for _ in range(max(7, min(400, int(SECONDS / first / (IN_A_ROW + 1))))):
        rates.append((flops / warm(kernel), flops / warm(other), peak()))
    mine, others, most = (median(x) for x in zip(*rates, strict=True))
    of_mkl, of_peak = (median(x[0] / x[by] for x in rates) for by in (1, 2))
    against: list[Cell] = ["-", "-"] if torch is None else [others, of_mkl]
    return [f"{m} x {n} x {k}", mine, *against, most, of_peak, stack(source.c)]


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Within what k roundings of float32 sums may make of it."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)) * a.shape[1] * 2.0**-24
    if not np.all(np.abs(found - exact) <= bound):
        raise SystemExit("the result is wrong")


def stack(text: str) -> Cell:
    """References to the stack in the innermost loops, where there is a disassembler."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.so"
        library = load_library(text, "kernel", FLAGS)
        file.write_bytes(Path(library._name).read_bytes())
        try:
            bodies = inner_loops(disassembled(file), "vfmadd", MULTIPLY_ADDS)
        except FileNotFoundError:
            return "-"
    if not bodies:
        return "-"
    vectors, all_of_them = (
        sum(len(on_the_stack(body, registers)) for body in bodies) for registers in ("%zmm", "")
    )
    return f"{vectors} of {all_of_them}"


def main() -> None:
    torch = rival()
    if torch is None:
        print("torch is not installed: MKL is not measured")
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        mkl = "with MKL" if torch.backends.mkl.is_available() else "without MKL"
        print(f"torch {torch.__version__}, {mkl}, {capability}")
    rows = [row(*size, torch) for size in SIZES]
    print(table(["M x N x K", "GFLOP/s", "MKL", "ratio", "peak", "of peak", "spills"], rows))


if __name__ == "__main__":
    sys.exit(main())
