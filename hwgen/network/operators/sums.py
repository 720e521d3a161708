"""Sums, averages and extrema along dimensions, and what is normalised by them.

Reference for integers: tensorflow/lite/kernels/internal/reference/reduce.h (QuantizedMeanOrSum,
ReduceGeneric) and tensorflow/lite/micro/kernels/softmax_common.cc (CalculateSoftmaxParams), with
PreprocessSoftmaxScaling and CalculateInputRadius of
tensorflow/lite/kernels/internal/quantization_util.cc, of https://github.com/tensorflow/tflite-micro.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from math import floor, prod
from typing import Any, cast

from hwgen.network.operators.layer import (
    Computation,
    Layer,
    Loops,
    agree,
    need,
    need_float,
    scale_of,
)
from hwgen.network.operators.rescaling import quantised_multiplier, shifted, stored
from hwgen.network.operators.statements import (
    Axis,
    Statements,
    axes_of,
    broadcast,
    extent,
    literal,
    merged,
    wide,
)
from hwgen.spec.find import find_workload
from hwgen.spec.source import read_document
from hwgen.spec.typecheck import integer_range


def reduced(
    s: Statements, away: Collection[int], dtype: str, update: str, term: str = "{0}"
) -> tuple[str, list[Axis]]:
    """An expression of the elements put together along dimensions, in a type: the total, and the
    output's dimensions."""
    x = s.given()
    kept = [n for d, n in enumerate(x.shape) if d not in away]
    need(s.y.elements == prod(kept), "other axes")
    kinds = [None if n == 1 else (int(d in away),) for d, n in enumerate(x.shape)]
    found = merged(x.shape, kinds, (0,))
    axes = axes_of([n for n, _ in found])
    outer = [axis for axis, (_, (gone,)) in zip(axes, found, strict=True) if not gone]
    inner = [axis for axis in axes if axis not in outer]
    outer = outer or [("o", 1)]
    total = s.local("total", dtype, outer)
    s.say(f"{total} {update} {term.format(s.read(0, 'x', axes))}", [*outer, *inner])
    return total, outer


def scaled_total(s: Statements, away: Collection[int], *, average: bool) -> Layer:
    """Sums or averages of integers, rescaled."""
    count = s.given().elements // s.y.elements
    (x_scale, x_zero), (y_scale, _) = scale_of(s.given()), scale_of(s.y)
    least, most = integer_range(s.y.dtype)
    need(count * max(most - x_zero, x_zero - least) <= 1 << 30, f"sums of {count} elements")
    multiplier, left = quantised_multiplier(x_scale / y_scale)
    if average:
        shift = min(count.bit_length() - 1, 32, 31 + left)
        multiplier, left = (multiplier << shift) // count, left - shift
    total, axes = reduced(s, away, "int32", "+=")
    # The kernel's shift may be longer than the multiplier has bits.
    value = shifted(s, axes, f"{total} - {x_zero * count}", (multiplier, max(left, -30)))
    return s.finish(stored(s, value), axes)


def normalised(s: Statements, axis: int, *, images: bool) -> Layer:
    """Rows less their average, by the root of their variance; a gain and an offset for each place
    from an axis on, or for each channel of images."""
    dtype, shape = need_float(s.y), s.given().shape
    if images:
        need(len(shape) > 2, "no images")
        lead, inner = axes_of(shape[:2], "ac"), axes_of(shape[2:])
        of = [wide(lead[1:])] * 2
    else:
        lead, inner = [("a", prod(shape[:axis]))], axes_of(shape[axis:])
        of = [broadcast(s.given(n).shape, inner) if s.has(n) else [] for n in (1, 2)]
    lead, axes = wide(lead), wide([*lead, *inner])
    count = literal(extent(inner))
    x, sums = s.read(0, "x", axes), s.local("total", dtype, lead)
    s.say(f"{sums} += {x}", axes)
    number = int(s.number("output", 0))
    if number == 1:  # The average is a result as well.
        return s.finish(f"{sums} / {count}", lead)
    near = s.made("near", dtype, axes, f"{x} - {sums} / {count}")
    squares = s.local("squares", dtype, lead)
    s.say(f"{squares} += {near} * {near}", axes)
    epsilon = literal(s.number("epsilon", DEFAULT_EPSILON))
    inverse = f"rsqrt({squares} / {count} + {epsilon})"
    if number == 2:  # So is the inverse of the root.
        return s.finish(inverse, lead)
    root = s.made("root", dtype, lead, inverse)
    value = f"{near} * {root} * {s.read(1, 'gain', of[0])}"
    return s.finish(f"{value} + {s.read(2, 'offset', of[1])}" if s.has(2) else value, axes)


DEFAULT_EPSILON = 9.999999747378752e-06
"""1e-5 in float32."""


def by_channel(s: Statements) -> Layer:
    """A scale and a shift for each channel; of constant statistics they were computed before."""
    need_float(s.y)
    need(not s.number("training_mode", 0), "training")
    axes, folded = axes_of(s.y.shape), bool(s.number("folded", 0))
    x, *given = (
        s.read(n, f"x{n}", wide(axes[1:2] if n else axes)) for n in range(3 if folded else 5)
    )
    if folded:
        return s.finish(f"{x} * {given[0]} + {given[1]}", wide(axes))
    gain, offset, mean, variance = given
    epsilon = literal(s.number("epsilon", DEFAULT_EPSILON))
    value = f"({x} - {mean}) * rsqrt({variance} + {epsilon}) * {gain} + {offset}"
    return s.finish(value, wide(axes))


# --- softmax --------------------------------------------------------------------------------------

_INTEGER_BITS = 5
"""Of the distances from the maximum, in Q5.26."""


def softmax(s: Statements, axis: int, beta: float = 1.0, *, log: bool = False) -> Layer:
    """Softmax, or its logarithm, of floats along a dimension."""
    dtype, shape = need_float(s.y), s.y.shape
    need(s.given().shape == shape, "shapes that do not agree")
    lead, row = [("i", prod(shape[:axis]))], ("j", shape[axis])
    after = wide([("k", prod(shape[axis + 1 :]))])
    axes, outer = [*lead, row, *after], [*lead, *after]
    x, most = s.read(0, "x", axes), s.local("most", dtype, outer)
    s.say(f"{most} max= {x}", [*outer, row])
    value = f"{x} - {most}" if beta == 1.0 else f"({x} - {most}) * {literal(beta)}"
    near = s.made("near", dtype, axes, value)
    power = s.made("power", dtype, axes, f"exp({near})")
    total = s.local("total", dtype, outer)
    s.say(f"{total} += {power}", [*outer, row])
    return s.finish(f"{near} - log({total})" if log else f"{power} / {total}", axes)


def softmax_of_bytes(s: Statements, beta: float) -> Layer:
    """Softmax over the last dimension, from int8 to int8 of scale 1/256, by the statements of the
    shipped workload `quantised/softmax`."""
    x, y = s.given(), s.y
    agree(x.shape == y.shape and bool(x.shape))
    need(x.data is None, "a constant input")
    need(x.dtype == y.dtype == "int8", f"{x.dtype}, whose tables are beyond the statements")
    scale, _ = scale_of(x)
    need(scale_of(y) == (1 / 256, -128), "an output that is not of scale 1/256")
    columns = x.shape[-1]
    need(columns < 500, "rows of 500 elements and more")
    real = min(beta * scale * (1 << (31 - _INTEGER_BITS)), (1 << 31) - 1.0)
    multiplier, shift = quantised_multiplier(real)
    need(0 <= shift <= 30, f"a factor of {real}")
    radius = floor(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / (1 << shift))
    rows = x.elements // columns
    sizes = {"M": rows, "N": columns, "MUL": multiplier, "SHIFT": shift, "MIN": -radius}
    shipped = _shipped()
    own: dict[str, int] = {**shipped["sizes"], **sizes}
    computation = Computation(
        s.operator.kind,
        tuple(own.items()),
        tuple(shipped["tensors"].items()),
        (),
        tuple(map(_statement, shipped["compute"])),
    )
    return Layer(s.operator, computation, (("x", x.name),), ("y", y.name))


def _statement(given: Any) -> str | Loops:
    if isinstance(given, str):
        return given
    return Loops(given["do"], tuple((name, str(extent)) for name, extent in given["loops"].items()))


@cache
def _shipped() -> dict[str, Any]:
    return cast("dict[str, Any]", read_document(find_workload("quantised/softmax")).data)
