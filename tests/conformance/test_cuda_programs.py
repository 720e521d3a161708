"""Kernels and what runs them where there is a GPU: here on the stand-in, with planted defects."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cuda import Kernel, Writer, made, random, with_data
from hwgen.autoschedule.options import Options
from tests.fuzz.schedules import lowered
from tests.samples import ROOT
from tests.sampling import THOROUGH
from tests.unit.codegen_processor import samples
from tests.unit.codegen_processor.test_threads import tiled

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

PLANTED: Mapping[str, tuple[str, str]] = {
    "changed": ("* b_scratch[threadIdx_x * 4 + k_i]", "* b_scratch[threadIdx_x * 4]"),
    "left out": ("c_n < 13", "c_n < 12"),
    "without a barrier": ("      __syncthreads();\n", ""),
    "text": ("blockIdx.x;", "blockIdx.x"),
    "crash": ("  void *a_device = 0;", "  abort();\n  void *a_device = 0;"),
    "hang": ("  void *a_device = 0;", "  for (volatile int n = 1; n;) {}\n  void *a_device = 0;"),
}


def staged() -> Kernel:
    s = tiled()
    kernel = lowered(s, 5)
    return with_data("staged", "by hand", s.workload, kernel.source, kernel.inputs)


def planted() -> list[Kernel]:
    """A right kernel, its mutations, and a right one at the end."""
    right = staged()
    found = [right]
    for name, (old, new) in PLANTED.items():
        text = right.source.c
        assert old in text, name
        function = f"{right.source.function}_{len(found)}"
        text = text.replace(old, new).replace(right.source.function, function)
        source = replace(right.source, c=text, function=function)
        found.append(replace(right, name=name.replace(" ", "_"), source=source))
    return [*found, replace(right, name="last", source=renamed(right))]


def renamed(kernel: Kernel) -> Any:
    own = f"{kernel.source.function}_last"
    text = kernel.source.c.replace(kernel.source.function, own)
    return replace(kernel.source, c=text, function=own)


def ran(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, str(folder / "run.py"), "--stand-in", "--json", str(report), *options],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert report.exists(), done.stderr
    return done.returncode, done.stdout, json.loads(report.read_text())


@THOROUGH
def test_right_kernels_pass(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "made")
    writer.write(random(samples.gpu(), 6, 3), 3)
    file = ROOT / "workloads" / "attention.yaml"
    sizes = {"L": 13, "D": 9}
    writer.write(made("attention", "automatic", file, sizes, {}, samples.gpu(), Options()), 1)
    writer.end()
    code, shown, report = ran(tmp_path / "made", "--repeats", "2")
    assert [k["result"] for k in report["kernels"]] == ["passed"] * 7, shown
    assert code == 0


@THOROUGH
def test_planted_defects_are_found(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "made")
    writer.write(planted(), 20)
    writer.end()
    code, shown, report = ran(tmp_path / "made", "--most", "4")
    found = {k["name"]: k for k in report["kernels"]}
    assert code == 1
    assert {n for n, k in found.items() if k["result"] == "passed"} == {"staged", "last"}, shown
    assert found["text"]["result"] == "build"
    assert found["left_out"]["message"].startswith("c[0, 12] is -91, not ")
    assert "it ends the process" in found["crash"]["message"]
    assert found["hang"]["message"] == "it does not end in 4 s"
    assert "c[" in found["without_a_barrier"]["message"]
    assert "c[" in found["changed"]["message"]
