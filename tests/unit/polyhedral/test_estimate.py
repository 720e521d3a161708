"""Cycles in closed form against the simulation of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.search import search
from hwgen.spec.load import parse_workload

ROOT = Path(__file__).parents[3]


def test_loads_that_come_together_keep_a_host_for_as_long_as_estimated() -> None:
    """Channels lie innermost in the images, 16 of 128 are a row, and the loads of both operands
    wait for one queue, one after the other: told apart, the estimate is 0.83 of the cycles; rows
    in the tensor's order, 0.74."""
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    tensors = {
        "x": "int8[1, 128, 30, 30]",
        "w": "int8[128, 128, 3, 3]",
        "y": "int32[1, 128, 28, 28]",
    }
    value = "int32(x[n, c, i + r, j + s]) * int32(w[o, c, r, s])"
    workload = parse_workload(
        {"name": "nchw", "tensors": tensors, "compute": [f"y[n, o, i, j] += {value}"]}
    )
    scop = build_scop(workload)
    found = search(chip, match(scop, select(scop, chip)), 3)
    for candidate in found.candidates:
        kernel = build(Start(workload, chip), scop, candidate)
        assert candidate.cycles == pytest.approx(kernel.cycles, rel=0.02)
