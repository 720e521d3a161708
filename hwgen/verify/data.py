"""Test data: input tensors drawn from a seed, and the first difference of two results."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hwgen.model.numeric import Array, Value, load, store
from hwgen.model.reference import random_inputs
from hwgen.spec.typecheck import LARGEST, SMALLEST, integer_range, is_float
from hwgen.spec.workload import Tensor, Workload

Style = Literal["random", "extremes", "small", "special"]
STYLES: tuple[Style, ...] = ("random", "extremes", "small", "special")

_POISON = 256
"""Elements to each one that makes NaN or infinity of most sums that it is in."""
_HARMLESS = 16
"""Elements to each zero or subnormal number, of either sign."""


def draw_inputs(workload: Workload, seed: int, style: Style = "random") -> dict[str, Array]:
    """An array for every input.

    `random`: the whole range of an integer type, as many small values as large ones where it has
    more than 8 bits, or a normal distribution. `extremes`: only the
    ends of the range, 0, 1 and -1. `small`: -3 to 3. `special`: as `random`, but among floats lie
    zeros and subnormal numbers of both signs, and a few NaN, infinities and largest numbers.
    """
    if style in ("random", "special"):
        drawn = random_inputs(workload, seed)
        if style == "special":
            drawn |= {t.name: _special(t, drawn[t.name], seed) for t in workload.inputs}
        return drawn
    return {t.name: _draw(t, seed, style) for t in workload.inputs}


def _special(tensor: Tensor, ordinary: Array, seed: int) -> Array:
    if not is_float(tensor.dtype):
        return ordinary
    generator = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    values = load(ordinary, tensor.dtype).array.astype(np.float64).ravel()
    least, largest = 2 * SMALLEST[tensor.dtype], LARGEST[tensor.dtype]
    harmless = [0.0, -0.0, least, -least, 37 * least]
    poison = generator.choice([np.nan, np.inf, -np.inf, largest, -largest], 2, replace=False)
    for kinds, apart in ((harmless, _HARMLESS), (poison, _POISON)):
        # In few elements, one has its place in every other draw: a sum over all would be it.
        count = min(values.size, values.size // apart or int(generator.integers(2)))
        places = generator.choice(values.size, count, replace=False)
        values[places] = generator.choice(kinds, count)
    return np.reshape(store(Value(values, "float64"), tensor.dtype), tensor.shape)


def _draw(tensor: Tensor, seed: int, style: Style) -> Array:
    generator = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    if "float" in tensor.dtype:
        ends = -1e3, 1e3
    else:
        limits = tensor.range or integer_range(tensor.dtype)
        ends = float(limits[0]), float(limits[1])
    near = [min(max(n, ends[0]), ends[1]) for n in (-3.0, 3.0)]
    low, high = ends if style == "extremes" else near
    values = [v for v in (low, -1.0, 0.0, 1.0, high) if low <= v <= high]
    if style == "small":
        values = [float(v) for v in range(int(low), int(high) + 1)]
    drawn = generator.choice(np.array(values, np.float64), size=tensor.shape)
    return np.reshape(store(Value(drawn, "float64"), tensor.dtype), tensor.shape)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two tensors first differ, and in how many elements of how many."""

    tensor: str
    index: tuple[int, ...]
    found: str
    expected: str
    count: int
    elements: int

    def __str__(self) -> str:
        at = ", ".join(map(str, self.index))
        return (
            f"{self.tensor}[{at}] is {self.found}, the reference has {self.expected}; "
            f"{self.count} of {self.elements} elements differ"
        )


def first_difference(
    found: Mapping[str, Array], expected: Mapping[str, Array]
) -> Difference | None:
    """Compare every expected tensor bit for bit."""
    for name, right in expected.items():
        left = found.get(name)
        if left is None:
            return Difference(name, (), "missing", "a tensor", right.size, right.size)
        if left.shape != right.shape or left.dtype != right.dtype:
            return Difference(
                name, (), f"{left.dtype}{list(left.shape)}", f"{right.dtype}{list(right.shape)}",
                right.size, right.size,
            )  # fmt: skip
        unequal = differences(left, right)
        count = int(np.count_nonzero(unequal))
        if count:
            where = tuple(int(i) for i in np.unravel_index(int(np.argmax(unequal)), right.shape))
            return Difference(name, where, str(left[where]), str(right[where]), count, right.size)
    return None


def differences(left: Array, right: Array) -> npt.NDArray[np.bool_]:
    """Which elements of arrays of one shape and type have other bits, row by row."""
    return np.any(_bits(left) != _bits(right), axis=1)


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    """One row of bytes per element."""
    raw = np.frombuffer(array.tobytes(), np.uint8)
    return np.reshape(raw, (array.size, array.itemsize))
