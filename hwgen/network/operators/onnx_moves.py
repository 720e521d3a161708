"""Operators that move elements and compute nothing.

Most of them take, along each dimension, the elements at constant indices. Indices in equal
distances are one statement, so a slice is one and an upsampling by a whole factor is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwgen.model.numeric import Array
from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.onnx_layer import Axis, Statements, affine, axes_of, literal
from hwgen.network.packages import needed

Indices = NDArray[np.int64]

_MOST_RUNS = 64
"""Statements of one layer."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Places of the output, from `start`, and the index that each takes, by the loop's name."""

    start: int
    count: int
    index: Callable[[str], str]


def _runs(indices: Indices) -> list[_Run]:
    """Indices as progressions, as few as they are when each is as long as it can be."""
    count = len(indices)
    places, first = np.arange(count), int(indices[0])
    period, repeats = int(indices.max()) + 1, int(np.count_nonzero(indices == first))
    if period < count and not count % period and np.array_equal(indices, places % period):
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
    return found


def _divided(i: str, count: int, repeats: int, first: int) -> str:
    """An index that stays for some places; the loop is split by a factor of its extent."""
    return str(first) if count == repeats else f"{i}//{repeats} + {first}"


def _run(start: int, count: int, first: int, step: int) -> _Run:
    return _Run(start, count, lambda i: affine([(i, count, step)], first))


def _taken(s: Statements, x: Sequence[int], indices: Sequence[Indices | None]) -> Layer:
    """Along each dimension of an input of shape `x` the elements at the indices, all where there
    are none."""
    size = [n if given is None else len(given) for n, given in zip(x, indices, strict=True)]
    need(prod(size) == s.y.elements, "shapes that do not agree")
    for n, given in zip(x, indices, strict=True):
        need(given is None or 0 <= given.min() <= given.max() < n, "an index outside")
    runs = [
        [_run(0, n, 0, 1)] if given is None else _runs(given)
        for n, given in zip(x, indices, strict=True)
    ]
    need(prod(map(len, runs)) <= _MOST_RUNS, f"indices in more than {_MOST_RUNS} progressions")
    for part in product(*runs):
        loops: list[Axis] = [(f"i{d}", run.count) for d, run in enumerate(part)]
        to = [affine([(i, n, 1)], run.start) for (i, n), run in zip(loops, part, strict=True)]
        of = [run.index(i) for (i, _), run in zip(loops, part, strict=True)]
        value = s.read(0, "x", list(zip(of, x, strict=True)))
        target = s.local("y", s.y.dtype, list(zip(to, size, strict=True)))
        s.say(f"{target} = {value}", loops)
    return s.layer()


def transpose(graph: Graph, operator: Operator) -> Layer:
    """Dimensions in another order."""
    s = Statements(graph, operator)
    x = s.given(0).shape
    order = s.integers("perm", tuple(reversed(range(len(x)))))
    need(sorted(order) == list(range(len(x))), "no order of the dimensions")
    axes = axes_of(x)
    return s.finish(s.read(0, "x", axes), [axes[n] for n in order])


def concat(graph: Graph, operator: Operator) -> Layer:
    """Tensors one after the other."""
    s = Statements(graph, operator)
    y = s.y.shape
    axis = int(s.number("axis", 0)) % len(y)
    start = 0
    for n in range(len(operator.inputs)):
        shape = graph.tensor[operator.inputs[n]].shape
        if prod(shape) == 0:
            continue
        axes = axes_of(shape)
        to = list(axes_of(y))
        to[axis] = affine([(*axes[axis], 1)], start), y[axis]
        s.say(f"{s.local('y', s.y.dtype, to)} = {s.read(n, f'x{n}', axes)}", axes)
        start += shape[axis]
    return s.layer()


def slice_(graph: Graph, operator: Operator) -> Layer:
    """Elements from a start to an end, in steps; a part of a `Split`, too."""
    s = Statements(graph, operator)
    x = s.given(0).shape
    found: list[Indices | None] = [None] * len(x)
    if operator.kind == "Split":
        axis, start = int(s.number("axis", 0)) % len(x), int(s.number("start", 0))
        found[axis] = np.arange(start, start + s.y.shape[axis])
        return _taken(s, x, found)
    starts, ends = (s.values(n, "bounds").tolist() for n in (1, 2))
    axes = s.values(3, "axes").tolist() if s.has(3) else range(len(starts))
    steps = s.values(4, "steps").tolist() if s.has(4) else [1] * len(starts)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        found[axis] = np.arange(x[axis])[slice(*bounds)]
    return _taken(s, x, found)


def gather(graph: Graph, operator: Operator) -> Layer:
    """The elements at constant indices along one dimension."""
    s = Statements(graph, operator)
    x = s.given(0).shape
    axis = int(s.number("axis", 0)) % max(len(x), 1)
    indices = s.values(1, "indices").ravel().astype(np.int64)
    found: list[Indices | None] = [None] * len(x)
    found[axis] = np.where(indices < 0, indices + x[axis], indices)
    return _taken(s, x, found)


def expand(graph: Graph, operator: Operator) -> Layer:
    """A tensor repeated: broadcast, or in tiles."""
    s = Statements(graph, operator)
    y = s.y.shape
    x = (1,) * (len(y) - len(s.given(0).shape)) + s.given(0).shape
    found = [None if n == m else np.arange(m) % n for n, m in zip(x, y, strict=True)]
    return _taken(s, x, found)


def pad(graph: Graph, operator: Operator) -> Layer:
    """A tensor surrounded by a number, or by its own elements."""
    s = Statements(graph, operator)
    x, y = s.given(0).shape, s.y.shape
    axes = s.values(3, "axes").tolist() if s.has(3) else list(range(len(x)))
    pads = s.values(1, "numbers of elements").tolist()
    before, after = [0] * len(x), [0] * len(x)
    for n, axis in enumerate(axes):
        before[axis], after[axis] = pads[n], pads[n + len(axes)]
    mode = s.word("mode", "constant")
    if mode != "constant":
        need(min(*before, *after) >= 0, "padding that cuts off")
        around: Any = np.pad
        rows = zip(x, before, after, strict=True)
        return _taken(s, x, [around(np.arange(n), (b, a), mode) for n, b, a in rows])
    value = s.values(2, "a number").item() if s.has(2) else 0
    said = literal(value) if s.y.dtype.startswith("float") else str(int(value))
    loops = axes_of(y)
    inside: list[str] = []
    taken: list[Axis] = []
    for (i, m), n, b in zip(loops, x, before, strict=True):
        inside += [f"{i} >= {b}"] * (b > 0) + [f"{i} < {b + n}"] * (m > b + n)
        taken.append((affine([(i, m, 1)], -b), n))
    one = s.read(0, "x", taken)
    return s.finish(f"select({' and '.join(inside)}, {one}, {said})" if inside else one, loops)


def resize(graph: Graph, operator: Operator) -> Layer:
    """The nearest elements; which ones they are, onnx's evaluator says for each dimension."""
    s = Statements(graph, operator)
    need(s.word("mode", "nearest") == "nearest", s.word("mode", ""))
    transform = s.word("coordinate_transformation_mode", "half_pixel")
    need(transform != "tf_crop_and_resize", transform)
    x = s.given(0).shape
    given = {n: s.values(n, "sizes") for n in (2, 3) if s.has(n)}
    found = [
        None if n == m else _nearest(operator, given, len(x), axis, n, m)
        for axis, (n, m) in enumerate(zip(x, s.y.shape, strict=True))
    ]
    return _taken(s, x, found)


def _nearest(
    operator: Operator, given: Mapping[int, Array], rank: int, axis: int, n: int, m: int
) -> Indices:
    """By place of the output, the index of the element that it takes, along one dimension."""
    onnx = needed("onnx", "reads ONNX models", "hwgen[onnx]")
    reference = needed("onnx.reference", "reads ONNX models", "hwgen[onnx]")
    chosen = operator.attributes.get("axes") or tuple(range(rank))
    assert isinstance(chosen, tuple)
    position = [a % rank for a in chosen].index(axis)
    attributes = {
        k: v
        for k, v in operator.attributes.items()
        if k not in ("axes", "keep_aspect_ratio_policy", "activation")
    }
    if 2 in given and given[2].size:
        names, feeds = ["x", "", "s"], {"s": given[2][position : position + 1]}
    else:
        names, feeds = ["x", "", "", "s"], {"s": np.asarray([m], np.int64)}
    node = onnx.helper.make_node("Resize", names, ["y"], **attributes)
    places = np.arange(n, dtype=np.float32)
    (found,) = reference.ReferenceEvaluator(node).run(None, {"x": places, **feeds})
    return found.astype(np.int64)


def depth_to_space(graph: Graph, operator: Operator) -> Layer:
    """Blocks of channels as blocks of the image, or the other way round."""
    s = Statements(graph, operator)
    size = int(s.number("blocksize", 1))
    deep = operator.kind == "DepthToSpace"
    wide = s.y if deep else s.given(0)
    need(len(wide.shape) == 4, "no images")
    n, c, h, w = wide.shape
    image: list[Axis] = [
        ("n", n), ("c", c), ("h", h // size), ("p", size), ("v", w // size), ("q", size),
    ]  # fmt: skip
    order = [0, 1, 3, 5, 2, 4] if s.word("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    channels = [image[k] for k in order]
    a, b = (channels, image) if deep else (image, channels)
    return s.finish(s.read(0, "x", a), b)


ENTRIES: Mapping[str, Callable[[Graph, Operator], Layer]] = {
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Gather": gather,
    "Pad": pad,
    "Resize": resize,
    "Slice": slice_,
    "SpaceToDepth": depth_to_space,
    "Split": slice_,
    "Tile": expand,
    "Transpose": transpose,
}
