"""What the public library's `tiled_matmul_auto` does, as data: its tiles and its instructions.

Facts from ucb-bar/gemmini-rocc-tests, include/gemmini.h (`tiled_matmul_auto`,
`tiled_matmul_outer`, `sp_tiled_matmul_ws`),
https://github.com/ucb-bar/gemmini-rocc-tests/blob/master/include/gemmini.h. The stream is that of
the software loop which the header keeps, commented out, beside the loop instruction that does the
same in hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Literal

DIM = 16
SPAD_ROWS = 16384
ACC_ROWS = 1024
MAX_BLOCKS = 4
"""DIM-blocks that one move of int8 takes; a move of int32 takes one."""
GARBAGE = 0xFFFFFFFF
ACCUMULATOR, ACCUMULATE, FULL = 1 << 31, 1 << 30, 1 << 29
WEIGHT_STATIONARY = 1

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
class Dram:
    """An address: `offset_bytes` into a tensor."""

    tensor: str
    offset_bytes: int


Argument = int | float | Dram
Instruction = tuple[str, tuple[Argument, ...]]
"""A macro's name and its arguments."""


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
    for i in _axis(p.m, chosen.i):
        for j in _axis(p.n, chosen.j):
            for k in _axis(p.k, chosen.k):
                yield from _tile(p, i, j, k)
    yield "gemmini_fence", ()


def _tile(p: Problem, i: _Axis, j: _Axis, k: _Axis) -> Iterator[Instruction]:
    """One tile: the bias, then per k, j, i the moves in as they fall due, a product, a move out."""
    b_start = SPAD_ROWS - k.blocks * j.blocks * DIM
    c_start = ACCUMULATOR | ACCUMULATE | (FULL if p.full_c else 0)
    if p.bias != "none" and k.start == 0:
        for ib in range(i.blocks):
            row = 0 if p.bias == "repeating" else (i.start + ib) * DIM
            for jb in range(j.blocks):
                d = Dram("D", (row * p.n + (j.start + jb) * DIM) * 4)
                where = ACCUMULATOR + (ib * j.blocks + jb) * DIM
                yield "gemmini_extended_mvin3", (d, where, j.extent(jb), i.extent(ib))
    for kb in range(k.blocks):
        for jb in range(j.blocks):
            for ib in range(i.blocks):
                a_at = (ib * k.blocks + kb) * DIM
                b_at = b_start + (kb * j.blocks + jb) * DIM
                c_at = c_start + (ib * j.blocks + jb) * DIM
                rows, cols, depth = i.extent(ib), j.extent(jb), k.extent(kb)
                if jb == 0 and kb % MAX_BLOCKS == 0:
                    a = Dram("A", (i.start + ib) * DIM * p.k + (k.start + kb) * DIM)
                    count = min(MAX_BLOCKS, k.blocks - kb)
                    yield "gemmini_extended_mvin", (a, a_at, k.extent(kb, count), rows)
                if ib == 0 and jb % MAX_BLOCKS == 0:
                    b = Dram("B", (k.start + kb) * DIM * p.n + (j.start + jb) * DIM)
                    count = min(MAX_BLOCKS, j.blocks - jb)
                    yield "gemmini_extended_mvin2", (b, b_at, j.extent(jb, count), depth)
                fresh = p.bias == "none" and k.start == 0 and kb == 0
                yield (
                    "gemmini_extended_preload",
                    (
                        b_at if ib == 0 else GARBAGE,
                        c_at & ~ACCUMULATE if fresh else c_at,
                        cols, depth, cols, rows,
                    ),
                )  # fmt: skip
                kind = "preloaded" if ib == 0 else "accumulated"
                yield (
                    f"gemmini_extended_compute_{kind}",
                    (a_at, GARBAGE, depth, rows, DIM, DIM),
                )
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
    found: dict[str, int] = {}
    for name, arguments in matmul(problem, tiles):
        if "mvin" in name:
            source, _, cols, rows = arguments
            assert isinstance(source, Dram)
            assert isinstance(cols, int)
            assert isinstance(rows, int)
            size = 4 if source.tensor == "D" else 1
            found[source.tensor] = found.get(source.tensor, 0) + cols * rows * size
    return found


_STATEMENTS_PER_FUNCTION = 400
"""Compilers take long over one function of many thousand calls."""


def to_c(problem: Problem, function: str, tiles: Tiles | None = None) -> str:
    """The stream as a C function of A, B, D where there is a bias, and C."""
    bias = problem.bias != "none"
    calls = [f"  {name}({', '.join(map(_c, a))});" for name, a in matmul(problem, tiles)]
    c_type = "int32_t" if problem.full_c else "int8_t"
    d_type = ["const int32_t *D"] if bias else []
    declared = ["const int8_t *A", "const int8_t *B", *d_type, f"{c_type} *C"]
    names = [d.split("*")[1] for d in declared]
    unused = [f"  (void){name};" for name in names]
    lines = ['#include "include/gemmini.h"']
    parts = range(0, len(calls), _STATEMENTS_PER_FUNCTION)
    for number, start in enumerate(parts):
        body = [*unused, *calls[start : start + _STATEMENTS_PER_FUNCTION]]
        head = f"static void {function}_{number}({', '.join(declared)})"
        lines += [head, "{", *body, "}"]
    lines += [f"void {function}({', '.join(declared)});", f"void {function}({', '.join(declared)})"]
    lines += ["{", *(f"  {function}_{n}({', '.join(names)});" for n in range(len(parts))), "}", ""]
    return "\n".join(lines)


def _c(argument: Argument) -> str:
    match argument:
        case Dram(tensor=tensor, offset_bytes=offset):
            return f"(const char *){tensor} + {offset}"
        case float():
            return f"{argument!r}f"
        case int():
            return f"0x{argument:X}u" if argument >= 1 << 31 else str(argument)
