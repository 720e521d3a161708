"""Speed of kernels for a processor on this machine: a float32 matrix product, with the automatic
schedule and without any, both compiled with the same flags.

python -m benchmarks.processor [--sizes 512 1024] [--cores N]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from pathlib import Path

import numpy as np

from hwgen.model.c_compiler import AS_FOUND, load_library
from hwgen.model.native import FLAGS, compile_portable
from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, make_workload
from hwgen.verify.compare import unexplained

ROOT = Path(__file__).resolve().parent.parent


def product(n: int, hardware: HardwareSpec, *, auto: bool) -> Kernel:
    """C[m, n] += A[m, k] * B[k, n], square."""
    workload = make_workload(
        "sgemm",
        sizes={"M": n, "N": n, "K": n},
        tensors={"a": "float32[M, K]", "b": "float32[K, N]", "c": "float32[M, N]"},
        compute=["c[m, n] += a[m, k] * b[k, n]"],
    )
    return compile_nest(workload, hardware, auto=auto)


def gflops(c: Kernel, n: int, repeats: int) -> float:
    """Of the fastest run; the result is checked against the reference first."""
    from hwgen.model.reference import run_reference

    inputs = random_inputs(c.workload, 0)
    outputs = compile_portable(c.source, c.hardware).run(inputs)
    difference = unexplained(c.workload, inputs, outputs, run_reference(c.workload, inputs))
    if difference is not None:
        raise SystemExit(str(difference))
    function = load_library(c.source.c, c.source.function, FLAGS, AS_FOUND)[c.source.function]
    function.restype = None
    arrays = [np.ascontiguousarray(inputs[p.name]) for p in c.source.inputs]
    arrays += [np.zeros((n, n), np.float32) for _ in c.source.outputs]
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default=str(ROOT / "hw_specs" / "cpu_generic.yaml"))
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024])
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    hardware = load_hardware(Path(options.spec), {"CORES": options.cores})
    for n in options.sizes:
        plain = gflops(product(n, hardware, auto=False), n, 2)
        fast = gflops(product(n, hardware, auto=True), n, 15)
        print(
            f"sgemm {n}^3 on {options.cores} cores: scheduled {fast:.1f} GFLOP/s, "
            f"unscheduled {plain:.1f} GFLOP/s, ratio {fast / plain:.1f}"
        )


if __name__ == "__main__":
    main()
