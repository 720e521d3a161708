"""Speed of the generated C model: multiply-accumulates per second on one core.

python benchmarks/c_model.py [--size N] [--repeats R]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from hwgen.errors import HwgenError
from hwgen.model.compiled import CompiledKernel, compile_model, find_compiler
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parent.parent
REQUIRED_GMAC_PER_SECOND = 2.0


def best_seconds(kernel: CompiledKernel, repeats: int) -> float:
    """The fastest of some runs on random data, packing and checks included."""
    random = np.random.default_rng(0)
    inputs = {
        p.name: random.integers(-128, 128, p.shape).astype(p.dtype) for p in kernel.source.inputs
    }
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel.run(inputs)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default=str(ROOT / "hw_specs" / "vta.yaml"))
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    size: int = arguments.size
    hardware = load_hardware(Path(arguments.spec))
    print(f"C model of {hardware.name}, compiled by {' '.join(find_compiler() or ())}, one core")
    for name in ("gemm", "gemm_requant"):
        shape = {"M": size, "N": size, "K": size}
        workload = load_workload(ROOT / "workloads" / f"{name}.yaml", shape)
        start = time.perf_counter()
        kernel = compile_model(compile_kernel(workload, hardware).source)
        made = time.perf_counter() - start
        seconds = best_seconds(kernel, arguments.repeats)
        rate = size**3 / seconds / 1e9
        print(
            f"{name} {size}^3: {seconds * 1e3:.3f} ms, {rate:.2f} GMAC/s, "
            f"{rate / REQUIRED_GMAC_PER_SECOND:.2f} x the required {REQUIRED_GMAC_PER_SECOND:g} "
            f"(generated and compiled in {made:.2f} s)"
        )


if __name__ == "__main__":
    try:
        main()
    except HwgenError as error:
        raise SystemExit(str(error)) from error
