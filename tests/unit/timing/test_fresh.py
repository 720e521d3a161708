"""What a call costs that keeps the stationary operand of the call before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.codegen.program import Buffer, Call, CallOperand, KernelProgram
from hwgen.codegen.software_loops import written_out
from hwgen.model.timing import estimate_cycles, simulate_timing
from hwgen.spec.expression import Const, Expr
from hwgen.spec.load import load_hardware

CHIP = load_hardware(Path(__file__).parents[2] / "specs" / "row_array.yaml", {})
LOOPS = 5
"""C loops of the chip's intrinsics; one hardware loop stands inside."""
HELD, LEAST = 8, 6
"""Cycles of a block of weights, and of issuing a call."""


def _program(*calls: Call) -> KernelProgram:
    buffers = (
        Buffer("sums", "sums", "c", 0, 1, 100),
        Buffer("rows", "rows", "a", 0, 1, 100),
        Buffer("weights", "weights", "b", 0, 1, 100),
    )
    return KernelProgram("k", CHIP.name, "w", (), (), (), buffers, (), calls)


def _multiply(rows: int, fresh: Expr | None, extents: tuple[int, ...] = (1,) * LOOPS) -> Call:
    """Sums, rows and weights; only the second last C loop moves the weights."""
    steps = ([0] * LOOPS + [1], [0] * LOOPS + [1], [0] * 3 + [8, 0, 0])
    operands = tuple(
        CallOperand(name, buffer, Const(0), tuple(map(Const, step)))
        for (name, buffer), step in zip(
            (("c", "sums"), ("a", "rows"), ("b", "weights")), steps, strict=True
        )
    )
    ends = tuple(map(Const, (*extents, rows)))
    return Call(0, "multiply", "array", operands, ends, fresh=fresh)


def _busy(program: KernelProgram) -> int:
    simulated = simulate_timing(program, CHIP).unit("array").busy
    assert estimate_cycles(program, CHIP).unit("array").busy == simulated
    return simulated


@pytest.mark.parametrize("rows", [1, 3, 7, 8])
def test_only_a_fresh_operand_costs_its_cycles(rows: int) -> None:
    own = max(rows, LEAST)
    assert _busy(_program(_multiply(rows, Const(1)))) == max(HELD, own)
    assert _busy(_program(_multiply(rows, Const(0)))) == own
    assert _busy(_program(_multiply(rows, None))) == max(HELD, own)


@pytest.mark.parametrize(("blocks", "times"), [(1, 1), (3, 1), (1, 4), (3, 4)])
def test_written_out_runs_know_what_is_fresh(blocks: int, times: int) -> None:
    run = _multiply(7, None, (1, 1, 1, blocks, times))
    assert _busy(written_out(_program(run), CHIP)) == blocks * (HELD + (times - 1) * 7)
