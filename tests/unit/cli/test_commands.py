"""The commands on the real chip and workloads, as a user runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import main
from hwgen.cli.stages import NEST_STAGES, STAGES
from hwgen.model.compiled import CompiledKernel, have_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.spec.load import load_workload
from hwgen.spec.workload import Workload
from tests.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[3]
SPEC = str(ROOT / "hw_specs" / "vta.yaml")
GEMM = str(ROOT / "workloads" / "gemm.yaml")
SMALL = ["--set", "M=2", "--set", "N=20", "--set", "K=40"]
KERNEL = ["--spec", SPEC, "--workload", GEMM, *SMALL]

Text = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own with one workload that runs and one that the chip cannot run."""
    shutil.copytree(ROOT / "hw_specs", tmp_path / "hw_specs")
    (tmp_path / "workloads").mkdir()
    shutil.copy(ROOT / "workloads" / "relu.yaml", tmp_path / "workloads")
    (tmp_path / "workloads" / "cosine.yaml").write_text(
        "hwgen: 1\nname: activation\nsizes: {M: 4}\n"
        "tensors: {x: 'float32[M]', y: 'float32[M]'}\ncompute: ['y[m] = tanh(x[m])']\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_summarises_a_valid_spec(capsys: Text) -> None:
    assert main(["check", SPEC, "--set", "READ_LATENCY=100"]) == 0
    text = capsys.readouterr().out
    assert ": valid\n" in text
    assert "READ_LATENCY=100" in text
    assert "gemm" in text


def test_check_refuses_a_parameter_out_of_range(capsys: Text) -> None:
    assert main(["check", SPEC, "--set", "BATCH=17"]) == 1
    assert "error[H111]" in capsys.readouterr().err
    assert main(["check", SPEC, "--set", "workload.M=3"]) == 1
    assert "allowed: spec.NAME=VALUE alone, with no workload" in capsys.readouterr().err


@pytest.mark.parametrize("option", [[], ["--workload"]])
def test_schema_is_the_one_in_the_documentation(option: list[str], capsys: Text) -> None:
    assert main(["schema", *option]) == 0
    name = "hwgen-workload.schema.json" if option else "hwgen.schema.json"
    assert capsys.readouterr().out == (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_shown(stage: str, capsys: Text) -> None:
    assert main(["generate", *KERNEL, "--stage", stage]) == 0
    captured = capsys.readouterr()
    assert len(captured.out) > 40
    assert captured.err == ""


@pytest.mark.parametrize(("spec", "stages"), [("vta", STAGES), ("cpu_generic", NEST_STAGES)])
def test_an_unknown_stage_lists_those_of_the_chip(
    spec: str, stages: tuple[str, ...], capsys: Text
) -> None:
    arguments = ["--spec", str(ROOT / "hw_specs" / f"{spec}.yaml"), "--workload", GEMM]
    assert main(["generate", *arguments, "--stage", "bogus"]) == 1
    assert f"allowed: {', '.join(stages)}\n" in capsys.readouterr().err


def test_the_help_names_every_stage(capsys: Text) -> None:
    assert main(["generate", "--help"]) == 0
    words = re.findall(r"\w+", capsys.readouterr().out)
    assert {*STAGES, *NEST_STAGES} <= set(words)


def test_no_schedule_at_all_leaves_units_without_calls(capsys: Text) -> None:
    wanted = ["--spec", "npu_shared_buffer", "--workload", "linear_relu", "--no-auto"]
    assert main(["generate", *wanted]) == 1
    assert capsys.readouterr().err.startswith("error[H421]: no call computes acc")


def test_an_unknown_stage_names_the_nearest(capsys: Text) -> None:
    assert main(["generate", *KERNEL, "--stage", "schedules"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("error[H007]")
    assert "did you mean schedule?" in text


@pytest.mark.parametrize("options", [["--workload", GEMM], ["--set", "M=2"]])
def test_a_campaign_that_draws_workloads_takes_none(options: list[str], capsys: Text) -> None:
    assert main(["verify", "--spec", SPEC, "--workloads", "1", *options]) == 2
    assert "drawn too" in capsys.readouterr().err


def test_without_a_chip_the_campaign_that_needs_none_is_named(capsys: Text) -> None:
    assert main(["verify"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "name a chip; only --workloads goes without one" in said


def test_generate_is_deterministic_and_writes_three_files(tmp_path: Path, capsys: Text) -> None:
    texts: list[str] = []
    for _ in range(2):
        assert main(["generate", *KERNEL, "-o", str(tmp_path)]) == 0
        files = sorted(tmp_path.iterdir())
        assert [f.suffix for f in files] == [".c", ".h", ".c"]
        texts.append(capsys.readouterr().out + "".join(f.read_text() for f in files))
    assert texts[0] == texts[1]
    for part in ("matched", "tiled", "placed", "moved off chip", "cycles", "lower bound"):
        assert part in texts[0]


@pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")
def test_the_written_model_compiles_without_warnings(tmp_path: Path) -> None:
    assert main(["generate", *KERNEL, "-o", str(tmp_path)]) == 0
    (model,) = tmp_path.glob("*_model.c")
    done = subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-c", str(model), "-o", str(tmp_path / "m.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_named_workloads_are_all_written_or_none(tmp_path: Path, capsys: Text) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\n")
    out = tmp_path / "out"
    arguments = ["generate", "--spec", SPEC, "--workload", GEMM, "-o", str(out)]
    assert main([*arguments, "--workload", str(bad)]) == 1
    assert not out.exists()
    assert capsys.readouterr().out == ""
    assert main([*arguments, "--workload", "relu"]) == 0
    assert len(list(out.iterdir())) == 6
    assert capsys.readouterr().out.count("gemm") >= 1


def test_all_workloads_end_in_a_table_and_the_reasons(project: Path, capsys: Text) -> None:
    assert main(["generate", "--spec", "vta", "-o", "out"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("workload  ")
    assert "\nrelu " in text
    assert "\nactivation: the processor computes y, " in text
    assert len(list((project / "out").iterdir())) == 6
    assert main(["generate", "--spec", "npu_shared_buffer", "-o", "out"]) == 0
    text = capsys.readouterr().out
    assert "cosine: cannot run, [H30" in text
    assert "relu: cannot run, [H30" in text


def test_a_workload_file_that_is_wrong_is_an_error_even_among_many(
    project: Path, capsys: Text
) -> None:
    (project / "workloads" / "wrong.yaml").write_text("name: wrong\n")
    assert main(["generate", "--spec", "vta"]) == 1
    captured = capsys.readouterr()
    assert "\nrelu " in captured.out
    assert "error[H030]" in captured.err


def test_simulate_reads_and_writes_arrays(tmp_path: Path, capsys: Text) -> None:
    workload = load_workload(GEMM, {"M": 2, "N": 20, "K": 40})
    inputs = random_inputs(workload, 5)
    options: list[str] = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    out = tmp_path / "results"
    assert main(["simulate", *KERNEL, *options, "--output-dir", str(out)]) == 0
    text = capsys.readouterr().out
    assert "\ncycles      " in text
    assert "a, b from files" in text
    assert "equal to the reference, bit for bit" in text
    expected = run_reference(workload, inputs)
    for name, array in expected.items():
        assert np.array_equal(np.load(out / f"{name}.npy"), array)


@pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")
def test_both_engines_agree(tmp_path: Path, capsys: Text) -> None:
    results: list[bytes] = []
    simulator, compiled = "the simulator", "the emitted C on the C model"
    ran = {"python": simulator, "c": compiled, "both": f"{simulator} and {compiled}"}
    for engine, runners in ran.items():
        out = tmp_path / engine
        options = [] if engine == "both" else ["--engine", engine]
        assert main(["simulate", *KERNEL, *options, "--output-dir", str(out)]) == 0
        assert f"run by      {runners}, with" in capsys.readouterr().out
        results.append((out / "c.npy").read_bytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")
def test_emitted_c_that_is_wrong_is_found_without_asking(
    monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    def none(kernel: CompiledKernel, _: object) -> dict[str, Array]:
        return {p.name: np.zeros(p.shape, p.dtype) for p in kernel.source.outputs}

    monkeypatch.setattr(CompiledKernel, "run", none)
    assert main(["simulate", *KERNEL]) == 1
    assert "error[H790]: the emitted C computes a wrong c" in capsys.readouterr().err
    assert main(["simulate", *KERNEL, "--engine", "python"]) == 0


def test_simulate_without_a_compiler_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Text
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert main(["simulate", *KERNEL]) == 0
    text = capsys.readouterr().out
    assert "run by      the simulator, with" in text
    assert "(not by the emitted C: no C compiler)" in text


@pytest.mark.parametrize("options", [["--data", "extremes"], ["--schedule", "3"], ["--seed", "9"]])
def test_simulate_runs_what_a_campaign_may_draw(options: list[str], capsys: Text) -> None:
    assert main(["simulate", *KERNEL, *options]) == 0
    assert "bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a", None),
        ("a=", None),
        ("x={}", None),
        ("a={}", None),
        ("a={}", b""),
        ("a={}", b"not an array"),
        ("a={}", b"\x93NUMPY\x01\x00\x10\x00{'descr': '|i1'}"),
        ("a={}", np.zeros((2, 41), np.int8)),
        ("a={}", np.zeros((2, 40), np.int16)),
        ("a={}", np.zeros((2, 40), object)),
    ],
)
def test_inputs_that_do_not_fit_are_coded_errors(
    text: str, content: bytes | np.ndarray[tuple[int, int], np.dtype[np.generic]] | None,
    tmp_path: Path, capsys: Text,
) -> None:  # fmt: skip
    path = tmp_path / "t.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    assert main(["simulate", *KERNEL, "--input", text.format(path)]) == 1
    captured = capsys.readouterr()
    assert "error[H008]" in captured.err
    assert captured.out == ""


def test_a_header_that_promises_too_much_is_refused(tmp_path: Path, capsys: Text) -> None:
    path = tmp_path / "t.npy"
    header = b"{'descr': '|i1', 'fortran_order': False, 'shape': (99999999999999,), }"
    header += b" " * (117 - len(header)) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert main(["simulate", *KERNEL, "--input", f"a={path}"]) == 1
    assert "error[H008]" in capsys.readouterr().err


def test_a_wrong_result_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Text) -> None:
    from hwgen.model import reference

    def off_by_one(
        workload: Workload, inputs: Mapping[str, Array], **options: bool
    ) -> dict[str, Array]:
        found = run_reference(workload, inputs, **options)
        outputs = {t.name for t in workload.outputs}
        return {
            n: np.logical_not(x).astype(np.int8) if n in outputs else x for n, x in found.items()
        }

    monkeypatch.setattr(reference, "run_reference", off_by_one)
    assert main(["simulate", *KERNEL]) == 1
    captured = capsys.readouterr()
    assert "error[H790]" in captured.err
    assert "40 of 40 elements differ" in captured.err


@THOROUGH
def test_explain_shows_the_bindings_that_generate_takes(capsys: Text) -> None:
    kernel = ["--spec", SPEC, "--workload", "depthwise_conv2d"]
    assert main(["generate", *kernel, "--stage", "match"]) == 0
    taken = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert main(["explain", *kernel]) == 0
    shown = capsys.readouterr().out
    assert taken
    assert [t for t in taken if t not in shown] == []


def test_explain_shows_bindings_and_reasons(capsys: Text) -> None:
    assert main(["explain", *KERNEL]) == 0
    text = capsys.readouterr().out
    assert "update by gemm(" in text
    assert "no: " in text
    assert "repair: " in text


def test_explain_shows_the_form_that_calls_compute(tmp_path: Path, capsys: Text) -> None:
    """And the edits that lead to it."""
    path = tmp_path / "wide.yaml"
    path.write_text(
        "hwgen: 1\nname: wide\ntensors: {a: 'int8[16, 16]', b: 'int8[16, 16]', "
        "acc: 'int32[16, 16]', y: 'int8[16, 16]'}\ncompute: ['acc[m, n] += a[m, k] * b[n, k]', "
        "'y[m, n] = int8(clip((acc[m, n] + 40000) >> 9, -128, 127))']\n"
    )
    assert main(["explain", "--spec", "vta", "--workload", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("said otherwise, for calls to compute it:\ns.rewrite_expr('y', ")
    assert "cannot run" not in text


@pytest.mark.usefixtures("project")
def test_explain_says_why_a_chip_cannot_run_a_workload(capsys: Text) -> None:
    assert main(["explain", "--spec", "vta", "--workload", "cosine"]) == 0
    text = capsys.readouterr().out
    assert "cannot run activation:\n" in text
    assert "error[H30" in text


def test_the_chips_parameters_can_be_set(capsys: Text) -> None:
    assert main(["generate", *KERNEL, "--set", "BATCH=2", "--stage", "load"]) == 0
    assert "BATCH=2" in capsys.readouterr().out
    assert main(["simulate", *KERNEL, "--set", "BATCH=2"]) == 0
    assert "bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["simulate"], ["simulate", "--engine", "c"], ["verify"]])
@pytest.mark.parametrize("spec", ["vta", "cpu_generic"])
def test_what_is_too_large_to_be_run_is_refused_in_time(
    command: list[str], spec: str, capsys: Text
) -> None:
    huge = ["--spec", str(ROOT / "hw_specs" / f"{spec}.yaml"), "--workload", GEMM]
    assert main([*command, *huge, "--set", "M=100000000"]) == 1
    text = capsys.readouterr().err
    assert "gemm.yaml:2:7: error[H792]: gemm is too large to be run" in text
    assert "found:   76,800,065,536 elements of all tensors, 25,600,000,000 of them in a[" in text
    assert "allowed: at most 134,217,728 elements" in text
    assert "repair:  a smaller size, as --set M=174677\n" in text
