"""`--slack`: how much slower a kernel may be that moves fewer bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwgen.cli import main
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = [
    *("--spec", str(ROOT / "hw_specs" / "vta.yaml")),
    *("--workload", str(ROOT / "workloads" / "gemm.yaml"), "--no-cache"),
    *("--set", "M=256", "--set", "N=256", "--set", "K=256"),
]

Text = pytest.CaptureFixture[str]


def measured(capsys: Text, *options: str) -> tuple[int, int]:
    """Cycles and off-chip bytes."""
    assert main(["generate", *PRODUCT, *options, "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    return kernel["cycles"], kernel["off_chip_bytes"]


@THOROUGH
def test_fewer_bytes_are_taken_for_as_much_slower(capsys: Text) -> None:
    fastest, usual, thrifty = (
        measured(capsys, *x) for x in (("--slack", "0"), (), ("--slack", "3"))
    )
    assert fastest[0] <= usual[0] <= 1.005 * fastest[0]
    assert usual[0] < thrifty[0] <= 1.03 * fastest[0]
    assert thrifty[1] == 3 * 256 * 256 < usual[1]  # Each byte of three matrices once.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slack", "5"], "less than or equal to 4"),
        (["--slack", "-1"], "greater than or equal to 0"),
        (["--slack", "1", "--objective", "traffic"], "the objective is traffic"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "simulate"])
def test_slack_is_of_cycles_and_small(
    command: str, options: list[str], said: str, capsys: Text
) -> None:
    assert main([command, *PRODUCT, *options]) == 2
    assert said in capsys.readouterr().err
