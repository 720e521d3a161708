"""`--json`: one object on standard output, in the shape that docs/cli.md describes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.cli import main
from hwgen.cli.records import SHAPE
from hwgen.model.c_compiler import have_compiler
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from tests.models import WITH_READER, small_network
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--set", "M=2", "--set", "N=20", "--set", "K=40"]
KERNEL = ["--spec", "vta", "--workload", "gemm", *SMALL]
LOOPS = ["--spec", "cpu_generic", "--workload", "gemm", *SMALL]

COMMANDS = {
    "calibrate": ["calibrate", "--spec", "cpu_generic", "--set", "CORES=1"],
    "check": ["check", "vta"],
    "generate": ["generate", *KERNEL],
    "generate, a processor": ["generate", *LOOPS],
    "generate, several values": ["generate", *KERNEL[:4], "--set", "M=1,2", *SMALL[2:]],
    "explain": ["explain", *KERNEL],
    "explain, a processor": ["explain", *LOOPS],
    "simulate": ["simulate", *KERNEL, "--engine", "python"],
    "simulate, a processor": ["simulate", *LOOPS, "--engine", "python"],
    "compile": ["compile", "tiny.tflite", "--spec", "cpu_generic", "--jobs", "1"],
    "explore": ["explore", *KERNEL, "--jobs", "1"],
    "verify": ["verify", *KERNEL, "--examples", "2"],
    "verify --workloads": ["verify", "--spec", "vta", "--workloads", "1", "--jobs", "1"],
}

WITH_COMPILER = pytest.mark.skipif(not have_compiler(), reason="no C compiler")
MARKS = {"compile": (WITH_READER,), "calibrate": (WITH_COMPILER, THOROUGH)}
"""Of commands that need a package, or take long."""


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit status and the object."""
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def documented() -> dict[str, set[str]]:
    """The keys of each command's object, from the table in the documentation."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w, -]+)` \| ((?:`\w+`(?:, )?)+) \|$", text, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=MARKS.get(n, ())) for n in COMMANDS],
)
def test_the_keys_are_those_of_the_documentation(
    name: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "compile":
        Path("tiny.tflite").write_bytes(small_network())
    status, found = printed(COMMANDS[name], capsys)
    assert set(found) == documented()["every command"] | documented()[name]
    assert found["hwgen"] == SHAPE
    assert found["command"] == COMMANDS[name][0]
    assert (status == 0) == found["ok"]
    assert found["errors"] == []


def test_the_documentation_has_no_other_tables_of_keys() -> None:
    assert set(documented()) == {"every command", "an error", *COMMANDS}


@pytest.mark.parametrize("command", ["generate", "simulate", "explain", "verify"])
def test_an_error_is_in_the_object_and_nothing_beside_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--spec", "vta", "--workload", "gem", "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert not found["ok"]
    (error,) = found["errors"]
    assert set(error) == documented()["an error"]
    assert error["code"] == "H003"
    assert error["file"] is error["line"] is None


def test_every_error_of_a_file_is_there_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "tests" / "error" / "spec_several_errors.yaml")
    status, found = printed(["check", path], capsys)
    assert status == 1
    assert len(found["errors"]) == 7
    first = found["errors"][0]
    assert (first["file"], first["line"], first["column"]) == (path, 4, 6)
    assert first["repair"] == "move N above M"


def test_the_figures_are_those_of_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml")
    sizes = {"M": 2, "N": 20, "K": 40}
    kernel = compile_kernel(load_workload(ROOT / "workloads" / "gemm.yaml", sizes), chip)
    _, found = printed(["generate", *KERNEL], capsys)
    (made,) = found["kernels"]
    assert made["sizes"] == sizes
    assert made["cycles"] == kernel.cycles
    assert made["lower_bound_cycles"] == kernel.bound.cycles
    moved = sum(t["loaded_bytes"] + t["stored_bytes"] for t in made["traffic"])
    assert made["off_chip_bytes"] == moved
    assert [u["unit"] for u in made["units"]] == [u.name for u in chip.units]


def test_what_the_chip_cannot_run_is_listed_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "cosine.yaml").write_text(
        "hwgen: 1\nname: activation\nsizes: {M: 4}\n"
        "tensors: {x: 'float32[M]', y: 'float32[M]'}\ncompute: ['y[m] = tanh(x[m])']\n"
    )
    monkeypatch.chdir(tmp_path)
    status, found = printed(["generate", "--spec", "npu_shared_buffer"], capsys)
    assert status == 0
    (refused,) = found["refused"]
    assert refused["verdict"] == "chip"
    assert refused["error"]["code"] == "H301"


def test_files_that_were_written_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    _, found = printed(["generate", *KERNEL, "-o", str(out)], capsys)
    assert found["written"]
    assert sorted(found["written"]) == sorted(str(p) for p in out.iterdir())
    _, found = printed(
        ["simulate", *KERNEL, "--engine", "python", "--output-dir", str(out)], capsys
    )
    (tensor,) = found["outputs"]
    array = np.load(tensor["file"])
    assert (list(array.shape), str(array.dtype)) == (tensor["shape"], tensor["dtype"])


def test_an_intrinsic_that_does_not_match_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = printed(["explain", *KERNEL], capsys)
    entries = found["phases"][0]["statements"][0]["intrinsics"]
    assert any(e["matches"] for e in entries)
    for e in entries:
        assert bool(e["binding"]) == e["matches"]
        assert e["matches"] or e["reason"]


def test_a_stage_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", *KERNEL, "--stage", "emit", "--json"]) == 2
    assert "a stage is text" in capsys.readouterr().err
