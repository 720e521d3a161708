"""Small chips that use runs of calls, state and a host's queues in shapes of their own."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.codegen.nodes import Barrier, Call, Configure, Loop, Pop, Push, calls
from hwgen.codegen.nodes import nodes as all_nodes
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.fuzz.edits import catch
from tests.fuzz.mutations_configuration import configuration_mutations
from tests.products import narrowed
from tests.sampling import QUICK, some, tiered

SPECS = Path(__file__).parents[2] / "specs"
Shape = tuple[int, int, int]
CHIPS = ("row_array", "token_rows", "block_rows")
SHAPES: tuple[Shape, ...] = ((1, 4, 8), (5, 7, 9), (13, 24, 17))


def product(m: int, n: int, k: int, dtype: str, sums: str, weights: str = "w[k, n]") -> Workload:
    tensors = {"x": f"{dtype}[{m}, {k}]", "w": f"{dtype}[{k}, {n}]", "y": f"{sums}[{m}, {n}]"}
    if weights == "w[n, k]":
        tensors["w"] = f"{dtype}[{n}, {k}]"
    return hwgen.workload("product", tensors=tensors, compute=[f"y[m, n] += x[m, k] * {weights}"])


def window(h: int, o: int, c: int) -> Workload:
    return hwgen.workload(
        "window",
        tensors={
            "x": f"int8[{h + 2}, 6, {c}]",
            "w": f"int8[3, 2, {c}, {o}]",
            "acc": f"int32[{h}, 5, {o}]",
            "y": f"int8[{h}, 5, {o}]",
        },
        compute=[
            "acc[h, v, o] += x[h + r, v + s, c] * w[r, s, c, o]",
            "y[h, v, o] = int8(clip(acc[h, v, o] >> 4, -128, 127))",
        ],
    )


def workload(name: str, shape: Shape) -> Workload:
    match name:
        case "narrowed":
            return narrowed(*shape)
        case "window":
            return window(*shape)
        case "transposed":
            return product(*shape, "int8", "int32", "w[n, k]")
        case "floats":
            return product(*shape, "float32", "float32")
        case _:
            return product(*shape, "int8", "int32")


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(SPECS / f"{name}.yaml")


@cache
def compiled(name: str, work: str, shape: Shape) -> Kernel:
    return hwgen.compile_kernel(workload(work, shape), chip(name), options=QUICK)


def data(made: Workload) -> dict[str, Array]:
    """Small integers: sums of floats are exact, and few results are clipped."""
    random = np.random.default_rng(0)
    return {t.name: random.integers(-9, 10, t.shape).astype(t.dtype) for t in made.inputs}


CASES = [
    *(("row_array", "narrowed", s) for s in SHAPES),
    *(("row_array", "product", s) for s in ((5, 7, 9), (64, 33, 40))),
    # Its last store stands in two places: isl cuts the loop around it.
    ("row_array", "narrowed", (30, 50, 20)),
    ("row_array", "window", (5, 6, 9)),
    *(("token_rows", "product", s) for s in (*SHAPES, (64, 70, 80))),
    *(("token_rows", "transposed", s) for s in ((5, 7, 9), (13, 25, 17), (16, 21, 30))),
    *(("block_rows", "floats", s) for s in (*SHAPES, (33, 20, 41))),
]


SOME = some(CASES, 2)


@pytest.mark.parametrize(("name", "work", "shape"), tiered(SOME, SOME[::4]))
def test_kernels_are_right(name: str, work: str, shape: Shape) -> None:
    c = compiled(name, work, shape)
    inputs = data(c.workload)
    examine(c, inputs)
    if have_compiler():
        outputs = compile_model(c.source).run(inputs)
        for tensor, expected in run_reference(c.workload, inputs).items():
            np.testing.assert_array_equal(outputs[tensor], expected)


@pytest.mark.parametrize("case", tiered(CASES, CASES[::3], values=True))
def test_every_call_has_a_site_of_its_own(case: tuple[str, str, Shape]) -> None:
    sites = [call.site for call in calls(compiled(*case).program.body)]
    assert len(sites) == len(set(sites))


def test_the_cases_use_every_feature() -> None:
    programs = {case: compiled(*case).program for case in CASES}
    used = {(case[0], c.intrinsic) for case, p in programs.items() for c in calls(p.body)}
    assert used == {(n, i.name) for n in CHIPS
                    for i in chip(n).intrinsics}  # fmt: skip
    rewritten = [
        case
        for case, p in programs.items()
        if any(
            isinstance(inner, Configure)
            for node in p.body
            if isinstance(node, Loop)
            for inner in all_nodes((node,))
        )
    ]
    assert {case[0] for case in rewritten} >= {"token_rows", "block_rows"}
    runs = {
        case[0]
        for case, p in programs.items()
        for call in calls(p.body)
        if any(str(e) != "1" for e in call.extents[: _software(case[0], call)])
    }
    assert runs == set(CHIPS)


def _software(name: str, call: Call) -> int:
    return chip(name).intrinsic[call.intrinsic].software_loops


def test_sums_begin_with_their_first_products_where_a_chip_can() -> None:
    names = [c.intrinsic for c in calls(compiled("row_array", "product", (5, 7, 9)).program.body)]
    assert "multiply_first" in names
    names = [c.intrinsic for c in calls(compiled("row_array", "narrowed", (5, 7, 9)).program.body)]
    # What is added afterwards comes first, so nothing sets the sums.
    assert "multiply_first" not in names
    assert "load_sums" in names


def test_only_a_scoreboard_behind_a_host_lets_calls_other_than_loads_move() -> None:
    """Loads run ahead of what reads them on all of them: their units store too."""
    assert [chip(n).pipelined for n in CHIPS] == [True, False, False]
    moved: dict[str, set[tuple[bool, str]]] = {n: set() for n in CHIPS}
    for case in CASES:
        shifts = re.findall(
            r"^s\.shift\(([^,]+), .*, (-?\d)\)$", compiled(*case).script, re.MULTILINE
        )
        loads = re.compile(r"\w+_(?:rows|weights|left|right)")
        moved[case[0]] |= {(bool(loads.fullmatch(block)), by) for block, by in shifts}
    assert moved["token_rows"] == moved["block_rows"] == {(True, "-1")}
    begins, stores = {(False, "-1"), (False, "-2")}, {(False, "1")}
    assert moved["row_array"] - begins == {(True, "-1")} | stores
    assert moved["row_array"] & begins


def test_each_chip_is_ordered_in_its_own_way() -> None:
    def kinds(name: str, work: str) -> set[type]:
        nodes = all_nodes(compiled(name, work, (13, 24, 17)).program.body)
        return {type(n) for n in nodes if isinstance(n, Push | Pop | Barrier)}

    assert kinds("row_array", "narrowed") == set()
    assert kinds("token_rows", "product") == {Push, Pop}
    assert kinds("block_rows", "floats") == {Barrier}


def test_the_state_in_the_emitted_code() -> None:
    text = compiled("row_array", "narrowed", (13, 24, 17)).source.c
    lines = [line.strip() for line in text.splitlines()]
    body = lines[lines.index("array_begin();") :]
    first = next(n for n, line in enumerate(body) if line.startswith("array_load"))
    assert any(line.startswith("array_configure_load(") for line in body[:first])
    assert any("array_hold(" in line for line in body)


@pytest.mark.parametrize(
    ("name", "work", "shape"),
    [
        ("row_array", "narrowed", (13, 24, 17)),
        ("token_rows", "product", (13, 24, 17)),
        ("token_rows", "transposed", (5, 7, 9)),
        ("block_rows", "floats", (33, 20, 41)),
    ],
)
def test_every_defect_of_the_state_is_caught(name: str, work: str, shape: Shape) -> None:
    c = compiled(name, work, shape)
    inputs = data(c.workload)
    assert catch(c.program, c.hardware, c.workload, inputs) == ""
    for mutation in configuration_mutations(c.hardware):
        for seed in range(3):
            mutant = mutation.mutate(c.program, seed)
            assert mutant is not None, mutation.name
            assert mutant != c.program
            found = catch(mutant, c.hardware, c.workload, inputs)
            assert found in mutation.caught_by, (mutation.name, seed)


def test_a_chip_without_state_has_no_such_defects() -> None:
    assert configuration_mutations(load_hardware(SPECS / "two_stage.yaml")) == ()


def test_a_bank_of_registers_has_wrong_ones() -> None:
    names = {n: [m.name for m in configuration_mutations(chip(n))] for n in CHIPS}
    assert len(names["token_rows"]) == len(names["row_array"]) + 2
