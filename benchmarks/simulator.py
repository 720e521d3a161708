"""Speed of the functional simulator: multiply-accumulates per second, checks included.

python benchmarks/simulator.py [--spec FILE] [--size N] [--repeats R]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from hwgen.model.functional import run
from hwgen.model.reference import random_inputs, run_reference
from hwgen.model.trace import walk
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import first_difference

ROOT = Path(__file__).resolve().parent.parent
REQUIRED_GMAC_PER_SECOND = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default=str(ROOT / "hw_specs" / "vta.yaml"))
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    size: int = arguments.size
    hardware = load_hardware(Path(arguments.spec))
    print(f"functional simulation for {hardware.name}, packing, checks and unpacking included")
    for name in ("gemm", "gemm_requant"):
        shape = {"M": size, "N": size, "K": size}
        workload = load_workload(ROOT / "workloads" / f"{name}.yaml", shape)
        program = compile_kernel(workload, hardware).program
        shapes = {t.name: t.shape for t in workload.outputs}
        inputs = random_inputs(workload, 0)
        expected = run_reference(workload, inputs)
        best = float("inf")
        for _ in range(arguments.repeats):
            start = time.perf_counter()
            result = run(program, hardware, inputs, shapes=shapes)
            best = min(best, time.perf_counter() - start)
            if difference := first_difference(result.outputs, expected):
                raise SystemExit(f"{name} is wrong: {difference}")
        events = sum(1 for _ in walk(program))
        rate = size**3 / best / 1e9
        print(
            f"{name:<13} {size}^3: {best * 1e3:7.2f} ms, {events} events, {rate:6.2f} GMAC/s, "
            f"{rate / REQUIRED_GMAC_PER_SECOND:5.2f} x the required {REQUIRED_GMAC_PER_SECOND}"
        )


if __name__ == "__main__":
    main()
