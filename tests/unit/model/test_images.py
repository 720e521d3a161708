"""Images hold what their index says, and outputs come back whole."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.model import images
from hwgen.model.images import pack, unpack
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.grammar import parse_expression
from tests.samples import tiled_gemm_requant


def image(
    index: tuple[str, ...], outer: tuple[int, ...], lanes: tuple[int, ...] = (), fill: int = 0
) -> Image:
    parsed: tuple[Expr, ...] = tuple(parse_expression(i) for i in index)
    return Image("i", "t", "input", "int16", outer, lanes, parsed, fill)


IMAGES = [
    (image(("p0*4 + p2", "p1*3 + p3"), (2, 2), (4, 3)), (8, 6)),
    (image(("p0*4 + p2", "p1*3 + p3"), (2, 2), (4, 3), fill=7), (7, 5)),
    (image(("p0 - 2", "p1 - 1"), (7, 6), fill=-1), (4, 4)),
    (image(("p0 + p1",), (3, 4), (), 9), (5,)),
    (image(("p1", "p0"), (3, 5)), (5, 3)),
    (image(("p0 // 2", "p0 % 2 * 3 + p1"), (6,), (3,), 5), (3, 5)),
    (image(("4 - p0",), (6,), fill=2), (5,)),
    (image(("p0 + 100*p1",), (5, 3), fill=1), (5,)),
    (image(("0", "p0"), (4, 3)), (1, 4)),
]


@pytest.mark.parametrize(("layout", "shape"), IMAGES)
@pytest.mark.parametrize("block", [1, 1 << 22])
def test_packing_follows_the_index(
    layout: Image, shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_GATHER_ELEMENTS", block)
    tensor = np.reshape(np.arange(1, prod(shape) + 1, dtype=np.int16), shape)
    packed = pack(layout, tensor, "int16")
    whole = layout.outer + layout.lanes
    assert packed.shape == whole
    for position in product(*map(range, whole)):
        names = {f"p{axis}": p for axis, p in enumerate(position)}
        at = tuple(int(evaluate(i, names)) for i in layout.index)
        inside = all(0 <= i < extent for i, extent in zip(at, shape, strict=True))
        assert packed[position] == (tensor[at] if inside else layout.fill), position


def test_unpacking_inverts_packing_with_padding() -> None:
    layout = image(("p0*4 + p2", "p1*3 + p3"), (2, 2), (4, 3))
    tensor = np.reshape(np.arange(35, dtype=np.int16), (7, 5))
    np.testing.assert_array_equal(unpack(layout, pack(layout, tensor, "int16"), (7, 5)), tensor)


@pytest.mark.parametrize(
    ("index", "outer", "shape", "found"),
    [
        (("p0 + p1",), (3, 4), (6,), "t[1] has several positions"),
        (("p0 * 2",), (3,), (6,), "t[1] has no position"),
        (("p0 // 2",), (6,), (3,), "t[0] has several positions"),
        (("p0", "p1"), (2, 3), (2, 4), "t[0, 3] has no position"),
    ],
)
def test_an_output_element_needs_exactly_one_position(
    index: tuple[str, ...], outer: tuple[int, ...], shape: tuple[int, ...], found: str
) -> None:
    with pytest.raises(HwgenError) as error:
        unpack(image(index, outer), np.zeros(outer, np.int16), shape)
    assert error.value.code == "H725"
    assert error.value.diagnostic.found == found


def test_an_element_not_written_is_named() -> None:
    layout = image(("p0", "p1"), (2, 3))
    written = np.array([[True, True, True], [True, False, False]])
    with pytest.raises(HwgenError, match=r"H724(.|\n)*t\[1, 1\] \(2 of 6") as error:
        unpack(layout, np.zeros((2, 3), np.int16), (2, 3), written)
    assert error.value.code == "H724"


def test_conversions_must_lose_nothing() -> None:
    wide = Image("i", "t", "input", "int32", (3,), (), (parse_expression("p0"),), -5)
    np.testing.assert_array_equal(
        pack(wide, np.array([-128, 0, 127], np.int8), "int8"), np.array([-128, 0, 127], np.int32)
    )
    narrow = Image("i", "t", "input", "int8", (3,), (), (parse_expression("p0"),), 0)
    with pytest.raises(HwgenError, match="H725"):
        pack(narrow, np.zeros(3, np.int32), "int32")
    with pytest.raises(HwgenError, match="H726"):
        pack(narrow, np.zeros((3, 1), np.int8), "int8")


def test_the_samples_weights_are_blocked() -> None:
    weights = next(i for i in tiled_gemm_requant(16, 32, 48).images if i.tensor == "b")
    tensor = np.reshape(np.arange(32 * 48, dtype=np.int64).astype(np.int8), (32, 48))
    expected = np.transpose(np.reshape(tensor, (2, 16, 3, 16)), (0, 2, 1, 3))
    np.testing.assert_array_equal(pack(weights, tensor, "int8"), expected)
