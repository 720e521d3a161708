"""Skipping repeating iterations: the same cycles, at a cost that does not grow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Loop, Node, Pop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.model.costs import CycleCosts
from hwgen.model.machine import Machine
from hwgen.model.stream import Stream
from hwgen.model.timing import FULL_OPERATIONS, estimate_cycles
from hwgen.spec.expression import Binary, Const, Name
from tests.samples import chip, tiled_gemm_requant
from tests.sampling import examples
from tests.unit.timing.nests import gemm_nest, image

SHAPES = [
    gemm_nest((8, 8, 8)),
    gemm_nest((8, 8, 8), tail_rows=5),
    gemm_nest((20, 7, 9), bias=False, tail_rows=5),
    gemm_nest((31, 9, 7), (5, 3, 3)),
    gemm_nest((3, 2, 150)),
    gemm_nest((6, 5, 20), (8, 8, 2), slots=3),
    gemm_nest((1, 60, 4), (1, 2, 8), bias=False),
    tiled_gemm_requant(1024, 256, 512),
    tiled_gemm_requant(4096, 64, 256),
]


def repeated(program: Program) -> tuple[Machine, Stream]:
    """A run that skips every repetition it finds, with the chip's own queues."""
    machine = Machine(chip())
    stream = Stream(program, chip(), CycleCosts(program, chip()), machine, skip=machine)
    stream.run()
    return machine, stream


@pytest.mark.parametrize("program", SHAPES, ids=range(len(SHAPES)))
def test_skipping_repetitions_changes_nothing(program: Program) -> None:
    machine, stream = repeated(program)
    skipped, full = machine.result(stream), simulate_timing(program, chip())
    assert skipped.cycles == full.cycles
    assert skipped.units == full.units
    assert skipped.calls == full.calls
    assert skipped.busy_by_name == full.busy_by_name


@pytest.mark.parametrize("program", SHAPES, ids=range(len(SHAPES)))
def test_estimate_agrees_with_simulation(program: Program) -> None:
    estimate, full = estimate_cycles(program, chip()), simulate_timing(program, chip())
    assert abs(estimate.cycles - full.cycles) <= 0.005 * full.cycles
    assert estimate.calls == full.calls
    if estimate.exact:
        assert estimate.cycles == full.cycles


@settings(max_examples=examples(12), deadline=None)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12)),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6)),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_random_nests(
    tiles: tuple[int, int, int],
    tile: tuple[int, int, int],
    bias: bool,
    slots: int,
    tail: int,
) -> None:
    program = gemm_nest(tiles, tile, bias=bias, slots=slots, tail_rows=tail % tile[0])
    machine, stream = repeated(program)
    skipped, full = machine.result(stream), simulate_timing(program, chip())
    assert (skipped.cycles, skipped.units) == (full.cycles, full.units)
    estimate = estimate_cycles(program, chip())
    assert abs(estimate.cycles - full.cycles) <= 0.01 * full.cycles


def test_a_program_of_a_hundred_million_calls_is_quick() -> None:
    program = gemm_nest((128, 513, 511), (64, 8, 2), tail_rows=3)
    before = time.process_time()
    result = estimate_cycles(program, chip())
    assert result.operations > 10**8
    assert result.simulated < 20_000
    assert time.process_time() - before < 2


def test_iterations_that_never_repeat_are_estimated_at_their_mean_rate() -> None:
    # Every call has another variant, so every one loads its micro-kernel: nothing repeats.
    count = 3 * FULL_OPERATIONS
    kernel = MicroKernelDef(
        "k", "reset", (KernelLoop(64, (1,)),), (), tuple((i % 1024,) for i in range(count)), ()
    )
    call = Call(0, "reset", "compute", (), (), (), "k", Binary("+", Name("t"), Const(0)))
    program = Program(
        "p", "vta", "w", ("a",), ("c",), (image("a", "int8", (16,), (1, 16)),), (), (kernel,),
        (Loop("o", Const(0), Const(1), (Loop("t", Const(0), Const(count), (call,)),)),),
    )  # fmt: skip
    estimate, full = estimate_cycles(program, chip()), simulate_timing(program, chip())
    assert not estimate.exact
    assert abs(estimate.cycles - full.cycles) <= 0.01 * full.cycles


def test_a_mean_rate_leaves_no_token_out() -> None:
    """Loops that only send them, and others that only wait: whole tiles alone are skipped."""
    tiles, parts = 100, 160
    variant = Binary("+", Binary("*", Name("t"), Const(parts)), Name("i"))
    count = tiles * parts
    kernel = MicroKernelDef(
        "k", "reset", (KernelLoop(64, (1,)),), (), tuple((i % 1024,) for i in range(count)), ()
    )
    call = Call(0, "reset", "compute", (), (), (), "k", variant)

    def each(*nodes: Node) -> Loop:
        return Loop("i", Const(0), Const(parts), nodes)

    body = (
        each(call, Push("compute", "load")),
        each(Pop("compute", "load"), Push("load", "compute")),
        each(Pop("load", "compute"), call),
    )
    program = Program(
        "p", "vta", "w", ("a",), ("c",), (image("a", "int8", (16,), (1, 16)),), (), (kernel,),
        (Loop("t", Const(0), Const(tiles), body),),
    )  # fmt: skip
    estimate, full = estimate_cycles(program, chip()), simulate_timing(program, chip())
    assert not estimate.exact
    assert estimate.calls == full.calls
    assert abs(estimate.cycles - full.cycles) <= 0.01 * full.cycles
