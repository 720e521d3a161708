"""Off-chip bytes against those that a mapper proves to be the least.

The mapper is AccelForge with its proven-optimal search (TCM, arXiv 2602.15172), on the same
memories and problems. Its bytes are optimal in its own model, which knows no fill, no second slot
of a buffer, no bursts and no limits of instructions; so they are given for half of each memory,
whose other half is being filled meanwhile.

On gemmini, sums stay on the chip until they are complete, and a convolution reads the padded image,
as the kernels do; its tiles divide height and width. The zeros matter where images just fill a
memory: of 14 x 14 x 256 at batch 4 it proves 1,576,960 bytes for all of each memory, and without
them 1,581,056 for half and 991,232, each byte once, for all.
"""

from __future__ import annotations

from pathlib import Path

from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.report.text import measure
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "tests" / "gemmini" / "workloads"
"""Products without a bias, for the comparison with a library."""


def _gemm(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


def _conv(batch: int, size: int, channels: int) -> dict[str, int]:
    return {"N": batch, "H": size, "W": size, "C": channels, "O": channels}


WINDOWS = _conv(1, 56, 64)
PROBLEMS: tuple[tuple[str, str, dict[str, int], int, int], ...] = (
    ("vta", "gemm", _gemm(256, 256, 256), 196_608, 3),
    ("vta", "gemm", _gemm(512, 512, 512), 1_048_576, 3),
    ("vta", "gemm", _gemm(1024, 1024, 1024), 10_485_760, 1),
    ("vta", "gemm", _gemm(12544, 256, 64), 4_030_464, 1),
    ("vta", "gemm", _gemm(784, 1024, 256), 1_466_368, 1),
    ("vta", "conv2d", WINDOWS, 452_864, 1),
    ("gemmini", "gemm_unbiased", _gemm(512, 512, 512), 1_310_720, 3),
    ("gemmini", "gemm_unbiased", _gemm(1024, 1024, 1024), 11_534_336, 1),
    ("gemmini", "gemm_unbiased", _gemm(12544, 256, 64), 4_030_464, 1),
    ("gemmini", "gemm_unbiased", _gemm(12544, 64, 256), 4_030_464, 1),
    ("gemmini", "gemm_unbiased", _gemm(3136, 512, 128), 2_072_576, 1),
    ("gemmini", "gemm_unbiased", _gemm(3136, 128, 512), 2_072_576, 1),
    ("gemmini", "gemm_unbiased", _gemm(784, 1024, 256), 1_527_808, 1),
    ("gemmini", "conv2d_scaled", WINDOWS, 452_864, 1),
    ("gemmini", "conv2d_scaled", _conv(4, 56, 64), 1_700_864, 1),
    ("gemmini", "conv2d_scaled", _conv(4, 28, 128), 1_452_032, 1),
    ("gemmini", "conv2d_scaled", _conv(4, 14, 256), 2_265_088, 1),
    ("npu_shared_buffer", "matmul", _gemm(512, 512, 512), 9_437_184, 1),
)
"""Chip, workload, sizes, the mapper's bytes, and a slack in per cent."""


def _made(chip: str, workload: str, sizes: dict[str, int], slack: float | None) -> Kernel:
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
