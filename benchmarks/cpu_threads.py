"""Products of bytes and bfloat16 on one core and on two.

python -m benchmarks.cpu threads

Both kernels are as the search finds them, with `CORES` 1 and 2, weights packed before, and run in
turn, by the clock. `ratio` is the median of the turns', `best` that of each side's fastest turn:
on a machine whose cores others use too, two threads wait for the core that is taken. It needs two
idle cores, and prints the load before and after.
"""

from __future__ import annotations

import os
from statistics import geometric_mean, median
from time import perf_counter

import numpy as np

from benchmarks.cpu_cases import PRODUCTS, Case
from benchmarks.prepacked import prepacked
from hwgen.spec.load import load_hardware
from hwgen.spec.table import Cell, table

KINDS = ("u8s8", "s8s8", "shifted", "bf16")
SIZES = (
    (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (127, 513, 255), (64, 3072, 768),
    (64, 4096, 1024),
)  # fmt: skip
"""M, N and K."""

TURNS, SECONDS = 41, 0.01
"""Turns of both, and about how long one takes of each."""


def row(kind: str, case: Case) -> tuple[list[Cell], float]:
    """One product, and its ratio."""
    times: list[list[float]] = []
    sides = [prepacked(case.workload, load_hardware(case.chip, {"CORES": n}), case.inputs)
             for n in (1, 2)]  # fmt: skip
    repeats: list[int] = []
    for side in sides:
        for _ in range(20):  # Threads that touch the same would not always meet.
            side.result[...] = 0
            side.run()
            if not np.array_equal(side.result, case.expected):
                raise SystemExit(f"{case.label}: the result is wrong")
        start = perf_counter()
        side.run()
        repeats.append(max(1, int(SECONDS / (perf_counter() - start))))
    for _ in range(TURNS):
        turn: list[float] = []
        for side, times_of in zip(sides, repeats, strict=True):
            side.run()
            start = perf_counter()
            for _ in range(times_of):
                side.run()
            turn.append(1e6 * (perf_counter() - start) / times_of)
        times.append(turn)
    one, two = ([turn[n] for turn in times] for n in (0, 1))
    ratio = median(a / b for a, b in times)
    cells: list[Cell] = [
        kind, case.label, f"{median(one):.1f}", f"{median(two):.1f}", f"{ratio:.2f}",
        f"{min(one) / min(two):.2f}",
    ]  # fmt: skip
    return cells, ratio


def threads() -> str:
    """The table."""
    before = os.getloadavg()[0]
    rows = [row(kind, PRODUCTS[kind](size)) for kind in KINDS for size in SIZES]
    heads = ("", "M x N x K", "us, one core", "us, two", "ratio", "best")
    ratios = [ratio for _, ratio in rows]
    mean = f"geometric mean {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}"
    load = f"load of {os.cpu_count()} cores: {before:.1f} before, {os.getloadavg()[0]:.1f} after"
    return f"{table(heads, [cells for cells, _ in rows])}\n{mean}\n{load}"
