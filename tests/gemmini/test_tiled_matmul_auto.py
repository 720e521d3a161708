"""The public library's tiles and instruction stream, executed by the header."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hwgen.model.compiled import have_compiler
from tests.gemmini import harness
from tests.gemmini.harness import Signature, Tensor
from tests.gemmini.tiled_matmul_auto import (
    Problem,
    Tiles,
    bytes_read,
    choose_tiles,
    matmul,
    to_c,
)
from tests.sampling import THOROUGH


@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        (64, Tiles(4, 4, 4)),
        (128, Tiles(5, 6, 8)),
        (256, Tiles(5, 6, 16)),
        (512, Tiles(5, 6, 32)),
        (1024, Tiles(5, 5, 51)),
    ],
)
def test_tiles(size: int, tiles: Tiles) -> None:
    assert choose_tiles(size // 16, size // 16, size // 16) == tiles


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 100, 1), (100, 1, 3), (2, 3, 600), (784, 16, 64)])
def test_tiles_fit_and_cannot_grow(shape: tuple[int, int, int]) -> None:
    i, j, k = shape
    t = choose_tiles(i, j, k)
    assert t.fit()
    for grown in (Tiles(t.i + 1, t.j, t.k), Tiles(t.i, t.j + 1, t.k), Tiles(t.i, t.j, t.k + 1)):
        assert not (grown.fit() and grown.i <= i and grown.j <= j and grown.k <= k)


COUNTED = (
    ((512, 512, 512), 3.41),
    ((12544, 256, 64), 4.98),
    ((12544, 64, 256), 3.23),
    ((3136, 512, 128), 5.03),
    ((3136, 128, 512), 3.28),
    ((784, 1024, 256), 4.83),
)
"""MB that the library was counted to load."""


@pytest.mark.parametrize(("shape", "counted"), COUNTED, ids=str)
def test_bytes_loaded_are_those_counted(shape: tuple[int, int, int], counted: float) -> None:
    assert round(sum(bytes_read(Problem(*shape)).values()) / 1e6, 2) == counted


def test_traffic_of_256_cubed() -> None:
    read = bytes_read(Problem(256, 256, 256))
    assert read == {"A": 3 * 65536, "B": 4 * 65536}
    assert sum(read.values()) == 458_752


def test_order_within_a_tile() -> None:
    """Two by two by one blocks: moves in come just before their first use, B's for both j."""
    names = [name.removeprefix("gemmini_extended_") for name, _ in matmul(Problem(32, 32, 16))]
    first = ["mvin", "mvin2", "preload", "compute_preloaded"]
    second = ["mvin", "preload", "compute_accumulated"]
    third = ["preload", "compute_preloaded", "mvout"]
    fourth = ["preload", "compute_accumulated", "mvout"]
    assert names[5:] == [*first, *second, *third, *fourth, "gemmini_fence"]


def _execute(problem: Problem, tiles: Tiles | None = None) -> None:
    p = problem
    random = np.random.default_rng(7)
    inputs = {
        "A": random.integers(-128, 128, (p.m, p.k), np.int8),
        "B": random.integers(-128, 128, (p.k, p.n), np.int8),
    }
    wide = inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64)
    if p.bias != "none":
        shape = (p.m, p.n) if p.bias == "full" else (1, p.n)
        inputs["D"] = random.integers(-(2**18), 2**18, shape, np.int32)
        wide += inputs["D"]
    c = wide.astype(np.int32)
    if not p.full_c:
        scaled = np.rint(c.astype(np.float32) * np.float32(p.scale))
        c = np.minimum(np.maximum(scaled, -128), 127).astype(np.int8)
        c = np.maximum(c, 0) if p.relu else c
    tensors = tuple(Tensor(name, str(x.dtype), x.shape) for name, x in inputs.items())
    signature = Signature("f", tensors, (Tensor("C", str(c.dtype), c.shape),))
    program = harness.build(to_c(p, "f", tiles), (signature,), flags=("-O0",))
    result = harness.run(program, "f", inputs)
    assert (result.code, result.error) == ("", "")
    np.testing.assert_array_equal(result.outputs["C"], c)
    read = {name: traffic[0] for name, traffic in result.traffic.items() if traffic[0]}
    assert read == bytes_read(p, tiles)
    assert result.traffic["C"][1] == c.nbytes
    issued = Counter(name for name, _ in matmul(p, tiles))
    found = result.instructions
    assert found["preload"] == issued["gemmini_extended_preload"]
    assert found["mvout"] == issued["gemmini_extended_mvout"]
    assert found["mvin3"] == issued["gemmini_extended_mvin3"]


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(Problem(256, 256, 256, scale=0.001), marks=THOROUGH),
        Problem(33, 150, 70, bias="full", scale=0.0005, relu=True),
        Problem(95, 97, 17, bias="repeating", full_c=True),
        Problem(1, 1, 1, full_c=True),
        pytest.param(Problem(600, 96, 64, scale=0.002), marks=THOROUGH),
        pytest.param(Problem(80, 400, 64, bias="full", full_c=True), marks=THOROUGH),
    ],
    ids=str,
)
def test_stream_computes_the_product(problem: Problem) -> None:
    _execute(problem)


def test_halves_alternate_and_what_stays_is_loaded_once() -> None:
    """Six tiles of C over two of K: A and B change halves at each, C where one is done."""
    stream = list(matmul(Problem(32, 48, 64), Tiles(1, 1, 2)))
    moved = [(name, a[1]) for name, a in stream if "mvin" in name and isinstance(a[1], int)]
    halves = [at // 8192 for name, at in moved if name == "gemmini_extended_mvin"]
    assert halves == [0, 1] * 6
    stored = [a[1] for name, a in stream if "mvout" in name and isinstance(a[1], int)]
    assert [at & 1023 for at in stored] == [0, 512] * 3
    again = list(matmul(Problem(64, 32, 16), Tiles(1, 1, 1)))
    loaded = [a[1] for name, a in again if name == "gemmini_extended_mvin2"]
    assert loaded == [8192 - 16, 16384 - 16]


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_tiles_smaller_than_the_problem_in_every_axis() -> None:
    _execute(Problem(70, 90, 110, bias="full", full_c=True), Tiles(2, 3, 5))
    _execute(Problem(70, 90, 110, scale=0.002), Tiles(2, 5, 3))
