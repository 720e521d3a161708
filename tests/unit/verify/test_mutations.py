"""Every mutation of the samples is caught, and by a check that is meant to catch it."""

from __future__ import annotations

from functools import cache

import pytest

from hwgen.codegen.program import Program
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs
from hwgen.spec.workload import Workload
from hwgen.verify.edits import Mutation, catch
from tests.planted.programs import mutations
from tests.samples import (
    chip,
    gemm_requant_workload,
    gemm_workload,
    load_bound_gemm,
    tiled_gemm_requant,
)

SEEDS = range(4)
MUTATIONS = mutations(chip())


@cache
def sample(name: str) -> tuple[Program, Workload, dict[str, Array]]:
    if name == "load_bound":
        workload = gemm_workload(1, 256, 256)
        return load_bound_gemm(), workload, random_inputs(workload, 0)
    workload = gemm_requant_workload(256, 128, 64)
    return tiled_gemm_requant(256, 128, 64), workload, random_inputs(workload, 0)


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


def test_names_are_distinct_and_many() -> None:
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) >= 16
