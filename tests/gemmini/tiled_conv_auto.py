"""What the public library's `tiled_conv_auto` does, as data: its tiles and its instructions.

One loop instruction a tile, `gemmini_loop_conv_ws`, two of them at once in halves of the memories,
as in `tiled_matmul_auto`. The loop pads: where a pixel lies outside the image, it moves zeros in.
Weights that stand in their half for good are not loaded again, nor is an image that does. Sums
start from zeros that are moved into the accumulator, also where there is no bias.

Facts: ucb-bar/gemmini-rocc-tests, include/gemmini.h (`tiled_conv_auto`, `tiled_conv`), and
ucb-bar/gemmini, src/main/scala/gemmini/LoopConv.scala. Here without bias, pooling and dilation,
and of stride 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import product

from tests.gemmini.library_stream import (
    ACC_ROWS,
    ACCUMULATE,
    ACCUMULATOR,
    DIM,
    GARBAGE,
    MAX_BLOCKS,
    SPAD_ROWS,
    WEIGHT_STATIONARY,
    ZEROS,
    Dram,
    Instruction,
    bytes_of,
    function_of,
)


@dataclass(frozen=True, slots=True)
class Convolution:
    """y[n, i, j, o] from x[n, i + r - p, j + s - p, c] w[r, s, c, o]: square, int8, dense."""

    batch: int
    size: int
    channels: int
    outputs: int
    kernel: int = 3
    padding: int = 1
    scale: float = 1.0

    @property
    def out_size(self) -> int:
        return self.size + 2 * self.padding - self.kernel + 1

    @property
    def whole(self) -> ConvTiles:
        out, kernel = self.out_size, self.kernel
        return ConvTiles(self.batch, out, out, self.outputs, kernel, kernel, self.channels)


@dataclass(frozen=True, slots=True)
class ConvTiles:
    """The extents of a tile, or where one starts."""

    batches: int
    rows: int
    columns: int
    outputs: int
    kernel_rows: int
    kernel_columns: int
    channels: int

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of the padded input."""
        return self.rows + self.kernel_rows - 1, self.columns + self.kernel_columns - 1

    @property
    def weight_rows(self) -> int:
        return _blocks(self.outputs) * self.kernel_rows * self.kernel_columns * self.channels

    def fit(self) -> bool:
        """Whether input and weights take half of the scratchpad, sums half of the accumulator."""
        rows, columns = self.image
        spad = _blocks(self.channels) * self.batches * rows * columns + self.weight_rows
        acc = _blocks(self.outputs) * self.batches * self.rows * self.columns
        return spad <= SPAD_ROWS // 2 and acc <= ACC_ROWS // 2


_AXES = tuple(ConvTiles.__dataclass_fields__)
_CHANNELS = ("outputs", "channels")


def _blocks(size: int) -> int:
    return -(-size // DIM)


def choose_conv_tiles(problem: Convolution) -> ConvTiles:
    """The library's: the longest extent shrinks until all fits, then columns grow, then all do."""
    whole = problem.whole
    tiles = whole
    while not tiles.fit():
        kept = tiles.columns <= DIM and tiles.rows > 1  # The array stays busy.
        axes = [name for name in _AXES if not (name == "columns" and kept)]
        longest = max(axes, key=lambda name: getattr(tiles, name))
        size: int = getattr(tiles, longest)
        shorter = (size - 1) // DIM * DIM if longest in _CHANNELS else size - 1
        tiles = replace(tiles, **{longest: max(shorter, 1)})
    tiles = _grown(tiles, whole, ("columns",))
    return _grown(tiles, whole, _AXES)


def _grown(tiles: ConvTiles, whole: ConvTiles, axes: tuple[str, ...]) -> ConvTiles:
    """Each of the axes by one in turn, while anything fits."""
    while True:
        before = tiles
        for name in axes:
            grown = replace(tiles, **{name: getattr(tiles, name) + 1})
            if getattr(grown, name) <= getattr(whole, name) and grown.fit():
                tiles = grown
        if tiles == before:
            return tiles


def convolution(problem: Convolution, tiles: ConvTiles | None = None) -> Iterator[Instruction]:
    """The instructions of the whole convolution; one fence at the end."""
    p = problem
    chosen = tiles or choose_conv_tiles(p)
    whole, steps = astuple(p.whole), astuple(chosen)
    count = ConvTiles(*(-(-w // s) for w, s in zip(whole, steps, strict=True)))
    summed = count.kernel_rows * count.kernel_columns * count.channels
    b_reuse = summed * count.outputs <= 2
    a_reuse = summed * count.batches * count.rows * count.columns <= 2
    yield "gemmini_extended_config_ex", (WEIGHT_STATIONARY, 0, 0, 1, 0, 0)
    yield "gemmini_extended_config_st", (p.outputs, 0, p.scale)
    c_half = 0
    starts = product(*(range(0, w, s) for w, s in zip(whole, steps, strict=True)))
    for loop, start in enumerate(starts):
        at = ConvTiles(*start)
        sizes = zip(whole, steps, start, strict=True)
        tile = ConvTiles(*(min(s, w - first) for w, s, first in sizes))
        kernel = at.kernel_rows + at.kernel_columns + at.channels
        place = at.batches + at.rows + at.columns
        halves = (
            int(kernel + place > 0) if a_reuse else loop % 2,
            int(kernel + at.outputs > 0) if b_reuse else loop % 2,
            c_half,
        )
        last = all(
            getattr(at, name) + getattr(tile, name) == getattr(p.whole, name)
            for name in ("kernel_rows", "kernel_columns", "channels")
        )
        yield from _Loop(p, at, tile, *halves).instructions(
            first=kernel == 0,
            inputs=not a_reuse or at.outputs == 0,
            weights=not b_reuse or place == 0,
            last=last,
        )
        c_half ^= int(last)
    yield "gemmini_fence", ()


@dataclass(frozen=True, slots=True)
class _Loop:
    """One loop instruction: a tile, and the halves that its input, weights and sums stand in."""

    problem: Convolution
    at: ConvTiles
    tile: ConvTiles
    a_half: int
    b_half: int
    c_half: int

    def instructions(
        self, *, first: bool, inputs: bool, weights: bool, last: bool
    ) -> Iterator[Instruction]:
        if first:
            yield from self._zeros()
        if weights:
            yield from self._weights()
        if inputs:
            yield from self._inputs()
        yield from self._products()
        if last:
            yield from self._stores()

    def _pixels(self) -> Iterator[tuple[int, int, int, int]]:
        """Batch, row, column and pixels of each piece of an output's row."""
        t = self.tile
        for b, row, column in product(range(t.batches), range(t.rows), range(0, t.columns, DIM)):
            yield b, row, column, min(DIM, t.columns - column)

    def _sums(self, b: int, row: int, column: int, output: int) -> int:
        t = self.tile
        block = output // DIM * t.batches + b
        return self.c_half * (ACC_ROWS // 2) + (block * t.rows + row) * t.columns + column

    def _weight(self, output: int, r: int, s: int, channel: int) -> int:
        t = self.tile
        start = (self.b_half + 1) * (SPAD_ROWS // 2) - t.weight_rows
        taps = (output // DIM * t.kernel_rows + r) * t.kernel_columns + s
        return start + taps * t.channels + channel

    def _input(self, b: int, row: int, column: int, channel: int) -> int:
        rows, columns = self.tile.image
        block = channel // DIM * self.tile.batches + b
        return self.a_half * (SPAD_ROWS // 2) + (block * rows + row) * columns + column

    def _zeros(self) -> Iterator[Instruction]:
        yield "gemmini_extended4_config_ld", (0, 1.0, 0, DIM, 2)
        for b, row, column, pixels in self._pixels():
            for output in range(0, self.tile.outputs, DIM):
                where = ACCUMULATOR | self._sums(b, row, column, output)
                width = min(DIM, self.tile.outputs - output)
                yield "gemmini_extended_mvin3", (ZEROS, where, width, pixels)

    def _weights(self) -> Iterator[Instruction]:
        p, t, at = self.problem, self.tile, self.at
        between = t.kernel_rows * t.kernel_columns * t.channels
        yield "gemmini_extended4_config_ld", (p.outputs, 1.0, 0, between, 1)
        taps = product(range(t.kernel_rows), range(t.kernel_columns), range(0, t.channels, DIM))
        for r, s, channel in taps:
            tap = ((at.kernel_rows + r) * p.kernel + at.kernel_columns + s) * p.channels
            depth = min(DIM, t.channels - channel)
            for output in range(0, t.outputs, MAX_BLOCKS * DIM):
                width = min(MAX_BLOCKS * DIM, t.outputs - output)
                offset = (tap + at.channels + channel) * p.outputs + at.outputs + output
                where = self._weight(output, r, s, channel)
                yield "gemmini_extended_mvin2", (Dram("B", offset), where, width, depth)

    def _inputs(self) -> Iterator[Instruction]:
        p, t, at = self.problem, self.tile, self.at
        rows, columns = t.image
        yield (
            "gemmini_extended4_config_ld",
            (p.channels, 1.0, 0, t.batches * rows * columns, 0),
        )
        left = at.columns + at.kernel_columns - p.padding
        for b, row in product(range(t.batches), range(rows)):
            y = at.rows + at.kernel_rows - p.padding + row
            for x, pixels in _pieces(left, columns, p.size):
                outside = not (0 <= y < p.size and 0 <= x < p.size)
                for channel in range(0, t.channels, MAX_BLOCKS * DIM):
                    width = min(MAX_BLOCKS * DIM, t.channels - channel)
                    pixel = ((at.batches + b) * p.size + y) * p.size + x
                    offset = pixel * p.channels + at.channels + channel
                    where = self._input(b, row, x - left, channel)
                    source = ZEROS if outside else Dram("A", offset)
                    yield "gemmini_extended_mvin", (source, where, width, pixels)

    def _products(self) -> Iterator[Instruction]:
        t = self.tile
        taps = product(
            range(0, t.outputs, DIM), range(t.kernel_rows), range(t.kernel_columns),
            range(0, t.channels, DIM),
        )  # fmt: skip
        for output, r, s, channel in taps:
            width, depth = min(DIM, t.outputs - output), min(DIM, t.channels - channel)
            weights, kind = self._weight(output, r, s, channel), "preloaded"
            for b, row, column, pixels in self._pixels():
                to = ACCUMULATOR | ACCUMULATE | self._sums(b, row, column, output)
                yield "gemmini_extended_preload", (weights, to, width, depth, width, pixels)
                a = self._input(b, row + r, column + s, channel)
                given = (a, GARBAGE, depth, pixels, width, pixels)
                yield f"gemmini_extended_compute_{kind}", given
                weights, kind = GARBAGE, "accumulated"

    def _stores(self) -> Iterator[Instruction]:
        p, at = self.problem, self.at
        for b, row, column, pixels in self._pixels():
            pixel = ((at.batches + b) * p.out_size + at.rows + row) * p.out_size
            for output in range(0, self.tile.outputs, DIM):
                offset = (pixel + at.columns + column) * p.outputs + at.outputs + output
                where = ACCUMULATOR | ACCUMULATE | self._sums(b, row, column, output)
                width = min(DIM, self.tile.outputs - output)
                yield "gemmini_extended_mvout", (Dram("C", offset), where, width, pixels)


def _pieces(left: int, columns: int, size: int) -> Iterator[tuple[int, int]]:
    """First pixel and pixels of each move of a row: at most DIM, outside of the image or inside."""
    x = left
    while x < left + columns:
        end = 0 if x < 0 else size if x < size else left + columns
        pixels = min(DIM, end - x, left + columns - x)
        yield x, pixels
        x += pixels


def conv_bytes_read(problem: Convolution, tiles: ConvTiles | None = None) -> dict[str, int]:
    """Bytes that the moves in read, by tensor."""
    return bytes_of(convolution(problem, tiles))


def conv_to_c(problem: Convolution, function: str, tiles: ConvTiles | None = None) -> str:
    """The stream as a C function of A, B and C."""
    declared = ("const int8_t *A", "const int8_t *B", "int8_t *C")
    return function_of(convolution(problem, tiles), function, declared)
