"""Commands on chips whose kernels are loops on a processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import main
from hwgen.model.compiled import CompiledKernel, have_compiler
from hwgen.model.numeric import STORAGE, Array
from tests.samples import ROOT

SPEC = str(ROOT / "hw_specs" / "cpu_generic.yaml")
DEVICE = str(ROOT / "hw_specs" / "cuda_generic.yaml")
UNITS = str(ROOT / "hw_specs" / "vta.yaml")
GEMM = ["--workload", str(ROOT / "workloads" / "gemm.yaml"), "--set", "N=40", "--set", "K=24"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_generate_writes_the_file_and_says_cycles_and_bound(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, "generate", "--spec", SPEC, *GEMM, "-o", str(tmp_path))
    assert status == 0
    assert "lower bound" in out
    assert "points considered" in out
    assert "wrote gemm_cpu_generic_N40_K24.c, gemm_cpu_generic_N40_K24.h" in out
    assert "void gemm_cpu_generic_N40_K24(" in (tmp_path / "gemm_cpu_generic_N40_K24.c").read_text()
    assert "gemm_cpu_generic_N40_K24(" in (tmp_path / "gemm_cpu_generic_N40_K24.h").read_text()


def test_the_suffix_is_the_processors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, _ = run(capsys, "generate", "--spec", DEVICE, *GEMM, "-o", str(tmp_path))
    assert status == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "gemm_cuda_generic_N40_K24.cu",
        "gemm_cuda_generic_N40_K24.h",
    ]


def test_a_printed_script_gives_the_same_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("generate", "--spec", SPEC, *GEMM, "--stage")
    _, script, _ = run(capsys, *words, "script")
    _, text, _ = run(capsys, *words, "emit")
    mine = tmp_path / "mine.py"
    mine.write_text(script)
    status, again, _ = run(capsys, *words, "emit", "--script", str(mine), "--no-auto")
    assert (status, again) == (0, text)
    mine.write_text("outer, inner = s.split('n', factor=8)\n")
    _, plain, _ = run(capsys, *words, "script", "--script", str(mine), "--no-auto")
    assert plain.strip() == "n_o, n_i = s.split('n', factor=8)"
    _, completed, _ = run(capsys, *words, "script", "--script", str(mine))
    assert completed.startswith(plain.strip())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("generate", "--spec", SPEC, *GEMM, "--stage", "scop"), "H007"),
        (("generate", "--spec", SPEC, *GEMM, "--stage", "cost"), "H007"),
        (("generate", "--spec", UNITS, *GEMM, "--stage", "state"), "H007"),
        (("generate", "--spec", SPEC, *GEMM, "--script", "no_such_file.py"), "H001"),
    ],
)
def test_what_cannot_be_asked(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: str
) -> None:
    status, out, err = run(capsys, *words)
    assert status == 1
    assert out == ""
    assert f"error[{code}]" in err


def test_a_script_that_is_refused_names_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("s.parallel('m')\ns.vectorize('k')\n")
    status, _, err = run(capsys, "generate", "--spec", SPEC, *GEMM, "--script", str(bad))
    assert status == 1
    assert f"{bad}:2" in err


@pytest.mark.parametrize("spec", [SPEC, DEVICE])
def test_simulate_and_explain(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    status, out, _ = run(capsys, "simulate", "--spec", spec, *GEMM)
    assert status == 0
    assert "equal to the reference" in out
    status, out, _ = run(capsys, "explain", "--spec", spec, *GEMM)
    assert status == 0
    assert "loops on its processor" in out


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_simulate_runs_the_compiled_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "simulate", "--spec", SPEC, *GEMM, "--engine", "c")
    assert status == 0
    assert "run by      the compiled text on this machine, with" in out


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_wrong_compiler_is_found_without_asking(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(kernel: CompiledKernel, _: object) -> dict[str, Array]:
        return {p.name: np.zeros(p.shape, STORAGE[p.dtype]) for p in kernel.source.outputs}

    monkeypatch.setattr(CompiledKernel, "run", none)
    status, _, errors = run(capsys, "simulate", "--spec", SPEC, *GEMM)
    assert status == 1
    assert "error[H790]: the emitted C computes a wrong c" in errors
    assert run(capsys, "simulate", "--spec", SPEC, *GEMM, "--engine", "python")[0] == 0


@pytest.mark.parametrize(
    ("spec", "reason"), [(SPEC, "no C compiler"), (DEVICE, "it is c++, for another machine")]
)
def test_simulate_says_that_the_text_did_not_run(
    spec: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    status, out, _ = run(capsys, "simulate", "--spec", spec, *GEMM)
    assert status == 0
    assert "run by      the simulator, with" in out
    assert f"(not by the emitted C: {reason})" in out


def test_verify_runs_its_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", str(ROOT / "workloads" / "add.yaml"), "--examples", "4")
    status, out, _ = run(capsys, "verify", "--spec", SPEC, *words)
    assert status == 0
    assert "passed" in out
