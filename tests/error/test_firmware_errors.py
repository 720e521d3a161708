"""What cannot become firmware is refused with the error in the golden beside."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import main
from tests.conftest import Golden

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "firmware"
FIRMWARE = ("--target", "firmware", "-o", "out")
THREADS = "s.compute_at('acc', 'y_m')\ns.parallel('y_m')\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by names that are the same everywhere."""
    for name in ("cuda_generic", "cpu_generic", "npu_shared_buffer"):
        shutil.copy(ROOT / "hw_specs" / f"{name}.yaml", tmp_path)
    shutil.copy(ROOT / "workloads" / "linear_relu.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("threads.py").write_text(THREADS)
    w = np.ones((48, 64), np.float32)
    w[3, 4:6] = np.nan
    np.save("nan.npy", w)
    np.save("short.npy", np.ones((48, 63), np.float32))
    np.save("double.npy", np.ones((48, 64)))


def kernel(chip: str) -> tuple[str, ...]:
    return ("generate", "--spec", f"{chip}.yaml", "--workload", "linear_relu.yaml")


CASES = {
    "blocks": (*kernel("cuda_generic"), *FIRMWARE),
    "threads": (
        *kernel("cpu_generic"), "--set", "M=4", "--script", "threads.py", "--no-auto", *FIRMWARE,
    ),
    "nan": (*kernel("npu_shared_buffer"), "--weights", "w=nan.npy", *FIRMWARE),
    "nan_processor": (*kernel("cpu_generic"), "--weights", "w=nan.npy", *FIRMWARE),
    "shape": (*kernel("npu_shared_buffer"), "--weights", "w=short.npy", *FIRMWARE),
    "dtype": (*kernel("npu_shared_buffer"), "--weights", "w=double.npy", *FIRMWARE),
    "no_constant": (*kernel("npu_shared_buffer"), "--weights", "x=nan.npy", *FIRMWARE),
    "twice": (
        *kernel("npu_shared_buffer"), "--weights", "w=nan.npy", "--weights", "w=nan.npy",
        *FIRMWARE,
    ),
    "no_file": (*kernel("npu_shared_buffer"), "--weights", "w=none.npy", *FIRMWARE),
    "no_text": (*kernel("npu_shared_buffer"), "--weights", "w", *FIRMWARE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(CASES[name])) == 1
    shown = capsys.readouterr()
    golden(GOLDENS / f"{name}.txt", shown.err)
    assert shown.out == ""
    assert not Path("out").exists()
