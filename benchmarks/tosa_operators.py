"""Operators of TOSA as templates, where hwgen has them: sums are of int32, less zero points.

Reference: https://www.mlplatform.org/tosa/tosa_spec.html (apply_scale_32, reciprocal_scale).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwgen.model.numeric import Array
from hwgen.network.operators import elementwise, moves, sums, windows
from hwgen.network.operators.layer import Layer, need
from hwgen.network.operators.products import OfFloats, matmul
from hwgen.network.operators.statements import Axis, Statements, alias
from hwgen.spec.expression import DTYPES
from hwgen.spec.typecheck import integer_range

Entry = Callable[[Statements], Layer]

# --- products -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sums(OfFloats):
    """Sums of products of integers less their zero points."""

    zeros: tuple[int, int] = (0, 0)

    @property
    def outside(self) -> str:
        return str(self.zeros[0])

    def product(self, x: str, w: str) -> str:
        return f"({x} - {self.zeros[0]}) * ({w} - {self.zeros[1]})"


def _one(s: Statements, number: int) -> int:
    """A constant of one element."""
    (value,) = s.list(number, "numbers")
    return value


def _ending(s: Statements) -> _Sums:
    """Of activations, weights, a bias and two zero points. The weights' is subtracted before."""
    weights, x_zero, w_zero = s.given(1), _one(s, 3), _one(s, 4)
    data = s.values(1, "weights").astype(np.int16) - np.int16(w_zero)
    s.instead[1] = replace(weights, dtype="int16", data=data) if w_zero else weights
    return _Sums(s.y.dtype, 2, shape=(1,) if s.given(2).elements == 1 else None, zeros=(x_zero, 0))


def _convolution(s: Statements) -> Layer:
    (outputs, *kernel, depth), ending = s.given(1).shape, _ending(s)
    return windows.convolution(s, kernel, (1, depth, outputs), "orc", ending)


def _depthwise(s: Statements) -> Layer:
    (*kernel, depth, times), ending = s.given(1).shape, _ending(s)
    return windows.convolution(s, kernel, (depth, 1, times), "rgo", ending)


def _transposed(s: Statements) -> Layer:
    """The template takes the activations as its input 2."""
    ending, (x, w, *rest) = _ending(s), s.operator.inputs
    own = Statements(s.graph, replace(s.operator, inputs=(x, w, x, *rest)))
    own.instead = s.instead
    return windows.by_places(own, replace(ending, bias=3))


def _average(s: Statements) -> Layer:
    found = windows.Windows.of(s, s.integers("window"))
    lead, last = windows.batch_of(s), [("c", s.y.shape[-1])]
    axes, zero, given = [*lead, *found.outputs, *last], _one(s, 1), _one(s, 2)
    acc, x = s.local("acc", "int32", axes), found.read(s, 0, lead, last, str(zero))
    s.say(f"{acc} += {x} - {zero}", [*axes, *found.loops])
    counts = found.counts(padded=False)
    more = np.ceil(np.log2(counts)).astype(np.int64)
    factors = (((1 << 30) + 1) << more) // counts
    return _scaled(s, acc, axes, found.outputs, (factors, 30 + more), given, s.y.dtype)


def _scaled(
    s: Statements,
    value: str,
    axes: Sequence[Axis],
    of: Sequence[Axis],
    scales: tuple[Array, Array],
    zero: int,
    limits: str,
) -> Layer:
    """A value times factors, shifted to the right and rounded, within the limits of a type."""
    by, shift = (
        s.constant(name, "int32", values.astype(np.int32), of)
        for name, values in zip(("by", "shift"), scales, strict=True)
    )
    value = f"(int64({value}) * {by} + ((int64(1) << {shift}) >> 1)) >> {shift}"
    low, high = integer_range(limits)
    return s.finish(f"clip(int32({value}) + {zero}, {low}, {high})", axes)


# --- elements -------------------------------------------------------------------------------------


def _rescale(s: Statements) -> Layer:
    (axes, (x,)), zero, given, limits = s.elements(0), _one(s, 3), _one(s, 4), s.y.dtype
    if s.number("unsigned_input"):
        most = integer_range(f"u{s.given().dtype}")[1]
        x, zero = f"select({x} < 0, {x} + {most + 1}, {x})", zero & most
    if s.number("unsigned_output"):
        limits = f"u{limits}"
        given &= integer_range(limits)[1]
    of = axes[-1:] if s.given(1).elements > 1 else []
    scales = s.values(1, "factors"), s.values(2, "shifts")
    return _scaled(s, f"{x} - {zero}", axes, of, scales, given, limits)


def _mul(s: Statements) -> Layer:
    (axes, (a, b)), shift = s.elements(0, 1), _one(s, 2)
    half = (1 << shift) >> 1
    return s.finish(f"int32((int64({a}) * {b} + {half}) >> {shift})", axes)


def _negate(s: Statements) -> Layer:
    (axes, (x,)), (low, high) = s.elements(0), integer_range(s.y.dtype)
    return s.finish(f"clip({_one(s, 1)} - {x} + {_one(s, 2)}, {low}, {high})", axes)


def _clamp(s: Statements) -> Layer:
    size = DTYPES[s.y.dtype]
    low, high = (
        int.from_bytes(bytes(s.integers(bound)[:size]), "little", signed=True)
        for bound in ("least", "most")
    )
    return elementwise.unary(s, f"clip({{0}}, {low}, {high})")


def _shifted(s: Statements) -> Layer:
    (axes, (a, b)), half = s.elements(0, 1), "0"
    if s.number("round"):
        half = f"select({b} > 0, ({a} >> max({b} - 1, 0)) % 2, 0)"
    return s.finish(f"({a} >> {b}) + {half}", axes)


def _table(s: Statements) -> Layer:
    need(s.y.dtype == "int8", s.y.dtype)
    axes, (x,) = s.elements(0)
    entry = s.constant("entry", "int8", s.values(1, "entries"), [("n", 256)])
    y = s.local("y", "int8", axes)
    s.say(f"{y} max= select({x} + 128 == n, {entry}, -128)", [*axes, ("n", 256)])
    return s.layer()


def _of_two(text: str) -> Entry:
    return lambda s: elementwise.folded(s, text)


def _reduced(update: str) -> Entry:
    def entry(s: Statements) -> Layer:
        return s.finish(*sums.reduced(s, {int(s.number("axis"))}, s.y.dtype, update))

    return entry


def _pad(s: Statements) -> Layer:
    widths = s.list(1, "widths")
    return moves.pad(s, list(zip(widths[::2], widths[1::2], strict=True)), _one(s, 2))


def _reverse(s: Statements) -> Layer:
    axis = int(s.number("axis"))
    return moves.along(s, axis, np.arange(s.y.shape[axis])[::-1])


def _slice(s: Statements) -> Layer:
    rows = zip(s.list(1, "places"), s.list(2, "sizes"), strict=True)
    return moves.taken(s, s.given().shape, [np.arange(b, b + n) for b, n in rows])


ENTRIES: Mapping[str, Entry] = {
    "ABS": lambda s: elementwise.unary(s, "abs({0})"),
    "ADD": _of_two("{0} + {1}"),
    "ARITHMETIC_RIGHT_SHIFT": _shifted,
    "AVG_POOL2D": _average,
    "CAST": lambda s: elementwise.unary(s, "{0}"),
    "CLAMP": _clamp,
    "CONCAT": lambda s: moves.concat(s, s.axis(len(s.y.shape))),
    "CONV2D": _convolution,
    "CONV3D": _convolution,
    "DEPTHWISE_CONV2D": _depthwise,
    "IDENTITY": alias,
    "MATMUL": lambda s: matmul(s, _Sums(s.y.dtype, zeros=(_one(s, 2), _one(s, 3)))),
    "MAXIMUM": _of_two("max({0}, {1})"),
    "MAX_POOL2D": lambda s: windows.max_pool(s, s.integers("window")),
    "MINIMUM": _of_two("min({0}, {1})"),
    "MUL": _mul,
    "NEGATE": _negate,
    "PAD": _pad,
    "REDUCE_MAX": _reduced("max="),
    "REDUCE_MIN": _reduced("min="),
    "REDUCE_SUM": _reduced("+="),
    "RESCALE": _rescale,
    "RESHAPE": alias,
    "REVERSE": _reverse,
    "SLICE": _slice,
    "SUB": _of_two("{0} - {1}"),
    "TABLE": _table,
    "TILE": moves.expand,
    "TRANSPOSE": lambda s: moves.transpose(s, s.integers("order")),
    "TRANSPOSE_CONV2D": _transposed,
}
