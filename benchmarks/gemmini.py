"""Cycles on a systolic array against its public library: `python -m benchmarks.gemmini`.

hwgen's kernels and the library's instruction streams (`tests/gemmini/tiled_matmul_auto.py`,
`tiled_conv_auto.py`) run in the same timing model, from the same spec. The library is the one that
its users run: loop instructions, two tiles at once in alternating halves, weights that stay are
kept, convolutions padded by the loop. Its loops unroll beside the host, an instruction a cycle, and
wait for no unit's queue, nor for the loop before the last to end: the best that they can do.
hwgen's instructions are issued by the host core, in the cycles that the C emitted for them takes by
the spec's `issue`, and wait for room in the queues.

`cycles` is what hwgen reports: runs of instructions as one call each. By instruction, every macro
is an operation of its own, for hwgen and the library alike; there a load that follows another one
waits for the other's last byte, and a store for the other's response. The hardware overlaps the
latencies of consecutive moves, so the second pair of columns takes latencies as 0: what really
happens lies between. What is left of the difference to `cycles` is where less than 16 rows meet a
new block of weights: by instruction that product takes 16 cycles, however many products with the
same weights follow; in a run only all of them together take 16 at least.

A call of hwgen's also packs what is not in place (`packed`: the bytes that the host moves for it);
the library packs nothing. Where a RISC-V compiler and an emulator are found, the last table counts
what the host retires: a core that retires one instruction a cycle takes as many cycles at least;
`modelled` is what the timing model takes for the same, over that.

In no column: scratchpad banks have one port, the TLB has 4 entries, the shared cache and DRAM have
limits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from benchmarks.whole import simulate_timing
from hwgen.codegen.program import Program
from hwgen.codegen.software_loops import written_out
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.columns import off_chip_traffic
from hwgen.passes import kernel as compiled_kernel
from hwgen.pipeline import compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table
from tests.gemmini import emitted
from tests.gemmini.host_core import can_count, host_cycles, retired
from tests.gemmini.library_program import library_chip, library_convolution, library_program
from tests.gemmini.library_stream import DIM
from tests.gemmini.tiled_conv_auto import Convolution, conv_bytes_read
from tests.gemmini.tiled_matmul_auto import Problem, bytes_read, choose_tiles
from tests.packing import packing_bytes

SCALE = 0.0078125
GEMMS = (
    (512, 512, 512),
    (12544, 256, 64),
    (12544, 64, 256),
    (3136, 512, 128),
    (3136, 128, 512),
    (784, 1024, 256),
)
"""Rows, columns and depth. Those of arXiv 2505.18574, section 5."""
CONVOLUTIONS = ((56, 64, 64), (28, 128, 128), (14, 256, 256))
"""Height and width, channels in and out: 3 x 3, stride 1, padded, batch 4."""
BATCH = 4


@dataclass(frozen=True, slots=True)
class Kernel:
    """A workload with its sizes, and what the library computes for it."""

    name: str
    workload: str
    sizes: tuple[tuple[str, int], ...]
    theirs: Problem | Convolution

    def library(self, hardware: HardwareSpec) -> Program:
        match self.theirs:
            case Problem():
                return library_program(self.theirs, hardware)
            case Convolution():
                return library_convolution(self.theirs, hardware)

    def library_bytes(self) -> int:
        """Bytes of both factors that the library reads."""
        match self.theirs:
            case Problem():
                return sum(bytes_read(self.theirs).values())
            case Convolution():
                return sum(conv_bytes_read(self.theirs).values())


def gemm(m: int, n: int, k: int) -> Kernel:
    sizes = (("M", m), ("N", n), ("K", k))
    return Kernel(f"{m} x {n} x {k}", "gemm_unbiased", sizes, Problem(m, n, k, scale=SCALE))


def convolution(size: int, channels: int, outputs: int) -> Kernel:
    sizes = (("N", BATCH), ("H", size), ("W", size), ("C", channels), ("O", outputs))
    theirs = Convolution(BATCH, size, channels, outputs, scale=SCALE)
    return Kernel(f"conv {size}x{size}x{channels} -> {outputs}", "conv2d_scaled", sizes, theirs)


def _latency(latency: int | None) -> dict[str, int]:
    return {} if latency is None else {"READ_LATENCY": latency, "WRITE_LATENCY": latency}


@cache
def chip(latency: int | None = None) -> HardwareSpec:
    return load_hardware(emitted.ROOT / "hw_specs" / "gemmini.yaml", _latency(latency))


@cache
def compiled(kernel: Kernel) -> compiled_kernel.Kernel:
    workload = load_workload(emitted.path(kernel.workload), dict(kernel.sizes))
    return compile_kernel(workload, chip())


@dataclass(frozen=True, slots=True)
class Measured:
    """Modelled cycles: as hwgen reports them, and by instruction with and without latency."""

    kernel: Kernel
    cycles: int
    bound: int
    packed: int
    own: tuple[int, int]
    library: tuple[int, int]

    @property
    def speedups(self) -> tuple[float, float]:
        return self.library[0] / self.own[0], self.library[1] / self.own[1]


def measure(kernel: Kernel) -> Measured:
    c = compiled(kernel)
    own = [simulate_timing(written_out(c.program, x), x).cycles for x in (chip(), chip(0))]
    theirs = (library_chip(), library_chip(_latency(0)))
    library = [simulate_timing(kernel.library(x), x).cycles for x in theirs]
    bound = lower_bound(c.program, chip()).cycles
    packed = packing_bytes(c.program, c.workload, chip())
    return Measured(kernel, c.cycles, bound, packed, (own[0], own[1]), (library[0], library[1]))


def mean(numbers: Sequence[float]) -> float:
    """The geometric one."""
    return prod(numbers) ** (1 / len(numbers))


def cycles(kernels: Sequence[Kernel]) -> str:
    """A table of modelled cycles, and the mean speedups."""
    found: list[Measured] = []
    for kernel in kernels:
        found.append(measure(kernel))
        if sys.stderr.isatty():
            sys.stderr.write(f"{kernel.name}\n")
    header = (
        "kernel", "cycles", "bound", "ratio", "packed",
        "by instr.", "library", "speedup", "no latency", "library", "speedup",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            m.kernel.name, m.cycles, m.bound, m.cycles / m.bound, m.packed,
            m.own[0], m.library[0], m.speedups[0], m.own[1], m.library[1], m.speedups[1],
        )
        for m in found
    ]  # fmt: skip
    means = [mean([m.speedups[n] for m in found]) for n in (0, 1)]
    ends = f"geometric mean of the speedups: {means[0]:.3f}, without latency {means[1]:.3f}"
    return f"{table(header, rows)}\n{ends}"


def traffic(kernels: Sequence[Kernel]) -> str:
    """Bytes of the two factors that are read from DRAM."""
    rows: list[tuple[Cell, ...]] = []
    for kernel in kernels:
        c = compiled(kernel)
        factors = {t.name for t in c.workload.inputs}
        moved = [t for t in off_chip_traffic(c.program, chip(), c.workload) if t.tensor in factors]
        own, least = sum(t.loaded for t in moved), sum(t.size for t in moved)
        library = kernel.library_bytes()
        rows.append((kernel.name, own, library, library / own, least))
    return table(("kernel", "hwgen", "library", "ratio", "least"), rows)


def with_the_librarys_tiles(kernel: Kernel) -> tuple[str, int | str]:
    """hwgen's code for the library's product in the library's tiles: as reported."""
    assert isinstance(kernel.theirs, Problem)
    c = compiled(kernel)
    p = kernel.theirs
    i, j, k = choose_tiles_of(p)
    given = {"m": i * DIM, "n": j, "k": k}
    base = c.tiling
    if base.match.count["m"] != p.m:
        return f"{i}, {j}, {k}", "the factors are exchanged"
    count = base.match.count
    tiles = {loop: min(size, count[loop]) for loop, size in given.items()}
    looped = [loop for loop in ("m", "n", "k") if tiles[loop] < count[loop]]
    sums = sum(loop in looped for loop in ("m", "n"))
    depths = {"acc_acc": sums, "a_spad": len(looped), "b_spad": len(looped)}
    tiling = replace(
        base,
        order=("m", "n"),
        tiles=tuple((base.tile | tiles).items()),
        depths=tuple(depths.items()),
        slots=tuple((name, 2 if depth else 1) for name, depth in depths.items()),
    )
    try:
        chosen = replace(c.account.search.candidates[0], tiling=tiling)
        return f"{i}, {j}, {k}", compile_kernel(c.workload, chip(), chosen).cycles
    except HwgenError as error:
        return f"{i}, {j}, {k}", f"{error.code}"


def choose_tiles_of(p: Problem) -> tuple[int, int, int]:
    tiles = choose_tiles(-(-p.m // DIM), -(-p.n // DIM), -(-p.k // DIM))
    return tiles.i, tiles.j, tiles.k


def tiles(kernels: Sequence[Kernel]) -> str:
    """hwgen's schedules against the library's tiles in hwgen's own code, double-buffered."""
    rows: list[tuple[Cell, ...]] = []
    for kernel in kernels:
        chosen, found = with_the_librarys_tiles(kernel)
        own = compiled(kernel).cycles
        ratio = found / own if isinstance(found, int) else "-"
        rows.append((kernel.name, own, chosen, found, ratio))
    return table(("kernel", "hwgen", "library's I, J, K", "cycles", "ratio"), rows)


def host(kernels: Sequence[Kernel]) -> str:
    """Instructions that the host core retires in one call, and the cycles of both together."""
    if not can_count():
        return "no RISC-V compiler or no emulator"
    rows: list[tuple[Cell, ...]] = []
    for kernel in kernels:
        c = compiled(kernel)
        count = retired(c.source)
        whole = c.cycles + count.packing
        rows.append((
            kernel.name, count.macros, count.issuing, count.per_macro,
            host_cycles(c.program, chip()) / count.issuing, c.cycles, count.packing,
            whole, whole / c.cycles,
        ))  # fmt: skip
    header = (
        "kernel", "macros", "issuing", "each", "modelled", "cycles", "packing", "call",
        "over cycles",
    )  # fmt: skip
    return table(header, rows)


def main() -> int:
    gemms = [gemm(*shape) for shape in GEMMS]
    convolutions = [convolution(*shape) for shape in CONVOLUTIONS]
    cube = gemm(256, 256, 256)
    sections: tuple[tuple[str, Callable[[], str]], ...] = (
        ("Cycles", lambda: cycles([*gemms, *convolutions])),
        ("The cube of 256", lambda: cycles([cube])),
        ("Bytes of both factors read", lambda: traffic([cube, *gemms, *convolutions])),
        ("The library's tiles in hwgen's code; nothing is packed", lambda: tiles(gemms)),
        (
            "Instructions of the host core, one call; a call takes both at least",
            lambda: host([cube, *gemms, *convolutions]),
        ),
    )
    for title, section in sections:
        text = section()
        sys.stdout.write(f"{title}\n{text}\n\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
