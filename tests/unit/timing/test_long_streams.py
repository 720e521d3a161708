"""Streams too long to be simulated whole: mean rates stand for what does not repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, If, Loop, Node, Pop, Push
from hwgen.codegen.program import Program
from hwgen.model.periodicity import Watched, zones
from hwgen.model.timing import estimate_cycles
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Binary, Const, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from tests.sampling import QUICK, tiered
from tests.unit.timing.nests import operand, sizes

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("side", "sizes"), [(4, (256, 256, 50)), (2, (130, 130, 30))])
def test_a_unit_gets_on_while_nothing_is_loaded(side: int, sizes: tuple[int, int, int]) -> None:
    """Thousands of small products follow one load; the buses then say nothing of their rate."""
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml", {"T": side})
    named = dict(zip("MNK", sizes, strict=True))
    program = compile_kernel(
        load_workload(ROOT / "workloads" / "matmul.yaml", named), hardware, options=QUICK
    ).program
    estimated, simulated = estimate_cycles(program, hardware), simulate_timing(program, hardware)
    assert not estimated.exact
    assert estimated.cycles == pytest.approx(simulated.cycles, rel=0.01)


LENGTH = 88
"""Elements per load; the loops' addresses repeat modulo a burst boundary after 128 and more."""


def rows_of_products(rows: int, columns: int, height: int = 8) -> Program:
    """Loads, products of them and stores in tiles, each row `columns * LENGTH + 1` elements."""
    i, j = Name("i"), Name("j")
    width = columns * LENGTH + 1
    load_from = add(multiply(i, Const(width)), multiply(j, Const(LENGTH)))
    store_to = add(multiply(i, Const(width * height)), multiply(j, Const(LENGTH)))
    sides = tuple(
        operand(n, "sums" if n == "acc" else "tile", 0, 0, 0, 0) for n in ("acc", "a", "b")
    )
    body: tuple[Node, ...] = (
        Call(
            0, "load", "dma",
            (operand("dst", "tile", 0, 0, 1), operand("src", "a", load_from, 0, 1)),
            sizes(1, LENGTH),
        ),
        Push("dma", "matrix"),
        Pop("dma", "matrix"),
        Loop("p", Const(0), Const(12), (Call(1, "matmul", "matrix", sides, sizes(16, 16, 16)),)),
        Push("matrix", "dma"),
        Pop("matrix", "dma"),
        Call(
            2, "store", "dma",
            (operand("dst", "c", store_to, width, 1), operand("src", "sums", 0, 0, 1)),
            sizes(height, LENGTH),
        ),
    )  # fmt: skip
    return small_npu_program(
        Loop("i", Const(0), Const(rows), (Loop("j", Const(0), Const(columns), body),))
    )


def small_npu_program(*body: Node) -> Program:
    return Program("p", "npu_shared_buffer", "w", ("a",), ("c",), (), (), (), body)


def npu() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")


@pytest.mark.parametrize(("rows", "columns"), tiered([(50, 60), (300, 20), (7, 400)], [(7, 400)]))
def test_a_part_of_a_long_period_stands_for_all_of_it(rows: int, columns: int) -> None:
    program = rows_of_products(rows, columns)
    estimated, simulated = estimate_cycles(program, npu()), simulate_timing(program, npu())
    assert estimated.simulated < simulated.operations
    assert estimated.calls == simulated.calls
    assert estimated.cycles == pytest.approx(simulated.cycles, rel=0.002)
    for unit, full in zip(estimated.units, simulated.units, strict=True):
        assert unit.busy == pytest.approx(full.busy, rel=0.01)


def test_loops_below_their_period_do_not_make_streams_longer() -> None:
    """Addresses repeat after more rows and columns than there are: nothing else is the same."""
    steps = [estimate_cycles(rows_of_products(n, n), npu()).simulated for n in (100, 400, 1000)]
    assert max(steps) < 100_000, steps


def test_calls_are_counted_where_alignments_never_repeat() -> None:
    """One in five iterations has another call; with the alignments the period is too long."""
    j = Name("j")
    load = Call(
        0, "load", "dma",
        (operand("dst", "tile", 0, 0, 1), operand("src", "a", multiply(j, Const(33)), 0, 1)),
        sizes(1, 7),
    )  # fmt: skip
    copies = tuple(replace(load, site=site) for site in range(4))
    apart = Binary("==", Binary("%", j, Const(5)), Const(0))
    fifth = If(apart, (replace(load, site=4),))
    program = small_npu_program(Loop("j", Const(0), Const(20_001), (*copies, fifth)))
    watched = (Watched(apart), Watched(multiply(j, Const(33)), 1024))
    (zone,) = zones(watched, "j", (0, 20_000), {})
    assert zone.period == 0
    estimated, simulated = estimate_cycles(program, npu()), simulate_timing(program, npu())
    assert estimated.simulated < simulated.operations
    assert estimated.calls == simulated.calls
    assert estimated.cycles == pytest.approx(simulated.cycles, rel=0.002)
