"""Windows over images: convolutions, pools, and sums over neighbouring channels.

Reference: https://onnx.ai/onnx/operators (Conv, ConvTranspose, AveragePool, MaxPool, LRN), and
tensorflow/lite/kernels/internal/reference/{pooling,integer_ops/pooling}.h (AveragePool, MaxPool)
and transpose_conv.h (TransposeConv) of https://github.com/tensorflow/tflite-micro: an average of
integers is rounded to the nearest, halves away from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.network.operators.layer import Layer, agree, need, need_float
from hwgen.network.operators.products import Ending, closed, matrix
from hwgen.network.operators.rescaling import Fixed
from hwgen.network.operators.statements import (
    Axis,
    Statements,
    access,
    affine,
    axes_of,
    extent,
    letters,
    literal,
)
from hwgen.spec.typecheck import integer_range, is_float

OUT, IN, PLACE = "ij", "rs", "hv"
"""Loops over outputs, within a window, and over the padded image."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `kernel` over an `image`, one for each element of `out`. `before`, `after`: what
    the image is padded by, as the model says; the last windows may reach further. `source`: the
    image, or what surrounds it, when a statement has read it."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(s: Statements, kernel: Sequence[int], number: int = 0) -> Windows:
        """By the operator's attributes, over an input.

        Raises:
            UnsupportedError: where they do not agree with the shapes.
        """
        x, y = s.given(number).shape, s.y.shape
        need(len(x) == len(y) >= 3, "no images")
        agree(x[0] == y[0])
        (image, out), rank = (image_of(s, shape) for shape in (x, y)), len(x) - 2
        strides = s.integers("strides", [1] * rank)
        dilations = s.integers("dilations", [1] * rank)
        need(len(strides) == len(dilations) == len(kernel) == rank, "no images")
        need(min(*strides, *dilations, *kernel) > 0, "an empty window")
        pads = padding(s, image, kernel, out)
        need(len(pads) == 2 * rank and min(pads) >= 0, "padding that cuts off")
        found = Windows(image, tuple(kernel), out, strides, dilations, pads[:rank], pads[rank:])
        if s.graph.channels_last:
            rows = zip(image, pads[:rank], pads[rank:], found.reach, strides, strict=True)
            agree(out == tuple((n + b + a - k) // t + 1 for n, b, a, k, t in rows))
        return found

    @property
    def reach(self) -> list[int]:
        """The extent of a window, with what dilation leaves out."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def is_point(self) -> bool:
        """Whether each output sees the element at its own place alone."""
        return {*self.kernel, *self.strides} == {1} and self.image == self.out

    @property
    def loops(self) -> list[Axis]:
        """Loops within a window."""
        return axes_of(self.kernel, IN)

    @property
    def outputs(self) -> list[Axis]:
        return axes_of(self.out, OUT)

    def read(
        self, s: Statements, number: int, lead: Sequence[Axis], last: Sequence[Axis], outside: str
    ) -> str:
        """The element of an input that a window has at a place; `lead`, `last`: dimensions around
        the image's. A statement surrounds the image by `outside` where windows leave it."""
        # Only so many rows and columns as windows reach.
        used = [(o - 1) * t + r for o, t, r in zip(self.out, self.strides, self.reach, strict=True)]
        rows = list(zip(used, self.before, self.image, strict=True))
        x = s.read(number, "x", [*lead, *axes_of(self.image, PLACE), *last])
        source = "x"
        if any(b or u > n for u, b, n in rows):
            around, inside = axes_of(used, PLACE), list[str]()
            taken: list[Axis] = []
            for (h, reached), b, n in zip(around, self.before, self.image, strict=True):
                inside += [f"{h} >= {b}"] * (b > 0) + [f"{h} < {b + n}"] * (reached > b + n)
                taken.append((f"{h} - {b}" if b else h, n))
            if inside:
                source, x = "xp", access("x", [*lead, *taken, *last])
                value = f"select({' and '.join(inside)}, {x}, {outside})"
                s.made(source, s.dtype(number), [*lead, *around, *last], value)
        at: list[Axis] = []
        names = zip(self.outputs, self.loops, self.strides, self.dilations, strict=True)
        for (i, o), (r, _), t, d in names:
            at.append((f"{i if t == 1 else f'{i}*{t}'} + {r if d == 1 else f'{r}*{d}'}", o))
        return access(source, [*lead, *at, *last])

    def counts(self, *, padded: bool) -> NDArray[np.int64]:
        """By output, the elements of its window inside the image, or the padded one."""
        product = np.ones((), np.int64)
        for d, n in enumerate(self.image):
            places = (
                np.arange(self.out[d])[:, None] * self.strides[d]
                + np.arange(self.kernel[d]) * self.dilations[d]
                - self.before[d]
            )
            low, high = (-self.before[d], n + self.after[d]) if padded else (0, n)
            product = np.multiply(product[..., None], ((places >= low) & (places < high)).sum(1))
        need(int(product.min()) > 0, "a window that lies wholly in the padding")
        return product


def padding(
    s: Statements, image: Sequence[int], kernel: Sequence[int], out: Sequence[int]
) -> tuple[int, ...]:
    """Elements before all dimensions of an image, then after them, by the operator's attributes."""
    rank, auto = len(image), s.word("auto_pad", "NOTSET")
    if not auto.startswith("SAME"):
        return s.integers("pads", [0] * (2 * rank))
    strides, dilations = s.integers("strides", [1] * rank), s.integers("dilations", [1] * rank)
    rows = [*zip(image, kernel, strides, dilations, out, strict=True)]
    agree(all(o == -(-n // t) for n, _, t, _, o in rows))
    return halves([max((o - 1) * t + (k - 1) * d + 1 - n, 0) for n, k, t, d, o in rows], auto)


def halves(totals: Sequence[int], auto: str) -> tuple[int, ...]:
    """The larger half of each total after the dimension, or before it."""
    less = [t // 2 for t in totals]
    more = [t - h for t, h in zip(totals, less, strict=True)]
    return (*less, *more) if auto == "SAME_UPPER" else (*more, *less)


def image_of(s: Statements, shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of a tensor that are neither its batch nor its channels."""
    return tuple(shape[1:-1] if s.graph.channels_last else shape[2:])


@dataclass(frozen=True, slots=True)
class Channels:
    """Groups, and in each the channels of the input and of the output, as axes; dimensions without
    a loop are left out."""

    g: list[Axis]
    c: list[Axis]
    o: list[Axis]

    @staticmethod
    def of(groups: int, inputs: int, outputs: int) -> Channels:
        if groups == 1:
            return Channels([], [("c", inputs)], [("o", outputs)])
        if inputs == 1:  # The groups are the channels.
            return Channels([("c", groups)], [], [("d", outputs)] if outputs > 1 else [])
        return Channels([("g", groups)], [("c", inputs)], [("o", outputs)])

    @property
    def outer(self) -> list[Axis]:
        """Those of the output."""
        return [*self.g, *self.o]


def placed(
    s: Statements, batch: Sequence[Axis], channels: Sequence[Axis], image: Sequence[Axis]
) -> list[Axis]:
    """The dimensions of an activation, in the order of the model's format."""
    return [*batch, *image, *channels] if s.graph.channels_last else [*batch, *channels, *image]


def batch_of(s: Statements) -> list[Axis]:
    n = s.y.shape[0]
    return [("n", n)] if n > 1 else []


def convolution(
    s: Statements,
    kernel: Sequence[int],
    sizes: tuple[int, int, int],
    order: str,
    ending: Ending,
    inputs: tuple[int, int] = (0, 1),
) -> Layer:
    """A convolution. `kernel`: as of `Windows`; `sizes`: groups, and each one's channels of
    the input and the output; `order`: of the weights' dimensions, r the window's; `inputs`: which
    are the activations and the weights."""
    groups, depth, outputs = sizes
    x, y = s.given(inputs[0]), s.y
    windows, found = Windows.of(s, kernel, inputs[0]), Channels.of(groups, depth, outputs)
    axis = -1 if s.graph.channels_last else 1
    agree(x.shape[axis] == groups * depth and y.shape[axis] == groups * outputs)
    agree(s.given(inputs[1]).elements == extent([*found.outer, *found.c, *windows.loops]))
    if s.graph.channels_last and groups == 1 and windows.is_point:
        return matrix(s, prod(x.shape[:-1]), outputs, depth, ending, inputs)
    part = {"g": found.g, "c": found.c, "o": found.o, "r": windows.loops}
    weights = [axis for letter in order for axis in part[letter]]
    laid = weights
    if s.graph.channels_last:  # As kernels run along the results.
        laid = [*windows.loops, *found.g, *found.c, *found.o]
    batch = batch_of(s)
    around = [*found.g, *found.c]
    lead = batch if s.graph.channels_last else [*batch, *around]
    last = around if s.graph.channels_last else []
    read = windows.read(s, inputs[0], lead, last, ending.outside)
    w = s.read(inputs[1], "w", weights, laid)
    axes = placed(s, batch, found.outer, windows.outputs)
    s.say(f"{s.local('acc', ending.sums, axes)} += {ending.product(read, w)}")
    macs = y.elements * depth * prod(kernel)
    return closed(s, ending, axes, found.outer, macs)


def scattered(s: Statements, groups: int, before: Sequence[int]) -> Layer:
    """A transposed convolution: each element of the input times the weights, added to the output at
    a distance of strides. `before`: elements of the result that are cut off."""
    dtype = need_float(s.y)
    x, w, y = s.given().shape, s.given(1).shape, s.y.shape
    rank = len(x) - 2
    need(len(x) == len(w) == len(y) >= 3 and x[1] == w[0] and y[1] == w[1] * groups, "no images")
    strides, dilations = s.integers("strides", [1] * rank), s.integers("dilations", [1] * rank)
    need(min(before) >= 0, "padding that cuts off")
    found = Channels.of(groups, x[1] // groups, w[1])
    batch, places, loops = batch_of(s), axes_of(x[2:], PLACE), axes_of(w[2:], IN)
    outer = axes_of(y[2:], OUT)
    one = s.read(0, "x", [*batch, *found.g, *found.c, *places])
    weight = s.read(1, "w", [*found.g, *found.c, *found.o, *loops])
    full = [
        max((n - 1) * t + (k - 1) * d + 1, b + o)
        for n, t, k, d, b, o in zip(x[2:], strides, w[2:], dilations, before, y[2:], strict=True)
    ]
    at = [
        affine([(i, n, t), (r, k, d)])
        for (i, n), (r, k), t, d in zip(places, loops, strides, dilations, strict=True)
    ]
    lead = [*batch, *found.outer]
    sums = s.local("acc", dtype, [*lead, *zip(at, full, strict=True)])
    s.say(f"{sums} += {one} * {weight}", [*lead, *places, *found.c, *loops])
    taken = [affine([(i, o, 1)], b) for (i, o), b in zip(outer, before, strict=True)]
    value = access("acc", [*lead, *zip(taken, full, strict=True)])
    if s.has(2):
        value = f"{value} + {s.read(2, 'bias', found.outer)}"
    return s.finish(value, [*lead, *outer], prod(x) * prod(w[1:]))


def by_places(s: Statements, ending: Ending) -> Layer:
    """A transposed convolution that computes a block of outputs for each input, with channels for
    each place in the block, and a statement for each place that moves it; weights `[O, R, Q, C]`,
    which are input 1, of activations that are input 2."""
    x, y, w = s.given(2), s.y, s.values(1, "weights")
    need(len(x.shape) == len(y.shape) == w.ndim == 4, "no images")
    channels, *kernel, depth = w.shape
    agree((x.shape[0], depth) == (y.shape[0], x.shape[3]) and y.shape[3] == channels)
    strides = s.integers("strides")
    need(min(strides) > 0, "a stride of 0")
    before = padding(s, y.shape[1:3], kernel, x.shape[1:3])[:2]
    # Output s*u + p reads input u + d with the weight p + before - s*d, for each d of a range.
    first = [-((k - 1 - b) // t) for k, b, t in zip(kernel, before, strides, strict=True)]
    taps = [(t - 1 + b) // t - f + 1 for b, t, f in zip(before, strides, first, strict=True)]
    parts = np.zeros((*taps, depth, *strides, channels), w.dtype)
    for t0, t1, p, q in product(*map(range, (*taps, *strides))):
        r = p + before[0] - strides[0] * (first[0] + t0)
        column = q + before[1] - strides[1] * (first[1] + t1)
        if 0 <= r < kernel[0] and 0 <= column < kernel[1]:
            parts[t0, t1, :, p, q] = np.transpose(w[:, r, column])
    places = prod(strides)
    parts = np.reshape(parts, (*taps, depth, places * channels))
    inner, outer, own = ("c", depth), ("o", places * channels), ("o", channels)
    if isinstance(ending, Fixed):
        ending, own = ending.instead(w, parts, places), outer
    blocks = tuple(-(-n // t) for n, t in zip(y.shape[1:3], strides, strict=True))
    ones, around = (1, 1), (-first[0], -first[1])
    windows = Windows(x.shape[1:3], (taps[0], taps[1]), blocks, ones, ones, around, (0, 0))
    batch = batch_of(s)
    read = windows.read(s, 2, batch, [inner], ending.outside)
    weight = s.constant("w", str(w.dtype), parts, [*windows.loops, inner, outer])
    axes = [*batch, *windows.outputs, outer]
    s.say(f"{s.local('acc', ending.sums, axes)} += {ending.product(read, weight)}")
    ending.declare(s, axes, [own])
    image = axes_of(y.shape[1:3], OUT)
    for place, at in enumerate(product(*map(range, strides))):
        counts = [len(range(m)[a::t]) for (_, m), a, t in zip(image, at, strides, strict=True)]
        if min(counts):
            moved = (f"o + {place * channels}", places * channels)
            of = [moved] if own is outer else [own]
            value = ending.value([*batch, *windows.outputs, moved], of)
            to = [(f"{i}*{t} + {a}", n) for (i, n), a, t in zip(image, at, strides, strict=True)]
            target = s.local("y", y.dtype, [*batch, *to, ("o", channels)])
            loops = [*batch, *zip(letters(OUT, 2), counts, strict=True), ("o", channels)]
            s.say(f"{target} = {s.ended(value)}", loops)
    return s.layer(x.elements * prod(w.shape[:3]))


# --- pools ----------------------------------------------------------------------------------------


def _pooled(s: Statements, windows: Windows, outside: str) -> tuple[str, list[Axis], list[Axis]]:
    """What a window has at a place, the output's dimensions, and all loops."""
    x, y = s.given().shape, s.y.shape
    if s.graph.channels_last:
        agree(x[-1] == y[-1])
        lead, last = batch_of(s), [("c", x[-1])]
    else:
        agree(x[1] == y[1])
        lead, last = [("c", x[0] * x[1])], []
    read = windows.read(s, 0, lead, last, outside)
    axes = [*lead, *windows.outputs, *last]
    return read, axes, [*axes, *windows.loops]


def max_pool(s: Statements, kernel: Sequence[int], limits: tuple[int, int] | None = None) -> Layer:
    """Maxima over windows, within limits of integers."""
    dtype, windows = s.y.dtype, Windows.of(s, kernel)
    windows.counts(padded=False)
    outside = "-inf" if is_float(dtype) else str(integer_range(dtype)[0])
    x, axes, loops = _pooled(s, windows, outside)
    most = s.local("most", dtype, axes)
    s.say(f"{most} max= {x}", loops)
    if limits is not None:
        s.sizes |= {"LOW": limits[0], "HIGH": limits[1]}
        return s.finish(f"clip({most}, LOW, HIGH)", axes)
    return s.finish(most, axes)


def average_pool(
    s: Statements,
    kernel: Sequence[int],
    limits: tuple[int, int] | None = None,
    *,
    padded: bool = False,
) -> Layer:
    """Sums over windows, divided by the numbers of elements inside, which are constants; of
    integers where there are limits. `padded`: the padding counts, too."""
    windows = Windows.of(s, kernel)
    counts = windows.counts(padded=padded)
    total = "int32" if limits else s.y.dtype
    x, axes, loops = _pooled(s, windows, literal(0, total))
    sums = s.local("acc", total, axes)
    s.say(f"{sums} += {x}", loops)
    most = int(counts.max())
    if counts.min() < most:
        count = s.constant("count", total, counts.astype(total), windows.outputs)
    else:
        count = "COUNT" if limits else literal(most)
    if limits is None:
        return s.finish(f"{sums} / {count}", axes)
    s.sizes |= {"LOW": limits[0], "HIGH": limits[1], "COUNT": most}
    # `//` rounds down, C's `/` towards zero: both operands are positive here.
    value = f"({sums} + {count}//2)//{count}, -(({count}//2 - {sums})//{count})"
    return s.finish(f"clip(select({sums} > 0, {value}), LOW, HIGH)", axes)


def lrn(s: Statements, size: int, alpha: float, beta: float, bias: float) -> Layer:
    """Each element divided by a power of the sum of squares of neighbouring channels."""
    dtype, x = need_float(s.y), s.given().shape
    need(len(x) >= 2, "no channels")
    need(bias > 0 and alpha >= 0, "numbers that may be below zero")
    windows = Windows((x[1],), (size,), (x[1],), (1,), (1,), ((size - 1) // 2,), (0,))
    lead, last = batch_of(s), [("p", prod(x[2:]))]
    near = windows.read(s, 0, lead, last, "0.0")
    axes = [*lead, *windows.outputs, *last]
    sums = s.local("acc", dtype, axes)
    s.say(f"{sums} += {near} * {near}", [*axes, *windows.loops])
    factor = s.constant("alpha", dtype, np.asarray(alpha / size, dtype), ())
    s.inexact["alpha"] = 2.0**-24 * alpha / size
    power = f"exp(log({sums} * {factor} + {literal(bias)}) * {literal(-beta)})"
    return s.finish(f"{access('x', axes)} * {power}", axes)
