"""Random workloads on a shipped chip: compiled and right, or refused properly."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, make_workload, parse_workload
from hwgen.spec.workload import Workload
from tests.fuzz.chips.workloads import random_workload
from tests.property.oracle import SETTINGS, judge, read
from tests.sampling import QUICK, examples, some, tiered

SPEC = Path(__file__).parents[2] / "hw_specs" / "vta.yaml"

Text = tuple[str, str]
"""Tensors and statements, separated by semicolons; `{i: 4}` after a statement spells its loops."""

COMPILED: dict[str, Text] = {
    "a tensor longer than the reduction": (
        "x: int8[4, 18]; w: int8[5, 18]; s: int32[4, 5]; y: int8[4, 5]",
        "s[i, j] += x[i, r] * w[j, r] {i: 4, j: 5, r: 17}; y[i, j] = int8(s[i, j])",
    ),
    "reductions that overlap": (
        "x: int8[4, 49]; w: int8[5, 33]; s: int32[2, 4, 5]; y: int8[2, 4, 5]",
        "s[q, i, j] += x[i, 16*q + r] * w[j, 16*q + r] {q: 2, i: 4, j: 5, r: 17};"
        "y[q, i, j] = int8(s[q, i, j])",
    ),
    "cropped views": (
        "x: int8[4, 18]; w: int8[5, 18]; v: int8[4, 17]; u: int8[5, 17]; s: int32[4, 5];"
        "y: int8[4, 5]",
        "v[i, j] = x[i, j] {i: 4, j: 17}; u[i, j] = w[i, j] {i: 5, j: 17};"
        "s[i, j] += v[i, r] * u[j, r]; y[i, j] = int8(s[i, j])",
    ),
    "padding in the first dimension": (
        "x: int8[4]; v: int8[7]; s: int32[7]; y: int8[7]",
        "v[d] = select(d >= 2 and d < 6, x[d - 2], 0); s[i] += v[i] * v[i]; y[i] = int8(s[i])",
    ),
    "one padding that is not zero": (
        "x: int8[4]; w: int8[7]; v: int8[7]; s: int32[7]; y: int8[7]",
        "v[d] = select(d >= 2 and d < 6, x[d - 2], 3); s[i] += v[i] * w[i]; y[i] = int8(s[i])",
    ),
    "a diagonal along a loop that the operand repeats": (
        "x: int8[17]; w: int8[5, 3, 16]; s: int32[5, 3, 16]; y: int8[5, 3, 16]",
        "s[i, j, k] += x[15 - k] * w[i, j, k] {i: 5, j: 3, k: 16}; y[i, j, k] = int8(s[i, j, k])",
    ),
    "an operand twice": ("x: int8[4, 18]; y: int8[4, 18]", "y[i, j] = int8(x[i, j] + x[i, j])"),
    "the broadcast operand first": (
        "x: int8[18]; z: int8[4, 1]; y: int8[4, 18]", "y[i, j] = int8(x[j] + z[i, 0])",
    ),
    "windows of an elementwise statement": (
        "x: int8[8]; y: int8[4, 3]", "y[i, j] = int8(max(x[i + j], 3))",
    ),
    "a widening copy of a broadcast": (
        "x: int8[1]; t: int32[20]; y: int8[20]",
        "t[i] = int32(x[0]) {i: 20}; y[i] = int8(t[i] + 1)",
    ),
    "two copies of one input": (
        "x: int8[20]; t: int32[20]; u: int32[20]; y: int8[20]; z: int8[20]",
        "t[i] = int32(x[i]); u[i] = int32(x[i]); y[i] = int8(t[i] + 1); z[i] = int8(u[i] + 2)",
    ),
    "part of an intermediate": (
        "s: int32[8]; w: int8[8, 5]; y: int8[4]", "s[i] += w[i, r]; y[i] = int8(s[i]) {i: 4}",
    ),
    "one row summed up": (
        "x: int32[300, 1]; s: int32[1]; y: int8[1]", "s[i] += x[r, i]; y[i] = int8(s[i])",
    ),
    "a producer inside the reduction": (
        "x: int8[40, 300]; t: int32[40, 300]; s: int32[40]; y: int8[40]",
        "t[i, r] = max(x[i, r], 0); s[i] += t[i, r]; y[i] = int8(s[i])",
    ),
    "arithmetic inside the reduction": (
        "x: int8[40, 300]; s: int32[40]; y: int8[40]",
        "s[i] += max(x[i, r], 0); y[i] = int8(s[i])",
    ),
    "a producer beside the reduction": (
        "x: int8[4]; t: int32[4]; s: int32[4]; w: int8[4, 5]; y: int8[4]",
        "t[i] = max(x[i], 0); s[i] += w[i, r]; y[i] = int8(s[i] + t[i])",
    ),
    "statements that share nothing": (
        "x: int8[3]; y: int8[3]; w: int8[3000, 16]; z: int8[3000, 16]",
        "z[j, k] = int8(max(w[j, k], 3)); y[i] = int8(x[i] + 1)",
    ),
    "a consumer with a loop of its own": (
        "s: int32[40]; w: int8[40, 300]; z: int8[40, 30]",
        "s[i] += w[i, r]; z[i, j] = int8(w[i, j] + s[i]) {i: 40, j: 30}",
    ),
    "limits that the fastest lanes exceed": (
        "x: int32[17, 16, 16]; s: int32[16]; y: int8[16]",
        "s[i] += x[r, q, i]; y[i] = int8(s[i])",
    ),
    "limits that the fastest tilings exceed": (
        "x: int8[48, 33, 6]; w: int8[2, 3, 97, 16]; s: int32[3, 33]; y: int8[3, 33]",
        "s[i, j] += x[q + r, j, 2*i + 1] * w[1, i, 2*j + r, q] {q: 16, r: 33, j: 33, i: 3};"
        "y[i, j] = int8(s[i, j])",
    ),
    "in the place of an operand that a later call still needs": (
        "x: int32[16, 2]; u: int8[16, 2]; z: int32[16]; y: int8[16, 2]",
        "y[j, l] = int8(x[j, l] + (z[j] + u[j, l]))",
    ),
    "sums, maxima and halves of one value": (
        "x: int8[2]; z: int8[2]; s: int32[2]; t: int32[2]; y: int8[2]",
        "s[i] = max(x[i], clip(z[i], -5, 5)); t[i] = max(s[i], 0);"
        "y[i] = int8(((t[i] + t[i]) >> 1) + 32767)",
    ),
    "four greater ones of one pair": (
        "w: int8[16, 3, 16, 20]; x: int8[17, 3, 16]; s: int32[16, 3, 16]; t: int32[16, 3, 16];"
        "u: int32[16, 3, 16]; y: int8[16, 3, 16]",
        "s[i, j, l] += w[i, j, l, r] * w[i, j, l, r];"
        "t[i, j, l] = s[i, j, l] + -1 + max(min(s[i, j, l], s[i, j, l]), x[l + 1, j, i]);"
        "u[i, j, l] = max(t[i, j, l], s[i, j, l]) + max(t[i, j, l], s[i, j, l])"
        " + (max(t[i, j, l], s[i, j, l]) + max(t[i, j, l], s[i, j, l]));"
        "y[i, j, l] = int8(u[i, j, l] >> 31)",
    ),
    "eight times one value": (
        "x: int8[5]; y: int32[5]; z: int8[5]",
        "y[i] = ((x[i] + x[i]) + (x[i] + x[i])) + ((x[i] + x[i]) + (x[i] + x[i]));"
        "z[i] = int8(y[i])",
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[str, str, str]] = {
    "both paddings not zero": (
        "x: int8[4]; v: int8[7]; s: int32[7]; y: int8[7]",
        "v[d] = select(d >= 2 and d < 6, x[d - 2], 3); s[i] += v[i] * v[i]; y[i] = int8(s[i])",
        "H302",
    ),
    "an intermediate transposed onto itself": (
        "s: int32[8, 8]; w: int8[8, 8]; y: int8[8, 8]",
        "s[i, j] += w[i, r] * w[j, r]; y[i, j] = int8(s[i, j] + s[j, i])",
        "H503",
    ),
    "a guard that depends on data": (
        "x: int8[5]; t: int8[5]; y: int8[5]",
        "t[i] = select(x[i] > 0, x[i], 0); y[i] = int8(t[i] + 1)",
        "H301",
    ),
    "a consumer that runs over the reduction": (
        "x: int8[4, 5]; t: int32[4, 5]; s: int32[4]; y: int8[4, 5]",
        "t[i, r] = max(x[i, r], 0); s[i] += t[i, r]; y[i, r] = int8(t[i, r] + s[i])",
        "H301",
    ),
    "a constant past the field": (
        "x: int8[5]; y: int8[5]", "y[i] = int8(x[i] + 40000)", "H301",
    ),
    "a float workload": (
        "x: float32[5]; w: float32[5]; y: float32[5]", "y[i] = x[i] + w[i]", "H301",
    ),
}  # fmt: skip


@cache
def chip(batch: int = 1) -> HardwareSpec:
    return load_hardware(SPEC, {"BATCH": batch})


def given_as(text: Text) -> Workload:
    tensors, statements = ([p.strip() for p in t.split(";") if p.strip()] for t in text)
    compute: list[dict[str, object] | str] = []
    for statement in statements:
        do, _, loops = statement.partition("{")
        pairs = [p.split(":") for p in loops.rstrip("}").split(",") if loops]
        spelt = {name.strip(): int(extent) for name, extent in pairs}
        compute.append({"do": do.strip(), "loops": spelt} if loops else do)
    declared = dict(t.split(": ") for t in tensors)
    return make_workload("given", tensors=declared, compute=compute)


def verdict(text: Text, rank: int = 0, batch: int = 1) -> str:
    return judge(given_as(text), chip(batch), seed=rank, rank=rank)


@pytest.mark.parametrize(
    ("name", "batch"),
    tiered(
        [*((n, 1) for n in COMPILED), *((n, 2) for n in some([*COMPILED], 3))],
        [(n, 1) for n in [*COMPILED][::2] if n != "limits that the fastest lanes exceed"],
    ),
)
def test_workloads_that_were_once_wrong_or_refused(name: str, batch: int) -> None:
    assert verdict(COMPILED[name], batch=batch) == ""


@pytest.mark.parametrize("name", tiered([*COMPILED], [*COMPILED][1::6]))
def test_they_are_trees_that_their_scripts_make_again(name: str) -> None:
    workload = given_as(COMPILED[name])
    found = compile_kernel(workload, chip(1), options=QUICK)
    assert compile_script(workload, chip(1), found.script).source.c == found.source.c


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["a producer inside the reduction", "a consumer with a loop of its own"]
)
def test_other_schedules_of_them(name: str, rank: int) -> None:
    """Later ones may exceed a limit, which only the search's own choice must not."""
    assert verdict(COMPILED[name], rank=rank) in ("", *LIMITS)


@pytest.mark.parametrize("name", REFUSED)
def test_workloads_that_are_refused(name: str) -> None:
    tensors, compute, code = REFUSED[name]
    assert verdict((tensors, compute)) == code


def test_most_workloads_are_read() -> None:
    """A generator of refused workloads would let every other test pass."""
    drawn = [random_workload(Random(seed).choice) for seed in range(100)]
    assert sum(read(lambda d=d: parse_workload(d)) is not None for d in drawn) >= 80
    assert len({repr(d) for d in drawn}) == 100


@settings(SETTINGS, max_examples=examples(10))
@given(
    st.randoms(use_true_random=False), st.integers(0, 999), st.sampled_from((0, 0, 1, 3, 7)),
    st.sampled_from((1, 1, 2)),
)  # fmt: skip
def test_random_workloads(random: Random, seed: int, rank: int, batch: int) -> None:
    workload = read(lambda: parse_workload(random_workload(random.choice)))
    if workload is not None:
        judge(workload, chip(batch), seed, rank)
