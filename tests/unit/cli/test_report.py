"""Reports say what happened: their numbers are held against those of the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.model.columns import off_chip_traffic
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import table
from tests.sampling import QUICK

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("workload", "sizes"),
    [
        ("gemm_requant", {"M": 17, "N": 33, "K": 255}),
        ("conv2d", {"C": 20, "H": 9, "W": 7, "O": 18, "S": 2}),
        ("add", {"M": 7, "N": 257}),
    ],
)
def test_counted_traffic_is_what_the_simulator_moves(workload: str, sizes: dict[str, int]) -> None:
    c = compile_kernel(
        load_workload(ROOT / "workloads" / f"{workload}.yaml", sizes),
        load_hardware(ROOT / "hw_specs" / "vta.yaml"),
        options=QUICK,
    )
    shapes = {t.name: t.shape for t in c.workload.outputs}
    result = run(c.program, c.hardware, random_inputs(c.workload, 0), shapes=shapes)
    dram = c.hardware.offchip.name
    counted = off_chip_traffic(c.program, c.hardware, c.workload)
    # Weights that the kernel supplies are moved too.
    tensors = (*c.workload.inputs, *c.program.supplied(c.workload), *c.workload.outputs)
    assert [t.tensor for t in counted] == [t.name for t in tensors]
    for t in counted:
        assert t.loaded == result.traffic_bytes(dram, t.tensor, "read")
        assert t.stored == result.traffic_bytes(dram, t.tensor, "write")
        assert t.loaded + t.stored >= t.size


def test_a_table_aligns_numbers_to_the_right_and_leaves_no_spaces_behind() -> None:
    assert table(("name", "cycles", "ratio"), [("a", 1234, 1.0), ("long", 5, 1.23456)]) == (
        "name  cycles  ratio\n----  ------  -----\na      1,234  1.000\nlong       5  1.235"
    )
    assert table(("x", "note"), [(1, "b"), (20, "")]) == " x  note\n--  ----\n 1  b\n20"
