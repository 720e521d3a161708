"""A local memory of two banks with one port each: loads fill one while the core uses the other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.whole import simulate_timing
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.search.search import Candidate
from hwgen.report.html import figures_of, page
from hwgen.report.simulation import simulation_text
from hwgen.report.trace_events import trace
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs, first_difference
from hwgen.verify.examine import examine
from tests.conftest import Golden
from tests.sampling import QUICK, products, tiered

ROOT = Path(__file__).resolve().parents[2]
BANK = 16384
"""Entries of one of the two banks: 64 KiB of float32."""
SIZES = (512, 512, 1024)
ODD = (1, 7, 65, 257)


def chip(banks: int = 2) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml", {"banks": banks})


def searched(sizes: tuple[int, int, int], banks: int = 2) -> Kernel:
    """The kernel that the search finds."""
    path = ROOT / "workloads" / "matmul.yaml"
    return compile_kernel(
        load_workload(path, dict(zip("MNK", sizes, strict=True))), chip(banks), options=QUICK
    )


@cache
def tiled(banks: int, sizes: tuple[int, int, int] = SIZES) -> Kernel:
    """Tiles of 64 x 128 and 128 x 64 in two slots each."""
    found = searched(sizes, 2)
    tiling = replace(
        found.tiling,
        tiles=(("k", 128), ("m", 64), ("n", 64)),
        order=("m", "n"),
        depths=(("c_acc_vmem", 2), ("a_vtcm", 3), ("b_vtcm", 3)),
        slots=(("c_acc_vmem", 2), ("a_vtcm", 2), ("b_vtcm", 2)),
    )
    return compile_kernel(found.workload, chip(banks), Candidate(tiling, 0.0))


def busy(kernel: Kernel) -> tuple[int, int]:
    """Cycles of the loads and of the core."""
    timing = kernel.timing
    return timing.unit("dma_in").busy, timing.unit("vector").busy


def test_two_banks_hide_the_shorter_of_load_and_compute() -> None:
    kernel = tiled(2)
    assert kernel.timing.exact
    assert kernel.cycles <= 1.05 * max(busy(kernel))
    assert kernel.timing.conflicts == ()


def test_one_bank_takes_their_sum_and_says_why() -> None:
    kernel = tiled(1)
    load, compute = busy(kernel)
    assert 0.98 * (load + compute) <= kernel.cycles <= 1.02 * (load + compute)
    (conflict,) = kernel.timing.conflicts
    assert (conflict.memory, conflict.bank) == ("vtcm", 0)
    assert conflict.waiting[0] == "load"
    assert conflict.holding[0] == "matmul"
    assert conflict.cycles >= 0.9 * min(load, compute)


def test_slots_take_turns_in_the_banks() -> None:
    """Laid out as [2][N]: every slot in a bank of its own, tile t in bank t mod 2."""
    kernel = tiled(2)
    for name in ("a_vtcm", "b_vtcm"):
        buffer = kernel.program.buffer[name]
        assert (buffer.slots, buffer.slot_entries, buffer.stride) == (2, 8192, BANK)
        assert buffer.banks == (0, 1)


def test_the_layout(golden: Golden) -> None:
    kernel = tiled(2)
    text = "\n\n".join(kernel.stage(name) for name in ("layout", "allocate", "lower"))
    golden(ROOT / "tests" / "golden" / "banks" / "matmul_two_banks.txt", text)


def test_the_search_finds_no_worse() -> None:
    found = searched(SIZES)
    assert found.timing.conflicts == ()
    assert found.cycles <= tiled(2).cycles
    assert found.cycles <= 1.05 * found.bound.cycles


def test_with_one_bank_the_search_looks_for_something_else() -> None:
    """Slots that a load cannot fill meanwhile are wasted: larger tiles load less."""
    found = searched(SIZES, 1)
    assert found.cycles < 0.75 * tiled(1).cycles
    assert found.timing.conflict_cycles < 0.01 * found.cycles


@pytest.mark.parametrize("banks", tiered([1, 2, 4, 8], [1, 4]))
def test_every_check_passes(banks: int) -> None:
    kernel = tiled(banks, (128, 128, 512))
    examine(kernel, draw_inputs(kernel.workload, 1))
    full = simulate_timing(kernel.program, kernel.hardware)
    assert (full.cycles, full.conflicts) == (kernel.cycles, kernel.timing.conflicts)


ODD_SIZES = products(ODD, ODD, ODD)


@pytest.mark.parametrize("sizes", tiered(ODD_SIZES, ODD_SIZES[::5], values=True), ids=str)
def test_odd_shapes(sizes: tuple[int, int, int]) -> None:
    kernel = searched(sizes)
    examine(kernel, draw_inputs(kernel.workload, sum(sizes), "small"))


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("sizes", [(65, 257, 513), (7, 65, 1024), (257, 1, 300)], ids=str)
def test_the_emitted_c(sizes: tuple[int, int, int]) -> None:
    kernel = searched(sizes)
    inputs = draw_inputs(kernel.workload, 3, "small")
    found = examine(kernel, inputs)
    outputs = compile_model(kernel.source).run(inputs)
    assert not first_difference(outputs, found.outputs)


@pytest.mark.parametrize(
    "name", tiered(["attention", "layernorm", "mlp", "linear_relu"], ["attention", "linear_relu"])
)
def test_other_workloads_with_one_bank_and_with_four(name: str) -> None:
    workload = load_workload(ROOT / "workloads" / f"{name}.yaml")
    for banks in (1, 4):
        kernel = compile_kernel(workload, chip(banks), options=QUICK)
        examine(kernel, draw_inputs(workload, 1, "small"))


def test_a_tensor_larger_than_a_bank_is_split_over_banks() -> None:
    """Eight banks of 16 KiB: a slot of 32 KiB takes two, the other slot two others."""
    kernel = tiled(8, (128, 128, 512))
    a, b = kernel.program.buffer["a_vtcm"], kernel.program.buffer["b_vtcm"]
    size = kernel.hardware.memory["vtcm"].capacity_entries // 8
    for buffer in (a, b):
        assert buffer.slot_entries == 2 * size
        assert buffer.stride % size == 0
    assert kernel.timing.conflicts == ()


@pytest.mark.parametrize("order", [("a_vtcm", "b_vtcm"), ("b_vtcm", "a_vtcm")], ids=str)
def test_a_buffer_loaded_once_is_in_the_way_of_others_once(order: tuple[str, str]) -> None:
    """Three tiles of `a` stay, which the first column tile's products load, while `b` goes on
    being loaded: four banks are enough for what is filled and what is read at one time."""
    found = searched((48, 80, 96), 4)
    tiling = replace(
        found.tiling,
        tiles=(("k", 32), ("m", 48), ("n", 40)),
        order=("m", "n"),
        depths=(("c_acc_vmem", 1), *((name, 2) for name in order)),
        slots=(("c_acc_vmem", 2), ("a_vtcm", 3), ("b_vtcm", 2)),
    )
    assert [tiling.kept(name) for name in ("a_vtcm", "b_vtcm")] == [True, False]
    kernel = compile_kernel(found.workload, chip(4), Candidate(tiling, 0.0))
    a, b = (kernel.program.buffer[name].banks for name in ("a_vtcm", "b_vtcm"))
    for turn in range(2 * 3 - 1):
        filled = {b[(turn + 1) % 2], *([a[turn + 1]] if turn < 2 else [])}
        assert filled.isdisjoint({a[turn % 3], b[turn % 2]}), turn
    assert kernel.timing.conflicts == ()
    examine(kernel, draw_inputs(kernel.workload, 1))


def test_the_reports_show_banks_and_conflicts() -> None:
    one, two = tiled(1, (128, 128, 512)), tiled(2, (128, 128, 512))
    passed = examine(one, draw_inputs(one.workload, 1))
    text = simulation_text(one, passed)
    assert "bank conflicts:" in text
    assert "matmul (site" in text
    assert "bank conflicts: none" in simulation_text(
        two, examine(two, draw_inputs(two.workload, 1))
    )
    assert "hatched bars show where" in page(one)
    assert "There are no bank conflicts" in page(two)
    bars = figures_of(one)["banks"]["data"]
    assert isinstance(bars, list)
    assert [t["name"] for t in bars] == ["load", "matmul", "waits for a port"]  # pyright: ignore
    events = trace(one)
    assert '"vtcm bank 0: waits for it"' in events
    assert '"cat":"wait"' in events
    assert '"cat":"wait"' not in trace(two)
