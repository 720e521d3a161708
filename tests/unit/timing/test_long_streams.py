"""Streams too long to be simulated whole: mean rates stand for what does not repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.model.timing import estimate_cycles, simulate_timing
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("side", "sizes"), [(4, (200, 200, 48)), (2, (130, 130, 30))])
def test_a_unit_gets_on_while_nothing_is_loaded(side: int, sizes: tuple[int, int, int]) -> None:
    """Thousands of small products follow one load; the buses then say nothing of their rate."""
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml", {"T": side})
    named = dict(zip("MNK", sizes, strict=True))
    program = compile_kernel(
        load_workload(ROOT / "workloads" / "matmul.yaml", named), hardware
    ).program
    estimated, simulated = estimate_cycles(program, hardware), simulate_timing(program, hardware)
    assert not estimated.exact
    assert estimated.cycles == pytest.approx(simulated.cycles, rel=0.01)
