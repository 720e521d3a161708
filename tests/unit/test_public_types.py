"""The names of `hwgen` serve as types: a user's file that is annotated with them is right, and one
that confuses them is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hwgen

RIGHT = """
from pathlib import Path

import numpy as np

import hwgen


def scaled(count: int) -> hwgen.Workload:
    compute = ["y[i] = x[i] * 2"]
    tensors = {"x": f"int32[{count}]", "y": f"int32[{count}]"}
    return hwgen.workload("scale", tensors=tensors, compute=compute)


def scheduled(workload: hwgen.Workload, chip: hwgen.Hardware) -> hwgen.Schedule:
    schedule = hwgen.Schedule(workload, chip)
    schedule.split("i", 4)
    return schedule


def built(path: Path) -> hwgen.Kernel:
    chip: hwgen.Hardware = hwgen.load_hardware(path)
    try:
        return hwgen.build(scaled(16), chip, script=scheduled(scaled(16), chip))
    except hwgen.HwgenError as error:
        print(error.code)
        raise


cycles: int = built(Path("cpu_generic.yaml")).cycles
result = built(Path("cpu_generic.yaml"))(np.zeros(16, np.int32))
"""

WRONG = {
    "workload": ("def f(w: hwgen.Workload) -> int: return w.cycles", "reportAttributeAccessIssue"),
    "kernel": ("k: hwgen.Kernel = hwgen.load_hardware('vta')", "reportAssignmentType"),
    "chip": ("hwgen.Schedule(hwgen.load_workload('gemm'), 'vta')", "reportArgumentType"),
}


def reported(folder: Path, text: str) -> list[str]:
    """The rules that pyright, strict, finds broken."""
    (folder / "user.py").write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", "."], check=False, capture_output=True, cwd=folder)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"{d['range']['start']['line']}: {d.get('rule', d['message'])}" for d in found]


def test_a_users_file_is_right(tmp_path: Path) -> None:
    assert reported(tmp_path, RIGHT) == []


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.thorough
def test_confused_types_are_found(name: str, tmp_path: Path) -> None:
    text, rule = WRONG[name]
    assert any(rule in line for line in reported(tmp_path, f"import hwgen\n{text}\n"))


def test_public_names_are_listed() -> None:
    assert {*hwgen.__all__} < {*dir(hwgen)}
    assert all(hasattr(hwgen, name) for name in dir(hwgen))
    for name in ("Workload", "Hardware", "Kernel", "Schedule"):
        assert isinstance(getattr(hwgen, name), type)
