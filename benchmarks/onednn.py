"""Convolutions, normalised rows, attention and products without a script, against PyTorch's CPU.

python -m benchmarks.onednn [name ...]

One thread, in one process, in turn on the same arrays, the first run of each turn left out. The
chip is the vector unit that this machine has: `hw_specs/x86_avx512.yaml` or `x86_avx2.yaml`.
Images are NHWC (`channels_last`), of which `conv2d` is oneDNN's. Weights are packed in each call on
both sides, which is `ratio`: OHWI by `conv2d`, HWIO here, so that outputs are lanes as they lie.
Against weights that oneDNN has packed before (`_reorder_convolution_weight`), it is `packed`.
Whose weights are constant blocks them once for this kernel too: `given` is of
`conv2d_blocked.yaml`, whose weights the user has blocked by vectors of outputs, against oneDNN's
that are packed before: neither side's blocking is in the time.
Products are MKL's, and against oneDNN's with weights that it has packed before
(`_reorder_linear_weight`) they are `packed`: this kernel packs them in each call. Attention is
`scaled_dot_product_attention`, and `plain` is against its three steps written out. A ratio above
one: the other takes longer. `cpu` is the same by the thread's CPU time, which other processes
disturb less. `seconds`: CPU time of the search, without the C compiler.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np

from benchmarks.mkl import FLAGS, ROOT, rival
from hwgen.model.c_compiler import load_library
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table

CONVOLUTIONS = (
    (56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3), (56, 64, 256, 1),
)  # fmt: skip
"""Of ResNet-50: height and width, channels, outputs, and the side of the window."""

ROWS = ((512, 768), (64, 1024))
LENGTHS = ((512, 64),)
PRODUCTS = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (127, 513, 255), (64, 1024, 4096),
)  # fmt: skip
"""M, N and K."""

LAYERS = ((64, 3072, 768),)
"""The same, with a bias and ReLU."""

SECONDS, TURNS = 4.0, (9, 200)
"""Time for both at one size, and the fewest and most turns."""

Run = Callable[[], object]


@cache
def chip() -> HardwareSpec:
    """The vector unit that this machine has."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    name = "x86_avx512" if "avx512f" in flags else "x86_avx2"
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def kernel(
    file: Path, sizes: dict[str, int], inputs: list[np.ndarray], shape: tuple[int, ...]
) -> tuple[Run, np.ndarray, float]:
    """Runs the emitted code; its result; CPU seconds of the search."""
    workload = load_workload(file, sizes)
    hardware = chip()
    start = process_time()
    source = compile_workload(workload, hardware).source
    took = process_time() - start
    library = load_library(source.c, source.function, (*FLAGS, "-lm"))
    function = getattr(library, source.function)
    found = np.zeros(shape, np.float32)
    given = [x.ctypes.data_as(ctypes.c_void_p) for x in (*inputs, found)]

    def run() -> None:
        if function(*given) != 0:
            raise SystemExit("no memory")

    return run, found, took


def ratios(ours: Run, theirs: Run) -> tuple[float, float, float]:
    """Milliseconds of the first by CPU time, and how much longer the second takes: by the clock,
    and by CPU time."""
    once = min(_timed(theirs, 1)[0] for _ in range(3))
    times = max(1, int(0.01 / once))
    turns = min(max(TURNS[0], int(SECONDS / (4 * times * once))), TURNS[1])
    rows: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for turn in range(turns):
        found: dict[Run, tuple[float, float]] = {}
        for run in (ours, theirs) if turn % 2 else (theirs, ours):
            run()
            found[run] = _timed(run, times)
        rows.append((found[ours], found[theirs]))
    clock, cpu = (median(b[i] / a[i] for a, b in rows) for i in range(2))
    return median(a[1] for a, _ in rows) * 1e3, clock, cpu


def _timed(run: Run, times: int) -> tuple[float, float]:
    """Seconds of one run of several, by the clock and by CPU time."""
    clock, cpu = perf_counter(), thread_time()
    for _ in range(times):
        run()
    return (perf_counter() - clock) / times, (thread_time() - cpu) / times


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays of a fixed seed."""
    draw = np.random.default_rng(0)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def measured(
    name: str, made: tuple[Run, np.ndarray, float], expected: Any, *others: Run
) -> list[Cell]:
    """A row: the first of the others, and the second where there is one."""
    ours, found, took = made
    ours()
    wanted: np.ndarray = expected.numpy()
    if not np.allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(np.max(np.abs(wanted)))):
        raise SystemExit(f"{name}: the result is wrong")
    rows = [ratios(ours, other) for other in others]
    second: list[Cell] = list(rows[1][1:]) if len(rows) > 1 else ["-", "-"]
    return [name, rows[0][0], *rows[0][1:], *second, "-", took]


def convolution(torch: Any, side: int, channels: int, outputs: int, window: int) -> list[Cell]:
    """One convolution of stride 1 whose result is as large as its input."""
    pad = window // 2
    sizes = {"H": side, "W": side, "C": channels, "O": outputs, "R": window, "P": pad}
    x, w = drawn((1, side, side, channels), (window, window, channels, outputs))
    shape = (1, side, side, outputs)
    made = kernel(ROOT / "benchmarks" / "conv2d_nhwc.yaml", sizes, [x, w], shape)
    image = torch.from_numpy(x).permute(0, 3, 1, 2)
    weights = torch.from_numpy(w).permute(3, 2, 0, 1)
    weights = weights.contiguous(memory_format=torch.channels_last)
    pads, ones = [pad, pad], [1, 1]
    operators = torch.ops.mkldnn
    packed = operators._reorder_convolution_weight(weights, pads, ones, ones, 1, list(image.shape))

    def plain() -> Any:
        return torch.nn.functional.conv2d(image, weights, padding=pad)

    def packed_before() -> Any:
        return operators._convolution_pointwise(
            image, packed, None, pads, ones, ones, 1, "none", [], ""
        )

    name = f"conv {side}x{side}x{channels} -> {outputs}, {window}x{window}"
    row = measured(name, made, plain().permute(0, 2, 3, 1), plain, packed_before)
    lanes = chip().memory["panels"].entry_elements
    blocked = np.zeros((outputs // lanes, window, window, channels, lanes), np.float32)
    for n in range(len(blocked)):
        blocked[n] = w[..., n * lanes : (n + 1) * lanes]
    given = [x, blocked]
    file = ROOT / "benchmarks" / "conv2d_blocked.yaml"
    ours, found, _ = kernel(file, {**sizes, "B": lanes}, given, shape)
    ours()
    if not np.allclose(found, made[1], rtol=1e-3, atol=1e-3 * float(np.max(np.abs(made[1])))):
        raise SystemExit(f"{name}: the result of blocked weights is wrong")
    row[6] = ratios(ours, packed_before)[1]
    return row


def normalised(torch: Any, m: int, n: int) -> list[Cell]:
    """Rows normalised."""
    x, gamma, beta = drawn((m, n), (n,), (n,))
    file = ROOT / "workloads" / "layernorm.yaml"
    made = kernel(file, {"M": m, "N": n}, [x, gamma, beta], (m, n))
    given = [torch.from_numpy(a) for a in (x, gamma, beta)]

    def theirs() -> Any:
        return torch.nn.functional.layer_norm(given[0], (n,), given[1], given[2], 1e-5)

    return measured(f"layernorm {m} x {n}", made, theirs(), theirs)


def attended(torch: Any, length: int, depth: int) -> list[Cell]:
    """Attention of one head."""
    arrays = drawn(*[(length, depth)] * 3)
    file = ROOT / "workloads" / "attention.yaml"
    made = kernel(file, {"L": length, "D": depth}, arrays, (length, depth))
    q, k, v = (torch.from_numpy(a) for a in arrays)
    batched = [x[None, None] for x in (q, k, v)]

    def fused() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*batched)

    def steps() -> Any:
        return torch.softmax((q @ k.T) / depth**0.5, -1) @ v

    return measured(f"attention {length}, {depth}", made, steps(), fused, steps)


def multiplied(torch: Any, m: int, n: int, k: int) -> list[Cell]:
    """A product."""
    a, b = drawn((m, k), (k, n))
    file = ROOT / "workloads" / "matmul.yaml"
    made = kernel(file, {"M": m, "N": n, "K": k}, [a, b], (m, n))
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    out = torch.empty(m, n)

    def plain() -> Any:
        return torch.mm(left, right, out=out)

    packed = packed_linear(torch, left, right, None, "none")
    return measured(f"{m} x {n} x {k}", made, left @ right, plain, packed)


def packed_linear(torch: Any, x: Any, weights: Any, bias: Any, after: str) -> Run:
    """The same by oneDNN, of weights that it has packed before."""
    operators = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weights.T.contiguous(), len(x))

    def run() -> Any:
        return operators._linear_pointwise(x, packed, bias, after, [], "")

    return run


def layer(torch: Any, m: int, n: int, k: int) -> list[Cell]:
    """A product, a bias and ReLU."""
    x, w, bias = drawn((m, k), (k, n), (n,))
    file = ROOT / "workloads" / "linear_relu.yaml"
    made = kernel(file, {"M": m, "N": n, "K": k}, [x, w, bias], (m, n))
    given, weights, added = (torch.from_numpy(a) for a in (x, w, bias))

    def theirs() -> Any:
        return torch.addmm(added, given, weights).relu_()

    packed = packed_linear(torch, given, weights, added, "relu")
    return measured(f"{m} x {n} x {k}, bias, relu", made, theirs(), theirs, packed)


KINDS: dict[str, tuple[Callable[..., list[Cell]], tuple[tuple[int, ...], ...]]] = {
    "conv": (convolution, CONVOLUTIONS),
    "layernorm": (normalised, ROWS),
    "attention": (attended, LENGTHS),
    "matmul": (multiplied, PRODUCTS),
    "layer": (layer, LAYERS),
}


def main() -> None:
    torch = rival()
    if torch is None:
        raise SystemExit("torch is not installed")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; {chip().name}")
    heads = ["", "ms", "ratio", "cpu", "packed, plain", "cpu", "given", "seconds"]
    with torch.inference_mode():
        for kind in sys.argv[1:] or KINDS:
            row, sizes = KINDS[kind]
            rows = [row(torch, *size) for size in sizes]
            print(table(heads, rows))
            for at in (2, 3, 4, 6):
                found = [float(x) for r in rows if not isinstance(x := r[at], str)]
                if not found:
                    continue
                print(f"geometric mean, {heads[at]}: {exp(sum(map(log, found)) / len(found)):.3f}")


if __name__ == "__main__":
    sys.exit(main())
