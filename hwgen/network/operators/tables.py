"""Functions of one number, by a table of their values. An index that depends on data is outside of
the language of statements: a table of int8 is said as straight lines that meet it in every entry,
chosen by comparisons; in one of int16 an element is compared with every entry.

Reference: tensorflow/lite/kernels/internal/reference/integer_ops/{logistic,tanh}.h, the parameters
as tensorflow/lite/micro/kernels/{logistic_common,tanh}.cc derive them, of
https://github.com/tensorflow/tflite-micro; logistic, tanh and exp_on_negative_values of
fixedpoint/fixedpoint.h of https://github.com/google/gemmlowp, whose constants are exponentials,
1/3, 48/17 and 32/17.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, floor, log2

import numpy as np

from hwgen.network.operators.elementwise import unary
from hwgen.network.operators.layer import Layer, need, same_type, scale_of
from hwgen.network.operators.rescaling import quantised_multiplier
from hwgen.network.operators.statements import Statements

_ONE = (1 << 31) - 1
"""The greatest number in Q0.31."""
_INTEGER_BITS = 4
"""Of inputs, in Q4.27."""
_FRACTION = 12
"""Bits of a line's slope behind the point."""


def logistic(s: Statements) -> Layer:
    """1 / (1 + exp(-x)), from int8 to int8 of scale 1/256, or from int16 to int16 of 2**-15."""
    if s.y.dtype == "float32":
        # The kernel takes exp(x) for numbers below -9.
        s.inexact["y"] = 2.0**-25
    return _function(s, "sigmoid", _logistic, (1 / 256, -128))


def tanh(s: Statements) -> Layer:
    """The hyperbolic tangent, from int8 to int8 of scale 1/128, or from int16 to that of 2**-15."""
    return _function(s, "tanh", _tanh, (1 / 128, 0))


def _function(
    s: Statements, name: str, function: Callable[[int], int], made: tuple[float, int]
) -> Layer:
    """`function`: of a number in Q4.27, in units of the output, whose scale is `made`."""
    x = s.given()
    dtype = same_type(x, s.y)
    if dtype == "float32":
        return unary(s, f"{name}({{0}})")
    if dtype == "int16":
        return _interpolated(s, wide=name == "tanh")
    need(scale_of(s.y) == made, f"an output that is not of scale 1/{round(1 / made[0])}")
    scale, zero = scale_of(x)
    multiplier, shift = quantised_multiplier(scale * (1 << (31 - _INTEGER_BITS)))
    need(shift >= 0, f"the scale of {x.name}")
    radius = floor(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / (1 << shift))

    def value(stored: int) -> int:
        number = stored - zero
        if abs(number) >= radius:
            return -128 if number < 0 else 127
        return max(-128, min(127, function(_product(number << shift, multiplier)) + made[1]))

    lines = _lines([value(stored) for stored in range(-128, 128)], -128)
    return unary(s, _chosen(lines, "{0}"))


# --- tables as lines ------------------------------------------------------------------------------


def _lines(values: list[int], first: int) -> list[tuple[int, int, int]]:
    """A function of whole numbers from `first` on as (begin, slope, offset), from each begin to the
    next one `(slope * x + offset) >> _FRACTION`: the fewest that give every value exactly."""
    found: list[tuple[int, int, int]] = []
    begin = 0
    while begin < len(values):
        line, low, high = (0, values[begin] << _FRACTION), -(1 << 62), 1 << 62
        end = begin + 1
        while end < len(values):
            for n in range(begin, end):
                # Floors of a line differ by less than 1 from it, so its slope is between these.
                rise, run = values[end] - values[n], end - n
                low = max(low, ((rise - 1) << _FRACTION) // run + 1)
                high = min(high, -(-((rise + 1) << _FRACTION) // run) - 1)
            slope = 0 if values[end] == values[begin] else (low + high) // 2
            rests = [(values[n] << _FRACTION) - slope * (first + n) for n in range(begin, end + 1)]
            least, most = max(rests), min(rests) + (1 << _FRACTION) - 1
            if low > high or least > most:
                break
            line, end = (slope, (least + most) // 2), end + 1
        found.append((first + begin, *line))
        begin = end
    return found


def _chosen(lines: list[tuple[int, int, int]], x: str) -> str:
    """The line that holds at `x`, by halves."""
    if len(lines) == 1:
        _, slope, offset = lines[0]
        line = f"{slope}*{x} + {offset}"
        return f"(({line}) >> {_FRACTION})" if slope else str(offset >> _FRACTION)
    half = len(lines) // 2
    return f"select({x} < {lines[half][0]}, {_chosen(lines[:half], x)}, {_chosen(lines[half:], x)})"


# --- int8: fixed point, in whole numbers ----------------------------------------------------------


def _product(a: int, b: int) -> int:
    """The upper half of a product, doubled and rounded."""
    return (a * b + (1 << 30)) >> 31


def _divided(value: int, exponent: int) -> int:
    """The value by a power of two, halves away from zero."""
    return (value + (1 << (exponent - 1)) - (value < 0)) >> exponent


def _saturated(value: int) -> int:
    return max(-_ONE - 1, min(_ONE, value))


def _logistic(x: int) -> int:
    """In units of 1/256."""
    above = _ONE if x == 0 else _saturated(2 * _reciprocal(_exponential(-abs(x), _INTEGER_BITS)))
    value = 1 << 30 if x == 0 else above if x > 0 else _ONE - above
    return _divided(value, 23)


def _tanh(x: int) -> int:
    """In units of 1/128."""
    e = _exponential(-abs(x), _INTEGER_BITS + 1)
    value = 0 if x == 0 else _saturated(4 * (_reciprocal(e) - (1 << 29)))
    return _divided(value if x >= 0 else -value, 24)


def _exponential(a: int, integer_bits: int) -> int:
    """exp(a) for a at most 0."""
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    part = (a & (quarter - 1)) - quarter
    x = (part << integer_bits) + (1 << 28)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    series = _divided(_product(_divided(x4, 2) + x3, 715827883) + x2, 1)
    found = 1895147668 + _product(1895147668, x + series)
    steps = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, step in enumerate(steps, -2):
        if integer_bits > exponent and (part - a) >> (fraction + exponent) & 1:
            found = _product(found, step)
    return _ONE if a == 0 else found


def _reciprocal(a: int) -> int:
    """2 / (1 + a) in Q2.29, by Newton's division."""
    half = (a + _ONE + 1) >> 1
    x = 1515870810 + _product(half, -1010580540)
    for _ in range(3):
        x += _saturated(4 * _product(x, (1 << 29) - _product(half, x)))
    return x


# --- int16: straight lines between entries --------------------------------------------------------


def _entry(n: int) -> int:
    """The logistic function at n/24 in units of 2**-16, and half of what the line to the next entry
    is too low in its middle."""
    here, middle, after = (65536 / (1 + exp(-x / 24)) for x in (n, n + 0.5, n + 1))
    return floor(here + (middle - (here + after) / 2) / 2 + 0.5)


def _interpolated(s: Statements, *, wide: bool) -> Layer:
    """The logistic function from a table of its values; `wide`: the hyperbolic tangent, which is
    twice that of twice the number, less 1."""
    (scale, _), (axes, (x,)) = scale_of(s.given()), s.elements(0)
    need(scale_of(s.y)[0] == 2**-15, "an output that is not of scale 1/32768")
    left = 12 + round(log2(scale))
    if log2(scale) == round(log2(scale)) and left in ((0, 1) if wide else (0,)):
        multiplier, shift = 3 << left, 0
    else:
        multiplier, shift = scale * 4096.0 * 3.0, 0
        while multiplier <= 32767.0 / 2.0 and shift <= 30:
            multiplier, shift = multiplier * 2.0, shift + 1
    need(multiplier <= 32767, f"the scale of {s.given().name}")
    bits, most = (8, 0xFFFF << 8) if wide else (9, 0x7FFF << 10)
    table = [_entry(n) for n in range(255)] + [65535]
    entries = [("n", 255)]
    shifted = f"{x} * {int(multiplier)}"
    shifted = f"({shifted} + {1 << (shift - 1)}) >> {shift}" if shift else shifted
    v = s.made("v", "int32", axes, shifted)
    found: list[str] = []
    values = np.array(table[:255], np.int32), np.diff(table).astype(np.int32)
    for name, of, numbers in zip(("base", "step"), ("value", "rise"), values, strict=True):
        entry = s.constant(of, "int32", numbers, entries)
        found.append(s.local(name, "int32", axes))
        picked = f"select(abs({v}) >> {bits} == n, {entry}, 0)"
        s.say(f"{found[-1]} max= {picked}", [*axes, *entries])
    base, step = found
    line = f"({base} << {bits}) + abs({v}) % {1 << bits} * {step}"
    line = f"select(abs({v}) >> {bits} >= 255, {most}, {line})"
    size = s.made("size", "int32", axes, line)
    signed = (
        f"select({v} >= 0, {size} - {(1 << 23) - 128}, {(1 << 23) + 127} - {size}) >> 8"
        if wide
        else f"select({v} >= 0, {size} + 512, {(1 << 25) + 511} - {size}) >> 10"
    )
    return s.finish(signed, axes)
