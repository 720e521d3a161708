"""The models of a folder, compiled for a processor, against TFLite Micro and LiteRT.

python -m benchmarks.networks FOLDER [--chip NAME] [--layers]

One thread, in one process, in turn on the same inputs; medians of the thread's CPU time, which
other processes disturb less than the clock. The emitted folder is compiled with the flags that
users take, `-O3 -march=native`; `simd` is the same with `-fopenmp-simd`, which heeds
`#pragma omp simd`. Ratios: the other's time over that of the emitted C, so that above one the
emitted C is faster. TFLite Micro's outputs must be the same, bit for bit; LiteRT rounds in another
way. `--layers` also prints the layers that take most of the time, by the clock.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from math import exp, log
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from hwgen.model.c_compiler import load_library
from hwgen.network.compiled import Network, compile_model
from hwgen.spec.table import Cell, table

FLAGS = ("-O3", "-march=native", "-std=gnu17", "-I.")
SIMD = "-fopenmp-simd"
TURNS, SECONDS = 15, 0.02
"""Turns of all runs, and about how long one run takes of a turn."""
MOST_LAYERS = 6

Run = Callable[[], object]
Inputs = Mapping[str, np.ndarray]

CLOCK = """\
#include <time.h>
double layer_times[{layers}];
static double layer_time_before;
static double layer_time_now(void)
{{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}}
void layer_times_begin(void) {{ layer_time_before = layer_time_now(); }}
#define {name}_AFTER_LAYER(layer, output) do {{ \\
    double now = layer_time_now(); \\
    layer_times[layer] = now - layer_time_before; \\
    layer_time_before = layer_time_now(); \\
  }} while (0)
"""


class Emitted:
    """The emitted folder with its arena."""

    def __init__(self, net: Network, *flags: str, head: str = "") -> None:
        own = {f"{net.name}.c", f"{net.name}_weights.c"}
        own |= {f for k in net.kernels for f in (k.source, *k.sources)}
        files = {f: t for f, t in net.files.items() if f in own or f.endswith(".h")}
        files[f"{net.name}.c"] = head + files[f"{net.name}.c"]
        self.library = load_library(files, net.name, (*FLAGS, *flags))
        self._net = net
        align = net.plan.arena.align
        room = np.zeros(net.plan.arena.bytes + align, np.uint8)
        start = -room.ctypes.data % align
        self._arena = room[start : start + net.plan.arena.bytes]
        self._function = self.library[net.name]
        self._pointer = ctypes.c_void_p(self._arena.ctypes.data)

    def place(self, name: str) -> np.ndarray:
        """A tensor in the arena."""
        tensor = self._net.plan.graph.tensor[name]
        offset = self._net.plan.offset(name)
        return np.ndarray(tensor.shape, tensor.dtype, self._arena.data, offset)

    def __call__(self) -> None:
        self._function(self._pointer)


def micro(content: bytes, inputs: Inputs) -> tuple[Run, Callable[[int], np.ndarray]]:
    """TFLite Micro: an inference, and what gives an output of the last one."""
    made: Any = import_module("tflite_micro").runtime.Interpreter.from_bytes(content)
    for n, values in enumerate(inputs.values()):
        made.set_input(values, n)
    return made.invoke, made.get_output


def lite(content: bytes, inputs: Inputs) -> Iterator[tuple[str, Run]]:
    """LiteRT with its built-in kernels, and with XNNPACK; nothing where it is not installed."""
    try:
        package: Any = import_module("ai_edge_litert.interpreter")
    except ImportError:
        return
    kinds = package.OpResolverType
    for name, kind in (
        ("LiteRT", kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES),
        ("XNNPACK", kinds.AUTO),
    ):
        made = package.Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=kind
        )
        made.allocate_tensors()
        for detail, values in zip(made.get_input_details(), inputs.values(), strict=True):
            made.set_tensor(detail["index"], values)
        yield name, made.invoke


def timed(runs: Mapping[str, Run]) -> dict[str, list[float]]:
    """Microseconds of CPU of an inference, by run and turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    times: dict[str, int] = {}
    for name, run in runs.items():
        run()
        times[name] = max(1, round(SECONDS / max(_seconds(run, 1), 1e-6)))
    for turn in range(TURNS):
        order = [*runs.items()]
        for name, run in order if turn % 2 else reversed(order):
            run()
            found[name].append(1e6 * _seconds(run, times[name]))
    return found


def _seconds(run: Run, times: int) -> float:
    start = thread_time()
    for _ in range(times):
        run()
    return (thread_time() - start) / times


def model_row(path: Path, net: Network) -> tuple[list[Cell], dict[str, float]]:
    """A row of times, and the ratios of the others to the emitted C."""
    content, inputs = path.read_bytes(), net.draw(0)
    ours, theirs = Emitted(net), dict(lite(content, inputs))
    invoke, output = micro(content, inputs)
    for name, values in inputs.items():
        ours.place(name)[...] = values
    ours()
    invoke()
    for n, name in enumerate(net.plan.graph.outputs):
        if not np.array_equal(ours.place(name), output(n)):
            raise SystemExit(f"{path.stem}: {name} is wrong")
    runs: dict[str, Run] = {"ours": ours, "simd": Emitted(net, SIMD), "micro": invoke, **theirs}
    found = timed(runs)
    times = {name: median(rows) for name, rows in found.items()}
    ratios = {
        name: median(b / a for a, b in zip(found["ours"], rows, strict=True))
        for name, rows in found.items()
        if name != "ours"
    }
    return [path.stem, *times.values(), *ratios.values()], ratios


def layer_rows(net: Network) -> list[list[Cell]]:
    """The layers that take most time: number, kind, kernel, microseconds and share."""
    head = CLOCK.format(name=net.name, layers=len(net.layers))
    ours = Emitted(net, head=head)
    read = (ctypes.c_double * len(net.layers)).in_dll(ours.library, "layer_times")
    runs: list[list[float]] = []
    for _ in range(200):
        ours.library["layer_times_begin"]()
        ours()
        runs.append([*read])
    times = [median(column) for column in zip(*runs, strict=True)]
    rows: list[list[Cell]] = []
    for n in sorted(range(len(times)), key=lambda n: -times[n])[:MOST_LAYERS]:
        step = net.layers[n]
        macs = step.layer.macs
        rate = macs / times[n] / 1e3 if macs else "-"
        shape = "x".join(map(str, net.plan.graph.tensor[step.layer.output[1]].shape[1:]))
        rows.append([n, step.layer.operator.kind, shape, times[n], times[n] / sum(times), rate])
    return rows


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks")
    parser.add_argument("folder", type=Path, help="a folder of .tflite files")
    parser.add_argument("--chip", default="cpu_generic", help="a processor that is programmed in C")
    parser.add_argument("--layers", action="store_true", help="also the layers that take most")
    given = parser.parse_args(words)
    rows: list[list[Cell]] = []
    ratios: list[dict[str, float]] = []
    for path in sorted(given.folder.glob("*.tflite")):
        net = compile_model(path, given.chip, cached=True)
        row, ratio = model_row(path, net)
        rows.append(row)
        ratios.append(ratio)
        if given.layers:
            header = ("layer", "operator", "output", "us", "share", "GMAC/s")
            sys.stdout.write(f"{path.stem}\n{table(header, layer_rows(net))}\n\n")
            sys.stdout.flush()
    if not rows:
        sys.stderr.write(f"no .tflite files in {given.folder}\n")
        return 2
    others = [*ratios[0]]
    means: list[Cell] = [exp(sum(log(r[name]) for r in ratios) / len(ratios)) for name in others]
    blank: list[Cell] = [""] * (1 + len(others))
    header = ["model", "us", *(f"us {n}" for n in others), *(f"{n} / ours" for n in others)]
    sys.stdout.write(table(header, [*rows, ["geometric mean", *blank, *means]]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
