"""`verify` and `compile` with processes, a cluster and time-outs: the same results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.network.compiled import compile_model
from hwgen.report.campaigns import campaign_text, natural_text
from hwgen.spec.find import find_spec, find_workload
from hwgen.verify.campaign import campaign
from hwgen.verify.executors import Lost, Processes
from hwgen.verify.natural.campaign import natural_campaign
from tests.models import WITH_READER, small_network
from tests.unit.explore.test_executors import WITH_CLUSTER, local_cluster

VTA = find_spec("vta").resolve()
WORKLOADS = [find_workload(name).resolve() for name in ("add", "relu")]
VERIFY = ["verify", "--spec", "vta", "--workload", "add", "--workload", "relu", "--examples", "2"]
Text = pytest.CaptureFixture[str]


class Losing(Processes):
    """Everything is given up."""

    def __init__(self, *, late: bool) -> None:
        super().__init__(1)
        self._given_up = Lost(late)

    def run(self, call: Any, work: Sequence[Any]) -> Any:
        del call
        return ((n, self._given_up) for n in range(len(work)))


def printed(arguments: Sequence[str], capsys: Text) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_campaign_is_the_same_in_several_processes(capsys: Text) -> None:
    alone = printed([*VERIFY, "--jobs", "1"], capsys)
    assert printed([*VERIFY, "--jobs", "2"], capsys) == alone
    assert [r["passed"] > 0 for r in alone["results"]] == [True, True]


@WITH_CLUSTER
@WITH_READER
def test_a_cluster_verifies_and_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.tflite").write_bytes(small_network())
    copy = Path("mine.yaml")  # Workers have no such file.
    copy.write_text(VTA.read_text(encoding="utf-8"), encoding="utf-8")
    with local_cluster() as far, Processes(1) as here:
        mine = [campaign(copy, WORKLOADS[:1], 2, 5, workers=w) for w in (far, here)]
        assert campaign_text(mine[0]) == campaign_text(mine[1])
        drawn = [natural_campaign([VTA], 12, 3, workers=w) for w in (far, here)]
        assert natural_text(drawn[0]) == natural_text(drawn[1])
        nets = [compile_model("tiny.tflite", "cpu_generic", workers=w) for w in (far, here)]
        assert nets[0].files == nets[1].files


@pytest.mark.parametrize(("late", "code"), [(False, "H049"), (True, "H060")])
def test_work_that_is_given_up_is_no_success(late: bool, code: str) -> None:
    report = campaign(VTA, WORKLOADS, 2, 5, workers=Losing(late=late))
    assert not report.ok
    failures = [r.failure for r in report.results]
    assert all(f is not None and code in f.message for f in failures)
    assert failures[0] is not None
    assert failures[0].command.endswith("--examples 2 --seed 5")
    drawn = natural_campaign([VTA], 12, 3, workers=Losing(late=late))
    assert [o.code for o in drawn.chips[0].wrong] == [code] * 12
    assert not drawn.ok


@WITH_READER
def test_a_kernel_that_is_given_up_is_named(tmp_path: Path) -> None:
    model = tmp_path / "tiny.tflite"
    model.write_bytes(small_network())
    with pytest.raises(HwgenError) as caught:
        compile_model(model, "cpu_generic", workers=Losing(late=True))
    assert caught.value.code == "H060"
    assert caught.value.diagnostic.field.startswith("tiny_")
