"""What a search finds when it looks for bytes or energy, and that it counts them as kernels do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from math import prod
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.functional import run as run_program
from hwgen.model.reference import run_reference
from hwgen.passes.cache import ScheduleCache
from hwgen.passes.covering import started
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.polyhedral.search.objective import Objective, measure
from hwgen.polyhedral.search.search import Candidate, search
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.verify.data import draw_inputs
from tests.conformance.exhaustive import LARGE, REFUSED, Case, case, mnk, schedules
from tests.sampling import THOROUGH, tiered

ROOT = Path(__file__).parents[2]
OBJECTIVES: tuple[Objective, ...] = ("cycles", "traffic", "energy")
MEMORIES = {"dram": (100.0, 120.0), "inp": (1.5, 2.0), "wgt": (3.0, 3.5), "acc": (2.0, 2.5)}
"""Picojoules of a byte, read and written."""


@cache
def chip(name: str) -> HardwareSpec:
    """A shipped chip, with energies that mean nothing."""
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml")
    memories = [
        replace(m, read_energy=MEMORIES.get(m.name, (1.0, 1.25))[0], write_energy=2.0)
        for m in hardware.memories
    ]
    return replace(hardware, memories=tuple(memories))


@cache
def compiled(
    spec: str,
    workload: str,
    objective: Objective,
    *sizes: tuple[str, int],
    slack: float | None = None,
) -> Kernel:
    loaded = hwgen.load_workload(ROOT / "workloads" / f"{workload}.yaml", dict(sizes))
    return compile_workload(loaded, chip(spec), SearchOptions(objective=objective, slack=slack))


def gemm(m: int, n: int, k: int) -> tuple[tuple[str, int], ...]:
    return tuple(mnk(m, n, k).items())


@pytest.mark.parametrize("objective", ["traffic", "energy"])
@pytest.mark.parametrize(
    ("spec", "workload", "sizes"),
    [
        ("vta", "gemm", gemm(100, 112, 144)),
        pytest.param("vta", "gemm_requant", gemm(48, 240, 80), marks=THOROUGH),
        ("vta", "conv2d_requant", (("H", 14), ("W", 14), ("C", 64), ("O", 64))),
        ("gemmini", "gemm_scaled", gemm(144, 100, 208)),
    ],
)
def test_the_closed_form_counts_what_kernels_move(
    spec: str, workload: str, sizes: tuple[tuple[str, int], ...], objective: Objective
) -> None:
    """Tails and blocks that are filled in part included. What a guard leaves out of a halo, and how
    often calls bring a block to where it is held, is known to a few per cent."""
    loaded = hwgen.load_workload(ROOT / "workloads" / f"{workload}.yaml", dict(sizes))
    hardware = chip(spec)
    start = started(Start(loaded, hardware))
    scop = build_scop(start.workload)
    found = search(hardware, match(scop, select(scop, hardware)), 24, objective=objective)
    ranks = [c.rank for c in found.candidates]
    assert ranks == sorted(ranks)
    kernels: list[tuple[Candidate, Kernel]] = []
    for candidate in found.candidates:
        try:
            kernels.append((candidate, build(start, scop, candidate)))
        except HwgenError as error:
            if error.code not in LIMITS:
                raise
        if len(kernels) == 6:
            break
    assert kernels
    rough = "conv" in workload or (spec, objective) == ("gemmini", "energy")
    for candidate, kernel in kernels:
        exact = measure(kernel, objective)[0]
        assert candidate.moved == pytest.approx(exact, rel=0.02 if rough else 1e-9)


TIGHT = (
    case("gemm", mnk(96, 64, 64), LARGE),
    case("gemm", mnk(64, 128, 64), LARGE),
)


@pytest.mark.parametrize("given", tiered(TIGHT, TIGHT[:1]), ids=str)
def test_no_schedule_moves_less(given: Case) -> None:
    """Of all tiles, orders, depths and slots, each of them built."""
    made = hwgen.compile_kernel(
        given.loaded, given.hardware, options=SearchOptions(objective="traffic")
    )
    least: tuple[int, int] | None = None
    for tiling in schedules(made.match):
        try:
            kernel = build(made.start, made.scop, Candidate(tiling, 0.0))
        except HwgenError as error:
            if error.code not in REFUSED:
                raise
            continue
        found = kernel.offchip_bytes, kernel.cycles
        least = found if least is None else min(least, found)
    assert least is not None
    assert made.offchip_bytes == least[0]
    assert made.cycles <= 1.05 * least[1]


LEAST = {
    gemm(256, 256, 256): 196_608,
    gemm(512, 512, 512): 786_432,
    gemm(784, 1024, 256): 1_265_664,
}
"""Proven by an optimal mapper, with buffers that may fill the memories."""
proven = pytest.mark.parametrize("sizes", tiered([*LEAST], [gemm(784, 1024, 256)], values=True))


@THOROUGH
@proven
def test_large_products_move_what_was_proven_to_be_the_least(
    sizes: tuple[tuple[str, int], ...],
) -> None:
    made = compiled("vta", "gemm", "traffic", *sizes)
    assert made.offchip_bytes <= LEAST[sizes]
    assert compiled("vta", "gemm", "cycles", *sizes, slack=0.0).cycles <= made.cycles


@proven
def test_a_little_slack_moves_what_was_proven_to_be_the_least(
    sizes: tuple[tuple[str, int], ...],
) -> None:
    fastest, thrifty = (compiled("vta", "gemm", "cycles", *sizes, slack=s) for s in (0.0, 0.018))
    assert thrifty.offchip_bytes == LEAST[sizes]
    assert fastest.cycles <= thrifty.cycles <= 1.018 * fastest.cycles


def test_energy_is_not_traffic() -> None:
    """A chip whose weights cost most where they are on the chip loads more, and takes less."""
    loaded = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", mnk(64, 64, 64))
    costly = {"wgt": (400.0, 900.0), "dram": (0.01, 0.01)}
    given = chip("vta")
    dear = replace(
        given,
        memories=tuple(
            replace(m, read_energy=costly[m.name][0], write_energy=costly[m.name][1])
            if m.name in costly
            else m
            for m in given.memories
        ),
    )
    by = {
        o: compile_workload(loaded, dear, SearchOptions(objective=o)) for o in ("energy", "traffic")
    }
    assert by["energy"].energy <= by["traffic"].energy
    assert by["traffic"].offchip_bytes <= by["energy"].offchip_bytes
    for made in by.values():
        inputs = draw_inputs(loaded, 1)
        shapes = {t.name: t.shape for t in loaded.outputs}
        outputs = run_program(made.program, dear, inputs, shapes=shapes).outputs
        assert np.array_equal(outputs["c"], run_reference(loaded, inputs)["c"])


@THOROUGH
def test_phases_and_shared_loops_move_less() -> None:
    """Three layers whose intermediates do not fit whole: in shared loops each byte moves once."""
    sizes = (("M", 4096),)
    fewest = compiled("npu_shared_buffer", "mlp", "traffic", *sizes)
    tensors = (*fewest.workload.inputs, *fewest.workload.outputs)
    once = sum(prod(t.shape) * DTYPES[t.dtype] for t in tensors)
    assert fewest.offchip_bytes == once


def test_phases_are_searched_by_the_objective() -> None:
    phases = {
        o: hwgen.compile_kernel(
            hwgen.load_workload(ROOT / "workloads" / "attention.yaml", {"L": 128}),
            chip("npu_shared_buffer"),
            options=SearchOptions(objective=o),
        )
        for o in ("cycles", "traffic")
    }
    assert len(phases["traffic"].parts) > 1
    assert phases["traffic"].offchip_bytes <= phases["cycles"].offchip_bytes
    assert phases["cycles"].cycles <= phases["traffic"].cycles


def test_kernels_of_different_objectives_are_kept_apart(tmp_path: Path) -> None:
    loaded = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", mnk(256, 256, 256))
    hardware = chip("vta")
    store = ScheduleCache(tmp_path)
    by = partial(SearchOptions, cache=store)
    first = {o: hwgen.compile_kernel(loaded, hardware, options=by(objective=o)) for o in OBJECTIVES}
    again = {o: hwgen.compile_kernel(loaded, hardware, options=by(objective=o)) for o in OBJECTIVES}
    assert len(list(tmp_path.iterdir())) == len(OBJECTIVES)
    for objective in OBJECTIVES:
        assert str(first[objective].tiling) == str(again[objective].tiling)
    assert first["traffic"].offchip_bytes < first["cycles"].offchip_bytes
    assert first["cycles"].cycles < first["traffic"].cycles
