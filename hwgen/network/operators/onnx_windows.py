"""Windows over images with channels before the other dimensions: convolutions and pools.

Reference: https://onnx.ai/onnx/operators (Conv, ConvTranspose, AveragePool, MaxPool).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.onnx_layer import (
    Axis,
    Statements,
    access,
    affine,
    axes_of,
    cast,
    literal,
    need_float,
)
from hwgen.spec.typecheck import integer_range


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `kernel` over an `image`, one for each element of `out`. `before`, `after`: what
    the image is padded by, as the model says; the last windows may reach further."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(
        s: Statements, image: Sequence[int], kernel: Sequence[int], out: Sequence[int]
    ) -> Windows:
        """By the operator's attributes.

        Raises:
            UnsupportedError: where they do not agree with the shapes.
        """
        rank = len(image)
        strides = s.integers("strides", [1] * rank)
        dilations = s.integers("dilations", [1] * rank)
        need(len(strides) == len(dilations) == len(kernel) == len(out) == rank, "no images")
        need(min(*strides, *dilations, *kernel) > 0, "an empty window")
        pads = s.integers("pads", [0] * (2 * rank))
        auto = s.word("auto_pad", "NOTSET")
        if auto.startswith("SAME"):
            rows = zip(image, kernel, strides, dilations, out, strict=True)
            totals = [max((o - 1) * t + (k - 1) * d + 1 - n, 0) for n, k, t, d, o in rows]
            less = [t // 2 for t in totals]
            more = [t - h for t, h in zip(totals, less, strict=True)]
            pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
        elif auto == "VALID":
            pads = (0,) * (2 * rank)
        need(len(pads) == 2 * rank and min(pads, default=0) >= 0, "padding that cuts off")
        return Windows(
            tuple(image), tuple(kernel), tuple(out), strides, dilations, pads[:rank], pads[rank:]
        )

    @property
    def used(self) -> tuple[int, ...]:
        """How far windows reach, from the first padded element."""
        rows = zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        return tuple((o - 1) * t + (k - 1) * d + 1 for o, t, k, d in rows)

    @property
    def loops(self) -> list[Axis]:
        """Loops within a window."""
        return axes_of(self.kernel, "r")

    @property
    def outputs(self) -> list[Axis]:
        return axes_of(self.out, "i")

    def read(self, s: Statements, lead: Sequence[Axis], outside: str) -> str:
        """The element of input 0 that a window has at a place; `lead`: the dimensions before the
        image's. A statement surrounds the image where windows leave it."""
        rows = tuple(zip(self.used, self.before, self.image, strict=True))
        source, extents = "x", self.image
        if any(b or u - b > n for u, b, n in rows):
            source, extents = "xp", self.used
            inside: list[str] = []
            taken: list[Axis] = []
            for d, (used, before, n) in enumerate(rows):
                inside += [f"h{d} >= {before}"] * (before > 0)
                inside += [f"h{d} < {before + n}"] * (used > before + n)
                taken.append((affine([(f"h{d}", used, 1)], -before), n))
            x = s.read(0, "x", [*lead, *taken])
            target = s.local("xp", s.given(0).dtype, [*lead, *axes_of(self.used, "h")])
            value = f"select({' and '.join(inside)}, {x}, {outside})"
            s.say(f"{target} = {cast(s.given(0).dtype, value)}")
        else:
            s.read(0, "x", [*lead, *axes_of(self.image, "h")])
        at = [
            affine([(i, o, t), (r, k, d)])
            for (i, o), (r, k), t, d in zip(
                self.outputs, self.loops, self.strides, self.dilations, strict=True
            )
        ]
        return access(source, [*lead, *zip(at, extents, strict=True)])

    def counts(self, *, padded: bool) -> NDArray[np.int64]:
        """By output, the elements of its window inside the image, or the padded one."""
        found: list[NDArray[np.int64]] = []
        for d, n in enumerate(self.image):
            places = (
                np.arange(self.out[d])[:, None] * self.strides[d]
                + np.arange(self.kernel[d]) * self.dilations[d]
                - self.before[d]
            )
            low, high = (-self.before[d], n + self.after[d]) if padded else (0, n)
            found.append(((places >= low) & (places < high)).sum(1))
        product = np.ones((), np.int64)
        for one in found:
            product = np.multiply(product[..., None], one)
        return product


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution's dimensions: batches, groups, channels of the output and of the input in each,
    and its windows."""

    batches: int
    groups: int
    outputs: int
    inputs: int
    windows: Windows

    @staticmethod
    def of(s: Statements, weights: int) -> Convolution:
        """`weights`: the number of that input.

        Raises:
            UnsupportedError: where shapes do not agree.
        """
        x, w, y = s.given(0).shape, s.given(weights).shape, s.y.shape
        groups = int(s.number("group", 1))
        need(len(x) == len(w) == len(y) >= 3 and groups > 0, "no images")
        need(x[1] == groups * w[1] and y[1] == w[0] and w[0] % groups == 0, "groups")
        windows = Windows.of(s, x[2:], w[2:], y[2:])
        return Convolution(x[0], groups, w[0] // groups, w[1], windows)

    @property
    def y(self) -> list[Axis]:
        lead = [("n", self.batches), ("g", self.groups), ("o", self.outputs)]
        return [*lead, *self.windows.outputs]

    @property
    def w(self) -> list[Axis]:
        lead = [("g", self.groups), ("o", self.outputs), ("c", self.inputs)]
        return [*lead, *self.windows.loops]

    @property
    def bias(self) -> list[Axis]:
        return [("g", self.groups), ("o", self.outputs)]

    def read(self, s: Statements, outside: str) -> str:
        lead = [("n", self.batches), ("g", self.groups), ("c", self.inputs)]
        return self.windows.read(s, lead, outside)

    @property
    def macs(self) -> int:
        """Products."""
        return prod(n for _, n in self.y) * self.inputs * prod(self.windows.kernel)


def conv(graph: Graph, operator: Operator) -> Layer:
    """A convolution of floats over any number of dimensions, in groups."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    found = Convolution.of(s, 1)
    x, w = found.read(s, "0.0"), s.read(1, "w", found.w)
    sums = s.local("acc", dtype, found.y)
    s.say(f"{sums} += {x} * {w}")
    value = f"{sums} + {s.read(2, 'bias', found.bias)}" if s.has(2) else sums
    return s.finish(value, found.y, found.macs)


def conv_transpose(graph: Graph, operator: Operator) -> Layer:
    """Each element of the input times the weights, added to the output at a distance of strides."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    x, w, y = s.given(0).shape, s.given(1).shape, s.y.shape
    rank, groups = len(x) - 2, int(s.number("group", 1))
    need(len(x) == len(w) == len(y) >= 3 and x[1] == w[0] and y[1] == w[1] * groups, "no images")
    strides = s.integers("strides", [1] * rank)
    dilations = s.integers("dilations", [1] * rank)
    added = s.integers("output_padding", [0] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(w[2:], dilations, strict=True)]
    auto = s.word("auto_pad", "NOTSET")
    before = s.integers("pads", [0] * (2 * rank))[:rank]
    if "output_shape" in operator.attributes or auto.startswith("SAME"):
        rows = zip(x[2:], strides, added, reach, y[2:], strict=True)
        totals = [(n - 1) * t + a + r - o for n, t, a, r, o in rows]
        before = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals)
    elif auto == "VALID":
        before = (0,) * rank
    need(min(before, default=0) >= 0, "padding that cuts off")
    lead = [("n", x[0]), ("g", groups)]
    channels, outputs = ("c", x[1] // groups), ("o", w[1])
    places, loops, outer = axes_of(x[2:], "i"), axes_of(w[2:], "r"), axes_of(y[2:], "h")
    one = s.read(0, "x", [*lead, channels, *places])
    weight = s.read(1, "w", [lead[1], channels, outputs, *loops])
    full = [
        max((n - 1) * t + r, b + o)
        for n, t, r, b, o in zip(x[2:], strides, reach, before, y[2:], strict=True)
    ]
    at = [
        affine([(i, n, t), (r, k, d)])
        for (i, n), (r, k), t, d in zip(places, loops, strides, dilations, strict=True)
    ]
    sums = s.local("acc", dtype, [*lead, outputs, *zip(at, full, strict=True)])
    s.say(f"{sums} += {one} * {weight}", [*lead, outputs, *places, channels, *loops])
    taken = [affine([(h, o, 1)], b) for (h, o), b in zip(outer, before, strict=True)]
    value = access("acc", [*lead, outputs, *zip(taken, full, strict=True)])
    if s.has(2):
        value = f"{value} + {s.read(2, 'bias', [lead[1], outputs])}"
    macs = prod(x) * prod(w[1:])
    return s.finish(value, [*lead, outputs, *outer], macs)


def _pooled(s: Statements, *, everything: bool) -> tuple[Windows, list[Axis]]:
    """The windows of a pool and the dimensions before the image's."""
    x, y = s.given(0).shape, s.y.shape
    need(len(x) == len(y) >= 3 and x[:2] == y[:2], "no images")
    kernel = x[2:] if everything else s.integers("kernel_shape", ())
    return Windows.of(s, x[2:], kernel, y[2:]), [("c", x[0] * x[1])]


def max_pool(graph: Graph, operator: Operator) -> Layer:
    """Maxima over windows."""
    s = Statements(graph, operator)
    windows, lead = _pooled(s, everything=operator.kind.startswith("Global"))
    need(int(s.number("storage_order", 0)) == 0, "columns first")
    real = s.y.dtype.startswith("float")
    outside = "-inf" if real else str(integer_range(s.y.dtype)[0])
    need(windows.counts(padded=False).min() > 0, "a window that lies wholly in the padding")
    x = windows.read(s, lead, outside)
    axes = [*lead, *windows.outputs]
    s.say(f"{s.local('y', s.y.dtype, axes)} max= {x}", [*axes, *windows.loops])
    return s.layer()


def average_pool(graph: Graph, operator: Operator) -> Layer:
    """Averages over windows."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    windows, lead = _pooled(s, everything=operator.kind.startswith("Global"))
    counts = windows.counts(padded=bool(s.number("count_include_pad", 0)))
    need(int(counts.min()) > 0, "a window that lies wholly in the padding")
    x = windows.read(s, lead, "0.0")
    axes = [*lead, *windows.outputs]
    sums = s.local("acc", dtype, axes)
    s.say(f"{sums} += {x}", [*axes, *windows.loops])
    if counts.min() == counts.max():
        return s.finish(f"{sums} / {literal(int(counts.max()))}", axes)
    numbers = counts.astype(dtype)
    return s.finish(f"{sums} / {s.constant('count', dtype, numbers, windows.outputs)}", axes)


def lrn(graph: Graph, operator: Operator) -> Layer:
    """Each element divided by a power of the sum of squares of neighbouring channels."""
    s = Statements(graph, operator)
    dtype, x = need_float(s.y), s.given(0).shape
    need(len(x) >= 2, "no channels")
    size = int(s.number("size", 1))
    alpha = s.number("alpha", float(np.float32(1e-4))) / size
    beta, bias = s.number("beta", 0.75), s.number("bias", 1.0)
    need(bias > 0 and alpha >= 0, "numbers that may be below zero")
    before, channels = (size - 1) // 2, x[1]
    axes: list[Axis] = [("n", x[0]), ("c", channels), ("p", prod(x[2:]))]
    value = s.read(0, "x", axes)
    padded = channels + size - 1
    at = affine([("h", padded, 1)], -before)
    inside = f"h >= {before} and h < {before + channels}"
    one = access("x", [axes[0], (at, channels), axes[2]])
    target = s.local("xp", dtype, [axes[0], ("h", padded), axes[2]])
    s.say(f"{target} = select({inside}, {one}, 0.0)")
    near = access("xp", [axes[0], (affine([("c", channels, 1), ("r", size, 1)]), padded), axes[2]])
    sums = s.local("acc", dtype, axes)
    s.say(f"{sums} += {near} * {near}", [*axes, ("r", size)])
    factor = s.constant("alpha", dtype, np.asarray(alpha, dtype), ())
    s.inexact["alpha"] = 2.0**-24 * alpha
    power = f"exp(log({sums} * {factor} + {literal(bias)}) * {literal(-beta)})"
    return s.finish(f"{value} * {power}", axes)


ENTRIES = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "GlobalAveragePool": average_pool,
    "GlobalMaxPool": max_pool,
    "LRN": lrn,
    "MaxPool": max_pool,
}
