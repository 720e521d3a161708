"""What a call costs that keeps the stationary operand of the call before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, CallOperand
from hwgen.codegen.program import Program
from hwgen.codegen.software_loops import written_out
from hwgen.codegen.storages import Buffer
from hwgen.model.timing import estimate_cycles
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, Expr
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware, parse_workload
from hwgen.spec.source import read_document
from tests.sampling import QUICK

SPEC = Path(__file__).parents[2] / "specs" / "row_array.yaml"
CHIP = load_hardware(SPEC)
LOOPS = 5
"""C loops of the chip's intrinsics; one hardware loop stands inside."""
HELD, LEAST = 8, 6
"""Cycles of a block of weights, and of issuing a call."""


def _program(*calls: Call) -> Program:
    buffers = (
        Buffer("sums", "sums", "c", 0, 1, 100),
        Buffer("rows", "rows", "a", 0, 1, 100),
        Buffer("weights", "weights", "b", 0, 1, 100),
    )
    return Program("k", CHIP.name, "w", (), (), (), buffers, (), calls)


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


def _waiting() -> HardwareSpec:
    """The chip whose array does nothing else while weights come in."""
    spec = cast("dict[str, Any]", read_document(SPEC).data)
    for intrinsic in spec["intrinsics"].values():
        if "stationary" in intrinsic:
            intrinsic["stationary"]["overlaps"] = False
    return parse_hardware(spec)


WAITING = _waiting()


def _busy(program: Program, chip: HardwareSpec = CHIP) -> int:
    simulated = simulate_timing(program, chip).unit("array").busy
    assert estimate_cycles(program, chip).unit("array").busy == simulated
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


@pytest.mark.parametrize("rows", [6, 7, 8])
def test_an_operand_that_overlaps_no_call_adds_its_cycles(rows: int) -> None:
    assert _busy(_program(_multiply(rows, Const(1))), WAITING) == HELD + rows
    assert _busy(_program(_multiply(rows, Const(0))), WAITING) == rows
    run = _multiply(rows, None, (1, 1, 1, 3, 4))
    assert _busy(_program(run), WAITING) == 3 * (HELD + 4 * rows)


def test_the_search_counts_what_it_adds() -> None:
    """Eight rows and one block of weights: its eight cycles lie beside theirs, or come on top."""
    workload = parse_workload(
        {
            "name": "products",
            "tensors": {
                "x": "int8[8, 8]",
                "w": "int8[8, 4]",
                "y": "int32[8, 4]",
                "z": "int8[8, 4]",
            },
            "compute": [
                "y[m, n] += x[m, k] * w[k, n]",
                "z[m, n] = int8(clip(y[m, n] >> 4, -128, 127))",
            ],
        }
    )
    found = [compile_kernel(workload, chip, options=QUICK) for chip in (CHIP, WAITING)]
    busy = [_busy(c.program, c.hardware) for c in found]
    assert busy == [8, 8 + HELD]
