"""Products and convolutions of bytes, bfloat16 and float32 without a script, against libraries.

python -m benchmarks.cpu [KIND ...]  # kinds: benchmarks/cpu_cases.py
python -m benchmarks.cpu calls       # what a call costs: benchmarks/cpu_calls.py
python -m benchmarks.cpu threads     # two cores: benchmarks/cpu_threads.py

It needs `pip install onnxruntime torch ai-edge-litert tflite`, and a core with the extensions of
`x86_vnni`, `x86_bf16` and `x86_avx512`. One process and one pinned core, in turn, medians of the
thread's CPU time, which other processes disturb less than the clock. Weights are packed before on
all sides (`benchmarks/prepacked.py`, `benchmarks/cpu_rivals.py`). Every result is compared before
it is timed: ours bit for bit, bytes that others round in another way within one. All are called
from Python; small products take less time than that, and have means of their own.

A ratio is the other's time over ours, turn by turn: above one, the other takes longer. `best`: the
least of a row. `seconds`: CPU time of the search, without the C compiler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from math import exp, log
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.cpu_calls import calls
from benchmarks.cpu_cases import KINDS, SMALL, Case, cases
from benchmarks.cpu_rivals import one_thread
from benchmarks.cpu_threads import threads
from benchmarks.networks import timed
from benchmarks.prepacked import prepacked
from hwgen.spec.load import load_hardware
from hwgen.spec.table import Cell, table

TABLES = {"calls": calls, "threads": threads}
PACKAGES = ("onnxruntime", "torch", "ai-edge-litert", "numpy")
HEADS = ("", "us", "GOP/s", "best rival", "its ratio", "others", "seconds")


def row(case: Case) -> tuple[list[Cell], float]:
    """A row, and the ratio of the best rival."""
    ours = prepacked(case.workload, load_hardware(case.chip), case.inputs)
    ours.run()
    if not np.array_equal(ours.result, case.expected):
        raise SystemExit(f"{case.label}: the result is wrong")
    others = {name: make() for name, make in case.others.items()}
    for name, rival in others.items():
        found = np.reshape(rival.result(), case.wanted.shape).astype(np.float64)
        if np.abs(found - case.wanted.astype(np.float64)).max() > case.off:
            raise SystemExit(f"{case.label}: the result of {name} is another one")
    times = timed({"ours": ours.run} | {name: rival.run for name, rival in others.items()})
    ratios = {
        name: median(b / a for a, b in zip(times["ours"], times[name], strict=True))
        for name in others
    }
    best, *rest = sorted(ratios, key=lambda name: ratios[name])
    us = median(times["ours"])
    cells: list[Cell] = [
        case.label, f"{us:.1f}", f"{2e-3 * case.macs / us:.0f}", best, f"{ratios[best]:.2f}",
        ", ".join(f"{name} {ratios[name]:.2f}" for name in rest) or "-", f"{ours.took:.1f}",
    ]  # fmt: skip
    return cells, ratios[best]


def mean(ratios: Sequence[float]) -> str:
    """Geometric mean and least."""
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}, worst {min(ratios):.2f}"


def processor() -> str:
    """Name, family and model of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    known = {key.strip(): value for key, _, value in (line.partition(": ") for line in lines)}
    return f"{known['model name']}, family {known['cpu family']}, model {known['model']}"


def main(kinds: Sequence[str]) -> int:
    """Print a table for each kind."""
    if kinds != ["threads"]:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    one_thread()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    sys.stdout.write(f"{processor()}; {versions}\n")
    if len(kinds) == 1 and kinds[0] in TABLES:
        sys.stdout.write(f"{TABLES[kinds[0]]()}\n")
        return 0
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; known: {', '.join([*TABLES, *KINDS])}\n")
        return 2
    small = {"x".join(map(str, size)) for size in SMALL}
    for kind in kinds or KINDS:
        rows: list[list[Cell]] = []
        found: dict[bool, list[float]] = {True: [], False: []}
        for case in cases(kind):
            cells, ratio = row(case)
            rows.append(cells)
            found[case.label in small].append(ratio)
        sys.stdout.write(f"\n{kind}\n{table(HEADS, rows)}\n")
        for few, ratios in found.items():
            if ratios:
                which = "small products" if few else "the others"
                sys.stdout.write(f"geometric mean of the best rival, {which}: {mean(ratios)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
