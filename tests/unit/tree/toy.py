"""Small workloads and chips that the tests of the scheduling language share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import hwgen
from hwgen import HwgenError, Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

ROOT = Path(__file__).resolve().parents[3]
SPECS = {
    "cpu": ROOT / "hw_specs" / "cpu_generic.yaml",
    "cuda": ROOT / "hw_specs" / "cuda_generic.yaml",
    "npu": ROOT / "hw_specs" / "npu_shared_buffer.yaml",
    "gemv": ROOT / "tests" / "specs" / "cpu_gemv.yaml",
}


def make(
    name: str, tensors: Mapping[str, str], compute: Sequence[str | Mapping[str, object]]
) -> Workload:
    """A workload out of its tensors and statements."""
    return hwgen.workload(name, sizes={}, tensors=tensors, compute=compute)


MATMUL = make(
    "matmul",
    {"a": "float32[64, 64]", "b": "float32[64, 64]", "c": "float32[64, 64]"},
    ["c[i, j] += a[i, k] * b[k, j]"],
)
ROWSUM = make("rowsum", {"a": "float32[64, 48]", "b": "float32[64]"}, ["b[i] += a[i, k]"])
CHAIN = make(
    "chain",
    {"a": "float32[64, 48]", "b": "float32[64, 48]", "c": "float32[64, 48]"},
    ["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"],
)
BLUR = make(
    "blur",
    {"a": "float32[66]", "b": "float32[66]", "c": "float32[64]"},
    ["b[i] = a[i] * 2", {"do": "c[i] = b[i] + b[i + 1] + b[i + 2]", "loops": {"i": 64}}],
)
MAX = make("largest", {"a": "int32[50]", "m": "int32[1]"}, ["m[0] max= a[k]"])
NARROW = make(
    "narrow",
    {"a": "int8[8, 48]", "b": "int8[8, 48]", "c": "int8[8, 48]", "d": "uint32[8, 48]"},
    [
        "c[i, j] = int8(clip(a[i, j] - b[i, j], -128, 127))",
        "d[i, j] = uint32(7) - uint32(c[i, j])",
    ],
)
"""What is subtracted is narrower than what it is subtracted in."""

OFFSET = make(
    "offset",
    {"a": "int8[8, 48]", "b": "int8[48, 16]", "c": "int32[8, 16]"},
    ["c[i, j] += (a[i, k] - 5) * b[k, j]"],
)

PADDED = make(
    "padded",
    {"a": "float32[16]", "b": "float32[16]", "p": "float32[18]", "c": "float32[16]"},
    [
        "b[i] = a[i] * 2",
        "p[i] = select(i >= 1 and i <= 16, b[i - 1], 0)",
        {"do": "c[i] = p[i] + p[i + 2]", "loops": {"i": 16}},
    ],
)
"""What is computed, with a zero at each end."""

WIDE = make(
    "wide",
    {"a": "int8[8, 48]", "b": "int32[8]", "c": "int32[8]"},
    ["b[i] += a[i, k]", "c[i] = b[i] + 1"],
)
"""A sum that its summands' type does not hold."""

MATVEC = make(
    "matvec",
    {"a": "float32[32, 128]", "x": "float32[128]", "y": "float32[32]"},
    ["y[i] += a[i, k] * x[k]"],
)
GROUP = make(
    "group",
    {
        "A": "float32[16, 32]",
        "B": "float32[16, 32]",
        "D": "float32[16, 32]",
        "E": "float32[16, 32]",
        "F": "float32[16]",
    },
    ["D[i, j] = A[i, j] + B[i, j]", "E[i, j] = D[i, j] + B[i, j]", "F[i] += E[i, k]"],
)
BIASED = make(
    "biased",
    {
        "x": "int32[16, 8]",
        "w": "int32[8, 12]",
        "bias": "int32[12]",
        "acc": "int32[16, 12]",
        "y": "int32[16, 12]",
    },
    ["acc[i, j] += x[i, k] * w[k, j]", "y[i, j] = max(acc[i, j] + bias[j], 0)"],
)
EXPS = make(
    "exps",
    {"x": "float32[16, 48]", "top": "float32[16]", "e": "float32[16, 48]", "z": "float32[16]"},
    ["top[i] max= x[i, j]", "e[i, j] = exp(x[i, j] - top[i])", "z[i] += e[i, j]"],
)
"""The sum of a softmax, whose reference point is the greatest element."""

NORM = make(
    "norm",
    {
        "a": "float32[16, 32]",
        "t": "float32[16]",
        "b": "float32[16, 32]",
    },
    ["t[i] += a[i, k]", "b[i, j] = a[i, j] - t[i]"],
)


@cache
def chip(name: str) -> HardwareSpec:
    """One of the chips by its short name."""
    return hwgen.load_hardware(SPECS[name], trust=True)


def start(workload: Workload, name: str = "cpu") -> Schedule:
    """A new schedule."""
    return Schedule(workload, chip(name))


def refusal(workload: Workload, script: str, name: str = "cpu") -> HwgenError:
    """The error of a script's last line; the lines before it must be legal."""
    lines = script.strip().splitlines()
    s = start(workload, name)
    s.replay("".join(f"{line}\n" for line in lines[:-1]), "legal")
    before = (str(s), s.trace())
    try:
        s.replay(lines[-1], "refused")
    except HwgenError as error:
        assert (str(s), s.trace()) == before, "a refused edit changes nothing"
        return error
    raise AssertionError(f"{lines[-1]} was not refused")


SLIDING = make(
    "sliding",
    {"a": "float32[16]", "b": "float32[16]", "c": "float32[9, 8]"},
    [{"do": "b[n] = a[n] * a[n]", "loops": {"n": 16}}, "c[i, j] = b[i + j]"],
)
"""Each b is read along an anti-diagonal of c."""

ONCE = "s.compute_at('b', 'j')\ns.set_store_predicate('b', 'i == 0 or j == 7')\n"
"""Each b is computed where it is read first, and kept: (i, j) needs what (i - 1, j + 1) made."""

WINDOWS = make(
    "windows",
    {"a": "float32[18, 8]", "t": "float32[18]", "c": "float32[16]"},
    ["t[i] += a[i, k]", {"do": "c[i] = t[i] + t[i + 2]", "loops": {"i": 16}}],
)
"""Neighbouring c read overlapping windows of the reduction t."""

TWO = make(
    "two",
    {"a": "float32[8]", "b": "float32[8]", "c": "float32[8]", "d": "float32[8]"},
    ["b[i] = a[i] * 2", "c[i] = b[i] + 1", "d[i] = b[i] + 2"],
)

REUSE = make(
    "reuse",
    {
        "a": "float32[64, 48]",
        "b": "float32[64, 48]",
        "t": "float32[64, 48]",
        "c": "float32[64, 48]",
    },
    ["b[i, j] = a[i, j] * 2", "t[i, j] = b[i, j] + 1", "c[i, j] = t[i, j] * b[i, j]"],
)
"""b is read again once t has been made of it."""

STEPS = make(
    "steps",
    {
        "a": "float32[64, 48]",
        "b": "float32[64, 48]",
        "t": "float32[64, 48]",
        "c": "float32[64, 48]",
    },
    ["b[i, j] = a[i, j] * 2", "t[i, j] = b[i, j] + 1", "c[i, j] = t[i, j] * 3"],
)
"""Each tensor is read once, to make the next."""

MIXED = make(
    "mixed",
    {"a": "int8[16]", "b": "int32[16]", "c": "int32[16]"},
    ["b[i] = int32(a[i])", "c[i] = b[i] + 1"],
)
