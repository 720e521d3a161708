"""`hwgen.explore`: what the command line finds, from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hwgen
from hwgen.cli import main
from hwgen.exploration.results import results_record
from tests.unit.report.test_html import Elements

SIZES = {"M": 2, "N": 32, "K": 32}


def test_it_finds_what_the_command_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gemm = hwgen.load_workload("gemm", SIZES)
    file = tmp_path / "results.db"
    found = hwgen.explore(
        "vta", [gemm], parameters={"BATCH": (2, 1), "BLOCK_IN": 8}, objective=["cycles"], db=file
    )
    command = ["explore", "--spec", "vta", "--workload", "gemm", "--set", "BATCH=1,2"]
    command += ["--set", "BLOCK_IN=8", *(f"--set={n}={v}" for n, v in SIZES.items())]
    main([*command, "--objective", "cycles", "--db", str(file), "--json"])
    printed = json.loads(capsys.readouterr().out)
    mine = results_record(found)
    assert printed["run"]["computed"] == 0
    assert printed["sensitivity"] == mine["sensitivity"]
    assert [c["cycles"] for c in printed["chips"]] == [t.value("cycles") for t in found.totals]
    assert repr(found) == "<Results vta: 2 chips, 1 on the front>"
    assert repr(found.front[0]).startswith("<Total BATCH=")
    assert "by a factor of" in str(found)
    assert found.report(tmp_path / "chips.html") == found.report()
    assert (tmp_path / "chips.html").exists()


def test_layers_of_a_network_count_as_often_as_they_occur() -> None:
    gemm, other = hwgen.load_workload("gemm", SIZES), hwgen.load_workload("gemm", {**SIZES, "M": 1})
    once = hwgen.explore("vta", [gemm, other], objective=["cycles"]).totals[0].points
    (total,) = hwgen.explore(
        "vta", networks={"net": [gemm, other, gemm]}, objective=["cycles"]
    ).totals
    (point,) = total.points
    assert point.cycles == 2 * once[0].cycles + once[1].cycles
    assert [n for n, _ in point.layers] == ["2 gemm", "1 gemm"]


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"objective": ["cycels"]}, "objective", "did you mean 'cycles'?"),
        ({"parameters": {"BATHC": 1}}, "parameters", "did you mean 'BATCH'?"),
        ({"parameters": {"BATCH": []}}, "parameters", "one value or more"),
    ],
)
def test_another_argument_is_refused(arguments: Mapping[str, Any], field: str, said: str) -> None:
    with pytest.raises(hwgen.HwgenError) as caught:
        hwgen.explore("vta", [hwgen.load_workload("gemm", SIZES)], **arguments)
    assert caught.value.code == "H050"
    assert caught.value.diagnostic.field == field
    assert said in str(caught.value)


def test_a_parameter_with_one_value_is_in_the_table() -> None:
    gemm = hwgen.load_workload("gemm", SIZES)
    parameters = {"BATCH": [1, 2], "BLOCK_IN": 8}
    found = hwgen.explore("vta", [gemm], parameters=parameters, objective=["cycles"])
    assert {t.label for t in found.totals} == {f"BATCH={b}, BLOCK_IN=8" for b in (1, 2)}
    assert str(found).splitlines()[2].split()[:2] == ["BATCH", "BLOCK_IN"]
    figures = next(s for s in Elements(found.report()).scripts if s.startswith('{"front_0"'))
    lines = json.loads(figures)["chips"]["data"]
    assert [x.split("<br>")[0] for x in lines[0]["x"]] == ["BATCH", "cycles"]


def test_a_chip_that_cannot_be_made_is_a_result() -> None:
    gemm = hwgen.load_workload("gemm", SIZES)
    found = hwgen.explore("vta", [gemm], parameters={"BATCH": [1, 99]}, objective=["cycles"])
    assert [t.error and t.error.code for t in found.totals] == [None, "H111"]
    assert "H111" in repr(found.totals[1])
