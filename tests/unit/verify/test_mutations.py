"""Every mutation of the samples is caught, and by a check that is meant to catch it."""

from __future__ import annotations

from functools import cache

import pytest

from hwgen.codegen.program import Program
from hwgen.model.compiled import have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs
from hwgen.spec.workload import Workload
from tests.fuzz.edits import Mutation, catch
from tests.planted.beyond import beyond_mutations
from tests.planted.programs import mutations
from tests.planted.through_c import found_by_model
from tests.samples import (
    chip,
    gemm_requant_workload,
    gemm_workload,
    load_bound_gemm,
    tiled_gemm_requant,
)
from tests.sampling import THOROUGH

SEEDS = range(4)
MUTATIONS = mutations(chip())
BEYOND = {
    "initialisation past its buffer": "on-chip access outside of its buffer",
    "guard before its wait": "nothing orders them",
}
"""Defects that leave results right where calls run one by one, with what the C model says."""
NOT_FOUND = {
    "surplus exchange": "it only costs time",
    "packed image in place": "only the simulator takes a caller's array for the image",
    "micro-kernel memory overflow": "the model has no memory of micro-operations",
    "unbound address": "there is no C of it",
    "image of another type": "the host takes types from the workload's own tensors",
}
"""What the C model does not find, and why."""
needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@cache
def sample(name: str) -> tuple[Program, Workload, dict[str, Array]]:
    if name == "load_bound":
        workload = gemm_workload(1, 256, 256)
        return load_bound_gemm(), workload, random_inputs(workload, 0)
    sizes = (64, 512, 64) if name == "wide" else (256, 128, 64)
    workload = gemm_requant_workload(*sizes)
    return tiled_gemm_requant(*sizes), workload, random_inputs(workload, 0)


SAMPLES = ("load_bound", "tiled")


@pytest.mark.parametrize("name", SAMPLES)
def test_the_unchanged_sample_passes(name: str) -> None:
    program, workload, inputs = sample(name)
    assert catch(program, chip(), workload, inputs) == ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_mutant_is_caught(name: str, mutation: Mutation) -> None:
    program, workload, inputs = sample(name)
    for seed in SEEDS:
        mutant = mutation.mutate(program, seed)
        if mutant is None:
            continue
        assert mutant != program
        assert catch(mutant, chip(), workload, inputs) in mutation.caught_by, seed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_mutation_applies_somewhere_and_is_deterministic(mutation: Mutation) -> None:
    program, _, _ = sample("tiled")
    first = [mutation.mutate(program, seed) for seed in SEEDS]
    assert any(m is not None for m in first)
    assert first == [mutation.mutate(program, seed) for seed in SEEDS]


@needs_compiler
@pytest.mark.parametrize("mutation", beyond_mutations(chip()), ids=lambda m: m.name)
def test_what_leaves_results_right_is_caught_by_the_model_too(mutation: Mutation) -> None:
    program, workload, inputs = sample("wide")
    assert found_by_model(program, chip(), workload, inputs) == ""
    for seed in range(2):
        mutant = mutation.mutate(program, seed)
        assert mutant is not None
        assert catch(mutant, chip(), workload, inputs) in mutation.caught_by
        assert BEYOND[mutation.name] in found_by_model(mutant, chip(), workload, inputs)


@needs_compiler
@THOROUGH
@pytest.mark.parametrize(
    "mutation", [m for m in MUTATIONS if m.name not in NOT_FOUND], ids=lambda m: m.name
)
def test_the_model_finds_all_that_it_runs(mutation: Mutation) -> None:
    program, workload, inputs = sample("tiled")
    mutants = [m for seed in range(2) if (m := mutation.mutate(program, seed)) is not None]
    assert mutants
    for mutant in mutants:
        assert found_by_model(mutant, chip(), workload, inputs)


def test_names_are_distinct_and_many() -> None:
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) >= 16
