"""Kernels of `hw_specs/cuda_generic.yaml`, to be built and run where there is a GPU.

python -m benchmarks.cuda emit FOLDER [--random N] [--seed N] [--no-timed]
python3 FOLDER/run.py [--json FILE]

The first command needs hwgen and no GPU: every workload by the automatic schedule and as written,
at its own sizes and at odd ones, blocks and threads by hand, and random schedules; each with inputs
and what the reference makes of them. The second needs Python and `nvcc` alone, on another machine
if need be: it builds and runs all, compares, and times the larger ones beside PyTorch where there
is one. Floats may differ by what rounding explains (`hwgen.verify.rounding`). `--stand-in` builds
them for the host as the tests do.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hwgen.autoschedule.options import Options
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.source import CSource, Parameter
from hwgen.errors import HwgenError
from hwgen.model.numeric import STORAGE, Array, load
from hwgen.model.reference import run_reference
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.rounding import rounding_bounds
from tests.conformance.test_processors import BUSY, ODD
from tests.fuzz.nest_workloads import Draws
from tests.fuzz.schedules import Tally, drawn_case, lowered
from tests.shim.cuda import device
from tests.unit.codegen_processor.test_threads import tiled

ROOT = Path(__file__).resolve().parent.parent
FILES = Path(__file__).resolve().parent / "cuda_files"
GROUP = 10
"""Small kernels in one program: most of a compiler's time is its own headers."""
PATTERN = 8191
"""Elements of an input that are kept, which the others repeat: a prime."""
CHECKED = 8000
"""Elements of an output that are kept, at least."""
WAIT = "__syncthreads"
FLOATS = {"T": "float32", "ACC": "float32"}
PRIMES = {"M": 31, "N": 67, "K": 101, "C": 5, "H": 13, "W": 11, "O": 7, "L": 37, "D": 17, "G": 23}


@dataclass(frozen=True)
class Kernel:
    """A kernel and its data. `bounds`: of outputs that may be rounded otherwise, values and how far
    they may be off; `timed`: what its times are shown with."""

    name: str
    of: str
    source: CSource
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    bounds: Mapping[str, tuple[Array, Array]]
    timed: Mapping[str, Any] | None = None


# What is emitted


def automatic(hardware: HardwareSpec) -> Iterator[Kernel]:
    """Every workload, at its own sizes, at odd ones and at primes, and of other types."""
    files = sorted((ROOT / "workloads").rglob("*.yaml"))
    for file in files:
        known = dict(load_workload(file).sizes)
        primes = {
            n: v for n, v in PRIMES.items() if n in known and not (n == "N" and "OH" in known)
        }
        for number, sizes in enumerate(({}, odd(file) or primes, primes)):
            name = f"{file.parent.name}_{file.stem}_{number}".replace("workloads_", "")
            options = Options() if number == 0 else BUSY
            style = "extremes" if number == 2 else "random"
            yield from made(name, "automatic", file, sizes, {}, hardware, options, style)
    for name in ("gemm", "matvec", "relu"):
        for real in ("float32", "float16", "bfloat16", "float64", "uint8", "int16"):
            wide = "int64" if "int" in real else "float64" if real == "float64" else "float32"
            types = {"T": real} | ({"ACC": wide} if name != "relu" else {})
            file = ROOT / "workloads" / f"{name}.yaml"
            sizes = {k: v for k, v in PRIMES.items() if k in dict(load_workload(file).sizes)}
            yield from made(f"{name}_{real}", "automatic", file, sizes, types, hardware, BUSY)


def made(
    name: str, of: str, file: Path, sizes: Mapping[str, int], types: Mapping[str, str],
    hardware: HardwareSpec, options: Options | None, style: Any = "random",
) -> Iterator[Kernel]:  # fmt: skip
    """A workload's kernel; `options`: None for the loops as they are written."""
    try:
        workload = load_workload(file, sizes, types)
        workload = (
            replace(workload, name=f"{workload.name}_{of}") if of != "automatic" else workload
        )
        auto = options is not None
        source = compile_nest(workload, hardware, auto=auto, options=options or Options()).source
    except HwgenError as error:
        print(f"{name}: {error.code} {' '.join(str(error).split())[:120]}")
        return
    yield with_data(name, of, workload, source, draw_inputs(workload, 1, style))


def with_data(
    name: str, of: str, workload: Workload, source: CSource, inputs: Mapping[str, Array],
    timed: Mapping[str, Any] | None = None,
) -> Kernel:  # fmt: skip
    bounds = {n: (b.value, b.error) for n, b in rounding_bounds(workload, inputs).items()}
    expected = run_reference(workload, inputs)
    return Kernel(name, of, source, inputs, expected, bounds, timed)


def odd(file: Path) -> Mapping[str, int]:
    """Sizes of one of `workloads/`, as the tests have them; empty for others."""
    return ODD.get(file.stem, {}) if file.parent.name == "workloads" else {}


def as_written(hardware: HardwareSpec) -> Iterator[Kernel]:
    for file in sorted((ROOT / "workloads").rglob("*.yaml")):
        yield from made(f"written_{file.parent.name}_{file.stem}", "written", file, odd(file), {},
                        hardware, None)  # fmt: skip


def by_hand(hardware: HardwareSpec) -> Iterator[Kernel]:
    """Tiles in shared memory, and reductions over threads, some of several launches."""
    found: list[Schedule] = [tiled(), wide(hardware)]
    for k in (1, 2, 23, 64, 129, 1000):
        for threads in (1, 2, 3, 6, 32, 33, 100, 256, 1000):
            for serial_first in (False, True):
                file = ROOT / "workloads" / "matvec.yaml"
                types = FLOATS if serial_first else {}
                s = Schedule(load_workload(file, {"M": 5, "K": k}, types), hardware)
                if threads > k:
                    continue
                outer, inner = s.split("k", factor=threads)
                s.reorder(*(("m", outer, inner) if serial_first else ("m", inner, outer)))
                s.bind("m", "blockIdx.x")
                s.bind(inner, "threadIdx.x")
                found.append(s)
    for m, n, k in ((5, 6, 11), (33, 31, 65), (7, 64, 128)):
        s = Schedule(
            load_workload(ROOT / "workloads" / "gemm.yaml", {"M": m, "N": n, "K": k}), hardware
        )
        m_o, m_i = s.split("m", factor=3)
        outer, inner = s.split("k", factor=32)
        s.reorder(m_o, m_i, inner, "n", outer)
        s.bind(m_o, "blockIdx.x")
        s.bind(m_i, "threadIdx.y")
        s.bind(inner, "threadIdx.x")
        found.append(s)
    for number, s in enumerate(found):
        workload = replace(s.workload, name=f"hand{number}")
        named = Schedule(workload, hardware).replay(s.trace())
        kernel = lowered(named, number)
        yield with_data(f"hand_{number}", "by hand", workload, kernel.source, kernel.inputs)


def wide(hardware: HardwareSpec) -> Schedule:
    """As many threads as a block has, each with as many sums as would need more registers than a
    multiprocessor has for so many threads."""
    s = Schedule(
        load_workload(ROOT / "workloads" / "matmul.yaml", {"M": 256, "N": 256, "K": 32}), hardware
    )
    sums = s.cache_write("c", "local")
    tiles = [s.split(loop, factor=8) for loop in s.loops("c")]
    (m_o, m_i), (n_o, n_i) = tiles
    s.reorder(m_o, n_o, m_i, n_i)
    s.compute_at(sums, n_o)
    s.bind(m_o, "threadIdx.y")
    s.bind(n_o, "threadIdx.x")
    m, n, k = s.loops(sums)[2:]
    s.reorder(k, m, n)
    for loop in (m, n, m_i, n_i):
        s.unroll(loop)
    return s


def random(hardware: HardwareSpec, count: int, seed: int) -> Iterator[Kernel]:
    """Random schedules on random workloads whose numbers are exact; four in five have threads that
    wait for each other."""
    number, plain, waiting = 0, count // 5, count - count // 5
    while plain or waiting:
        name = f"k{number}"
        draws = Draws(Random(f"{seed} {number}").randrange)
        _, kernel = drawn_case(draws, hardware, name, Tally())
        number += 1
        if kernel is None or "threadIdx" not in kernel.source.c:
            continue
        waits = WAIT in kernel.source.c
        if not (waiting if waits else plain):
            continue
        waiting, plain = waiting - waits, plain - (not waits)
        exact: dict[str, tuple[Array, Array]] = {}
        for t in (t for t in kernel.workload.outputs if "float" in t.dtype):
            values = load(kernel.expected[t.name], t.dtype).array.astype(np.float64)
            exact[t.name] = values, np.zeros_like(values)
        given = kernel.source, kernel.inputs, kernel.expected, exact
        yield Kernel(f"random_{seed}_{number - 1}", "random", *given)


@dataclass(frozen=True)
class Timed:
    """A larger kernel. `operations`: of its sizes; `rival`: what `run.py` calls PyTorch's."""

    file: str
    sizes: Mapping[str, int]
    operations: Callable[[dict[str, int]], int]
    rival: str = ""
    types: Mapping[str, str] | None = None


def product(s: dict[str, int]) -> int:
    return 2 * s["M"] * s["N"] * s["K"]


def convolution(s: dict[str, int]) -> int:
    return 2 * s["H"] * s["W"] * s["C"] * s["O"] * s["R"] ** 2


TIMED = (
    Timed("workloads/matmul.yaml", {"M": 512, "N": 512, "K": 512}, product, "mm"),
    Timed("workloads/matmul.yaml", {"M": 1024, "N": 1024, "K": 1024}, product, "mm"),
    Timed("workloads/matmul.yaml", {"M": 127, "N": 513, "K": 255}, product, "mm"),
    Timed("workloads/linear_relu.yaml", {"M": 256, "N": 1024, "K": 512}, product, "linear_relu"),
    Timed("workloads/gemm.yaml", {"M": 512, "N": 512, "K": 512}, product, "int_mm"),
    Timed("workloads/matvec.yaml", {"M": 4096, "K": 4096}, lambda s: 2 * s["M"] * s["K"], "mv",
          FLOATS),
    Timed("workloads/relu.yaml", {"M": 4096, "N": 4096}, lambda s: s["M"] * s["N"], "relu",
          {"T": "float32"}),
    Timed("workloads/add.yaml", {"M": 4096, "N": 4096}, lambda s: s["M"] * s["N"]),
    Timed("workloads/layernorm.yaml", {"M": 4096, "N": 1024}, lambda s: 8 * s["M"] * s["N"],
          "layernorm"),
    Timed("workloads/attention.yaml", {"L": 1024, "D": 64}, lambda s: 4 * s["L"] ** 2 * s["D"],
          "attention"),
    Timed("workloads/conv2d_requant.yaml", {}, convolution),
    Timed("benchmarks/conv2d_nhwc.yaml", {"H": 56, "W": 56, "C": 64, "O": 64, "R": 3, "P": 1},
          convolution, "conv_nhwc"),
)  # fmt: skip


def timed(hardware: HardwareSpec) -> Iterator[Kernel]:
    for number, t in enumerate(TIMED):
        workload = load_workload(ROOT / t.file, t.sizes, t.types or {})
        workload = replace(workload, name=f"{workload.name}_{number}")
        source = compile_nest(workload, hardware).source
        sizes = {n: int(v) for n, v in workload.sizes}
        shown = " ".join(f"{n}={v}" for n, v in t.sizes.items())
        moved = (p for p in (*source.inputs, *source.outputs))
        about = {
            "label": f"{Path(t.file).stem} {shown}".strip(),
            "operations": t.operations(sizes),
            "bytes": sum(prod(p.shape) * STORAGE[p.dtype].itemsize for p in moved),
            "rival": {"of": t.rival, "sizes": sizes} if t.rival else None,
        }
        inputs = {n: repeated(a) for n, a in draw_inputs(workload, 1).items()}
        kernel = with_data(f"timed_{number}", "timed", workload, source, inputs, about)
        print(f"{about['label']}: compiled", flush=True)
        yield kernel


# How it is written


def repeated(array: Array) -> Array:
    """An input as it is kept: its first elements again and again."""
    return np.resize(np.ravel(array)[:PATTERN], array.shape)


class Writer:
    """One folder of programs. `groups`: what `run.py` needs to know of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.groups = folder, list[dict[str, Any]]()
        self.source = folder / "source"
        shutil.rmtree(folder, ignore_errors=True)
        (self.source / "kernels").mkdir(parents=True)
        (folder / "stand_in").mkdir()
        shutil.copy(FILES / "run.py", folder)
        shutil.copy(FILES / "harness.h", self.source)
        shutil.copy(device.HERE / device.HEADER, folder / "stand_in")

    def write(self, kernels: Iterable[Kernel], size: int) -> None:
        """Programs of so many kernels each: those whose threads wait come first."""
        found = sorted(kernels, key=lambda k: WAIT not in k.source.c)
        for start in range(0, len(found), size):
            self._group(found[start : start + size])

    def _group(self, kernels: list[Kernel]) -> None:
        data = bytearray()
        group = f"group_{len(self.groups):03d}"
        lines = ['#include "harness.h"', ""]
        cases: list[str] = []
        for n, kernel in enumerate(kernels):
            file = f"kernels/{kernel.name}.cu"
            (self.source / file).write_text(kernel.source.c, encoding="utf-8")
            parameters = (*kernel.source.inputs, *kernel.source.outputs)
            given = ", ".join(
                f"({'const ' if i < len(kernel.source.inputs) else ''}{C_TYPES[p.dtype]} *)a[{i}]"
                for i, p in enumerate(parameters)
            )
            arrays = [f"  {self._array(kernel, p, data)}" for p in parameters]
            lines += [
                f"#if !defined(ONLY) || ONLY == {n}",
                f"namespace case_{n} {{",
                f'#include "{file}"',
                f"static void call(void **a) {{ {kernel.source.function}({given}); }}",
                "static const Array arrays[] = {", *arrays, "};", "}",
                f"#define CASE_{n} {{case_{n}::call, case_{n}::arrays, {len(parameters)}}}",
                "#else",
                f"#define CASE_{n} {{NULL, NULL, 0}}",
                "#endif", "",
            ]  # fmt: skip
            cases.append(f"CASE_{n}")
        lines += [f"static const Case cases[] = {{{', '.join(cases)}}};", ""]
        lines += ["int main(int argc, char **argv)", "{"]
        lines += [f"  return harness(cases, {len(cases)}, argc, argv);", "}", ""]
        (self.source / f"{group}.cu").write_text("\n".join(lines), encoding="utf-8")
        (self.source / f"{group}.bin").write_bytes(data)
        self.groups.append(
            {
                "timed": kernels[0].timed is not None,
                "waits": all(WAIT in k.source.c for k in kernels) and kernels[0].timed is None,
                "cases": [
                    {
                        "name": k.name, "of": k.of, "timed": k.timed,
                        "shapes": {p.name: p.shape for p in k.source.outputs},
                    }
                    for k in kernels
                ],
            }
        )  # fmt: skip

    def _array(self, kernel: Kernel, p: Parameter, data: bytearray) -> str:
        """Append an array's elements; its entry in the program's table."""
        data += bytes(-len(data) % 8)
        at, count = len(data), prod(p.shape)
        kind = {"bfloat16": "BF16"}.get(p.dtype, p.dtype[0].upper() + p.dtype.lstrip("uintfloa"))
        bounded = p.name in kernel.bounds
        if p.name in kernel.inputs:
            kept = np.ravel(kernel.inputs[p.name])
            whole = len(kept) <= PATTERN or np.array_equal(repeated(kept), kept)
            kept = kept[:PATTERN] if whole and len(kept) > PATTERN else kept
            data += np.ascontiguousarray(kept).tobytes()
            return f'{{"{p.name}", false, {kind}, {count}, {at}, {len(kept)}, 1, false}},'
        step = max(1, count // CHECKED)
        step += step > 1 and step % 2 == 0  # Other columns in each row.
        arrays = kernel.bounds[p.name] if bounded else (kernel.expected[p.name],)
        kept = [np.ascontiguousarray(np.ravel(a)[::step]) for a in arrays]
        data += b"".join(a.tobytes() for a in kept)
        return (
            f'{{"{p.name}", true, {kind}, {count}, {at}, {len(kept[0])}, {step}, '
            f"{'true' if bounded else 'false'}}},"
        )

    def end(self) -> None:
        launch = {"launch": device.LAUNCH.pattern, "launched": device.LAUNCHED}
        manifest = {**launch, "groups": self.groups}
        text = json.dumps(manifest, separators=(",", ":"))
        (self.folder / "manifest.json").write_text(text, encoding="utf-8")


def emit(folder: Path, count: int, seed: int, larger: bool) -> None:
    """Write everything that `run.py` needs into a folder, which is emptied first."""
    hardware = load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")
    writer = Writer(folder)
    writer.write(random(hardware, count, seed), GROUP)
    writer.write(by_hand(hardware), GROUP)
    writer.write(automatic(hardware), GROUP // 2)
    writer.write(as_written(hardware), GROUP // 2)
    if larger:
        writer.write(timed(hardware), 1)
    writer.end()
    kernels = sum(len(g["cases"]) for g in writer.groups)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{kernels} kernels in {len(writer.groups)} programs, {size / 2**20:.1f} MiB in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["emit"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-timed", action="store_true")
    options = parser.parse_args()
    emit(options.folder, options.random, options.seed, not options.no_timed)


if __name__ == "__main__":
    main()
