"""Print the figures of docs/figures.md: `make bench`, or name sections as arguments.

`--write` puts them into that page.

Every figure is measured in this run. Cycles are the timing model's; times are of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import times
from pathlib import Path
from time import perf_counter

from growth import growth
from processor import gflops, product
from traffic import traffic
from whole import simulate_timing

from hwgen.errors import HwgenError
from hwgen.model.columns import off_chip_traffic, shared_banks
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import Candidate, compile_kernel, compile_workload
from hwgen.report.text import measure
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_workload
from hwgen.spec.suggest import suggestion
from hwgen.spec.table import Cell, table
from hwgen.spec.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "hw_specs" / "vta.yaml"
PAGE = ROOT / "docs" / "figures.md"
_BEGIN, _END = "<!-- figures:begin -->", "<!-- figures:end -->"
Sizes = dict[str, int]

GEMMS: tuple[tuple[str, Sizes], ...] = (
    ("gemm", {"M": 1, "N": 256, "K": 256}),
    ("gemm", {"M": 256, "N": 256, "K": 256}),
    ("gemm_requant", {"M": 256, "N": 256, "K": 256}),
)
# ResNet-18 at batch 1: height and width, input channels, output channels, kernel, padding, stride.
CONVOLUTIONS = (
    (56, 64, 64, 3, 1, 1),
    (56, 64, 128, 3, 1, 2),
    (56, 64, 128, 1, 0, 2),
    (28, 128, 128, 3, 1, 1),
    (28, 128, 256, 3, 1, 2),
    (28, 128, 256, 1, 0, 2),
    (14, 256, 256, 3, 1, 1),
    (14, 256, 512, 3, 1, 2),
    (14, 256, 512, 1, 0, 2),
    (7, 512, 512, 3, 1, 1),
)
BY_HAND: tuple[tuple[str, str, Sizes], ...] = (
    ("mlp_shared_rows", "mlp", {"M": 4096}),
    ("attention_rows", "attention", {"L": 512}),
    ("layernorm_rows", "layernorm", {"M": 4096}),
    ("two_convolutions", "two_convolutions", {"H": 56, "W": 56, "C": 32}),
    ("two_convolutions_rows", "two_convolutions", {"H": 56, "W": 56, "C": 32}),
)
CUBE = {"M": 256, "N": 256, "K": 256}
LARGE = {"M": 8192, "N": 8192, "K": 8192}
REPEATS = 5


def compiled(workload: str, sizes: Sizes) -> Kernel:
    path = ROOT / "workloads" / f"{workload}.yaml"
    return compile_kernel(load_workload(path, sizes), load_hardware(SPEC))


def shape(sizes: Sizes) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def best(action: Callable[[], object]) -> float:
    """The fastest of the runs that fit a second, in seconds."""
    seconds: list[float] = []
    while len(seconds) < REPEATS or sum(seconds) < 1.0:
        start = perf_counter()
        action()
        seconds.append(perf_counter() - start)
    return min(seconds)


def cycles() -> str:
    """Modelled cycles over the lower bound; at most 1.10 is asked of all but 1x1 convolutions."""
    resnet = [
        (
            "conv2d_requant",
            {"H": h, "W": h, "C": c, "O": o, "R": r, "P": p, "S": s},
        )
        for h, c, o, r, p, s in CONVOLUTIONS
    ]
    rows: list[tuple[Cell, ...]] = []
    for workload, sizes in (*GEMMS, *resnet):
        m = measure(compiled(workload, sizes))
        rows.append((
            workload, shape(sizes), m.timing.cycles, m.bound.cycles, m.ratio, m.bound.resource,
            m.off_chip_bytes,
        ))  # fmt: skip
    header = ("workload", "sizes", "cycles", "bound", "ratio", "bound by", "off-chip bytes")
    return table(header, rows)


def generation() -> str:
    """Seconds of `hwgen generate` as a whole process; the cost must not grow with the problem."""
    runs: dict[str, list[tuple[float, float]]] = {}
    for _ in range(REPEATS):
        for sizes in (CUBE, LARGE):  # In turn, so that a busy machine slows both.
            runs.setdefault(shape(sizes), []).append(_generate(sizes))
    best_of = {
        name: (min(w for w, _ in found), min(c for _, c in found)) for name, found in runs.items()
    }
    wall, cpu = best_of[shape(CUBE)]
    rows = [(name, w, w / wall, c, c / cpu) for name, (w, c) in best_of.items()]
    return table(("gemm", "seconds", "ratio", "CPU seconds", "ratio"), rows)


def _generate(sizes: Sizes) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one process."""
    command = [sys.executable, "-m", "hwgen", "generate", "--no-cache", "--spec", str(SPEC)]
    command += ["--workload", str(ROOT / "workloads" / "gemm.yaml")]
    for name, value in sizes.items():
        command += ["--set", f"{name}={value}"]
    before, start = times(), perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    wall, after = perf_counter() - start, times()
    return wall, sum(after[2:4]) - sum(before[2:4])


def steady_state() -> str:
    """Cycles from the program's structure against a simulation of every operation."""
    rows: list[tuple[Cell, ...]] = []
    for workload, sizes in (*GEMMS, ("gemm", {"M": 1024, "N": 1024, "K": 1024})):
        c = compiled(workload, sizes)
        estimated = c.cycles
        simulated = simulate_timing(c.program, c.hardware).cycles
        rows.append((workload, shape(sizes), estimated, simulated, estimated / simulated))
    return table(("workload", "sizes", "estimated", "simulated", "ratio"), rows)


def simulation() -> str:
    """Multiply-accumulates per second of the simulator and of the emitted C on the C model."""
    c = compiled("gemm", CUBE)
    inputs = random_inputs(c.workload, 0)
    work = CUBE["M"] * CUBE["N"] * CUBE["K"] / 1e9
    python = best(lambda: run(c.program, c.hardware, inputs))
    rows: list[tuple[Cell, ...]] = [("simulator", python, work / python)]
    if have_compiler():
        kernel = compile_model(c.source)
        seconds = best(lambda: kernel.run(inputs))
        rows.append(("C model", seconds, work / seconds))
    else:
        rows.append(("C model", "no C compiler", "-"))
    return table(("gemm 256^3", "seconds", "GMAC/s"), rows)


NETWORKS: tuple[tuple[str, Sizes], ...] = (
    ("linear_relu", {}),
    ("mlp", {}),
    ("layernorm", {}),
    ("attention", {}),
    ("linear_relu", {"M": 4096}),
    ("mlp", {"M": 4096}),
    ("layernorm", {"M": 4096}),
    ("attention", {"L": 512}),
    ("attention", {"L": 2048}),
    ("multi_head_attention", {}),
    ("encoder_block", {"L": 512}),
    ("residual_block", {}),
)


def networks() -> str:
    """Several stages as the search has them on npu_shared_buffer: as phases, or in shared loops."""
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    rows: list[list[Cell]] = []
    for name, sizes in NETWORKS:
        own = ROOT / "benchmarks" / f"{name}.yaml"
        file = own if own.exists() else ROOT / "workloads" / f"{name}.yaml"
        c = compile_workload(load_workload(file, sizes), chip)
        phases = len(c.parts)
        how = f"{phases} phase{'s' if phases > 1 else ''}" if phases else "shared"
        moved = off_chip_traffic(c.program, c.hardware, c.workload)
        total = sum(t.loaded + t.stored for t in moved)
        bound = c.bound.cycles
        row: list[Cell] = [name, shape(sizes), how, c.cycles, bound, c.cycles / bound]
        rows.append([*row, total, sum(t.size for t in moved if t.role != "intermediate")])
    header = ("workload", "sizes", "loops", "cycles", "bound", "ratio")
    return table((*header, "off-chip bytes", "in + out"), rows)


def by_hand() -> str:
    """Schedules by hand (`workloads/schedules/`), their own bounds, and the search's cycles."""
    chip = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    folder = ROOT / "workloads" / "schedules"
    rows: list[list[Cell]] = []
    for script, name, sizes in BY_HAND:
        path = folder if (folder / f"{name}.yaml").exists() else folder.parent
        workload = load_workload(path / f"{name}.yaml", sizes)
        made = compile_script(workload, chip, (folder / f"{script}.script").read_text())
        moved = off_chip_traffic(made.program, made.hardware, made.workload)
        row: list[Cell] = [script, shape(sizes), made.cycles, made.cycles / made.bound.cycles]
        row += [sum(t.loaded + t.stored for t in moved), sum(t.size for t in moved)]
        rows.append([*row, _searched(workload, chip)])
    header = ("script", "sizes", "cycles", "of its bound", "off-chip bytes", "in + out", "search")
    return table(header, rows)


def _searched(workload: Workload, chip: HardwareSpec) -> Cell:
    """Cycles of what the search finds; a dash where it finds nothing."""
    try:
        return compile_workload(workload, chip).cycles
    except HwgenError as error:
        return f"- ({error.code})"


def banks() -> str:
    """Tiles of 64 x 128 and 128 x 64: loads into one bank during work in the other; one bank."""
    path, sizes = ROOT / "workloads" / "matmul.yaml", {"M": 512, "N": 512, "K": 1024}
    rows: list[list[Cell]] = []
    for count in (2, 1):
        chip = load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml", {"banks": count})
        found = compile_kernel(load_workload(path, sizes), chip)
        storages = {n: 3 if found.match.selection.storage(n).memory == "vtcm" else 2
                    for n, _ in found.tiling.depths}  # fmt: skip
        tiling = replace(
            found.tiling,
            tiles=(("k", 128), ("m", 64), ("n", 64)),
            order=("m", "n"),
            depths=tuple(storages.items()),
            slots=tuple((n, 2) for n in storages),
        )
        c = compile_kernel(found.workload, chip, Candidate(tiling, 0.0))
        timing = c.timing
        load, core = (timing.unit(n).busy for n in ("dma_in", "vector"))
        waited = sum(u.banks for u in timing.units)
        rows.append([count, load, core, c.cycles, c.cycles / max(load, core), waited])
    header = ("banks", "load", "core", "cycles", "over the longer", "waited for a port")
    return table(header, rows)


def padding() -> str:
    """A sum with one operand transposed: 16 lanes on 16 interleaved banks, rows padded or dense."""
    chip = load_hardware(ROOT / "tests" / "specs" / "interleaved_banks.yaml")
    shapes = {"a": "float32[256, 256]", "b": "float32[256, 256]", "y": "float32[256, 256]"}
    compute = ["y[m, n] = a[m, n] + b[n, m]"]
    workload = parse_workload({"name": "added", "tensors": shapes, "compute": compute})
    padded = compile_kernel(workload, chip).script
    dense = "\n".join(x for x in padded.split("\n") if "storage_align" not in x)
    rows: list[list[Cell]] = []
    for script in (padded, dense):
        c = compile_script(workload, chip, script)
        busy = c.timing.unit("vector").busy
        waited = sum(s.lost for s in shared_banks(c.program, chip))
        steps = " x ".join(str(s) for s in c.layouts["b_local"].strides)
        rows.append([steps, busy, waited, c.cycles])
    header = ("steps of the transposed tile", "vector unit", "waited for banks", "cycles")
    return table(header, rows)


def processor() -> str:
    """GFLOP/s of a float32 matrix product for cpu_generic, scheduled and as written."""
    chip = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml", {"CORES": os.cpu_count() or 1})
    rows: list[list[Cell]] = []
    for n in (512, 1024):
        fast = gflops(product(n, chip, auto=True), n, 5)
        plain = gflops(product(n, chip, auto=False), n, 2)
        rows.append([f"{n}^3", fast, plain, fast / plain])
    return table(("size", "scheduled", "as written", "ratio"), rows)


SECTIONS: tuple[Callable[[], str], ...] = (
    cycles,
    traffic,
    generation,
    growth,
    steady_state,
    simulation,
    networks,
    by_hand,
    banks,
    padding,
    processor,
)


def main(names: Sequence[str]) -> int:
    known = {section.__name__: section for section in SECTIONS}
    if {"-h", "--help"} & {*names}:
        lines = (f"  {name:12}  {section.__doc__}\n" for name, section in known.items())
        sys.stdout.write(f"usage: python benchmarks/run.py [SECTION ...]\n\n{''.join(lines)}")
        return 0
    if [*names] == ["--write"]:
        parts = [f"{section.__doc__}\n\n```\n{section()}\n```" for section in SECTIONS]
        old = PAGE.read_text(encoding="utf-8")
        head, tail = old.split(_BEGIN)[0], old.split(_END)[1]
        text = "\n\n".join(parts)
        PAGE.write_text(f"{head}{_BEGIN}\n{text}\n{_END}{tail}", encoding="utf-8")
        return 0
    unknown = [n for n in names if n not in known]
    if unknown:
        meant = suggestion(unknown[0], [*known]) or f"there are: {', '.join(known)}"
        sys.stderr.write(f"unknown section {unknown[0]}; {meant}\n")
        return 2
    for name in names or known:
        section = known[name]
        sys.stdout.write(f"== {name}: {section.__doc__}\n{section()}\n\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
