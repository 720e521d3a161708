"""A float32 product in emitted AVX-512 code against MKL's, on one thread and on two.

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

The second table is of what the search finds without a script, in the same turns, and of the
seconds that this takes, C compiler included.

The table for two threads is of `matmul_two_cores.script` and MKL on two threads, in turn with the
kernel for one: `of one` is against that. It needs two idle cores, and says how many there are.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from hwgen.model.c_compiler import load_library
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table
from tests.inner_loops import disassembled, inner_loops, on_the_stack

ROOT = Path(__file__).resolve().parent.parent
SCHEDULES = ROOT / "workloads" / "schedules"
ONE, TWO = SCHEDULES / "matmul_panels.script", SCHEDULES / "matmul_two_cores.script"
SIZES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (127, 513, 255))
"""M, N and K."""

FOUND = (*SIZES, (64, 1024, 4096))
"""The same, without a script."""

FLAGS = ("-std=c11", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
SECONDS = 4.0
"""Time for the kernel and MKL together at one size."""

IN_A_ROW = 3
"""Runs of one after another that count."""

MULTIPLY_ADDS = 16
"""Of the innermost loop, at least."""

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
    """torch, or None."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


class Product:
    """One size: the arrays, and what computes it."""

    def __init__(self, m: int, n: int, k: int, torch: Any) -> None:
        self.m, self.n, self.k, self.torch = m, n, k, torch
        draw = np.random.default_rng(0)
        self.a, self.b = (
            draw.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n))
        )
        self.ours, self.theirs = (np.zeros((m, n), np.float32) for _ in range(2))
        self.shared = [torch and torch.from_numpy(x) for x in (self.a, self.b, self.theirs)]
        self.name = f"{m} x {n} x {k}"

    def kernel(self, script: Path | None, cores: int) -> tuple[Callable[[], None], str]:
        """Runs the emitted code, and its text: that of a script, or what the search finds."""
        sizes = {"M": self.m, "N": self.n, "K": self.k}
        workload = load_workload(ROOT / "workloads" / "matmul.yaml", sizes)
        hardware = load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml", {"CORES": cores})
        if script is None:
            source = compile_kernel(workload, hardware).source
        else:
            text = script.read_text(encoding="utf-8")
            source = compile_script(workload, hardware, text, script.name).source
        function = getattr(load_library(source.c, source.function, FLAGS), source.function)
        given = [x.ctypes.data_as(ctypes.c_void_p) for x in (self.a, self.b, self.ours)]

        def run() -> None:
            if function(*given) != 0:
                raise SystemExit("no memory")

        return run, source.c

    def other(self) -> None:
        """Runs MKL, on as many threads as torch was told."""
        if self.torch is not None:
            self.torch.mm(*self.shared[:2], out=self.shared[2])

    def rates(self, *runs: Callable[[], None]) -> Iterator[tuple[float, ...]]:
        """GFLOP/s of each, turn by turn: what the caller runs between them takes turns too."""
        first = 0.0
        for run in runs:  # The first run of each brings pages in.
            self.ours[...] = self.theirs[...] = 0.0
            first += seconds(run)
            check(self.theirs if run == self.other else self.ours, self.a, self.b)
        turns = max(7, min(400, int(SECONDS / first / (IN_A_ROW + 1))))
        flops = 2e-9 * self.m * self.n * self.k
        for _ in range(turns):
            yield tuple(flops / warm(run) for run in runs)


def row(product: Product) -> list[Cell]:
    """Of one size on one thread."""
    kernel, text = product.kernel(ONE, 1)
    runs = [kernel] if product.torch is None else [kernel, product.other]
    rates = [(*turn, peak()) for turn in product.rates(*runs)]
    mine, *others = (median(x) for x in zip(*rates, strict=True))
    ratios = [median(x[0] / x[by] for x in rates) for by in range(1, len(rates[0]))]
    against: list[Cell] = ["-", "-"] if product.torch is None else [others[0], ratios[0]]
    return [product.name, mine, *against, others[-1], ratios[-1], stack(text)]


def searched(product: Product) -> list[Cell]:
    """Of one size on one thread, without a script."""
    start = perf_counter()
    kernel, text = product.kernel(None, 1)
    took = perf_counter() - start
    runs = [kernel] if product.torch is None else [kernel, product.other]
    rates = list(product.rates(*runs))
    mine, *others = (median(x) for x in zip(*rates, strict=True))
    against: list[Cell] = ["-", "-"]
    if product.torch is not None:
        against = [others[0], median(x[0] / x[1] for x in rates)]
    return [product.name, mine, *against, took, stack(text)]


def threads(product: Product) -> list[Cell]:
    """Of one size on two threads."""
    one, two = product.kernel(ONE, 1)[0], product.kernel(TWO, 2)[0]
    runs = [two, one] if product.torch is None else [two, one, product.other]
    rates = list(product.rates(*runs))
    mine, alone, *others = (median(x) for x in zip(*rates, strict=True))
    ratios = [median(x[0] / x[by] for x in rates) for by in range(1, len(rates[0]))]
    against: list[Cell] = ["-", "-"] if product.torch is None else [others[0], ratios[1]]
    return [product.name, mine, alone, ratios[0], *against]


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
        torch.set_num_threads(1)
    products = [Product(*size, torch) for size in SIZES]
    rows = [row(p) for p in products]
    print(table(["M x N x K", "GFLOP/s", "MKL", "ratio", "peak", "of peak", "spills"], rows))
    print("\nfound by the search, and the seconds that it and the C compiler take:")
    rows = [searched(Product(*size, torch)) for size in FOUND]
    print(table(["M x N x K", "GFLOP/s", "MKL", "ratio", "seconds", "spills"], rows))
    if torch is not None:
        torch.set_num_threads(2)
    print(f"\non two threads, of {os.cpu_count()} cores:")
    rows = [threads(p) for p in products]
    print(table(["M x N x K", "GFLOP/s", "one thread", "of one", "MKL", "ratio"], rows))


if __name__ == "__main__":
    sys.exit(main())
