"""`calibrate`: what it refuses, and what it prints where kernels are timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwgen.calibrate.tools import find_tools
from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import have_compiler
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
GEMMINI = ["calibrate", "--spec", "gemmini"]
WITH_COMPILER = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

Text = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Text, status: int = 1) -> str:
    """The message of a command that fails, as one line."""
    assert main(arguments) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    return " ".join(captured.err.split())


@pytest.mark.parametrize("chip", ["npu_shared_buffer", "cuda_generic"])
def test_a_chip_without_such_costs(chip: str, capsys: Text) -> None:
    text = refused(["calibrate", "--spec", chip], capsys)
    assert "error[H054]" in text
    assert f"hw_specs/{chip}.yaml" in text


def test_a_compiler_that_is_missing(capsys: Text) -> None:
    text = refused([*GEMMINI, "--cc", "no-such-gcc -m32"], capsys)
    assert "error[H703]: there is no program for --cc field: --cc found: no-such-gcc is not" in text


def test_a_runner_that_is_missing(capsys: Text) -> None:
    text = refused([*GEMMINI, "--run", "no-such-qemu -L /usr"], capsys)
    assert "error[H055]: there is no program for --run field: --run found: no-such-qemu" in text


@WITH_COMPILER
def test_the_emulator_is_that_of_the_target(tmp_path: Path, capsys: Text) -> None:
    compiler = tmp_path / "odd-gcc"
    compiler.write_text("#!/bin/sh\necho odd32-linux-gnu\n")
    compiler.chmod(0o755)
    text = refused([*GEMMINI, "--cc", str(compiler)], capsys)
    assert "found: qemu-odd32 is not on PATH" in text
    assert "qemu-user" in text


@WITH_COMPILER
def test_a_runner_that_fails(capsys: Text) -> None:
    text = refused([*GEMMINI, "--run", "false"], capsys)
    assert "error[H055]: a kernel cannot be run" in text
    assert "found: false: exit status 1" in text


@WITH_COMPILER
def test_flags_that_the_compiler_refuses(capsys: Text) -> None:
    text = refused([*GEMMINI, "--flags", "--no-such-flag", "--run", "true"], capsys)
    assert "error[H704]" in text
    assert "no-such-flag" in text


def test_an_open_quotation_is_wrong_usage(capsys: Text) -> None:
    assert "no closing quotation" in refused([*GEMMINI, "--flags", "'-O2"], capsys, 2)


def test_a_size_is_no_parameter(capsys: Text) -> None:
    assert "error[H005]" in refused([*GEMMINI, "--set", "M=3"], capsys)


@WITH_COMPILER
def test_a_spec_from_elsewhere_takes_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    text = (ROOT / "hw_specs" / "cpu_generic.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text + "# mine\n")
    monkeypatch.chdir(tmp_path)
    assert "error[H707]" in refused(["calibrate", "--spec", "mine.yaml"], capsys)


def test_errors_are_in_the_object(capsys: Text) -> None:
    assert main(["calibrate", "--spec", "vtcm_two_banks", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["ok"]) == ("calibrate", False)
    assert found["errors"][0]["code"] == "H054"


@WITH_COMPILER
def test_a_program_of_another_machine(tmp_path: Path) -> None:
    """Without a runner, nothing starts it."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    with pytest.raises(HwgenError, match="H055") as caught:
        find_tools([], [], [], emulated=False).run(program)
    assert "format error" in caught.value.diagnostic.found


@THOROUGH
@WITH_COMPILER
def test_a_processor_alone_is_timed(capsys: Text) -> None:
    """Times vary, so that only the form of the output is certain."""
    assert main(["calibrate", "--spec", "cpu_generic", "--set", "CORES=1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("cpu_generic: cycles of ")
    assert "run on this machine" in text
    assert "memory_bytes_per_cycle" in text
    assert "\nprocessor:\n" in text
