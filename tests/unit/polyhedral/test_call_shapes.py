"""Calls of a tile in closed form, against those of programs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.whole import simulate_timing
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.match.call_shapes import call_cycles
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from tests.sampling import THOROUGH

ROOT = Path(__file__).parents[3]


def product(m: int, n: int, k: int) -> Workload:
    tensors = {"a": f"float32[{m}, {k}]", "b": f"float32[{k}, {n}]", "c": f"float32[{m}, {n}]"}
    return make_workload("product", tensors=tensors, compute=["c[m, n] += a[m, k] * b[k, n]"])


def window(h: int, w: int) -> Workload:
    tensors = {"x": f"float32[{h + 2}, {w + 2}]", "f": "float32[3, 3]", "y": f"float32[{h}, {w}]"}
    compute = ["y[h, w] += x[h + r, w + s] * f[r, s]"]
    return make_workload("window", tensors=tensors, compute=compute)


@cache
def compiled(workload: Workload) -> Kernel:
    return compile_kernel(workload, load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml"))


def cycles(kernel: Kernel, intrinsic: str) -> float:
    """Of all calls of an intrinsic, if everything is one tile."""
    (o,) = (o for o in kernel.match.selection.operations if o.intrinsic.name == intrinsic)
    tiles = {n: np.full(2, blocks, np.int64) for n, blocks in kernel.match.count.items()}
    first, second = call_cycles(o, kernel.match, tiles)
    assert first == second
    return first


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((16, 16, 16), 4 + 16),
        ((5, 7, 9), 4 + 9),
        pytest.param((17, 16, 16), 2 * (4 + 16), marks=THOROUGH),
        ((40, 33, 16), 3 * 3 * (4 + 16)),
        pytest.param((32, 32, 64), 2 * 2 * 4 * (4 + 16), marks=THOROUGH),
    ],
)
def test_each_hardware_loop_takes_what_it_holds(sizes: tuple[int, int, int], expected: int) -> None:
    assert cycles(compiled(product(*sizes)), "matmul") == expected


@pytest.mark.parametrize("sizes", [(16, 16, 16), (32, 32, 64), (5, 7, 9)])
def test_products_take_as_long_as_their_calls(sizes: tuple[int, int, int]) -> None:
    kernel = compiled(product(*sizes))
    busy = dict(simulate_timing(kernel.program, kernel.hardware).busy_by_name)["matmul"]
    assert cycles(kernel, "matmul") == pytest.approx(busy, rel=0.1)


def test_rows_of_windows_are_not_one_row() -> None:
    """A dense buffer makes one row of those of an elementwise call, not of a window's."""
    kernel = compiled(window(12, 10))
    (update,) = (o for o in kernel.match.selection.operations if o.kind == "update")
    (store,) = (o for o in kernel.match.selection.operations if o.kind == "init")
    tiles = {n: np.full(1, blocks, np.int64) for n, blocks in kernel.match.count.items()}
    assert call_cycles(store, kernel.match, tiles) == 4 + -(-12 * 10 // 16)
    assert call_cycles(update, kernel.match, tiles) > 2 * call_cycles(store, kernel.match, tiles)
