"""A file's errors are all reported at once, and what follows from one of them is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).parents[3]
CHIP = (ROOT / "tests/error/spec_valid.yaml").read_text(encoding="utf-8")
WORKLOAD = (ROOT / "tests/error/workload_valid.yaml").read_text(encoding="utf-8")


def _found(tmp_path: Path, text: str, *edits: tuple[str, str]) -> list[tuple[str, str]]:
    """Codes and fields of the errors of a text after edits, in the order that they are given."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = tmp_path / "edited.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HwgenError) as caught:
        (load_hardware if text.startswith("hwgen") else load_workload)(path)
    found = caught.value.diagnostics
    places = [(d.location.line, d.location.column) for d in found if d.location]
    assert places == sorted(places)
    assert (caught.value.diagnostic, str(caught.value)) == (found[0], "\n".join(map(str, found)))
    return [(d.code, d.field) for d in found]


SIZE = ("size: 4 KiB, identifiers", "size: 4 KB, identifiers")
FIELD = ("beat_bytes: 8", "beat_byte: 8")
CYCLES = ("cycles: 2\n", "cycles: 2 + n\n")
TEMPLATE = ('"put({{ buffer }});"', '"put({{ bufer }});"')
KNOWN: dict[tuple[str, str], tuple[str, str]] = {
    SIZE: ("H109", "memories.buf.size"),
    FIELD: ("H031", "buses.axi.beat_byte"),
    CYCLES: ("H025", "intrinsics.clear.cycles"),
    TEMPLATE: ("H125", "code.free"),
}


@pytest.mark.parametrize("edit", KNOWN)
def test_an_error_alone_is_one(edit: tuple[str, str], tmp_path: Path) -> None:
    assert _found(tmp_path, CHIP, edit) == [KNOWN[edit]]


def test_all_errors_of_a_chip(tmp_path: Path) -> None:
    assert _found(tmp_path, CHIP, *KNOWN) == list(KNOWN.values())


def test_a_bad_parameter_is_one_error(tmp_path: Path) -> None:
    assert _found(tmp_path, CHIP, ("{value: 8, range: 1..64}", "1 +")) == [("H020", "parameters.N")]


def test_errors_of_one_intrinsic(tmp_path: Path) -> None:
    edits = (
        ("dst: {memory: buf, address: 0..511}", "dst: {memory: buf, address: 5..4}"),
        ("src: {memory: dram, dtype: int8}", "src: {memory: dram}"),
        ("extent: 1..1023", "extent: 0..1023"),
        ("cycles: 5 + transfer", "cycles: 5 + transfers"),
    )
    assert _found(tmp_path, CHIP, *edits) == [
        ("H027", "intrinsics.load.operands.dst.address"),
        ("H116", "intrinsics.load.operands.src"),
        ("H026", "intrinsics.load.loops.y.extent"),
        ("H025", "intrinsics.load.cycles"),
    ]


def test_all_errors_of_a_workload(tmp_path: Path) -> None:
    edits = (
        ("M: 4", "M: 4 +"),
        ("acc: int32[M, N]", "acc: int33[M, N]"),
        ("  - acc", "  - x[m, k] = w[m]\n  - acc"),
    )
    found = _found(tmp_path, WORKLOAD, *edits, ("int8(clip(", "int8(clap("))
    assert found == [("H020", "sizes.M"), ("H212", "tensors.acc"), ("H021", "compute[2]")]


def test_keys_that_stand_twice(tmp_path: Path) -> None:
    edits = (("name: tiny", "name: tiny\nname: t"), ("  dram:", "  acc: 012\n  dram:"))
    assert [code for code, _ in _found(tmp_path, CHIP, *edits)] == ["H011", "H012", "H011"]


def test_the_command_prints_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _found(tmp_path, CHIP, *KNOWN)
    assert main(["check", str(tmp_path / "edited.yaml")]) == 1
    assert capsys.readouterr().err.count("error[") == len(KNOWN)
