"""Off-chip bytes against those that a mapper proves to be the least.

The mapper is AccelForge with its proven-optimal search (TCM, arXiv 2602.15172), on the same
memories and problems. Its bytes are optimal in its own model, which knows no fill, no second slot
of a buffer, no bursts and no limits of instructions; so they are given for half of each memory,
whose other half is being filled meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from hwgen.pipeline import Compilation, SearchOptions, compile_kernel
from hwgen.report.text import measure
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "tests" / "gemmini" / "workloads"
"""Products without a bias, for the comparison with a library."""


def _gemm(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


WINDOWS = {"N": 1, "H": 56, "W": 56, "C": 64, "O": 64}
PROBLEMS: tuple[tuple[str, str, dict[str, int], int, int], ...] = (
    ("vta", "gemm", _gemm(256, 256, 256), 196_608, 3),
    ("vta", "gemm", _gemm(512, 512, 512), 1_048_576, 3),
    ("vta", "gemm", _gemm(1024, 1024, 1024), 10_485_760, 1),
    ("vta", "gemm", _gemm(12544, 256, 64), 4_030_464, 1),
    ("vta", "gemm", _gemm(784, 1024, 256), 1_466_368, 1),
    ("vta", "conv2d", WINDOWS, 452_864, 1),
    ("gemmini", "gemm_unbiased", _gemm(512, 512, 512), 1_310_720, 3),
    ("gemmini", "gemm_unbiased", _gemm(1024, 1024, 1024), 11_534_336, 1),
    ("gemmini", "gemm_unbiased", _gemm(784, 1024, 256), 1_527_808, 1),
    ("gemmini", "conv2d_scaled", WINDOWS, 452_864, 1),
    ("npu_shared_buffer", "matmul", _gemm(512, 512, 512), 9_437_184, 1),
)
"""Chip, workload, sizes, the mapper's bytes, and a slack in per cent."""


def _made(chip: str, workload: str, sizes: dict[str, int], slack: float | None) -> Compilation:
    shared = ROOT / "workloads" / f"{workload}.yaml"
    file = shared if shared.exists() else OWN / f"{workload}.yaml"
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    return compile_kernel(load_workload(file, sizes), hardware, options=SearchOptions(slack=slack))


def traffic() -> str:
    """Off-chip bytes over the least that a mapper proves for half of each memory; with a slack."""
    rows: list[list[Cell]] = []
    for chip, workload, sizes, least, percent in PROBLEMS:
        usual = measure(_made(chip, workload, sizes, None))
        row: list[Cell] = [chip, workload, " ".join(f"{n}={v}" for n, v in sizes.items()), least]
        row += [usual.timing.cycles, usual.off_chip_bytes, usual.off_chip_bytes / least]
        other = measure(_made(chip, workload, sizes, percent / 100))
        slower = other.timing.cycles / usual.timing.cycles
        rows.append([*row, f"{percent} %", slower, other.off_chip_bytes / least])
    header = ("chip", "workload", "sizes", "proven", "cycles", "bytes", "ratio")
    return table((*header, "--slack", "cycles", "ratio"), rows)
