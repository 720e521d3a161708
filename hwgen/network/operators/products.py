"""Sums of products with weights: products of matrices, and what they have in common with
convolutions.

Reference for integers: tensorflow/lite/kernels/internal/reference/integer_ops/conv.h
(ConvPerChannel), depthwise_conv.h (DepthwiseConvPerChannel) and fully_connected.h (FullyConnected)
of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from hwgen.network.operators.layer import Layer, agree, need
from hwgen.network.operators.statements import (
    Axis,
    Statements,
    access,
    axes_of,
    broadcast,
    extent,
    literal,
    wide,
)
from hwgen.spec.typecheck import is_float


class Ending(Protocol):
    """What happens to sums of products, by the arithmetic of their types. `sums`: their type;
    `outside`: the number that surrounds an image."""

    @property
    def sums(self) -> str: ...

    @property
    def outside(self) -> str: ...

    def product(self, x: str, w: str) -> str:
        """One term of a sum."""
        ...

    def declare(self, s: Statements, axes: Sequence[Axis], channels: Sequence[Axis], /) -> None:
        """Constants, and statements between the sums `acc` and the output."""

    def value(self, axes: Sequence[Axis], channels: Sequence[Axis]) -> str:
        """The output, in terms of what was declared."""
        ...


@dataclass(frozen=True, slots=True)
class OfFloats:
    """A bias is added, where that input is there; `scales`: of the sum and of the bias; `shape`: of
    a bias that is broadcast to the output."""

    sums: str
    bias: int | None = None
    scales: tuple[float, float] = (1.0, 1.0)
    shape: tuple[int, ...] | None = None

    @property
    def outside(self) -> str:
        """What an image is surrounded by."""
        return "0.0"

    def product(self, x: str, w: str) -> str:
        """One term of a sum."""
        return f"{x} * {w}"

    def declare(self, s: Statements, axes: Sequence[Axis], channels: Sequence[Axis], /) -> None:
        """The bias."""
        if self.bias is not None:
            s.read(self.bias, "bias", self._of(axes, channels))

    def _of(self, axes: Sequence[Axis], channels: Sequence[Axis]) -> Sequence[Axis]:
        return channels if self.shape is None else broadcast(self.shape, axes)

    def value(self, axes: Sequence[Axis], channels: Sequence[Axis]) -> str:
        """The sum and the bias."""
        found = [access("acc", axes)]
        if self.bias is not None:
            found.append(access("bias", self._of(axes, channels)))
        terms = zip(found, self.scales, strict=False)
        return " + ".join(t if f == 1.0 else f"{t} * {literal(f)}" for t, f in terms)


def closed(
    s: Statements, ending: Ending, axes: Sequence[Axis], channels: Sequence[Axis], macs: int
) -> Layer:
    """The layer of sums `acc` over the axes."""
    ending.declare(s, axes, channels)
    return s.finish(ending.value(axes, channels), axes, macs)


def matrix(
    s: Statements,
    rows: int,
    columns: int,
    depth: int,
    ending: Ending,
    inputs: tuple[int, int] = (0, 1),
    turned: tuple[bool, bool] = (False, True),
) -> Layer:
    """Rows times a matrix of weights. `inputs`: which are the two; `turned`: which of them are
    transposed."""
    agree(s.given(inputs[0]).elements == rows * depth and s.y.elements == rows * columns)
    m, n, k = ("m", rows), ("n", columns), ("k", depth)
    x = s.read(inputs[0], "x", [k, m] if turned[0] else [m, k])
    # With one row kernels run along a sum, if it has no order; with more along the results.
    laid = [n, k] if rows == 1 and not is_float(ending.sums) else [k, n]
    w = s.read(inputs[1], "w", [n, k] if turned[1] else [k, n], laid)
    s.say(f"{s.local('acc', ending.sums, [m, n])} += {ending.product(x, w)}")
    return closed(s, ending, [m, n], [n], rows * columns * depth)


def matmul(s: Statements, ending: Ending, inputs: tuple[int, int] = (0, 1)) -> Layer:
    """Products of matrices, as NumPy's `matmul`."""
    left, right = (s.given(n).shape for n in inputs)
    need(bool(left) and bool(right), "a number for a matrix")
    depth, rows = left[-1], left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    if len(right) <= 2:
        # One matrix for all rows.
        return matrix(s, prod(left[:-1]), columns, depth, ending, inputs, (False, False))
    batches = s.y.shape[: len(s.y.shape) - (len(left) > 1) - (len(right) > 1)]
    lead = axes_of(batches, "abdefg")
    m, n, k = wide([("m", rows)]), [("n", columns)], ("k", depth)
    x = s.read(inputs[0], "x", [*broadcast(left[:-2], lead), *m, k])
    w = s.read(inputs[1], "w", [*broadcast(right[:-2], lead), k, *n])
    axes = [*wide(lead), *m, *n]
    s.say(f"{s.local('acc', ending.sums, axes)} += {ending.product(x, w)}")
    return closed(s, ending, axes, n, extent(axes) * depth)
