"""Chains of many statements: CPU seconds and memory of compiling them, as a section of `run.py`.

Each row is a process of its own: `python benchmarks/growth.py KIND CHIP STATEMENTS` prints one. How
many kernels the default search looks at depends on what it finds, so that its seconds are no
function of the statements; "one kernel" is the least search.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time

from hwgen.autoschedule.options import Options
from hwgen.kernel import build
from hwgen.passes.phase import SearchOptions
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.table import Cell, table
from hwgen.spec.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
COUNTS = (20, 50, 100, 200)
CHIPS = ("cpu_generic", "vta", "npu_shared_buffer")
SECONDS = 600
"""After which a row is given up."""


def chain(statements: int, chip: str) -> Workload:
    """Element-wise statements, each of the one before."""
    kept, last = _types(chip)
    tensors: dict[str, object] = {"x": kept}
    compute: list[str] = []
    before = "x"
    for n, (before, now) in enumerate(_names(statements)):
        tensors[now] = kept if n < statements - 1 else last
        value = (f"max({before}[m, n], 0)", f"{before}[m, n] + {n % 5 + 1}")[n % 2]
        compute.append(f"{now}[m, n] = {value}")
    if last != kept:
        compute[-1] = f"y[m, n] = int8(clip({before}[m, n], -128, 127))"
    return parse_workload({"name": "chain", "tensors": tensors, "compute": compute})


def diamonds(statements: int, chip: str) -> Workload:
    """Residual connections: of each three statements, two read one tensor, and the last adds both
    up."""
    kept, last = _types(chip)
    tensors: dict[str, object] = {"x": kept}
    compute: list[str] = []
    before = "x"
    for n in range(statements // 3):
        left, right, now = f"l{n}", f"r{n}", f"t{n}"
        tensors |= dict.fromkeys((left, right, now), kept)
        compute.append(f"{left}[m, n] = {before}[m, n] + {n % 5 + 1}")
        compute.append(f"{right}[m, n] = max({before}[m, n], 0)")
        compute.append(f"{now}[m, n] = {left}[m, n] + {right}[m, n]")
        before = now
    tensors["y"] = last
    cast = f"int8(clip({before}[m, n], -128, 127))" if last != kept else f"{before}[m, n] * 2"
    compute.append(f"y[m, n] = {cast}")
    return parse_workload({"name": "diamonds", "tensors": tensors, "compute": compute})


def layers(statements: int, chip: str) -> Workload:
    """Matrix products with an element-wise statement behind each."""
    kept, narrow = _types(chip)
    kind = narrow.removesuffix("[16, 64]")
    tensors: dict[str, object] = {"x": narrow}
    compute: list[str] = []
    before = "x"
    for n in range(statements // 2):
        weights, sums, now = f"w{n}", f"s{n}", f"t{n}"
        tensors[weights] = {"type": f"{kind}[64, 64]", "constant": True}
        tensors |= {sums: kept, now: narrow}
        one, other = f"{before}[m, k]", f"{weights}[n, k]"
        if narrow == kept:
            compute.append(f"{sums}[m, n] += {one} * {other}")
            compute.append(f"{now}[m, n] = max({sums}[m, n], 0)")
        else:
            compute.append(f"{sums}[m, n] += int32({one}) * int32({other})")
            compute.append(f"{now}[m, n] = int8(clip({sums}[m, n] >> 6, 0, 127))")
        before = now
    return parse_workload({"name": "layers", "tensors": tensors, "compute": compute})


KINDS = {f.__name__: f for f in (chain, diamonds, layers)}


def _types(chip: str) -> tuple[str, str]:
    """The tensors in between, and the result."""
    integers = ("int32[16, 64]", "int8[16, 64]")
    return integers if chip == "vta" else ("float32[16, 64]", "float32[16, 64]")


def _names(statements: int) -> Iterator[tuple[str, str]]:
    names = ["x", *(f"t{n}" for n in range(statements - 1)), "y"]
    return pairwise(names)


def growth() -> str:
    """CPU seconds (start-up apart) and memory of long chains: linear in their statements."""
    rows: list[list[Cell]] = []
    for kind in KINDS:
        for chip in CHIPS:
            first: float | None = None
            for count in COUNTS:
                found = _row(kind, chip, count)
                if found is None:
                    rows.append([kind, chip, count, f"over {SECONDS} s", "-", "-", "-"])
                    continue
                first = first or found[0]
                rows.append([kind, chip, count, found[0], found[0] / first, found[1], found[2]])
    heads = ("chain", "chip", "statements", "one kernel, CPU s", "ratio", "default, CPU s", "MiB")
    return table(heads, rows)


def _row(kind: str, chip: str, statements: int) -> tuple[float, float, int] | None:
    command = [sys.executable, __file__, kind, chip, str(statements)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    least, usual, memory = done.stdout.split()
    return float(least), float(usual), int(memory)


def main(arguments: Sequence[str]) -> None:
    """Compile one chain in this process, with the least search and with the default one; print the
    CPU seconds of both, and the MiB of the process."""
    kind, chip, statements = arguments
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    workload = KINDS[kind](int(statements), chip)
    build(KINDS[kind](2, chip), hardware)  # Imports, and parsers that are made once.
    least = SearchOptions(work=0) if hardware.units else Options()
    seconds: list[float] = []
    for options in (least, None):
        before = process_time()
        assert build(workload, hardware, options=options).c
        seconds.append(process_time() - before)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"{seconds[0]:.2f} {seconds[1]:.2f} {memory}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
