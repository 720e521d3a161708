"""Searches end after work that is counted; a clock decides only where somebody asks for one."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main
from hwgen.passes.cache import ScheduleCache
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.search import search
from hwgen.polyhedral.search.search import SCHEDULE_WORK, Watch
from hwgen.report.text import measure, results
from hwgen.spec.load import parse_workload

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "hw_specs" / "vta.yaml"
GEMM = ROOT / "workloads" / "gemm.yaml"
COMMAND = ["--spec", str(SPEC), "--workload", str(GEMM), "--no-cache",
           "--set", "M=2", "--set", "N=32", "--set", "K=32"]  # fmt: skip
Text = pytest.CaptureFixture[str]


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine so loaded that an hour goes by between any two looks at its clock."""
    hours = count(step=3600)
    monkeypatch.setattr(search, "perf_counter", lambda: float(next(hours)))


def test_a_loaded_machine_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    command = ["generate", *COMMAND, "--stage"]
    idle = main([*command, "schedule"]), main([*command, "emit"]), capsys.readouterr().out
    slow(monkeypatch)
    loaded = main([*command, "schedule"]), main([*command, "emit"]), capsys.readouterr().out
    assert loaded == idle
    assert idle[:2] == (0, 0)


@pytest.mark.parametrize("command", ["generate", "simulate"])
def test_who_asks_for_a_time_limit_is_told_where_it_cut(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    assert main([command, *COMMAND]) == 0
    assert "cut short" not in capsys.readouterr().out
    slow(monkeypatch)
    assert main([command, *COMMAND, "--search-seconds", "30"]) == 0
    assert "gemm: search cut short, time limit of 30 s reached" in capsys.readouterr().out


def test_the_table_of_several_workloads_says_which_search_was_cut() -> None:
    hardware = hwgen.load_hardware(SPEC)
    small = hwgen.load_workload(GEMM, {"M": 1, "N": 16, "K": 32})
    cut = hwgen.compile_kernel(small, hardware, options=SearchOptions(seconds=0.0))
    whole = hwgen.compile_kernel(small, hardware)
    lines = results([measure(whole), measure(cut)]).splitlines()
    assert lines[-1] == "gemm: search cut short, time limit of 0 s reached"
    assert sum("cut short" in line for line in lines) == 1


ROWS_OF_A_CONVOLUTION: dict[str, object] = {
    "name": "rows",
    "tensors": {
        "x": "int8[14, 24]",
        "w": {"type": "int8[1, 24, 72]", "constant": True},
        "bias": {"type": "int32[72]", "constant": True},
        "xp": "int8[14, 24]",
        "acc": "int32[14, 72]",
        "y": "int8[14, 72]",
    },
    "compute": [
        "xp[v, c] = select(v < 14, x[v, c], 0)",
        "acc[j, o] += xp[j + s, c] * w[s, c, o]",
        "y[j, o] = int8(clip(round(float32(acc[j, o] + bias[o]) * 0.0078125), 0, 127))",
    ],
}


def test_a_search_that_is_cut_short_gives_the_best_so_far() -> None:
    """Blocks that take elements of one dimension after the other have no tiles of it left."""
    workload = parse_workload(ROWS_OF_A_CONVOLUTION)
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    work = (0, 2 * SCHEDULE_WORK, 20 * SCHEDULE_WORK)
    cut = [compile_workload(workload, hardware, SearchOptions(work=w)).timing.cycles for w in work]
    assert cut == sorted(cut, reverse=True)
    assert cut[-1] >= compile_workload(workload, hardware).timing.cycles


@pytest.mark.parametrize("chip", ["gemmini", "npu_shared_buffer", "vta"])
@pytest.mark.parametrize("name", ["attention", "layernorm", "linear_relu", "mlp"])
def test_a_search_without_time_gives_a_kernel(chip: str, name: str) -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml")
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    made = compile_workload(workload, hardware, SearchOptions(seconds=0.0))
    assert made.timing.cycles > 0


def test_work_is_counted_and_ends_a_search() -> None:
    watch = Watch(work=2 * SCHEDULE_WORK)
    watch.spend(SCHEDULE_WORK)
    assert not watch.expired
    watch.spend(SCHEDULE_WORK)
    assert watch.expired
    assert watch.reason == "work limit of 200,000 reached"


def test_costing_leaves_work_for_simulating_what_it_found() -> None:
    """Else the schedules of a large space would be ranked by their estimates alone."""
    watch = Watch(work=8 * SCHEDULE_WORK)
    watch.spend(7 * SCHEDULE_WORK - 1)
    assert not watch.costed
    watch.spend(1)
    assert watch.costed
    assert not watch.expired
    assert watch.reason == "work limit of 800,000 reached"


def test_a_search_of_little_work_says_so_and_gives_the_same_again(tmp_path: Path) -> None:
    workload = hwgen.load_workload(GEMM, {"M": 2, "N": 32, "K": 32})
    hardware = hwgen.load_hardware(SPEC)
    little = SearchOptions(work=1, cache=ScheduleCache(tmp_path))
    cut, again = (hwgen.compile_kernel(workload, hardware, options=little) for _ in range(2))
    whole = hwgen.compile_kernel(workload, hardware)
    assert cut.account.search.ended_by == ("work limit of 1 reached",)
    assert whole.account.search.ended_by == ()
    assert cut.account.search.simulated == 1 < whole.account.search.simulated
    assert cut.source.c == again.source.c
    assert not list(tmp_path.iterdir()), "what is kept is what the usual search finds"
