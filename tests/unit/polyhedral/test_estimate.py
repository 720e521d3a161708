"""Cycles in closed form against the simulation of the kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.passes.start import Start
from hwgen.passes.trees import build
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.search import search
from hwgen.polyhedral.search.traffic import transfer_cycles
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


@pytest.mark.parametrize(
    ("rows", "blocks", "loads", "stores"), [(8, 8, 2, 8), (14, 4, 1, 4), (20, 3, 2, 6)]
)
def test_a_call_moves_rows_of_one_dimension(
    rows: int, blocks: int, loads: int, stores: int
) -> None:
    """A load takes 16 rows of up to 4 blocks, a store 16 rows of one block."""
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    tensors = {
        "a": "int8[64, 256]",
        "b": "int8[256, 256]",
        "acc": "int32[64, 256]",
        "c": "int8[64, 256]",
    }
    stored = "c[m, n] = int8(clip(round(float32(acc[m, n]) * 0.5), -128, 127))"
    compute = ["acc[m, n] += int32(a[m, k]) * int32(b[k, n])", stored]
    scop = build_scop(parse_workload({"name": "w", "tensors": tensors, "compute": compute}))
    found = next(iter(match(scop, select(scop, chip))))
    tile = {"m": np.array([rows]), "n": np.array([blocks]), "k": np.array([blocks])}
    counted = {
        s: int(transfer_cycles(chip, o, found, tile, s).instructions[0])
        for o in found.selection.operations
        if o.kind in ("load", "store")
        for s in o.storages
        if s in found.coordinate
    }
    assert counted["a_spad"] == loads
    assert counted["acc_acc"] == stores
