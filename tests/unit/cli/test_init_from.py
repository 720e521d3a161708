"""`init --from`: the numbers of an architecture's file, and what is wrong with such files."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main
from tests.commands import run
from tests.sampling import tiered

HERE = Path(__file__).parent / "architectures"
EXAMPLES = {
    "array": {
        "OUT: 32 # lanes of the result; fanout columns",
        "IN: 16 # lanes that are added up; fanout rows",
        "size: 128 KiB} # Shared, line 11, read 0.31 pJ/bit, write 0.36 pJ/bit; assumed 25% of it "
        "for inputs; int8 assumed",
        "# External, line 4, read 6.5 pJ/bit, write 6.5 pJ/bit of array.yaml; 0.8 GHz: one "
        "Multiplier per cycle.",
        "beat_bytes: 64 # 51.2 GB/s at 0.8 GHz are 64 bytes per cycle; writes: 25.6 GB/s",
        "# Not a number in the file, so not taken: size: weight.bits_per_value if weight else 0 "
        "(Latch, line 23)",
        "# Not in this chip: Latch, line 23, one of 512",
    },
    "scratchpads": {
        "OUT: 12 # lanes of the result; fanout across",
        "IN: 8 # lanes that are added up; fanout down",
        "size: 12 KiB} # Rows, line 11, read 0.2 pJ/bit; int8 assumed",
        "size: 48 KiB} # Kernels, line 16; int8 assumed",
        "# Not in this chip: 2 side by side (copies)",
        "beat_bytes: 25 # 12.8 GB/s at 0.5 GHz are 25.6 bytes per cycle",
    },
    "nested": {
        "OUT: 24 # lanes of the result; fanout y, assumed to be these",
        "IN: 8 # lanes that are added up; fanout x, assumed to be these",
        "size: 24 KiB} # Store, line 7, read 0.2 pJ/bit; assumed 25% of it for inputs;",
        "# Not a number in the file, so not taken: size: 256 * 1024 * 8 * SCALE (Pool, line 6)",
        "# Not in this chip: Scalar, line 10",
        "beat_bytes: 16 # assumed",
    },
    "columns": {
        "OUT: 14 # lanes of the result; fanout meshX of Column, assumed to be these",
        "IN: 12 # lanes that are added up; fanout meshY of PE, assumed to be these",
        "# Shared, line 12; assumed 25% of it for inputs; int8 assumed",
        "# External, line 8 of columns.yaml; 0.5 GHz: one MAC per cycle.",
        "beat_bytes: 4 # 2 GB/s at 0.5 GHz are 4 bytes per cycle",
        "# Not in this chip: Inner, line 25, one of 168",
    },
    "buffers": {
        "OUT: 16 # lanes of the result; fanout meshX of Unit, assumed to be these",
        "IN: 8 # lanes that are added up; fanout meshY of Unit, assumed to be these",
        "size: 64 KiB} # In, line 14; int8 assumed",
        "size: 256 KiB} # Weights, line 19; int8 assumed",
        "size: 32 KiB} # Out, line 24; int32 assumed",
        "1 GHz assumed",
        "beat_bytes: 32 # 32 GB/s at 1 GHz are 32 bytes per cycle; writes: 8 GB/s",
        "# Not a number in the file, so not taken: depth: ROWS (Bypassed, line 29)",
    },
}
TIMELOOP = ("columns", "buffers")


def form(name: str) -> str:
    return "timeloop" if name in TIMELOOP else "accelforge"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", tiered([*EXAMPLES], [*EXAMPLES][::3]))
def test_a_chip_from_an_architecture_compiles(name: str, here: Path) -> None:
    assert main(["init", "mine", "--from", form(name), str(HERE / f"{name}.yaml")]) == 0
    text = (here / "mine.yaml").read_text(encoding="utf-8")
    for line in EXAMPLES[name]:
        assert line in text, text
    small = ["--set", "M=2", "--set", "N=48", "--set", "K=32"]
    assert main(["generate", "--spec", "mine", "--workload", "gemm", *small]) == 0
    hardware = hwgen.load_hardware("mine")
    assert {m.name for m in hardware.memories} == {"dram", "act", "wgt", "acc"}


def test_units_and_order_are_those_that_are_asked_for() -> None:
    options = ["--units", "3", "--sync", "barrier"]
    assert main(["init", "mine", "--from", "accelforge", str(HERE / "array.yaml"), *options]) == 0
    assert len(hwgen.load_hardware("mine").units) == 3


def test_lanes_that_no_memory_holds_are_fewer(here: Path) -> None:
    text = (HERE / "array.yaml").read_text(encoding="utf-8")
    (here / "a.yaml").write_text(text.replace("8 * 1024 * 512", "8 * 1024"), encoding="utf-8")
    assert main(["init", "mine", "--from", "accelforge", "a.yaml"]) == 0
    assert "OUT: 16 # lanes of the result; fanout columns, fewer for two" in Path(
        "mine.yaml"
    ).read_text(encoding="utf-8")


def test_names_stay_in_their_comments(here: Path) -> None:
    text = (HERE / "array.yaml").read_text(encoding="utf-8")
    name = 'name: "S\\nunits: {evil: {}} ${name} {0}"'
    (here / "a.yaml").write_text(text.replace("name: Shared", name), encoding="utf-8")
    assert main(["init", "mine", "--from", "accelforge", "a.yaml"]) == 0
    assert [u.name for u in hwgen.load_hardware("mine").units] == ["mover", "core"]


BAD = {
    "no arch": ("memories: {}\n", "H044", "found:   no arch"),
    "nodes no list": ("arch: {nodes: {a: 1}}\n", "H044", "arch: {nodes: [...]}"),
    "no tag": ("arch:\n  nodes:\n  - {name: A}\n", "H044", "tag the node, as `- !Memory`"),
    "other tag": ("arch:\n  nodes:\n  - !SRAM {name: A}\n", "H044", "found:   !SRAM"),
    "no compute": ("arch:\n  nodes:\n  - !Memory {name: A, size: inf}\n", "H045", "compute unit"),
    "no memory": ("arch:\n  nodes:\n  - !Compute {name: A}\n", "H045", "no memory"),
    "nothing on chip": (
        "arch:\n  nodes:\n  - !Memory {name: A, size: inf}\n  - !Memory {name: B, size: 2**x}\n"
        "  - !Compute {name: C}\n",
        "H045",
        "a size that is a number",
    ),
    "a template": ("{% set A = 1 %}\narch: {nodes: []}\n", "H044", "render it first"),
    "actions no list": (
        "arch:\n  nodes:\n  - !Memory {name: A, actions: read}\n",
        "H044",
        "write actions: [{name: ...}]",
    ),
    "a key twice": ("arch:\n  nodes: []\n  nodes: []\n", "H011", "occurs twice"),
    "a tag on text": ("arch: {nodes: !!python/name:os.system x}\n", "H014", "a YAML tag"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_architecture(
    case: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code, says = BAD[case]
    (here / "a.yaml").write_text(text, encoding="utf-8")
    ran = run("hwgen init mine --from accelforge a.yaml", monkeypatch, capsys)
    assert ran.status == 1
    assert f"error[{code}]" in ran.err
    assert says in ran.err, ran.err
    assert ran.err.startswith("a.yaml")
    assert [p.name for p in here.iterdir()] == ["a.yaml"]


BAD_TIMELOOP = {
    "other": ("arch: {nodes: []}\n", "H044", "this one is AccelForge's: --from accelforge"),
    "nothing": ("problem: {}\n", "H044", "found:   no architecture"),
    "older": ("architecture: {subtree: []}\n", "H044", "convert it to version 4"),
    "no tag": ("architecture:\n  nodes:\n  - {name: A}\n", "H044", "tag the node, as `- !Comp"),
    "other tag": ("architecture:\n  nodes:\n  - !Memory {name: A}\n", "H044", "found:   !Memory"),
    "meshes": (
        "architecture:\n  nodes:\n  - !Container {name: A, spatial: 8}\n",
        "H044",
        "write spatial: {meshX: 8}",
    ),
    "no compute": (
        "architecture:\n  nodes:\n  - !Component {name: A, class: SRAM, "
        "attributes: {depth: 8, width: 8}}\n",
        "H045",
        "such as `intmac`",
    ),
    "nothing on chip": (
        "architecture:\n  nodes:\n  - !Component {name: A, class: DRAM}\n"
        "  - !Component {name: B, class: SRAM, attributes: {depth: N}}\n"
        "  - !Component {name: C, class: mac}\n",
        "H045",
        "write `depth` and `width` of B",
    ),
    "a template": ("{{include('x')}}\narchitecture: {}\n", "H044", "render it first"),
}


@pytest.mark.parametrize("case", BAD_TIMELOOP)
def test_what_is_no_architecture_of_timeloop(
    case: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code, says = BAD_TIMELOOP[case]
    (here / "a.yaml").write_text(text, encoding="utf-8")
    ran = run("hwgen init mine --from timeloop a.yaml", monkeypatch, capsys)
    assert ran.status == 1
    assert f"error[{code}]" in ran.err
    assert says in ran.err, ran.err
    assert [p.name for p in here.iterdir()] == ["a.yaml"]


def test_an_architecture_of_timeloop_is_not_accelforges(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(f"hwgen init mine --from accelforge {HERE / 'columns.yaml'}", monkeypatch, capsys)
    assert "this one is Timeloop's: --from timeloop" in ran.err


@pytest.mark.parametrize("more", ["--from maestro a.yaml", "--from accelforge a.yaml --like vta"])
def test_wrong_usage(
    more: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"hwgen init mine {more}", monkeypatch, capsys).status == 2
