"""`generate` writes and shows no kernel whose program does not fit its chip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hwgen import pipeline
from hwgen.cli import main
from hwgen.passes.kernel import Kernel
from hwgen.passes.start import Start
from hwgen.pipeline import SearchOptions
from tests.planted.kernels import with_program
from tests.planted.programs import mutations
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
GEMM = ["--workload", "gemm", "--set", "M=2", "--set", "N=20", "--set", "K=40"]

Text = pytest.CaptureFixture[str]
Compile = Callable[..., Kernel]


def breaking(name: str, workload: str) -> Compile:
    """The compiler, but for a mutation of the programs of one workload."""
    original = pipeline._searched  # pyright: ignore[reportPrivateUsage]
    known: dict[str, Kernel] = {}

    def searched(start: Start, options: SearchOptions) -> Kernel:
        given = start.given.name
        if given not in known:
            known[given] = original(start, options)
        made = known[given]
        if given != workload:
            return made
        (mutation,) = [m for m in mutations(start.hardware) if m.name == name]
        program = mutation.mutate(made.program, 0)
        assert program is not None
        return with_program(made, program)

    return searched


SMALL = ("--set", "M=8")
MUTATED = [
    ("vta", GEMM, "buffer past its memory", "H732"),
    ("vta", GEMM, "micro-kernel memory overflow", "H734"),
    ("npu_shared_buffer", ["--workload", "mlp", *SMALL], "overlapping buffers", "H733"),
    pytest.param(
        "npu_shared_buffer",
        ["--workload", "mlp", *SMALL],
        "unbound address",
        "H737",
        marks=THOROUGH,
    ),
]


@pytest.mark.parametrize(("chip", "kernel", "mutation", "code"), MUTATED)
def test_a_program_that_does_not_fit_reaches_no_file(
    chip: str,
    kernel: list[str],
    mutation: str,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Text,
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "out"
    command = ["generate", "--spec", chip, *kernel]
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "_searched", breaking(mutation, kernel[1]))
        for end in (["-o", str(out)], ["--stage", "emit"], ["--report", str(out / "page.html")]):
            assert main([*command, *end]) == 1
            captured = capsys.readouterr()
            assert captured.out == ""
            assert captured.err.startswith(f"workloads/{kernel[1]}.yaml: error[{code}]: ")
            assert not out.exists()
    assert main([*command, "-o", str(out)]) == 0
    assert len(list(out.iterdir())) == 3


def test_it_is_an_error_among_many_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    """The others are written; what a chip cannot run is no error, but this is a defect."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").mkdir()
    for name in ("gemm", "relu"):
        text = (ROOT / "workloads" / f"{name}.yaml").read_text()
        (tmp_path / "workloads" / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(pipeline, "_searched", breaking("buffer past its memory", "gemm"))
    spec = str(ROOT / "hw_specs" / "vta.yaml")
    assert main(["generate", "--spec", spec, "-o", "out"]) == 1
    captured = capsys.readouterr()
    assert "gemm.yaml: error[H732]" in captured.err
    assert "gemm: cannot run, [H732]" in captured.out
    names = [p.name for p in sorted((tmp_path / "out").iterdir())]
    assert len(names) == 3
    assert all(name.startswith("relu") for name in names)
