"""Images of constants follow the loops that take them, where these part the tensor's dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from hwgen.codegen.storages import Image
from hwgen.kernel import build
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.verify.data import draw_inputs

BYTES = {"a": "uint8", "OUT": "int32"}


def _image(m: int, n: int, k: int) -> tuple[Image, Array, Array]:
    """The weights' image of a product, what the kernel makes of numbers, and what is right."""
    kernel = build(
        "gemm", "x86_vnni", sizes={"M": m, "N": n, "K": k}, dtypes=BYTES, engine="python"
    )
    (image,) = (i for i in kernel.compilation.program.images if i.tensor == "b")
    inputs = draw_inputs(kernel.workload, 0)
    (expected,) = run_reference(kernel.workload, inputs).values()
    return image, np.asarray(kernel(*inputs.values())), expected


def test_a_panel_lies_together() -> None:
    """Columns that a tile takes lie next to each other for one step of the sum, and the sum's steps
    follow each other, before the next tile's columns come."""
    image, found, expected = _image(24, 256, 64)
    panels, steps, columns = image.outer
    assert (panels * columns, steps, image.lanes) == (256 // 16, 64 // 4, (16, 4))
    assert 1 < columns <= 4
    assert [str(i) for i in image.index] == [
        f"p0 * {16 * columns} + p2 * 16 + p3",
        "p1 * 4 + p4",
    ]
    assert (found == expected).all()


@pytest.mark.parametrize("n", [16 * 7, 16 * 5 + 3])
def test_a_last_tile_of_fewer_columns_finds_its_own(n: int) -> None:
    image, found, expected = _image(24, n, 32)
    assert image.entries * 16 >= -(-n // 16) * 16 * 32 // 4
    assert (found == expected).all()


def test_columns_of_one_tile_follow_the_sum() -> None:
    image, found, expected = _image(24, 64, 64)
    assert image.outer == (64 // 4, 64 // 16)
    assert (found == expected).all()
