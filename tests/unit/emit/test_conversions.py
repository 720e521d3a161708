"""Every conversion that packing makes: from each data type to each that holds its numbers, in C and
in the simulator."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from hwgen.codegen.emit_c import emit
from hwgen.codegen.storages import Image
from hwgen.model.images import lossless, pack, supplied
from hwgen.model.numeric import STORAGE, Array, Value, load, store
from hwgen.spec.expression import DTYPES, Binary, Const, Expr, evaluate
from hwgen.spec.typecheck import integer_range, is_float
from tests.sampling import tiered
from tests.unit.emit import toy
from tests.unit.emit.test_targets import FLAT, P, needs_compiler, pointers, vendor

PAIRS = [(s, t) for s, t in product(DTYPES, DTYPES) if lossless(s, t)]
SHAPE = (3, 11)


def minus(expr: Expr, number: int) -> Expr:
    return Binary("-", expr, Const(number))


Index = tuple[Expr, Expr]
LAYOUTS: dict[str, tuple[tuple[int, ...], Index]] = {
    "rows": ((3, 11), (P[0], P[1])),
    "rows with a tail": ((3, 16), (P[0], P[1])),
    "rows between what pads them": ((5, 16), (minus(P[0], 1), minus(P[1], 3))),
    "columns": ((11, 3), (P[1], P[0])),
    "columns with a tail": ((12, 4), (P[1], P[0])),
    "every other element": ((3, 8), (P[0], Binary("*", Const(2), P[1]))),
    "one after the other": ((3, 4), (Const(1), FLAT)),
}
"""Shapes of images of `SHAPE`, and where their elements come from: one for each way to pack."""


def numbers(dtype: str) -> list[int | float]:
    if is_float(dtype):
        return [0.0, -0.0, 1.0, -1.0, 0.5, -2.75, 2.0**-14, 2.0**-20, 240.0, float("inf"), -3.0]
    low, high = integer_range(dtype)
    return [low, low + 1, 0, 1, 2, 3, 100, high - 1, high, max(low, -1), 7]


def tensor(dtype: str) -> Array:
    kind = "float64" if is_float(dtype) else "int64"
    row = np.array(numbers(dtype), STORAGE[kind])
    held = np.stack([row, row[::-1], np.roll(row, 4)])
    return store(Value(held, kind), dtype)


def value(array: Array, dtype: str) -> npt.NDArray[np.float64]:
    return load(array, dtype).array.astype(np.float64)


def test_all_pairs_are_here() -> None:
    assert {(s, t) for s, t in PAIRS if s != t} >= {
        ("float16", "float32"), ("bfloat16", "float64"), ("int8", "float16"), ("uint8", "bfloat16"),
        ("int16", "float32"), ("uint16", "int32"), ("uint32", "float64"), ("int32", "int64"),
    }  # fmt: skip
    assert len(PAIRS) == 45


@needs_compiler
@pytest.mark.parametrize(("source", "target"), tiered(PAIRS, PAIRS[::8]))
def test_packing_keeps_every_number(source: str, target: str, tmp_path: Path) -> None:
    fills: list[int | float] = [0, 1, 2]
    fills += [-1.5, -0.0] if is_float(target) else [integer_range(target)[1]]
    fills += [] if is_float(target) or target.startswith("u") else [integer_range(target)[0]]
    images: list[Image] = []
    for (name, (outer, index)), fill in product(LAYOUTS.items(), fills):
        if source == target and name == "rows":
            continue  # The tensor itself.
        own = f"{name} {fill}".replace(" ", "_").replace("-", "m").replace(".", "d")
        place = Image(own, "w", "input", target, outer, (), index, fill, tensor_dtype=source)
        images.append(place)
    workload = toy.workload(toy.tensor("w", SHAPE, "input", source))
    made = emit(toy.program((), *images), toy.chip(), workload)
    library = vendor(made, tmp_path)
    w = tensor(source)
    blob = np.zeros(library.toy_kernel_packed_bytes_w(), np.uint8)
    library.toy_kernel_pack_w(*pointers(w, blob))
    given, start = value(w, source), 0
    for image in images:
        expected = np.full(image.outer, image.fill, np.float64)
        for at in product(*map(range, image.outer)):
            where = [int(evaluate(e, {f"p{d}": p for d, p in enumerate(at)})) for e in image.index]
            if all(0 <= i < n for i, n in zip(where, SHAPE, strict=True)):
                expected[at] = given[tuple(where)]
        found = np.frombuffer(blob.tobytes()[start : start + image.bytes], STORAGE[target])
        start += -(-image.bytes // 64) * 64
        for packed in (np.reshape(found, image.outer), pack(image, w, source)):
            np.testing.assert_array_equal(value(packed, target), expected, str(image))
            assert np.array_equal(np.signbit(value(packed, target)), np.signbit(expected)), image


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_kernel_supplies_is_a_number(dtype: str) -> None:
    """One number everywhere, in the image's own type."""
    image = Image(
        "ones", "one", "input", dtype, (2, 8), (), (P[0], P[1]), 2, shape=(2, 5), supplied=1
    )
    expected = np.where(np.arange(8) < 5, 1.0, 2.0)
    packed = pack(image, supplied(image), dtype)
    np.testing.assert_array_equal(value(packed, dtype), np.tile(expected, (2, 1)))
