"""`hwgen calibrate` for the host core of a shipped chip, by the instructions that kernels retire in
an emulator: its proposals are near the spec's numbers, which were counted too."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest

from hwgen.cli import main
from tests.host.retired import COMPILER, MISSING, can_count

pytestmark = pytest.mark.skipif(not can_count(), reason=MISSING)

NEAR = {
    "operation": 0.15, "choice": 0.2, "float_choice": 0.3, "narrowing": 0.25, "division": 0.25,
    "block_call": 0.35, "copied_byte": 0.15, "filled_byte": 0.35, "functions.ceil": 0.25,
    "functions.exp": 0.3, "functions.floor": 0.25, "functions.round": 0.3,
}  # fmt: skip
"""Relative distance of proposals from the spec's costs, at most. Left out: `call`, which the spec
assumes; `sqrt` and `rsqrt`, which test for negative numbers in addition; `memory`, `address` and
`branch`, of which the sum is compared."""


def test_a_host_core(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--spec", "gemmini", "--cc", COMPILER, "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    assert (found["unit"], found["target"]) == ("instructions", "riscv64-linux-gnu")
    assert found["runner"] == ["qemu-riscv64"]
    costs = {c["cost"].removeprefix("instructions."): c for c in found["costs"]}
    for name, most in NEAR.items():
        assert costs[name]["proposed"] == pytest.approx(costs[name]["spec"], rel=most), name
    loop = [costs[name] for name in ("memory", "address", "branch")]
    assert sum(c["proposed"] or c["spec"] for c in loop) == pytest.approx(3, rel=0.2)
    own = [k for k in found["kernels"] if not k["held_out"]]
    assert len(own) > 140
    before, after = (mean(abs(k[n] / k["measured"] - 1) for k in own) for n in ("spec", "proposed"))
    assert after < 0.07 < before
    others = [k for k in found["kernels"] if k["held_out"]]
    assert mean(abs(k["proposed"] / k["measured"] - 1) for k in others) < 0.15
