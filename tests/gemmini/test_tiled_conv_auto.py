"""The public library's tiles and instruction stream of a convolution, executed by the header."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from hwgen.model.compiled import have_compiler
from tests.gemmini import harness
from tests.gemmini.harness import Signature, Tensor
from tests.gemmini.tiled_conv_auto import (
    Convolution,
    ConvTiles,
    choose_conv_tiles,
    conv_bytes_read,
    conv_to_c,
)

COUNTED = (
    (Convolution(4, 56, 64, 64), ConvTiles(4, 8, 16, 16, 3, 3, 64), 5_349_376),
    (Convolution(4, 28, 128, 128), ConvTiles(4, 8, 16, 16, 3, 3, 128), 5_357_568),
    (Convolution(4, 14, 256, 256), ConvTiles(4, 9, 14, 16, 3, 3, 144), 4_849_664),
)
"""4.85 to 5.36 MB were counted of the library."""


@pytest.mark.parametrize(("problem", "tiles", "read"), COUNTED, ids=str)
def test_tiles_and_bytes_are_the_librarys(
    problem: Convolution, tiles: ConvTiles, read: int
) -> None:
    assert choose_conv_tiles(problem) == tiles
    assert sum(conv_bytes_read(problem).values()) == read
    assert 4.85 <= ceil(read / 1e4) / 100 <= 5.36


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize(
    ("problem", "tiles"),
    [
        (Convolution(2, 7, 32, 32, scale=0.0005), ConvTiles(1, 4, 5, 16, 2, 3, 16)),
        (Convolution(2, 20, 16, 16, scale=0.002), None),
        (Convolution(1, 7, 80, 16, scale=0.001, kernel=1, padding=0), None),
        (Convolution(3, 6, 16, 80, scale=0.001), ConvTiles(3, 6, 6, 16, 3, 3, 16)),
        (Convolution(3, 6, 16, 16, scale=0.001), ConvTiles(2, 3, 4, 16, 3, 3, 16)),
    ],
    ids=str,
)
def test_stream_computes_the_convolution(problem: Convolution, tiles: ConvTiles | None) -> None:
    """Tiles in every loop; the library's own; the input, then the weights loaded once."""
    p = problem
    random = np.random.default_rng(7)
    a = random.integers(-128, 128, (p.batch, p.size, p.size, p.channels), np.int8)
    b = random.integers(-128, 128, (p.kernel, p.kernel, p.channels, p.outputs), np.int8)
    inside = slice(p.padding, p.padding + p.size)
    width = p.size + 2 * p.padding
    padded = np.zeros((p.batch, width, width, p.channels), np.int64)
    padded[:, inside, inside] = a
    sums = np.zeros((p.batch, p.out_size, p.out_size, p.outputs), np.int64)
    for r in range(p.kernel):
        for s in range(p.kernel):
            window = padded[:, r : r + p.out_size, s : s + p.out_size]
            sums += window @ b[r, s].astype(np.int64)
    scaled = np.rint(sums.astype(np.float32) * np.float32(p.scale))
    c = np.minimum(np.maximum(scaled, -128), 127).astype(np.int8)
    inputs = {"A": a, "B": b}
    tensors = tuple(Tensor(name, str(x.dtype), x.shape) for name, x in inputs.items())
    signature = Signature("f", tensors, (Tensor("C", "int8", c.shape),))
    program = harness.build(conv_to_c(p, "f", tiles), (signature,), flags=("-O0",))
    result = harness.run(program, "f", inputs)
    assert (result.code, result.error) == ("", "")
    np.testing.assert_array_equal(result.outputs["C"], c)
    read = {name: traffic[0] for name, traffic in result.traffic.items() if traffic[0]}
    assert read == conv_bytes_read(p, tiles)
    assert result.traffic["C"][1] == c.nbytes
