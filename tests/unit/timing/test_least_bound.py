"""The bound is of the problem: the least over all ways that the chip's intrinsics offer."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.bound import cover_bound, lower_bound
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.polyhedral.match.matching import ranked_matches
from hwgen.polyhedral.match.select import every_match, select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.search import search
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.planted.kernels import with_timing

ROOT = Path(__file__).parents[3]
SIZES = {"M": 32, "N": 32, "K": 256}
CALLS = 2 * 2 * 16


def text_of(data: dict[str, Any], folder: Path) -> HardwareSpec:
    path = folder / "chip.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return hwgen.load_hardware(path)


def data() -> dict[str, Any]:
    path = ROOT / "hw_specs" / "npu_shared_buffer.yaml"
    safe: Any = YAML(typ="safe")
    found: dict[str, Any] = safe.load(path.read_text(encoding="utf-8"))
    found["buses"]["main"]["beat_bytes"] = 64  # The matrix unit is what takes longest.
    return found


@cache
def workload() -> Workload:
    return hwgen.load_workload(ROOT / "workloads" / "matmul.yaml", SIZES)


def with_intrinsic(fast: str) -> dict[str, Any]:
    """The chip with a second, equal instruction of its matrix unit that takes other cycles."""
    found = data()
    intrinsics = found["intrinsics"]
    intrinsics["matmul_fast"] = dict(intrinsics["matmul"]) | {"cycles": fast}
    return found


def kernel_with(hardware: HardwareSpec, intrinsic: str) -> Kernel:
    """The best kernel among those that use an intrinsic."""
    scop = build_scop(workload())
    matches = [
        m
        for m in every_match(scop, hardware)
        if any(o.intrinsic.name == intrinsic for o in m.selection.operations)
    ]
    best = search(hardware, matches).candidates[0]
    return hwgen.compile_kernel(workload(), hardware, schedule=best)


def test_another_faster_intrinsic_lowers_the_bound_of_kernels_without_it(tmp_path: Path) -> None:
    plain = kernel_with(text_of(data(), tmp_path), "matmul")
    more = text_of(with_intrinsic("2 + max(i, k)"), tmp_path)
    without, using = kernel_with(more, "matmul"), kernel_with(more, "matmul_fast")
    assert plain.bound.cycles == CALLS * (4 + 16)
    assert without.bound.cycles == using.bound.cycles == CALLS * (2 + 16)
    assert without.bound.resource == using.bound.resource == "unit matrix"
    assert lower_bound(without.program, more).cycles == plain.bound.cycles
    for kernel in (plain, without, using):
        assert kernel.bound.cycles <= kernel.cycles


def test_a_slower_intrinsic_does_not_raise_it(tmp_path: Path) -> None:
    more = text_of(with_intrinsic("400 + max(i, k)"), tmp_path)
    plain = kernel_with(text_of(data(), tmp_path), "matmul").bound
    assert kernel_with(more, "matmul_fast").bound == plain


def test_how_a_chip_is_spelt_does_not_move_it(tmp_path: Path) -> None:
    spellings = [data(), data(), data()]
    backwards = dict(reversed(spellings[1]["intrinsics"].items()))
    spellings[1]["intrinsics"] = backwards
    loops = spellings[2]["intrinsics"]["matmul"]["loops"]
    spellings[2]["intrinsics"]["matmul"]["loops"] = dict(reversed(loops.items()))
    bounds = [kernel_with(text_of(s, tmp_path), "matmul").bound.cycles for s in spellings]
    assert bounds == [CALLS * 20] * 3


def test_which_tiles_were_chosen_does_not_move_it(tmp_path: Path) -> None:
    hardware = text_of(data(), tmp_path)
    scop = build_scop(workload())
    found = search(hardware, next(ranked_matches(scop, select(scop, hardware))), keep=24)
    some = found.candidates[::6]
    kernels = [hwgen.compile_kernel(workload(), hardware, schedule=c) for c in some]
    assert len({c.tiling.tiles for c in some}) > 2
    assert {k.bound.cycles for k in kernels} == {CALLS * 20}


@pytest.mark.parametrize(
    ("chip", "name", "sizes"),
    [
        ("vta", "gemm_requant", {"M": 4, "N": 32, "K": 64}),
        ("vta", "relu", {"M": 16, "N": 80}),
        ("gemmini", "gemm_scaled", {"M": 17, "N": 16, "K": 20}),
        ("tpu_v1", "gemm", {"M": 3, "N": 256, "K": 256}),
    ],
)
def test_of_the_cover_that_is_used_both_counts_agree(
    chip: str, name: str, sizes: dict[str, int]
) -> None:
    """Counted on the match, little less than counted on the program, and never above its time."""
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    layer = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)
    found = hwgen.compile_kernel(layer, hardware, options=SearchOptions(work=1))
    counted = lower_bound(found.program, hardware).cycles
    of_match = cover_bound(found.match, hardware).cycles
    assert 0.9 * counted <= of_match <= found.cycles
    assert found.bound.cycles <= counted <= found.cycles


def test_cycles_below_the_bound_are_refused() -> None:
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    layer = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 1, "N": 16, "K": 64})
    found = hwgen.compile_kernel(layer, hardware)
    timing = replace(found.timing, cycles=found.bound.cycles - 1)
    wrong = with_timing(found, timing)
    with pytest.raises(HwgenError) as caught:
        examine(wrong, draw_inputs(layer, 1))
    assert caught.value.code == "H791"
