"""A program executes the instances that its tree intends, and every defect of that is found by the
check of it alone."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import hwgen
from hwgen.codegen.lower.program import Lowered
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.verify.check_instances import check_instances
from tests.fuzz.edits import Mutation
from tests.planted.instances import instance_mutations, tree_mutations

KERNELS: dict[str, tuple[str, str, dict[str, int]]] = {
    "micro-kernels, tiles that a call takes whole": ("vta", "gemm", {"M": 16, "N": 48, "K": 32}),
    "tails, several variants": ("vta", "gemm_requant", {"M": 5, "N": 600, "K": 600}),
    "lanes that end early, slots in turn": ("gemmini", "gemm_scaled", {"M": 40, "N": 50, "K": 60}),
    "a halo, loads that run early": ("gemmini", "conv2d", {"H": 9, "W": 9, "C": 16, "O": 32}),
    "several phases": ("npu_shared_buffer", "layernorm", {}),
    "two banks": ("vtcm_two_banks", "matmul", {}),
    "registers written out": ("x86_avx512", "linear_relu", {}),
}
QUICK = SearchOptions(slots=2, work=2_000)
SEEDS = range(3)
MUTATIONS = instance_mutations()


@cache
def made(name: str) -> tuple[Program, Lowered]:
    chip, workload, sizes = KERNELS[name]
    compiled = compile_workload(
        hwgen.load_workload(workload, sizes), hwgen.load_hardware(chip), options=QUICK
    )
    return compiled.program, compiled.lowering


def refused(program: Program, lowering: Lowered) -> str:
    try:
        check_instances(program, lowering)
    except HwgenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_passes(name: str) -> None:
    assert refused(*made(name)) == ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_defect_is_found(mutation: Mutation) -> None:
    applied = Counter[bool]()
    for name in KERNELS:
        program, lowering = made(name)
        for seed in SEEDS:
            wrong = mutation.mutate(program, seed)
            applied[wrong is not None] += 1
            if wrong is not None:
                text = refused(wrong, lowering)
                assert "error[H747]" in text, (name, seed)
                assert "not proved" not in text, (name, seed)
    assert applied[True] >= 3


def test_defects_of_the_tree_of_calls_are_found() -> None:
    """What blocks came to, taken together, is what they were."""
    found: Counter[str] = Counter()
    for name in KERNELS:
        program, lowering = made(name)
        for defect, wrong in tree_mutations(lowering):
            text = refused(program, wrong)
            found[defect.partition(":")[0]] += 1
            assert "as calls than in its tree" in text, (name, defect)
    assert min(found.values()) >= 3
    assert len(found) == 3
