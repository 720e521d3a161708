"""What a call of a kernel costs: from C, and from Python by `hwgen.build`.

python -m benchmarks.cpu calls

Microseconds on one pinned core: medians of turns in which all of a row run one after another. `C`:
the emitted function, called by a loop in C. `Python`: the kernel that `hwgen.build` gives, with
NumPy arrays, and a new array as its result. `Python - C` is the median of the turns' differences.
`np.matmul` gives a new array too. `OpenBLAS` is the function that it calls, `sgemm` or for one row
`sgemv`, in a loop in C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import hwgen
from benchmarks.cpu_rivals import one_thread
from benchmarks.mkl import FLAGS
from hwgen.model.c_compiler import load_library
from hwgen.model.native import compile_native_units
from hwgen.model.reference import run_reference
from hwgen.spec.table import Cell, table
from hwgen.verify.compare import unexplained
from hwgen.verify.data import draw_inputs

FLOATS = ((1, 48, 64), (16, 16, 16), (1, 1024, 1024))
"""M, N and K of `matmul` in float32."""

KERNELS: tuple[tuple[str, str, dict[str, str], tuple[tuple[int, int, int], ...]], ...] = (
    ("x86_avx512", "matmul", {}, FLOATS),
    ("x86_vnni", "gemm", {"a": "uint8", "OUT": "int32"}, ((16, 16, 16),)),
)

SECONDS, TURNS = 0.002, 200
"""The time of one turn of one side, and their number."""

LOOP = """
#include <stddef.h>
#include <stdint.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
typedef int Run(const void *, const void *, void *);
double loop(Run *run, const void *a, const void *b, void *c, long times) {
  double start = now();
  for (long n = 0; n < times; ++n) run(a, b, c);
  return (now() - start) / times;
}
"""

BLAS = """
enum { ROWS = 101, AS_IT_IS = 111, TRANSPOSED = 112 };
typedef const float *Floats;
void scipy_cblas_sgemm64_(int, int, int, int64_t, int64_t, int64_t, float, Floats, int64_t, Floats,
                          int64_t, float, float *, int64_t);
void scipy_cblas_sgemv64_(int, int, int64_t, int64_t, float, Floats, int64_t, Floats, int64_t,
                          float, float *, int64_t);
double sgemm(Floats a, Floats b, float *c, int64_t m, int64_t n, int64_t k, long times) {
  double start = now();
  for (long i = 0; i < times; ++i)
    scipy_cblas_sgemm64_(ROWS, AS_IT_IS, AS_IT_IS, m, n, k, 1, a, k, b, n, 0, c, n);
  return (now() - start) / times;
}
double sgemv(Floats a, Floats b, float *c, int64_t n, int64_t k, long times) {
  double start = now();
  for (long i = 0; i < times; ++i)
    scipy_cblas_sgemv64_(ROWS, TRANSPOSED, k, n, 1, b, n, a, 1, 0, c, 1);
  return (now() - start) / times;
}
"""

Timed = Callable[[int], float]
"""The seconds of one of so many runs in a row."""


@cache
def loops() -> ctypes.CDLL:
    """The loops in C."""
    library = load_library(LOOP, "loop", FLAGS)
    library.loop.restype = ctypes.c_double
    return library


def blas(a: Any, b: Any, c: Any) -> Timed | None:
    """The product as NumPy's library has it, on one thread; None where that is another one."""
    file = one_thread()
    if file is None:
        return None
    library = load_library(LOOP + BLAS, "blas", (*FLAGS, "-Wl,--no-as-needed", str(file)))
    given, one_row = pointers(a, b, c), len(a) == 1
    sizes = [ctypes.c_int64(x) for x in (len(a), *reversed(b.shape))][one_row:]
    function = library.sgemv if one_row else library.sgemm
    function.restype = ctypes.c_double
    return lambda times: function(*given, *sizes, ctypes.c_long(times))


def pointers(*arrays: Any) -> list[ctypes.c_void_p]:
    """Where arrays begin."""
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def in_python(run: Callable[[], object]) -> Timed:
    """A Python function, timed in a loop."""

    def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            run()
        return (perf_counter() - start) / times

    return timed


def in_turn(sides: dict[str, Timed]) -> dict[str, list[float]]:
    """Microseconds of each side, turn by turn."""
    times: dict[str, int] = {}
    for name, run in sides.items():
        few = max(1, int(1e-4 / run(1)))
        times[name] = max(1, int(SECONDS / run(few)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, run in sides.items():
            found[name].append(run(times[name]) * 1e6)
    return found


def row(chip: str, name: str, dtypes: dict[str, str], size: tuple[int, int, int]) -> list[Cell]:
    """One product."""
    m, n, k = size
    kernel = hwgen.build(name, chip, sizes={"M": m, "N": n, "K": k}, dtypes=dtypes)
    inputs = draw_inputs(kernel.workload, 0)
    a, b = inputs.values()
    ((output, expected),) = run_reference(kernel.workload, inputs).items()
    found = np.asarray(kernel(a, b))
    assert unexplained(kernel.workload, inputs, {output: found}, {output: expected}) is None
    function = compile_native_units(kernel.compilation.source, kernel.hardware).function
    address = ctypes.cast(function, ctypes.c_void_p)
    c = np.empty_like(expected)
    given = pointers(a, b, c)
    loop = loops()
    sides: dict[str, Timed] = {
        "C": lambda times: loop.loop(address, *given, ctypes.c_long(times)),
        "Python": in_python(lambda: kernel(a, b)),
    }
    if name == "matmul":
        sides["np.matmul"] = in_python(lambda: np.matmul(a, b))
        if (library := blas(a, b, product := np.empty_like(expected))) is not None:
            library(1)
            assert np.allclose(product, expected, rtol=1e-4, atol=1e-4)
            sides["OpenBLAS"] = library
    measured = in_turn(sides)
    both = zip(measured["Python"], measured["C"], strict=True)
    measured["Python - C"] = [p - q for p, q in both]
    cells = [f"{median(measured[h]):.2f}" if h in measured else "-" for h in HEADS[2:]]
    return [chip, f"{m}x{n}x{k}", *cells]


HEADS = ("chip", "M x N x K", "C", "Python", "Python - C", "np.matmul", "OpenBLAS")


def calls() -> str:
    """The table."""
    return table(
        HEADS, [row(chip, name, dtypes, s) for chip, name, dtypes, sizes in KERNELS for s in sizes]
    )
