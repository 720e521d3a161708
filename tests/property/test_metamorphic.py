"""What does not change a workload or a chip does not change the kernel either: names of loops and
tensors, the order of a spec's entries, casts and shifts that do nothing, extents of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import cast

import pytest

import hwgen
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.natural.draws import Spec
from tests.sampling import QUICK, tiered

ROOT = Path(__file__).parents[2]
GEMM = ["s0[m, n] += x0[m, k] * w0[n, k]"]
WORKLOADS: dict[str, tuple[Spec, ...]] = {
    "npu_shared_buffer": (
        {
            "tensors": {"x0": "float32[4, 6]", "w0": "float32[5, 6]", "b0": "float32[5]",
                        "s0": "float32[4, 5]", "y0": "float32[4, 5]"},
            "compute": [*GEMM, "y0[i, j] = max(s0[i, j] + b0[j], 0)"],
        },
        {"tensors": {"x0": "float32[7, 3]", "y0": "float32[7, 3]"},
         "compute": ["y0[i, j] = x0[i, j] + 1"]},
    ),
    "vta": (
        {
            "tensors": {"x0": "int8[3, 32]", "w0": "int8[20, 32]", "b0": "int32[20]",
                        "s0": "int32[3, 20]", "y0": "int8[3, 20]"},
            "compute": [*GEMM, "y0[i, j] = int8(clip((s0[i, j] + b0[j]) >> 5, -128, 127))"],
        },
        # Whose rows are lanes of which operand is one of two equally good choices.
        {
            "tensors": {"x0": "int8[3, 18]", "w0": "int8[2, 18]", "s0": "int32[17]",
                        "y0": "int8[17]"},
            "compute": [
                {"do": "s0[i] += x0[j, i] * w0[j, i + 1]", "loops": {"i": 17, "j": 2}},
                "y0[i] = int8(s0[i] + s0[i])",
            ],
        },
    ),
    "gemmini": (
        {
            "tensors": {"x0": "int8[6, 5]", "w0": "int8[5, 4]", "s0": "int32[6, 4]",
                        "y0": "int8[6, 4]"},
            "compute": [
                "s0[m, n] += x0[m, k] * w0[k, n]",
                "y0[m, n] = int8(clip(round(float32(s0[m, n]) * 0.5), -128, 127))",
            ],
        },
    ),
}  # fmt: skip
WORKLOADS["vtcm_two_banks"] = WORKLOADS["npu_shared_buffer"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_AVOIDED = re.compile(r"(?<=\w)_\b")
"""What a name has at its end in C where C has the name itself."""
_ACCESS = re.compile(r"\b([a-z]\d)(\[[^\]]*\])")


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn workload that a chip computes, and its kernel."""

    data: Spec
    workload: Workload
    cycles: int
    text: str


def spec(chip: str) -> Spec:
    return cast(Spec, deepcopy(read_document(ROOT / "hw_specs" / f"{chip}.yaml").data))


@cache
def hardware(chip: str) -> HardwareSpec:
    return parse_hardware(spec(chip))


def up_to_names(text: str) -> str:
    """C with every word replaced by a number, in the order in which they first occur, and without
    the columns that their lengths give."""
    seen: dict[str, int] = {}
    text = _AVOIDED.sub("", text)
    return " ".join(_WORD.sub(lambda m: f"n{seen.setdefault(m[0], len(seen))}", text).split())


def kernel(data: Spec, chip: HardwareSpec) -> tuple[int, str]:
    found = hwgen.compile_kernel(parse_workload(data), chip, options=QUICK)
    return found.cycles, up_to_names(found.source.c)


@cache
def cases(chip: str) -> tuple[Case, ...]:
    """Workloads of a chip, with their kernels."""
    found: list[Case] = []
    for given in WORKLOADS[chip]:
        workload = parse_workload({"name": "k", **given})
        compute = [
            {"do": text if isinstance(text, str) else text["do"], "loops": dict(statement.loops)}
            for text, statement in zip(given["compute"], workload.statements, strict=True)
        ]
        data: Spec = {"name": "k", "tensors": given["tensors"], "compute": compute}
        found.append(Case(data, workload, *kernel(data, hardware(chip))))
    return tuple(found)


def renamed(case: Case, names: Callable[[int], str], *, apart: bool = False) -> Spec:
    """With other names, in another order; `apart`: loops of each statement their own."""
    number = iter(range(1000))
    tensors = {t.name: f"t{names(next(number))}" for t in case.workload.tensors}
    loops = {n: f"l{names(next(number))}" for s in case.workload.statements for n, _ in s.loops}
    compute: list[dict[str, object]] = []
    for given in case.data["compute"]:
        mine = {n: f"l{names(next(number))}" for n in loops} if apart else loops
        words: Mapping[str, str] = {**mine, **tensors}
        text = _WORD.sub(lambda m, words=words: words.get(m[0], m[0]), given["do"])
        compute.append({"do": text, "loops": {mine[n]: e for n, e in given["loops"].items()}})
    declared = {tensors[n]: t for n, t in case.data["tensors"].items()}
    return {**case.data, "tensors": declared, "compute": compute}


def rewritten(case: Case, access: Callable[[str, str], str]) -> Spec:
    """With another text for every element that is read; `access` takes the element and its type."""
    types = {t.name: t.dtype for t in case.workload.tensors}
    compute: list[dict[str, object]] = []
    for given in case.data["compute"]:
        target, op, value = re.split(r" (\+=|max=|min=|=) ", given["do"], maxsplit=1)
        value = _ACCESS.sub(lambda m: access(m[0], types[m[1]]), value)
        compute.append({**given, "do": f"{target} {op} {value}"})
    return {**case.data, "compute": compute}


def with_unit(case: Case) -> Spec:
    """Every tensor with a first dimension of one element, every statement with a loop over it."""
    tensors = {n: t.replace("[", "[1, ", 1) for n, t in case.data["tensors"].items()}
    compute = [
        {"do": _ACCESS.sub(r"\1[u, \2", c["do"]).replace("[u, [", "[u, "),
         "loops": {"u": 1, **c["loops"]}}
        for c in case.data["compute"]
    ]  # fmt: skip
    return {**case.data, "tensors": tensors, "compute": compute}


@pytest.mark.parametrize(
    ("order", "chip"),
    tiered(
        list(product(("rising", "falling", "apart"), WORKLOADS)),
        [
            ("apart", "npu_shared_buffer"),
            ("rising", "vta"),
            ("falling", "gemmini"),
        ],
    ),
)
def test_names_decide_nothing(chip: str, order: str) -> None:
    """Every byte but the names is the same."""
    for case in cases(chip):
        mixed = Random(len(case.text)).sample(range(100, 1000), 899)
        names: dict[str, Callable[[int], str]] = {
            "rising": lambda n: f"{n:03}",
            "falling": lambda n: f"{999 - n:03}",
            "apart": lambda n, mixed=mixed: str(mixed[n]),
        }
        again = renamed(case, names[order], apart=order == "apart")
        assert kernel(again, hardware(chip)) == (case.cycles, case.text), case.data


def test_a_loop_is_called_as_one_of_another_statement() -> None:
    """The second statement's `q` is no relation of the first one's: they are told apart."""
    found: set[tuple[int, str]] = set()
    for p, q in ("pq", "rs", ("q_", "q"), ("i0", "o0")):
        data: Spec = {
            "name": "k",
            "tensors": {
                "a": "float32[4, 3]", "b": "float32[4, 3]", "x": "float32[4, 3, 5]",
                "o0": "float32[4, 3]", "o1": "float32[5]",
            },
            "compute": [
                f"o0[{p}, {q}] = a[{p}, {q}] + b[{p}, {q}]",
                "o1[q] += x[i, j, q] * o0[i, j]",
            ],
        }  # fmt: skip
        found.add(kernel(data, hardware("npu_shared_buffer")))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("section", "chip"),
    tiered(
        list(product(("memories", "units", "buses", "intrinsics"), ("npu_shared_buffer", "vta"))),
        [
            ("memories", "vta"),
            ("units", "npu_shared_buffer"),
            ("buses", "vta"),
            ("intrinsics", "vta"),
        ],
    ),
)
def test_the_order_of_a_specs_entries_decides_nothing(chip: str, section: str) -> None:
    """The cycles are the same; the bytes where no entry's number is part of them. Of intrinsics
    that cost the same, the first of the file is still taken: here none do."""
    changed = spec(chip)
    names = sorted(changed[section], reverse=True)
    assert len(names) < 2 or names != list(changed[section])
    changed[section] = {n: changed[section][n] for n in names}
    for case in cases(chip):
        cycles, text = kernel(case.data, parse_hardware(changed))
        assert cycles == case.cycles
        assert text == case.text or section == "memories"


WAYS = ("cast to its own type", "shift by 0", "whole range", "plus 0")


@pytest.mark.parametrize(
    ("way", "chip"),
    tiered(
        list(product(WAYS, ("npu_shared_buffer", "vta"))),
        [*((way, "vta") for way in WAYS), (WAYS[0], "npu_shared_buffer")],
    ),
)
def test_what_changes_no_value_decides_nothing(chip: str, way: str) -> None:
    def same(element: str, dtype: str) -> str:
        if way == "cast to its own type":
            return f"{dtype}({element})"
        if "float" in dtype:
            return f"({element} * 1)"
        if way == "shift by 0":
            return f"({element} >> 0)"
        if way == "plus 0":
            return f"({element} + 0)"
        bits = int(dtype.lstrip("uint"))
        low = 0 if dtype.startswith("u") else -(1 << (bits - 1))
        return f"clip({element}, {low}, {low + (1 << bits) - 1})"

    for case in cases(chip):
        again = rewritten(case, same)
        assert kernel(again, hardware(chip)) == (case.cycles, case.text), again


@pytest.mark.parametrize("chip", ["npu_shared_buffer", "vta"])
def test_extents_of_one_decide_nothing(chip: str) -> None:
    """Shapes are part of the text, so that the cycles alone are compared."""
    for case in cases(chip):
        assert kernel(with_unit(case), hardware(chip))[0] == case.cycles
