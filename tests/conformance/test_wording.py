"""One computation in two wordings takes the same cycles, and gives the reference's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import hwgen
from hwgen.pipeline import compile_workload
from hwgen.spec.expression import names
from hwgen.spec.grammar import parse_assign
from hwgen.spec.load import load_hardware
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import tiered

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 1.01
"""How much longer the worse wording may take."""


@dataclass(frozen=True)
class Pair:
    """Two wordings over the same inputs and result; `more`: tensors of one of them alone; `hosted`:
    the host core computes a part."""

    chip: str
    tensors: Mapping[str, str]
    one: tuple[str, ...]
    other: tuple[str, ...]
    more: Mapping[str, str]
    hosted: bool = False


_GEMM = {"a": "int8[24, 48]", "b": "int8[32, 48]", "acc": "int32[24, 32]", "y": "int8[24, 32]"}
_PLAIN = "acc[m, n] += a[m, k] * b[n, k]"
_WIDE = {"x": "int8[40, 64]", "y": "int8[40, 64]"}
_MATMUL = {"a": "int8[35, 50]", "b": "int8[50, 27]", "acc": "int32[35, 27]", "c": "int8[35, 27]"}
_PRODUCT = "acc[m, n] += a[m, k] * b[k, n]"

PAIRS = {
    "addend named": Pair(
        "gemmini",
        _MATMUL | {"d": "int8[35, 27]"},
        (
            _PRODUCT,
            "c[m, n] = int8(clip(round(float32(acc[m, n] + d[m, n]) * 0.0078125), -128, 127))",
        ),
        (
            _PRODUCT,
            "t[m, n] = acc[m, n] + d[m, n]",
            "c[m, n] = int8(clip(round(float32(t[m, n]) * 0.0078125), -128, 127))",
        ),
        {"t": "int32[35, 27]"},
    ),
    "sum named": Pair(
        "gemmini",
        {"a": "int8[37, 53]", "b": "int8[37, 53]", "c": "int8[37, 53]"},
        ("c[m, n] = int8(clip(round(float32(int32(a[m, n]) + int32(b[m, n])) * 0.5), -128, 127))",),
        (
            "s[m, n] = int32(a[m, n]) + int32(b[m, n])",
            "c[m, n] = int8(clip(round(float32(s[m, n]) * 0.5), -128, 127))",
        ),
        {"s": "int32[37, 53]"},
    ),
    "scaled by one": Pair(
        "gemmini",
        {"a": "int8[32, 64]", "b": "int8[32, 64]", "c": "int8[32, 64]"},
        ("c[m, n] = int8(clip(int32(a[m, n]) + int32(b[m, n]), -128, 127))",),
        ("c[m, n] = int8(clip(round(float32(int32(a[m, n]) + int32(b[m, n])) * 1.0), -128, 127))",),
        {},
    ),
    "constant split": Pair(
        "vta",
        _GEMM,
        (_PLAIN, "y[m, n] = int8(clip((acc[m, n] + 40000) >> 9, -128, 127))"),
        (_PLAIN, "y[m, n] = int8(clip((acc[m, n] + 20000 + 20000) >> 9, -128, 127))"),
        {},
    ),
    "clip of what fits": Pair(
        "vta",
        _WIDE,
        ("y[m, n] = int8(clip(max(x[m, n], x[m, n] >> 3), -128, 127))",),
        ("y[m, n] = int8(max(x[m, n], x[m, n] >> 3))",),
        {},
    ),
    "clip of what fits, on a host": Pair(
        "gemmini",
        _WIDE,
        ("y[m, n] = int8(clip(max(x[m, n], x[m, n] >> 3), -128, 127))",),
        ("y[m, n] = int8(max(x[m, n], x[m, n] >> 3))",),
        {},
        hosted=True,
    ),
    "cast of what fits": Pair(
        "vta",
        _WIDE,
        ("y[m, n] = max(x[m, n], int8(x[m, n] >> 3))",),
        ("y[m, n] = int8(max(x[m, n], x[m, n] >> 3))",),
        {},
    ),
    "shift as a product": Pair(
        "vta", _WIDE, ("y[m, n] = int8(x[m, n] << 2)",), ("y[m, n] = int8(x[m, n] * 4)",), {}
    ),
    "clip in two": Pair(
        "gemmini",
        _MATMUL,
        (_PRODUCT, "c[m, n] = int8(clip(round(float32(acc[m, n]) * 0.0078125), 0, 96))"),
        (
            _PRODUCT,
            "t[m, n] = int8(clip(round(float32(acc[m, n]) * 0.0078125), 0, 127))",
            "c[m, n] = min(t[m, n], 96)",
        ),
        {"t": "int8[35, 27]"},
        hosted=True,
    ),
    "sum with ones": Pair(
        "vta",
        {"x": "int8[32, 32, 16]", "s": "int32[8, 8, 16]", "y": "int8[8, 8, 16]"},
        (
            "s[i, j, c] += x[4*i + p, 4*j + q, c]",
            "y[i, j, c] = int8((s[i, j, c] + 8) >> 4)",
        ),
        (
            "s[i, j, c] += x[4*i + p, 4*j + q, d] * e[c, d]",
            "y[i, j, c] = int8((s[i, j, c] + 8) >> 4)",
        ),
        {"e": "int8[16, 16]"},
    ),
}


def _cycles(pair: Pair, statements: tuple[str, ...], *, run: bool) -> int:
    text = " ".join(statements)
    used = {n: t for n, t in {**pair.tensors, **pair.more}.items() if f"{n}[" in text}
    ranges = {"i": 8, "j": 8, "c": 16, "p": 4, "q": 4, "d": 16}
    compute = [
        {"do": s, "loops": {n: e for n, e in ranges.items() if n in names(parse_assign(s).value)}}
        if "4*i" in s
        else s
        for s in statements
    ]
    workload = hwgen.workload("wording", tensors=used, compute=compute)
    made = compile_workload(workload, load_hardware(ROOT / "hw_specs" / f"{pair.chip}.yaml"))
    assert bool(made.program.codes) == pair.hosted
    if run:
        examine(made, draw_inputs(workload, 1))
    return made.cycles


@pytest.mark.parametrize("name", tiered(list(PAIRS), ["addend named", "clip of what fits"]))
def test_two_wordings_take_the_same_cycles(name: str) -> None:
    pair = PAIRS[name]
    worse = _cycles(pair, pair.one, run=True)
    assert worse <= WITHIN * _cycles(pair, pair.other, run=False)


def test_a_zero_point_leaves_the_product() -> None:
    """Half again as long as the product without it, 24 rows: a vector is made of all weights."""
    y = "y[m, n] = int8(clip(acc[m, n] >> 8, -128, 127))"
    pair = Pair("vta", _GEMM, ("acc[m, n] += (a[m, k] - 5) * b[n, k]", y), (_PLAIN, y), {})
    assert _cycles(pair, pair.one, run=True) <= 1.5 * _cycles(pair, pair.other, run=False)


def test_a_zero_point_leaves_the_product_where_a_host_ends_it() -> None:
    """The host core would take 20 times as long for the products."""
    y = "y[m, n] = int8(acc[m, n] >> 8)"
    one = ("acc[m, n] += (a[m, k] - 5) * b[n, k]", y)
    pair = Pair("gemmini", _GEMM, one, (_PLAIN, y), {}, hosted=True)
    assert _cycles(pair, pair.one, run=True) <= 3 * _cycles(pair, pair.other, run=False)


def test_two_sums_of_products_meet_on_units() -> None:
    """Added up at the end they take a sixth longer than as one sum; the other's stays as it is."""
    y = "y[m, n] = int8(clip({} >> 8, -128, 127))"
    more = {"c": "int8[24, 48]", "d": "int8[32, 48]", "t": "int32[24, 32]"}
    second = "t[m, n] += c[m, k] * d[n, k]"
    pair = Pair("vta", _GEMM | more, (_PLAIN, second, y.format("(acc[m, n] + t[m, n])")), (), {})
    twice = {"a": "int8[24, 96]", "b": "int8[32, 96]"}
    other = Pair("vta", _GEMM | twice, (_PLAIN, y.format("acc[m, n]")), (), {})
    assert _cycles(pair, pair.one, run=True) <= 1.2 * _cycles(other, other.one, run=False)
