"""Micro-kernels as the search counts them, against those of kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.estimate_shape import Cache, Shape
from hwgen.polyhedral.search.micro_kernels import MicroKernels, shortest_sequence
from hwgen.polyhedral.search.search import Candidate, search
from hwgen.spec.hardware import HardwareSpec
from hwgen.verify.check_instances import check_instances
from tests.samples import ROOT

SIZES: dict[str, dict[str, int]] = {
    "gemm_requant": {"M": 256, "N": 256, "K": 256},
    "conv2d_requant": {"H": 28, "W": 28, "C": 64, "O": 64},
}
KEPT = 8


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")


@cache
def built(name: str) -> tuple[tuple[Candidate, Kernel], ...]:
    """The cheapest schedules of the best match, and of those that load least one with parts that
    stay, and their kernels."""
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", SIZES[name])
    scop = build_scop(workload)
    found = search(chip(), match(scop, select(scop, chip()))[:1], KEPT)
    start = Start(workload, chip())
    parts = [c for c in found.near if c.placed is not None and c.placed.parts]
    return tuple((c, build(start, scop, c)) for c in (*found.candidates, *parts[:1]))


def counted(candidate: Candidate) -> float:
    """Micro-operations of a schedule, as the search counts them."""
    tiling, placed = candidate.tiling, candidate.placed
    assert placed is not None
    spatial = sum(n not in tiling.match.selection.reduction for n in placed.loops)
    grid = {n: np.full(1, size, np.int64) for n, size in tiling.tiles}
    slots = {n: np.full(1, count, np.int64) for n, count in tiling.slots}
    shape = Shape(
        chip(), tiling.match, grid, placed.loops, spatial, placed.placement, Cache(), 2,
        placed.parts,
    )  # fmt: skip
    kernels, total = MicroKernels(shape, slots), 0.0
    for o in tiling.match.selection.operations:
        depth = len(shape.loops) if tiling.match.selection.inner(o) else spatial
        if o.intrinsic.micro_kernel is not None:
            for count, tile in kernels.of(o, depth):
                total += float((count * shortest_sequence(o, shape, tile))[0])
    return total


@pytest.mark.parametrize("name", [*SIZES])
def test_micro_operations_are_those_of_the_kernel(name: str) -> None:
    for candidate, kernel in built(name):
        kernels = kernel.program.kernels
        assert counted(candidate) == sum(k.operations * len(k.bases) for k in kernels)


@pytest.mark.parametrize("name", [*SIZES])
def test_what_is_cheap_is_as_fast_as_it_costs(name: str) -> None:
    """Buffers of short tiles are laid out for their stores: one took 1.47 times its cost."""
    for candidate, kernel in built(name):
        assert candidate.cycles == pytest.approx(kernel.cycles, rel=0.015)


def test_a_slot_that_a_loop_decides_is_checked() -> None:
    """Parts of an operand stay, and slots of the other one follow from the same loop."""
    _, kernel = next((c, k) for c, k in built("conv2d_requant") if c.placed and c.placed.parts)
    program = kernel.program
    check_instances(program, kernel.lowering)
    place = next(n for n, k in enumerate(program.kernels) if len(k.bases) > 2)
    made = program.kernels[place]
    *others, last = made.bases
    for operand in range(len(last)):
        wrong = [*last]
        wrong[operand] += 1
        changed = [*program.kernels]
        changed[place] = replace(made, bases=(*others, tuple(wrong)))
        with pytest.raises(HwgenError, match="H747"):
            check_instances(replace(program, kernels=tuple(changed)), kernel.lowering)
