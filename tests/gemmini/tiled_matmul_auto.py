"""What the public library's `tiled_matmul_auto` does, as data: its tiles and its instructions.

The library issues one loop instruction a tile, `gemmini_loop_ws`. Two of them run at once: A and B
stand in the halves of the scratchpad in turn, sums in those of the accumulator, so that the next
tile is loaded while this one is computed. A tile of A or B that stays in its half is not loaded
again (`a_reuse`, `b_reuse`). This is the stream that the loops unroll to, in an order in which all
that an instruction reads was issued before it.

Facts: ucb-bar/gemmini-rocc-tests, include/gemmini.h (`tiled_matmul_auto`, `tiled_matmul_outer`,
`sp_tiled_matmul_ws`), and ucb-bar/gemmini, src/main/scala/gemmini/LoopMatmul.scala.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isqrt
from typing import Literal

from tests.gemmini.library_stream import (
    ACC_ROWS,
    ACCUMULATE,
    ACCUMULATOR,
    DIM,
    FULL,
    GARBAGE,
    MAX_BLOCKS,
    SPAD_ROWS,
    WEIGHT_STATIONARY,
    Dram,
    Instruction,
    bytes_of,
    function_of,
)

Bias = Literal["none", "full", "repeating"]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The extents of a tile, in DIM x DIM blocks."""

    i: int
    j: int
    k: int

    def fit(self) -> bool:
        """Whether A's and B's tiles take half of the scratchpad, C's half of the accumulator."""
        spad = (self.i * self.k + self.k * self.j) * DIM
        return spad <= SPAD_ROWS // 2 and self.i * self.j * DIM <= ACC_ROWS // 2


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = A[m, k] B[k, n] + D, row-major and dense: int8, D int32, C int8 or int32."""

    m: int
    n: int
    k: int
    bias: Bias = "none"
    relu: bool = False
    scale: float = 1.0
    full_c: bool = False


def choose_tiles(i: int, j: int, k: int) -> Tiles:
    """The library's tiles for a product of i x k by k x j blocks of DIM x DIM.

    A cube-like start, then J, I and K grow by one in turn while everything fits.
    """
    start_ij = isqrt(ACC_ROWS // 2 // DIM)
    tiles = Tiles(
        min(i, start_ij), min(j, start_ij), min(k, SPAD_ROWS // 4 // DIM // start_ij)
    )  # fmt: skip
    while True:
        before = tiles
        for di, dj, dk in ((0, 1, 0), (1, 0, 0), (0, 0, 1)):
            grown = Tiles(tiles.i + di, tiles.j + dj, tiles.k + dk)
            if grown.fit() and grown.i <= i and grown.j <= j and grown.k <= k:
                tiles = grown
        if tiles == before:
            return tiles


@dataclass(frozen=True, slots=True)
class _Axis:
    """One tile's part of an axis: `start` and `blocks` in blocks, `size` in elements."""

    start: int
    blocks: int
    size: int
    last: bool

    def extent(self, block: int, count: int = 1) -> int:
        """Elements of `count` blocks from `block` on."""
        return min(count * DIM, self.size - block * DIM)


def _axis(size: int, tile: int) -> tuple[_Axis, ...]:
    blocks = -(-size // DIM)
    return tuple(
        _Axis(
            start,
            min(tile, blocks - start),
            min(tile * DIM, size - start * DIM),
            start + tile >= blocks,
        )
        for start in range(0, blocks, tile)
    )


def matmul(problem: Problem, tiles: Tiles | None = None) -> Iterator[Instruction]:
    """The instructions of the whole product: tiles in the order i, j, k, one fence at the end."""
    p = problem
    chosen = tiles or choose_tiles(-(-p.m // DIM), -(-p.n // DIM), -(-p.k // DIM))
    c_size = 4 if p.full_c else 1
    yield "gemmini_extended_config_ex", (WEIGHT_STATIONARY, int(p.relu), 0, 1, 0, 0)
    yield "gemmini_extended_config_st", (p.n * c_size, int(p.relu), p.scale)
    yield "gemmini_extended3_config_ld", (p.k, 1.0, 0, 0)
    yield "gemmini_extended3_config_ld", (p.n, 1.0, 0, 1)
    yield "gemmini_extended3_config_ld", (0 if p.bias == "repeating" else p.n * 4, 1.0, 0, 2)
    yield from _tiles(p, _axis(p.m, chosen.i), _axis(p.n, chosen.j), _axis(p.k, chosen.k))
    yield "gemmini_fence", ()


@dataclass(frozen=True, slots=True)
class _Halves:
    """Where a tile stands: the half of the scratchpad of A's and of B's, of the accumulator C's.

    `a`, `b`: whether they are loaded; else they stand there from an earlier tile.
    """

    a_half: int
    b_half: int
    c_half: int
    a: bool
    b: bool


def _tiles(
    p: Problem, all_i: tuple[_Axis, ...], all_j: tuple[_Axis, ...], all_k: tuple[_Axis, ...]
) -> Iterator[Instruction]:
    """The loops, in turn in both halves; up to two tiles of A or of B have a half each for good."""
    a_reuse = len(all_i) * len(all_k) <= 2
    b_reuse = len(all_j) * len(all_k) <= 2
    c_half = 0
    for loop, (i, j, k) in enumerate(product(all_i, all_j, all_k)):
        halves = _Halves(
            int(i.start + k.start > 0) if a_reuse else loop % 2,
            int(j.start + k.start > 0) if b_reuse else loop % 2,
            c_half,
            not a_reuse or j.start == 0,
            not b_reuse or i.start == 0,
        )
        yield from _tile(p, i, j, k, halves)
        c_half ^= int(k.last)


def _tile(p: Problem, i: _Axis, j: _Axis, k: _Axis, halves: _Halves) -> Iterator[Instruction]:
    """One loop: the bias, then per k, j, i the moves in as they fall due, a product, a move out."""
    a_start = halves.a_half * (SPAD_ROWS // 2)
    b_start = (halves.b_half + 1) * (SPAD_ROWS // 2) - k.blocks * j.blocks * DIM
    d_start = ACCUMULATOR | halves.c_half * (ACC_ROWS // 2)
    c_start = d_start | ACCUMULATE | (FULL if p.full_c else 0)
    if p.bias != "none" and k.start == 0:
        for ib in range(i.blocks):
            row = 0 if p.bias == "repeating" else (i.start + ib) * DIM
            for jb in range(j.blocks):
                d = Dram("D", (row * p.n + (j.start + jb) * DIM) * 4)
                where = d_start + (ib * j.blocks + jb) * DIM
                yield "gemmini_extended_mvin3", (d, where, j.extent(jb), i.extent(ib))
    for kb, jb, ib in product(range(k.blocks), range(j.blocks), range(i.blocks)):
        a_at = a_start + (ib * k.blocks + kb) * DIM
        b_at = b_start + (kb * j.blocks + jb) * DIM
        c_at = c_start + (ib * j.blocks + jb) * DIM
        rows, cols, depth = i.extent(ib), j.extent(jb), k.extent(kb)
        if halves.a and jb == 0 and kb % MAX_BLOCKS == 0:
            a = Dram("A", (i.start + ib) * DIM * p.k + (k.start + kb) * DIM)
            count = min(MAX_BLOCKS, k.blocks - kb)
            yield "gemmini_extended_mvin", (a, a_at, k.extent(kb, count), rows)
        if halves.b and ib == 0 and jb % MAX_BLOCKS == 0:
            b = Dram("B", (k.start + kb) * DIM * p.n + (j.start + jb) * DIM)
            count = min(MAX_BLOCKS, j.blocks - jb)
            yield "gemmini_extended_mvin2", (b, b_at, j.extent(jb, count), depth)
        fresh = p.bias == "none" and k.start == 0 and kb == 0
        c_to = c_at & ~ACCUMULATE if fresh else c_at
        weights = b_at if ib == 0 else GARBAGE
        yield "gemmini_extended_preload", (weights, c_to, cols, depth, cols, rows)
        kind = "preloaded" if ib == 0 else "accumulated"
        yield f"gemmini_extended_compute_{kind}", (a_at, GARBAGE, depth, rows, DIM, DIM)
        if k.last and kb == k.blocks - 1:
            yield from _move_out(p, i, j, ib, jb, c_start)


def _move_out(
    p: Problem, i: _Axis, j: _Axis, ib: int, jb: int, c_start: int
) -> Iterator[Instruction]:
    """The store that block (ib, jb) completes, if any: up to MAX_BLOCKS blocks of int8 at once."""
    together = 1 if p.full_c else min(j.blocks, MAX_BLOCKS)
    if jb != j.blocks - 1 and jb % together != together - 1:
        return
    first = jb - jb % together
    count = min(together, j.blocks - first)
    offset = (i.start + ib) * DIM * p.n + (j.start + first) * DIM
    yield (
        "gemmini_extended_mvout",
        (
            Dram("C", offset * (4 if p.full_c else 1)),
            c_start + (ib * j.blocks + first) * DIM,
            j.extent(first, count),
            i.extent(ib),
        ),
    )


def bytes_read(problem: Problem, tiles: Tiles | None = None) -> dict[str, int]:
    """Bytes that the moves in read, by tensor."""
    return bytes_of(matmul(problem, tiles))


def to_c(problem: Problem, function: str, tiles: Tiles | None = None) -> str:
    """The stream as a C function of A, B, D where there is a bias, and C."""
    bias = ("const int32_t *D",) if problem.bias != "none" else ()
    c = "int32_t *C" if problem.full_c else "int8_t *C"
    declared = ("const int8_t *A", "const int8_t *B", *bias, c)
    return function_of(matmul(problem, tiles), function, declared)
