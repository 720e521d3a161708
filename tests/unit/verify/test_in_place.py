"""Images in place: those that are their tensors, and the defects that the check must catch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.check_program import check_program
from tests.fuzz.edits import catch
from tests.planted.images import IN_PLACE, image_mutations
from tests.products import narrowed
from tests.sampling import QUICK, THOROUGH

TESTS = Path(__file__).parents[2]
SPECS = TESTS / "specs"
P = [Name(f"p{d}") for d in range(4)]


@cache
def chip(name: str = "row_array") -> HardwareSpec:
    return load_hardware(SPECS / f"{name}.yaml")


@cache
def compiled(m: int, n: int, k: int) -> Kernel:
    return hwgen.compile_kernel(narrowed(m, n, k), chip())


def placed(c: Kernel) -> set[str]:
    return {i.tensor for i in c.program.images if i.in_place}


def refusal(program: Program, hardware: HardwareSpec, c: Kernel) -> HwgenError:
    with pytest.raises(HwgenError) as caught:
        check_program(program, hardware, c.workload)
    assert caught.value.code == IN_PLACE
    return caught.value


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((8, 8, 16), {"x", "w", "b", "y"}),
        ((16, 8, 12), {"b", "y"}),
        pytest.param((9, 12, 16), set[str](), marks=THOROUGH),
    ],
)
def test_whole_blocks_are_in_place(sizes: tuple[int, int, int], expected: set[str]) -> None:
    """Blocks of x are of 8 elements, of w 8 x 4, of the others 4; with nine rows of y it is faster
    to exchange x and w, and y then lies by columns."""
    c = compiled(*sizes)
    assert placed(c) == expected
    check_program(c.program, c.hardware, c.workload)
    said = {line for line in str(c.program).splitlines() if line.endswith(", in place")}
    assert len(said) == sum(i.in_place for i in c.program.images)
    named = (*c.source.inputs, *c.source.outputs)
    assert {p.name for p in named if p.in_place} == expected


@pytest.mark.parametrize("sizes", [(8, 8, 16), (16, 8, 12), (9, 12, 16)], ids=str)
def test_every_defect_of_images_is_caught(sizes: tuple[int, int, int]) -> None:
    c = compiled(*sizes)
    inputs = random_inputs(c.workload, 1)
    assert catch(c.program, c.hardware, c.workload, inputs) == ""
    applied: set[str] = set()
    for mutation in image_mutations(c.hardware):
        for seed in range(6):
            mutant = mutation.mutate(c.program, seed)
            if mutant is None:
                continue
            applied.add(mutation.name)
            found = catch(mutant, c.hardware, c.workload, inputs)
            assert found in mutation.caught_by, (mutation.name, seed)
    # What is in place cannot be claimed, and the other way round.
    every = {m.name for m in image_mutations(c.hardware)}
    missing = {
        (8, 8, 16): {"packed image in place"},
        (16, 8, 12): set[str](),
        (9, 12, 16): {"padded image in place", "rearranged image in place"},
    }
    assert applied == every - missing[sizes] - {"temporary image in place"}


def test_what_is_between_two_phases_is_not_in_place() -> None:
    """Were it so, it would be its tensor byte for byte; but the caller has no such array."""
    path = TESTS / "gemmini" / "workloads" / "two_layers.yaml"
    workload = load_workload(path, {"M": 32, "K": 16, "H": 32, "N": 16})
    hardware = load_hardware(TESTS.parent / "hw_specs" / "gemmini.yaml")
    c = hwgen.compile_kernel(workload, hardware, options=QUICK)
    (mutation,) = (m for m in image_mutations(c.hardware) if m.name == "temporary image in place")
    mutant = mutation.mutate(c.program, 0)
    assert mutant is not None
    assert [i.role for i in mutant.images if i.in_place].count("temporary") == 1
    assert refusal(mutant, c.hardware, c).diagnostic.found == "h_image, of h"
    assert catch(mutant, c.hardware, workload, random_inputs(workload, 1)) in mutation.caught_by


def test_a_chip_with_memory_of_its_own_packs_everything() -> None:
    c = compiled(8, 8, 16)
    private = replace(
        c.hardware, memories=tuple(replace(m, shared=False) for m in c.hardware.memories)
    )
    assert placed(hwgen.compile_kernel(c.workload, private, options=QUICK)) == set()
    error = refusal(c.program, private, c)
    assert (error.diagnostic.found, error.diagnostic.allowed) == (
        f"{c.program.images[0].name} in dram", "no memory is shared with the host",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["uint32_t ", "device_buffer"])
def test_handles_that_are_no_pointers(kind: str) -> None:
    c = compiled(8, 8, 16)
    handles = replace(c.hardware, code=replace(c.hardware.code, handle_type=kind))
    assert placed(hwgen.compile_kernel(c.workload, handles, options=QUICK)) == set()
    assert "pointer" in (refusal(c.program, handles, c).diagnostic.allowed or "")


@pytest.mark.parametrize(
    ("outer", "lanes", "index", "dtype", "said"),
    [
        ((2, 4), (8,), (P[0], add(multiply(P[1], Const(8)), P[2])), "int32", "elements are int32"),
        ((3, 4), (8,), (P[0], add(multiply(P[1], Const(8)), P[2])), "int8", "96 elements, not 64"),
        ((4, 2), (8,), (P[1], add(multiply(P[0], Const(8)), P[2])), "int8", "p1 steps over 32"),
        ((2, 32), (1,), (P[0], Binary("-", Const(31), P[1])), "int8", "begins with element 31"),
        ((2, 32), (), (P[0], add(P[1], Const(1))), "int8", "from 1 to 32, of 32"),
        ((2, 32), (), (add(P[0], Const(-1)), P[1]), "int8", "from -1 to 0, of 2"),
        ((64,), (), (Binary("//", P[0], Const(32)), Binary("%", P[0], Const(32))), "int8",
         "not affine"),
    ],
)  # fmt: skip
def test_what_differs_is_named(
    outer: tuple[int, ...], lanes: tuple[int, ...], index: tuple[Expr, ...], dtype: str, said: str
) -> None:
    c = compiled(2, 4, 32)
    image = Image("i", "x", "input", dtype, outer, lanes, index, 0, in_place=True)
    program = replace(c.program, images=(*c.program.images, image))
    assert said in (refusal(program, c.hardware, c).diagnostic.found or "")


def test_dimensions_of_one_position_may_stand_anywhere() -> None:
    c = compiled(2, 4, 32)
    index = (P[1], add(multiply(P[0], Const(32)), P[3]))
    image = Image("i", "x", "input", "int8", (1, 2, 1), (32,), index, 0, in_place=True)
    check_program(replace(c.program, images=(*c.program.images, image)), c.hardware, c.workload)
