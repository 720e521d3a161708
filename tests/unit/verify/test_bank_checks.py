"""Defects of buffers in banks are refused, each by a check that is meant to refuse it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer
from hwgen.errors import HwgenError
from hwgen.model.numeric import Array
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from tests.fuzz.edits import Mutation, catch
from tests.planted.programs import mutations
from tests.unit.timing.test_banks import chip, tiled_kernel

NAMES = ("wrong slot stride", "wrong step between slots", "wrong bank", "wrong bank named")
MUTATIONS = tuple(m for m in mutations(chip()) if m.name in NAMES)


@cache
def sample() -> tuple[Program, Workload, dict[str, Array]]:
    kernel = tiled_kernel((64, 64, 512), (64, 64, 128))
    draw = np.random.default_rng(1)
    inputs: dict[str, Array] = {
        t.name: draw.integers(1, 4, t.shape).astype(np.float32) for t in kernel.workload.inputs
    }
    return kernel.program, kernel.workload, inputs


def test_there_is_a_mutation_of_each_kind() -> None:
    assert tuple(sorted(m.name for m in MUTATIONS)) == tuple(sorted(NAMES))


def test_the_unchanged_sample_passes() -> None:
    program, workload, inputs = sample()
    assert catch(program, chip(), workload, inputs) == ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
@pytest.mark.parametrize("seed", range(4))
def test_every_mutant_is_caught(mutation: Mutation, seed: int) -> None:
    program, workload, inputs = sample()
    mutant = mutation.mutate(program, seed)
    assert mutant is not None
    assert mutant != program
    assert catch(mutant, chip(), workload, inputs) in mutation.caught_by


def refused(name: str, **changes: object) -> HwgenError:
    """What is said of the sample with one buffer changed."""
    program, _, _ = sample()
    buffers = tuple(replace(b, **changes) if b.name == name else b for b in program.buffers)
    with pytest.raises(HwgenError) as caught:
        check_program(replace(program, buffers=buffers), chip())
    return caught.value


def test_what_is_wrong_is_named() -> None:
    program, _, _ = sample()
    a: Buffer = program.buffer["a_vtcm"]
    assert (a.base, a.slot_stride, a.banks) == (0, 16384, (0, 1))
    named = refused("a_vtcm", banks=(1, 0)).diagnostic
    assert named.code == "H741"
    assert "slots begin in banks 0, 1, named are 1, 0" in named.found
    both = refused("c_vmem", banks=(0,)).diagnostic
    assert (both.code, both.allowed) == ("H741", "no banks")
    overlap = refused("a_vtcm", slot_stride=8000).diagnostic
    assert (overlap.code, "overlap" in overlap.message) == ("H732", True)
    meets = refused("a_vtcm", slot_stride=8192, banks=(0, 0)).diagnostic
    assert meets.code == "H733"
    crossing = refused("b_vtcm", base=12288).diagnostic
    assert crossing.code in ("H732", "H741")
