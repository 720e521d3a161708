"""Products of matrices, and sums, maxima and averages along dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from hwgen.network.graph import Graph, Operator
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.onnx_layer import (
    Axis,
    Statements,
    axes_of,
    broadcast,
    literal,
    need_float,
)


def gemm(graph: Graph, operator: Operator) -> Layer:
    """`alpha * A @ B + beta * C`, A and B transposed or not."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    rows, columns = s.y.shape
    a, b = s.given(0), s.given(1)
    depth = a.elements // rows
    m, n, k = ("m", rows), ("n", columns), ("k", depth)
    x = s.read(0, "x", [k, m] if s.number("transA", 0) else [m, k])
    turned = bool(s.number("transB", 0))
    if turned and b.data is not None:
        # Constants are laid out for whoever runs along the columns.
        w = s.constant("w", b.dtype, np.ascontiguousarray(np.transpose(b.data)), [k, n])
    else:
        w = s.read(1, "w", [n, k] if turned else [k, n])
    sums = s.local("acc", dtype, [m, n])
    s.say(f"{sums} += {x} * {w}")
    value = _times(sums, s.number("alpha", 1.0))
    if s.has(2) and s.number("beta", 1.0):
        c = s.read(2, "bias", broadcast(s.given(2).shape, [m, n]))
        value = f"{value} + {_times(c, s.number('beta', 1.0))}"
    return s.finish(value, [m, n], rows * columns * depth)


def _times(value: str, factor: float) -> str:
    return value if factor == 1.0 else f"{value} * {literal(factor)}"


def product_axes(s: Statements, b: int) -> tuple[list[Axis], list[Axis], list[Axis]]:
    """The dimensions of a product's inputs, 0 and `b`, and of its output, as NumPy's `matmul`."""
    left, right = s.given(0).shape, s.given(b).shape
    depth = left[-1] if left else 0
    need(bool(left) and bool(right), "a number for a matrix")
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    if len(right) <= 2:
        # One matrix for all rows.
        rows, left = prod(left[:-1]), left[-2:]
    batches = max(left[:-2], right[:-2], key=len)
    if len(right) > 2:
        batches = s.y.shape[: len(s.y.shape) - (len(left) > 1) - (len(right) > 1)]
    lead = axes_of(batches)
    m, n, k = ("m", rows), ("n", columns), ("k", depth)
    return [*broadcast(left[:-2], lead), m, k], [*broadcast(right[:-2], lead), k, n], [*lead, m, n]


def matmul(graph: Graph, operator: Operator) -> Layer:
    """Products of matrices."""
    s = Statements(graph, operator)
    dtype = need_float(s.y)
    left, right, axes = product_axes(s, 1)
    sums = s.local("acc", dtype, axes)
    s.say(f"{sums} += {s.read(0, 'x', left)} * {s.read(1, 'w', right)}")
    return s.finish(sums, axes, prod(n for _, n in axes) * left[-1][1])


_REDUCED: Mapping[str, tuple[str, str, str]] = {
    "ReduceL1": ("+=", "abs({0})", "{0}"),
    "ReduceL2": ("+=", "{0} * {0}", "sqrt({0})"),
    "ReduceLogSum": ("+=", "{0}", "log({0})"),
    "ReduceMax": ("max=", "{0}", "{0}"),
    "ReduceMean": ("+=", "{0}", "{0} / {1}"),
    "ReduceMin": ("min=", "{0}", "{0}"),
    "ReduceSum": ("+=", "{0}", "{0}"),
    "ReduceSumSquare": ("+=", "{0} * {0}", "{0}"),
}
"""How elements are put together, after and before which expression."""


def reduced(graph: Graph, operator: Operator) -> Layer:
    """Sums, averages and extrema along any dimensions."""
    s = Statements(graph, operator)
    dtype, x = need_float(s.y), s.given(0).shape
    chosen = s.values(1, "axes").ravel().tolist() if s.has(1) else s.integers("axes", ())
    along = {int(a) % len(x) for a in chosen}
    if not along and not s.number("noop_with_empty_axes", 0):
        along = set(range(len(x)))
    axes = axes_of(x)
    kept = [a for n, a in enumerate(axes) if n not in along]
    op, term, after = _REDUCED[operator.kind]
    value = s.read(0, "x", axes)
    sums = s.local("acc", dtype, kept)
    loops = [a for n, a in enumerate(axes) if n in along]
    s.say(f"{sums} {op} {term.format(value)}", [*kept, *loops])
    return s.finish(after.format(sums, literal(prod(n for _, n in loops))), kept)


def softmax(graph: Graph, operator: Operator) -> Layer:
    """Softmax or its logarithm along a dimension."""
    s = Statements(graph, operator)
    dtype, shape = need_float(s.y), s.y.shape
    axis = int(s.number("axis", -1)) % max(len(shape), 1)
    a, n, b = ("a", prod(shape[:axis])), ("n", shape[axis]), ("b", prod(shape[axis + 1 :]))
    x = s.read(0, "x", [a, n, b])
    most, sums = (s.local(name, dtype, [a, b]) for name in ("most", "total"))
    near, power = (s.local(name, dtype, [a, n, b]) for name in ("near", "power"))
    s.say(f"{most} max= {x}", [a, b, n])
    s.say(f"{near} = {x} - {most}")
    s.say(f"{power} = exp({near})")
    s.say(f"{sums} += {power}", [a, b, n])
    log = operator.kind == "LogSoftmax"
    return s.finish(f"{near} - log({sums})" if log else f"{power} / {sums}", [a, n, b])


def normalised(graph: Graph, operator: Operator) -> Layer:
    """Rows less their average, by the root of their variance; a gain and an offset for each place
    (`LayerNormalization`) or each channel (`InstanceNormalization`)."""
    s = Statements(graph, operator)
    dtype, shape = need_float(s.y), s.given(0).shape
    if operator.kind == "LayerNormalization":
        axis = int(s.number("axis", -1)) % max(len(shape), 1)
        lead, inner = [("a", prod(shape[:axis]))], axes_of(shape[axis:])
        of = [broadcast(s.given(n).shape, inner) if s.has(n) else [] for n in (1, 2)]
    else:
        need(len(shape) > 2, "no images")
        lead, inner = [("a", shape[0]), ("c", shape[1])], axes_of(shape[2:])
        of = [lead[1:], lead[1:]]
    axes = [*lead, *inner]
    count = literal(prod(n for _, n in inner))
    x = s.read(0, "x", axes)
    sums, squares = (s.local(name, dtype, lead) for name in ("total", "squares"))
    near, root = s.local("near", dtype, axes), s.local("root", dtype, lead)
    s.say(f"{sums} += {x}", axes)
    s.say(f"{near} = {x} - {sums} / {count}")
    s.say(f"{squares} += {near} * {near}", axes)
    epsilon = literal(s.number("epsilon", float(np.float32(1e-5))))
    s.say(f"{root} = rsqrt({squares} / {count} + {epsilon})")
    number = int(s.number("output", 0))
    if number:  # The average, or the root, are results as well.
        return s.finish((f"{sums} / {count}", root)[number - 1], lead)
    value = f"{near} * {root} * {s.read(1, 'gain', of[0])}"
    return s.finish(f"{value} + {s.read(2, 'offset', of[1])}" if s.has(2) else value, axes)


def batch_normalised(graph: Graph, operator: Operator) -> Layer:
    """A scale and a shift for each channel; of constant statistics they were computed before."""
    s = Statements(graph, operator)
    need_float(s.y)
    need(not s.number("training_mode", 0), "training")
    axes = axes_of(s.y.shape)
    folded = bool(s.number("folded", 0))
    x, *given = (s.read(n, f"x{n}", axes[1:2] if n else axes) for n in range(3 if folded else 5))
    if folded:
        return s.finish(f"{x} * {given[0]} + {given[1]}", axes)
    gain, offset, mean, variance = given
    epsilon = literal(s.number("epsilon", float(np.float32(1e-5))))
    return s.finish(f"({x} - {mean}) * rsqrt({variance} + {epsilon}) * {gain} + {offset}", axes)


ENTRIES: Mapping[str, Callable[[Graph, Operator], Layer]] = {
    **dict.fromkeys(_REDUCED, reduced),
    "BatchNormalization": batch_normalised,
    "Gemm": gemm,
    "InstanceNormalization": normalised,
    "LayerNormalization": normalised,
    "LogSoftmax": softmax,
    "MatMul": matmul,
    "Softmax": softmax,
}
