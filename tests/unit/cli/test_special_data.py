"""NaN and what has no bound, as commands tell of it: never in silence, and without a warning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import main

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("error")

ONE_PASS = """\
name: one_pass
tensors: {x: "float32[4, 256]", a: "float32[4]", q: "float32[4]", y: "float32[4]"}
compute:
  - a[m] += x[m, n]
  - q[m] += x[m, n] * x[m, n]
  - y[m] = rsqrt(q[m] * (1.0 / 256) - (a[m] * (1.0 / 256)) * (a[m] * (1.0 / 256)))
"""
RELU = """\
name: relu
tensors: {x: "float32[64]", y: "float32[64]"}
compute: ["y[i] = max(x[i], 0)"]
"""


def simulated(folder: Path, workload: str, x: np.ndarray, *options: str) -> list[str]:
    (folder / "w.yaml").write_text(workload, encoding="utf-8")
    np.save(folder / "x.npy", x)
    return [
        "simulate", "--spec", str(ROOT / "hw_specs" / "cpu_generic.yaml"),
        "--workload", str(folder / "w.yaml"), "--input", f"x={folder / 'x.npy'}", *options,
    ]  # fmt: skip


def test_a_root_of_rounding_alone_is_named_and_not_called_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.full((4, 256), 100.1, np.float32)
    assert main(simulated(tmp_path, ONE_PASS, x)) == 0
    out = capsys.readouterr().out
    assert "result      nothing was compared; 4 of 4 elements of y are not compared: " in out
    assert "rounding may bring `rsqrt(q[m]" in out
    x[1:] = np.arange(256)
    assert main(simulated(tmp_path, ONE_PASS, x)) == 0
    out = capsys.readouterr().out
    assert "result      y equal to the reference; 1 of 4 elements of y are not compared" in out


def test_nan_on_both_sides_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.full(64, np.nan, np.float32)
    assert main(simulated(tmp_path, RELU, x)) == 0
    assert "nothing was compared; 64 of 64 elements of y are NaN here" in capsys.readouterr().out
    x[7:] = 1
    assert main(simulated(tmp_path, RELU, x, "--json")) == 0
    (y,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (y["elements"], y["nan"], y["unbounded"]) == (64, 7, 0)


def test_no_warning_reaches_the_user(tmp_path: Path) -> None:
    """Of another process, as users run it, with warnings as errors."""
    x = np.full((4, 256), 3e38, np.float32)
    x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "hwgen", *simulated(tmp_path, ONE_PASS, x)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 of 4 elements of y are NaN here and in the reference" in done.stdout


def test_a_campaign_on_special_data_says_how_much_it_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chip = str(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    options = ["--data", "special", "--engine", "both", "--jobs", "1", "--seed", "3"]
    assert main(["verify", "--workloads", "2", "--spec", chip, *options]) == 0
    out = capsys.readouterr().out
    assert "natural workloads, seed 3, data special, engine both" in out
    assert "as C too  all compared  in part  nothing compared  wrong" in out
    assert main(["verify", "--spec", chip, "--data", "special"]) == 2
    assert "it goes with --workloads alone" in capsys.readouterr().err
