"""`init`: what it writes is valid, compiles, and computes a GEMM."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main
from hwgen.model.c_compiler import find_compiler, have_compiler
from hwgen.spec.source import read_document
from tests.sampling import tiered

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--workload", "gemm", "--set", "M=2", "--set", "N=16", "--set", "K=32"]
KINDS = [
    (1, "none"),
    (2, "tokens"),
    (2, "events"),
    (2, "barrier"),
    (2, "scoreboard"),
    (3, "tokens"),
    (3, "events"),
    (3, "barrier"),
]

Text = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("units", "sync"), tiered(KINDS, [*{sync: (units, sync) for units, sync in KINDS}.values()])
)
def test_a_first_chip_compiles_and_its_c_too(units: int, sync: str, here: Path) -> None:
    assert main(["init", "first", "--units", str(units), "--sync", sync]) == 0
    hardware = hwgen.load_hardware("first")
    assert (hardware.name, len(hardware.units)) == ("first", units)
    assert main(["generate", "--spec", "first", *SMALL, "-o", "out"]) == 0
    if not have_compiler():
        pytest.skip("no C compiler")
    compiler = find_compiler()
    assert compiler is not None
    sources = sorted(map(str, (here / "out").glob("*.c")))
    assert len(sources) == 2
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-c", *sources]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_kernel_computes_what_it_should(here: Path, capsys: Text) -> None:
    assert main(["init", "first"]) == 0
    assert sorted(p.name for p in here.iterdir()) == [
        "first.h", "first.yaml", "gemm.yaml", "hwgen-workload.schema.json", "hwgen.schema.json",
    ]  # fmt: skip
    assert main(["simulate", "--spec", "first", *SMALL]) == 0
    assert "c equal to the reference, bit for bit" in capsys.readouterr().out


def test_editors_find_the_schema(here: Path) -> None:
    assert main(["init", "first"]) == 0
    for file in ("first.yaml", "gemm.yaml"):
        line = (here / file).read_text(encoding="utf-8").splitlines()[0]
        schema = line.partition("$schema=")[2]
        assert (here / schema).read_bytes() == (ROOT / "docs" / schema).read_bytes()


def test_a_copied_chip_is_the_other_but_for_its_name(here: Path) -> None:
    assert main(["init", "mine", "--like", "vta"]) == 0
    ours = (here / "mine.yaml").read_text(encoding="utf-8").splitlines()
    theirs = (ROOT / "hw_specs" / "vta.yaml").read_text(encoding="utf-8").splitlines()
    assert [a for a, b in zip(ours, theirs, strict=True) if a != b] == [
        "# yaml-language-server: $schema=hwgen.schema.json",
        "name: mine",
    ]
    assert hwgen.load_hardware("mine").name == "mine"
    assert not (here / "mine.h").exists()


@pytest.mark.parametrize(
    ("chip", "types"),
    [("npu_shared_buffer", ("float32", "float32")), ("tpu_v1", ("int8", "int32"))],
)
def test_its_gemm_is_in_types_that_the_copied_chip_has(
    chip: str, types: tuple[str, str], capsys: Text
) -> None:
    assert main(["init", "mine", "--like", chip]) == 0
    dtypes = {t.name: t.dtype for t in hwgen.load_workload("gemm").tensors}
    assert (dtypes["a"], dtypes["acc"]) == types
    line = "hwgen generate --spec mine --workload gemm -o out"
    assert line in capsys.readouterr().out
    assert main([*line.split()[1:], "--set", "workload.N=16"]) == 0


def test_there_is_no_gemm_where_the_copied_chip_has_none(here: Path, capsys: Text) -> None:
    text = (ROOT / "tests" / "specs" / "granules.yaml").read_text("utf-8")
    (here / "other.yaml").write_text(text, encoding="utf-8")
    assert main(["init", "mine", "--like", "other"]) == 0
    assert not (here / "gemm.yaml").exists()
    assert "hwgen generate --spec mine -o out" in capsys.readouterr().out


def test_a_chip_in_json_is_copied_too(here: Path) -> None:
    data = read_document(ROOT / "tests" / "specs" / "one_unit.yaml").data
    (here / "one.json").write_text(json.dumps(data))
    assert main(["init", "two", "--like", "one"]) == 0
    assert hwgen.load_hardware("two.json").name == "two"


@pytest.mark.parametrize("there", ["first.yaml", "first.h"])
def test_nothing_that_is_there_is_replaced(there: str, here: Path, capsys: Text) -> None:
    (here / there).write_text("mine")
    assert main(["init", "first"]) == 1
    assert capsys.readouterr().err.startswith(f"{there}: error[H040]: ")
    assert [(p.name, p.read_text()) for p in here.iterdir()] == [(there, "mine")]


def test_a_workload_that_is_there_stays(here: Path) -> None:
    (here / "gemm.yaml").write_text("mine")
    assert main(["init", "first"]) == 0
    assert (here / "gemm.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["3d"], "is no name"),
        (["../up"], "is no name"),
        (["gemm"], "is the workload's"),
        (["Null"], "is no text in YAML"),
        (["a", "--units", "1", "--sync", "tokens"], "one unit needs none"),
        (["a", "--units", "2", "--sync", "none"], "2 units need some"),
        (["a", "--units", "4"], "--units"),
        (["a", "--like", "vta", "--units", "2"], "units of its own"),
    ],
)
def test_what_makes_no_chip_is_refused(
    options: list[str], says: str, here: Path, capsys: Text
) -> None:
    assert main(["init", *options]) == 2
    assert says in capsys.readouterr().err
    assert list(here.iterdir()) == []
