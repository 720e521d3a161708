"""`--report` and `--trace`, as a user gives them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hwgen.cli import main
from hwgen.pipeline import compile_kernel
from hwgen.report.recording import record, slot_uses
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--set", "M=2", "--set", "N=20", "--set", "K=40"]
SPEC = ["--spec", str(ROOT / "hw_specs" / "vta.yaml")]
GEMM = [*SPEC, "--workload", str(ROOT / "workloads" / "gemm.yaml"), *SMALL]

Text = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", ["generate", "simulate"])
def test_a_folder_gets_a_page_and_a_trace_by_name(
    command: str, tmp_path: Path, capsys: Text
) -> None:
    folder = tmp_path / "new" / "deep"
    options = ["--report", str(folder), "--trace", str(folder)]
    assert main([command, *GEMM, *options]) == 0
    assert [p.name for p in sorted(folder.iterdir())] == [
        "gemm_vta_M2_N20_K40.html",
        "gemm_vta_M2_N20_K40.json",
    ]
    assert "<!doctype html>" in (folder / "gemm_vta_M2_N20_K40.html").read_text(encoding="utf-8")
    assert json.loads((folder / "gemm_vta_M2_N20_K40.json").read_text())["traceEvents"]
    out = " ".join(capsys.readouterr().out.split())
    assert f"wrote gemm_vta_M2_N20_K40.html to {folder}" in out
    assert f"wrote gemm_vta_M2_N20_K40.json to {folder}" in out


def test_a_suffix_makes_it_a_file(tmp_path: Path) -> None:
    page, trace = tmp_path / "a.html", tmp_path / "b.JSON"
    assert main(["generate", *GEMM, "--report", str(page), "--trace", str(trace)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.JSON"]


def test_an_svg_has_a_box_for_every_call_and_slot_and_the_room_of_each_memory(
    tmp_path: Path,
) -> None:
    made = tmp_path / "kernel.svg"
    assert main(["generate", *GEMM, "--report", str(made)]) == 0
    root = ElementTree.parse(made).getroot()
    tag = "{http://www.w3.org/2000/svg}"
    titles = [t.text or "" for t in root.iter(f"{tag}title")]
    c = compile_kernel(
        load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 2, "N": 20, "K": 40}),
        load_hardware(ROOT / "hw_specs" / "vta.yaml"),
    )
    recording = record(c.program, c.hardware, c.timing, 300)
    assert sum(": cycles " in t for t in titles) == c.timing.operations
    assert sum(" slot " in t for t in titles) == len(slot_uses(recording, c.program))
    rooms = [r for r in root.iter(f"{tag}rect") if r.get("class") == "room"]
    assert len(rooms) == len({b.memory for b in c.program.buffers})


def test_the_stage_alone_is_printed_where_one_is_asked_for(tmp_path: Path, capsys: Text) -> None:
    options = ["--stage", "match", "--report", str(tmp_path)]
    assert main(["generate", *GEMM, *options]) == 0
    assert "wrote" not in capsys.readouterr().out
    assert (tmp_path / "gemm_vta_M2_N20_K40.html").is_file()


def test_one_file_cannot_hold_two_kernels(tmp_path: Path, capsys: Text) -> None:
    relu = str(ROOT / "workloads" / "relu.yaml")
    options = ["--workload", relu, "--report", str(tmp_path / "all.html")]
    assert main(["generate", *GEMM, *options]) == 1
    text = capsys.readouterr().err
    assert text.startswith("error[H009]")
    assert f"--report {tmp_path / 'all'}" in text
    assert not list(tmp_path.iterdir())


def test_two_kernels_of_one_name_need_two_folders(tmp_path: Path, capsys: Text) -> None:
    twin = tmp_path / "twin.yaml"
    twin.write_text((ROOT / "workloads" / "gemm.yaml").read_text(encoding="utf-8"))
    options = ["--workload", str(twin), "--trace", str(tmp_path / "out")]
    assert main(["generate", *GEMM, *options]) == 1
    assert "error[H009]: two workloads are called gemm_vta" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: Text) -> None:
    (tmp_path / "file").write_text("")
    assert main(["generate", *GEMM, "--report", str(tmp_path / "file" / "x.html")]) == 1
    assert "error[H009]: cannot write the output" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["generate", "simulate"])
def test_a_chip_without_units_has_both(command: str, tmp_path: Path, capsys: Text) -> None:
    chip = ["--spec", str(ROOT / "hw_specs" / "cpu_generic.yaml"), *GEMM[len(SPEC) :]]
    out = tmp_path / "out"
    assert main([command, *chip, "--report", str(out), "--trace", str(out)]) == 0
    assert [p.name for p in sorted(out.iterdir())] == [
        "gemm_cpu_generic_M2_N20_K40.html",
        "gemm_cpu_generic_M2_N20_K40.json",
    ]
    assert " ".join(capsys.readouterr().out.split()).count("wrote gemm_cpu_generic") == 2


def test_nothing_of_it_is_imported_until_it_is_asked_for() -> None:
    code = (
        "import sys, hwgen.cli.app\n"
        "print([m for m in ('plotly', 'jinja2', 'numpy', 'hwgen.report') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
