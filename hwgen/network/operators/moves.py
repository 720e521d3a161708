"""Operators that move elements and compute nothing.

Most of them take, along each dimension, the elements at constant indices. Indices in equal
distances are one statement, so a slice is one and an upsampling by a whole factor is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwgen.model.numeric import Array
from hwgen.network.operators.layer import Layer, agree, need, same_scale
from hwgen.network.operators.statements import (
    Axis,
    Statements,
    access,
    affine,
    axes_of,
    letters,
    literal,
    merged,
    wide,
)

Indices = NDArray[np.int64]

_MOST_RUNS = 64
"""Statements that read one tensor."""
_LOOPS = "ijklmn"


@dataclass(frozen=True, slots=True)
class _Run:
    """Places of the output, from `start` in steps, and the index that each takes, by the loop's
    name."""

    start: int
    count: int
    index: Callable[[str], str]
    step: int = 1


def _runs(indices: Indices) -> list[_Run]:
    """Indices as few progressions: all of them as a quotient or a remainder, a shortest pattern
    that repeats with equal steps, or runs that are each as long as they can be."""
    count = len(indices)
    places, first = np.arange(count), int(indices[0])
    period, repeats = int(indices.max()) + 1, int(np.count_nonzero(indices == first))
    if 1 < period < count and not count % period and np.array_equal(indices, places % period):
        return [_Run(0, count, lambda i: f"{i} % {period}")]
    if repeats > 1 and not count % repeats and np.array_equal(indices, places // repeats + first):
        return [_Run(0, count, lambda i: _divided(i, count, repeats, first))]
    found: list[_Run] = []
    start = 0
    while start < count:
        step = int(indices[start + 1] - indices[start]) if start + 1 < count else 0
        end = start + 1
        while end < count and indices[end] - indices[end - 1] == step:
            end += 1
        found.append(_run(start, end - start, int(indices[start]), step))
        start = end
    period = next(p for p in range(1, count + 1) if len({*(indices[p:] - indices[:-p])}) <= 1)
    if period < len(found):
        step = int(indices[period] - first)
        found = [
            _run(n, len(range(n, count, period)), int(indices[n]), step, period)
            for n in range(period)
        ]
    need(len(found) <= _MOST_RUNS, f"indices in more than {_MOST_RUNS} progressions")
    return found


def _divided(i: str, count: int, repeats: int, first: int) -> str:
    """An index that stays for some places; the loop is split by a factor of its extent."""
    return str(first) if count == repeats else f"{i}//{repeats} + {first}"


def _run(start: int, count: int, first: int, step: int, apart: int = 1) -> _Run:
    return _Run(start, count, lambda i: affine([(i, count, step)], first), apart)


def taken(
    s: Statements, x: Sequence[int], indices: Sequence[Indices | None], number: int = 0
) -> Layer:
    """Along each dimension of an input of shape `x` the elements at the indices, all where there
    are none."""
    same_scale(s.y, s.given(number))
    agree(len(x) == len(indices) and prod(x) == s.given(number).elements)
    for n, own in zip(x, indices, strict=True):
        inside = own is None or (own.size > 0 and 0 <= own.min() <= own.max() < n)
        need(inside, "an index outside")
    picked = [own if own is None or not _all(own, n) else None
              for own, n in zip(indices, x, strict=True)]  # fmt: skip
    kinds = [
        (d,) if own is not None else None if n == 1 else ()
        for d, (n, own) in enumerate(zip(x, picked, strict=True))
    ]
    found = merged(x, kinds)
    extents = [n for n, _ in found]
    own = [picked[kind[0]] if kind else None for _, kind in found]
    size = [n if taken is None else len(taken) for n, taken in zip(extents, own, strict=True)]
    agree(prod(size) == s.y.elements)
    runs = [
        [_run(0, n, 0, 1)] if given is None else _runs(given)
        for n, given in zip(extents, own, strict=True)
    ]
    # Where there were too many statements, dimensions are taken one after the other.
    few = prod(map(len, runs)) <= _MOST_RUNS
    several = [d for d, run in enumerate(runs) if len(run) > 1 and not few]
    stages = [{d} for d in several] or [set[int]()]
    stages[-1] |= {d for d in range(len(runs)) if d not in several}
    source, held = "x", list(extents)
    for n, stage in enumerate(stages):
        after = [size[d] if d in stage else m for d, m in enumerate(held)]
        made = "y" if n + 1 == len(stages) else f"t{n}"
        choices: list[list[_Run]] = [[]]
        for d, m in enumerate(held):
            each = runs[d] if d in stage else [_run(0, m, 0, 1)]
            choices = [[*choice, run] for choice in choices for run in each]
        for part in choices:
            loops = list(zip(letters(_LOOPS, len(part)), (r.count for r in part), strict=True))
            places = zip(loops, part, after, strict=True)
            to = [(affine([(i, c, r.step)], r.start), m) for (i, c), r, m in places]
            of = [(r.index(i), m) for (i, _), r, m in zip(loops, part, held, strict=True)]
            value = s.read(number, "x", of) if source == "x" else access(source, of)
            s.say(f"{s.local(made, s.y.dtype, to)} = {value}", loops)
        source, held = made, after
    return s.layer()


def _all(indices: Indices, count: int) -> bool:
    return np.array_equal(indices, np.arange(count))


def along(s: Statements, axis: int, indices: Indices, number: int = 0) -> Layer:
    """The elements of an input at the indices along one dimension."""
    x = s.given(number).shape
    return taken(s, x, [indices if d == axis else None for d in range(len(x))], number)


def part(s: Statements, axis: int, number: int = 0) -> Layer:
    """One of the outputs of a split of an input."""
    x, y = s.given(number), s.y.shape
    agree(len(x.shape) == len(y))
    start = int(s.number("before")) * x.shape[axis] // x.elements
    return along(s, axis, np.arange(start, start + y[axis]), number)


def gather(s: Statements, axis: int, indices: Array) -> Layer:
    """The elements at indices, negative ones from the end, along one dimension."""
    n = s.given().shape[axis]
    found = indices.ravel().astype(np.int64)
    return along(s, axis, np.where(found < 0, found + n, found))


def expand(s: Statements) -> Layer:
    """A tensor repeated: broadcast, or in tiles."""
    y = s.y.shape
    x = (1,) * (len(y) - len(s.given().shape)) + s.given().shape
    return taken(s, x, [None if n == m else np.arange(m) % n for n, m in zip(x, y, strict=True)])


def transpose(s: Statements, order: Sequence[int]) -> Layer:
    """Dimensions in another order."""
    axes = axes_of(s.given().shape)
    same_scale(s.y, s.given())
    need(sorted(order) == list(range(len(axes))), "no order of the dimensions")
    return s.finish(s.read(0, "x", wide(axes)), wide([axes[n] for n in order]))


def concat(s: Statements, axis: int) -> Layer:
    """Tensors one after the other along a dimension: a statement for each."""
    given = [s.given(n) for n in range(len(s.operator.inputs))]
    same_scale(s.y, *given)
    rows, start = prod(s.y.shape[:axis]), 0
    total = s.y.elements // rows
    agree(sum(t.elements for t in given) == s.y.elements)
    for n, tensor in enumerate(given):
        columns = tensor.elements // rows
        if columns:
            value = s.read(n, f"x{n}", [("i", rows), ("j", columns)])
            target = s.local("y", s.y.dtype, [("i", rows), (f"j + {start}", total)])
            s.say(f"{target} = {value}", [("i", rows), ("j", columns)])
            start += columns
    return s.layer()


def pad(s: Statements, around: Sequence[tuple[int, int]], fill: float) -> Layer:
    """A tensor surrounded by a number; elements are cut off where the widths are below 0."""
    x, y = s.given().shape, s.y.shape
    same_scale(s.y, s.given())
    need(len(around) == len(x), "widths of other dimensions")
    agree(all(n + sum(w) == m for n, w, m in zip(x, around, y, strict=True)))
    kinds = [
        (d, *w) if any(w) else None if n == 1 else ()
        for d, (n, w) in enumerate(zip(x, around, strict=True))
    ]
    read: list[Axis] = []
    axes: list[Axis] = []
    inside: list[str] = []
    found = merged(x, kinds)
    for loop, (n, kind) in zip(letters(_LOOPS, len(found)), found, strict=True):
        _, before, after = kind or (0, 0, 0)
        axes.append((loop, before + n + after))
        read.append((affine([(loop, n + 1, 1)], -before), n))
        inside += [f"{loop} >= {before}"] * (before > 0)
        inside += [f"{loop} < {before + n}"] * (after > 0)
    value = s.read(0, "x", read)
    if inside:
        value = f"select({' and '.join(inside)}, {value}, {literal(fill, s.y.dtype)})"
    return s.finish(value, axes)


def padded(s: Statements, around: Sequence[tuple[int, int]], mode: str) -> Layer:
    """A tensor surrounded by its own elements, by a mode of NumPy's `pad`."""
    need(min((min(w) for w in around), default=0) >= 0, "padding that cuts off")
    repeated: Callable[..., Indices] = np.pad
    x = s.given().shape
    rows = zip(x, around, strict=True)
    return taken(s, x, [repeated(np.arange(n), w, mode) for n, w in rows])


def depth_to_space(s: Statements, size: int, *, columns_first: bool, inverse: bool) -> Layer:
    """Blocks of channels as blocks of the image, or the other way round."""
    large = s.given() if inverse else s.y
    need(len(large.shape) == 4, "no images")
    n, c, h, w = large.shape
    image: list[Axis] = [
        ("n", n), ("c", c), ("h", h // size), ("p", size), ("v", w // size), ("q", size),
    ]  # fmt: skip
    order = [0, 1, 3, 5, 2, 4] if columns_first else [0, 3, 5, 1, 2, 4]
    channels = [image[k] for k in order]
    a, b = (image, channels) if inverse else (channels, image)
    return s.finish(s.read(0, "x", wide(a)), wide(b))
