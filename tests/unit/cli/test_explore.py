"""`explore`: chips compared, whatever compiles them, and however often the run begins anew."""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hwgen.cli import main
from hwgen.cli.axes import MAX_VALUES, values_of
from hwgen.errors import HwgenError
from hwgen.exploration.guided import Axis, guided
from hwgen.exploration.points import Chip, Explorer, Layer, Problem
from hwgen.exploration.run import Plan, Space
from hwgen.exploration.run import explored as explored_space
from hwgen.exploration.store import Store
from hwgen.exploration.work import Outcome, Refused, Work
from hwgen.passes.phase import SearchOptions
from hwgen.report.sweep import pareto
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.source import read_document
from hwgen.verify.executors import Lost, Processes
from tests.models import WITH_READER, small_network
from tests.sampling import tiered
from tests.unit.explore.test_executors import WITH_CLUSTER, local_cluster

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--set", "M=2", "--set", "N=32", "--set", "K=32"]
KERNEL = ["explore", "--spec", "vta", "--workload", "gemm", *SMALL, "--jobs", "1"]
CHIPS = ["--set", "BATCH=1,2", "--set", "BLOCK_IN=8..32x2"]
Text = pytest.CaptureFixture[str]


def explored(arguments: Sequence[str], capsys: Text) -> dict[str, Any]:
    """The object of a command."""
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def results(arguments: Sequence[str], capsys: Text) -> dict[str, Any]:
    """The same without the account of the run."""
    found = explored(arguments, capsys)
    del found["run"], found["written"]
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=4", [4]),
        ("A=8,16,4", [8, 16, 4]),
        ("A=1..4", [1, 2, 3, 4]),
        ("A=8..33+8", [8, 16, 24, 32]),
        ("A=64..512x2", [64, 128, 256, 512]),
        ("spec.A = -1..1 + 2, 7", [-1, 1, 7]),
    ],
)
def test_values_are_lists_and_ranges(text: str, values: list[int]) -> None:
    assert [int(v.partition("=")[2]) for v in values_of(text)] == values


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        ("A=9..1", "did you mean 1..9?"),
        ("A=0..8x2", "begins above 0"),
        ("A=1..8x1", "a factor is 2 or more"),
        ("A=1..8+0", "a step is 1 or more"),
        ("A=1..4,2", "keep one of the two"),
        (f"A=0..{MAX_VALUES}", "take fewer values"),
        ("A=1..99999999999999999x2,1..99999999999999", "take fewer values"),
        ("A=1..x", "for example --set A=8..32x2"),
        ("A=8,", "for example --set A=8..32x2"),
        ("A=8...32", "did you mean A=8..32?"),
        ("A=8..32*2", "did you mean A=8..32x2?"),
        ("A=x", "for example --set M=64"),
    ],
)
def test_what_is_no_range_is_refused(text: str, repair: str) -> None:
    with pytest.raises(HwgenError) as caught:
        values_of(text)
    assert caught.value.code == "H004"
    assert repair in caught.value.diagnostic.repair


def test_chips_have_the_figures_of_their_kernels(capsys: Text) -> None:
    found = explored([*KERNEL, *CHIPS], capsys)
    assert [c["set"] for c in found["chips"]] == [
        {"BATCH": b, "BLOCK_IN": i} for b in (1, 2) for i in (8, 16, 32)
    ]
    for chip in found["chips"]:
        settings = [f"--set={n}={v}" for n, v in chip["set"].items()]
        main(["generate", *KERNEL[1:-2], *settings, "--no-cache", "--json"])
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        assert chip["cycles"] == kernel["cycles"]
        assert chip["off_chip_bytes"] == kernel["off_chip_bytes"]
        assert chip["points"][0]["lower_bound_cycles"] == kernel["lower_bound_cycles"]
    values = [(c["cycles"], c["off_chip_bytes"]) for c in found["chips"]]
    assert [n for n, c in enumerate(found["chips"]) if c["best"]] == list(pareto(values))


def test_sensitivity_is_where_one_parameter_alone_differs(capsys: Text) -> None:
    found = explored([*KERNEL, *CHIPS], capsys)
    cycles = {tuple(c["set"].values()): c["cycles"] for c in found["chips"]}
    ratios = [
        max(cycles[1, i], cycles[2, i]) / min(cycles[1, i], cycles[2, i]) for i in (8, 16, 32)
    ]
    (mine,) = (
        e for e in found["sensitivity"] if (e["parameter"], e["objective"]) == ("BATCH", "cycles")
    )
    assert mine["factor"] == pytest.approx((ratios[0] * ratios[1] * ratios[2]) ** (1 / 3))
    assert mine["least"]["2"] == min(cycles[2, i] for i in (8, 16, 32))


def test_the_table_shows_the_front_and_what_has_no_kernel(capsys: Text) -> None:
    assert main([*KERNEL, "--set", "BATCH=1,2,99"]) == 0
    text = capsys.readouterr().out
    assert "vta, 3 chips, " in text
    assert any(line.split()[:1] == ["99"] and line.endswith("H111") for line in text.splitlines())
    assert "chips without a kernel: H111 1" in text
    assert main([*KERNEL, "--set", "BATCH=98,99"]) == 1


def test_all_sizes_of_all_workloads_count(capsys: Text) -> None:
    command = [*KERNEL[:5], "--workload", "add", "--set", "N=32", "--set", "K=32", "--jobs", "1"]
    found = explored([*command, "--set", "M=2,4", "--set", "BATCH=1,2"], capsys)
    for chip in found["chips"]:
        asked = [(p["workload"], p["set"]) for p in chip["points"]]
        assert asked[0] == ("gemm", {"M": 2})
        assert ("gemm", {"M": 4}) in asked
        assert {w for w, _ in asked} == {"gemm", "add"}
        assert chip["cycles"] == sum(p["cycles"] for p in chip["points"])
    assert len({(p["workload"], str(p["set"])) for p in found["chips"][0]["points"]}) == len(
        found["chips"][0]["points"]
    )


def test_nothing_in_the_file_is_computed_again(tmp_path: Path, capsys: Text) -> None:
    command = [*KERNEL, "--db", str(tmp_path / "new.db")]
    first = explored([*command, "--set", "BATCH=1,2"], capsys)
    assert first["run"] == {
        "computed": 2,
        "found": 0,
        "equal": 0,
        "lost_workers": 0,
        "late_workers": 0,
    }
    again = explored([*command, "--set", "BATCH=1,2,4"], capsys)
    assert again["run"] == {
        "computed": 1,
        "found": 2,
        "equal": 0,
        "lost_workers": 0,
        "late_workers": 0,
    }
    assert again["chips"][0]["cycles"] == first["chips"][0]["cycles"]
    other = explored([*command, "--set", "BATCH=1", "--objective", "traffic"], capsys)
    assert other["run"]["found"] == 0


def test_processes_and_their_number_change_nothing(capsys: Text) -> None:
    one = results([*KERNEL, *CHIPS], capsys)
    assert results([*KERNEL[:-1], "3", *CHIPS], capsys) == one


@WITH_CLUSTER
def test_a_cluster_finds_the_same() -> None:
    problem = Problem("gemm", (), (Layer("gemm", load_workload("gemm", {"N": 32, "K": 32})),))
    chips = [Chip((("BATCH", b),), load_hardware("vta", {"BATCH": b})) for b in (1, 2)]
    wanted = [(chip, problem) for chip in chips]
    with local_cluster() as workers, Store() as store:
        far = [*Explorer(workers, store, SearchOptions()).points(wanted)]
    with Processes(1) as workers, Store() as store:
        near = [*Explorer(workers, store, SearchOptions()).points(wanted)]
    assert far == near
    assert all(p.cycles for p in near)


def _killed(command: Sequence[str], file: Path, least: int) -> int:
    """Kill a command once so many results are in the file; returns how many there are."""
    arguments = [sys.executable, "-m", "hwgen", *command]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL) as running:
        end = time.monotonic() + 60
        while time.monotonic() < end and running.poll() is None:
            if file.exists() and _count(file) >= least:
                break
            time.sleep(0.01)
        children = _children(running.pid)
        running.send_signal(signal.SIGKILL)
    assert children
    while any(map(_runs, children)):  # They end by themselves; nobody waits for work for ever.
        assert time.monotonic() < end + 60
        time.sleep(0.05)
    return _count(file)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in found.split()]


def _runs(pid: int) -> bool:
    """Whether a process is there, and is not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except OSError:
        return False


def _count(file: Path) -> int:
    try:
        with sqlite3.connect(file) as sql:
            (count,) = sql.execute("SELECT count(*) FROM outcomes").fetchone()
    except sqlite3.OperationalError:  # Not yet made.
        return 0
    return count


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_killed_run_goes_on_and_is_equal_to_a_whole_one(tmp_path: Path, capsys: Text) -> None:
    file = tmp_path / "results.db"
    command = [*KERNEL[:-2], "--jobs", "2", *CHIPS, "--no-cache", "--db", str(file)]
    kept = _killed(command, file, 2)
    assert 2 <= kept < 6
    rest = explored(command, capsys)
    assert rest["run"] == {
        "computed": 6 - kept,
        "found": kept,
        "equal": 0,
        "lost_workers": 0,
        "late_workers": 0,
    }
    del rest["run"], rest["written"]
    assert rest == results([*KERNEL, *CHIPS, "--no-cache"], capsys)


def test_files_have_every_point(tmp_path: Path, capsys: Text) -> None:
    lines, page = tmp_path / "a" / "chips.csv", tmp_path / "chips.html"
    command = [*KERNEL, "--set", "BATCH=1,2,99", "--csv", str(lines), "--html", str(page)]
    found = explored(command, capsys)
    assert found["written"] == [str(lines), str(page)]
    with lines.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["BATCH"] for r in rows] == ["1", "2", "99"]
    assert [r["error"] for r in rows] == ["", "", "H111"]
    assert [int(r["cycles"]) for r in rows[:2]] == [c["cycles"] for c in found["chips"][:2]]
    text = page.read_text(encoding="utf-8")
    assert "BATCH=99" in text
    assert "{{" not in text.split("<script>")[0]


def test_every_chip_has_a_link_to_its_reports(tmp_path: Path, capsys: Text) -> None:
    page, folder = tmp_path / "chips.html", tmp_path / "chips_kernels"
    command = [*KERNEL, "--set", "BATCH=1,2,99", "--html", str(page)]
    assert main([*command, "--reports", "all"]) == 0
    assert "reports of kernels: 2 written, 0 there already" in capsys.readouterr().out
    files = sorted(p.name for p in folder.iterdir())
    text = page.read_text(encoding="utf-8")
    assert [f"chips_kernels/{name}" in text for name in files] == [True, True]
    assert 'href="chips_kernels/' in text
    first = (folder / files[0]).read_text(encoding="utf-8")
    assert "<h1>gemm <span>on vta</span></h1>" in first
    (folder / files[0]).unlink()
    assert main([*command, "--reports", "all"]) == 0
    assert "reports of kernels: 1 written, 1 there already" in capsys.readouterr().out
    assert (folder / files[0]).read_text(encoding="utf-8") == first
    assert main([*command]) == 0  # Without them the page says how to get them.
    assert "chips_kernels" not in page.read_text(encoding="utf-8")


def test_a_parameter_with_one_value_is_shown(tmp_path: Path, capsys: Text) -> None:
    page = tmp_path / "chips.html"
    command = [*KERNEL, "--set", "BATCH=1,2", "--set", "BLOCK_IN=8"]
    found = explored([*command, "--html", str(page), "--reports", "all"], capsys)
    assert [c["set"] for c in found["chips"]] == [{"BATCH": b, "BLOCK_IN": 8} for b in (1, 2)]
    assert {e["parameter"] for e in found["sensitivity"]} == {"BATCH"}
    assert len([*(tmp_path / "chips_kernels").iterdir()]) == 2
    assert main([*KERNEL, "--set", "READ_LATENCY=-5"]) == 1
    assert "the first of them, READ_LATENCY=-5\n" in capsys.readouterr().out


def test_reports_are_those_of_the_front(tmp_path: Path, capsys: Text) -> None:
    page = tmp_path / "chips.html"
    command = [*KERNEL, *CHIPS, "--html", str(page), "--reports", "front"]
    found = explored(command, capsys)
    best = sum(c["best"] for c in found["chips"])
    assert 0 < best < len(found["chips"])
    assert len([*(tmp_path / "chips_kernels").iterdir()]) == best


def test_reports_that_are_given_up_are_told(
    tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object, __: object, work: Sequence[Work]) -> list[tuple[int, Lost]]:
        return [(n, Lost(late=True)) for n in range(len(work))]

    command = [*KERNEL, "--set", "BATCH=1", "--html", str(tmp_path / "chips.html")]
    file = ["--db", str(tmp_path / "results.db")]
    assert main([*command, *file]) == 0
    monkeypatch.setattr(Processes, "run", lost)
    assert main([*command, *file, "--reports", "all"]) == 1
    assert "[H060]" in capsys.readouterr().err
    assert not (tmp_path / "chips_kernels").exists()


def test_parquet_has_the_lines_of_the_csv(tmp_path: Path, capsys: Text) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    lines, file = tmp_path / "chips.csv", tmp_path / "chips.parquet"
    command = [*KERNEL, "--set", "BATCH=1,2,99", "--csv", str(lines), "--parquet", str(file)]
    assert explored(command, capsys)["written"] == [str(lines), str(file)]
    made: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    with lines.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    assert [[*row] for row in made] == [[*row] for row in rows]
    assert [r["BATCH"] for r in made] == [1, 2, 99]
    assert [r["cycles"] for r in made] == [*(int(r["cycles"]) for r in rows[:2]), None]
    assert made[2]["error"] == "H111"
    assert [r["best"] for r in made] == [r["best"] == "yes" for r in rows]


def test_a_late_kernel_is_a_result_that_is_not_kept(
    tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(self: Processes, call: Any, work: Sequence[Work]) -> Any:
        self.lost = self.late = 2
        for number, one in enumerate(work):
            found = dict(one.hardware.parameters)["BATCH"] == 2
            yield number, Lost(late=True) if found else call(one)

    file = tmp_path / "results.db"
    command = [*KERNEL, "--set", "BATCH=1,2", "--db", str(file)]
    with monkeypatch.context() as patched:
        patched.setattr(Processes, "run", late)
        found = explored([*command, "--timeout", "60"], capsys)
    assert [c["error"] and c["error"]["code"] for c in found["chips"]] == [None, "H060"]
    assert (found["run"]["lost_workers"], found["run"]["late_workers"]) == (2, 2)
    assert not found["ok"]
    again = explored(command, capsys)
    assert (again["run"]["computed"], again["run"]["found"]) == (1, 1)
    assert [c["error"] for c in again["chips"]] == [None, None]


def written(folder: Path) -> Path:
    """A copy of a chip with a size, areas and energies."""
    data = cast("dict[str, Any]", read_document(ROOT / "hw_specs" / "vta.yaml").data)
    data["parameters"]["KIB"] = {"value": 32, "range": "1..256"}
    data["memories"]["inp"] |= {"size": "KIB KiB", "area": "0.01 + bytes / 1000000"}
    data["memories"]["dram"]["energy"] = {"read": 100, "write": 100}
    data["units"]["compute"]["area"] = "BLOCK_IN * BLOCK_OUT / 1000"
    path = folder / "sized.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_area_and_energy_are_objectives(tmp_path: Path, capsys: Text) -> None:
    chip = str(written(tmp_path))
    command = ["explore", "--spec", chip, *KERNEL[3:], "--set", "KIB=1..4x2"]
    found = explored([*command, "--objective", "cycles,energy,area"], capsys)
    assert [c["area_mm2"] for c in found["chips"]] == [
        pytest.approx(0.01 + kib * 1024 / 1e6 + 0.256) for kib in (1, 2, 4)
    ]
    assert all(c["energy_picojoules"] > 0 for c in found["chips"])
    assert found["objectives"] == ["cycles", "energy", "area"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--objective", "cycles,area"], "[H426]"),
        (["--objective", "energy"], "[H426]"),
        (["--set", "BATHC=1,2"], "[H005]"),
        (["--set", "BATCH=1,x"], "[H004]"),
        (["--set", "BATCH=1,2", "--set", "BATCH=1,2"], "[H004]"),
        (["--set", "BATCH=1", "--set", "spec.BATCH=2"], "[H004]"),
        (["--without", "softmax"], "[H004]"),
        (["--model", "none.tflite"], "[H001]"),
        (["--csv", str(Path(__file__) / "x.csv")], "[H009]"),
        (["--db", __file__], "[H047]"),
        (["--db", str(Path(__file__) / "x.db")], "[H047]"),
    ],
)
def test_wrong_inputs_have_a_code(arguments: list[str], said: str, capsys: Text) -> None:
    assert main([*KERNEL, *arguments]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--csv", "--html"])
def test_a_directory_is_refused_before_anything_is_compiled(
    option: str, tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("hwgen.cli.explore.explored")
    assert main([*KERNEL, option, str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "[H009]" in told
    assert "a directory has the file's name" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explore", "--spec", "vta"], "name a workload"),
        ([*KERNEL, "--objective", "cycels"], "cycles"),
        ([*KERNEL, "--objective", "cycles,cycles"], "each objective once"),
        ([*KERNEL, "--cluster", "tcp://127.0.0.1:9"], "its own workers"),
        ([*KERNEL, "--budget", "0"], "--budget"),
        ([*KERNEL, "--timeout", "0"], "--timeout"),
        ([*KERNEL, "--reports", "all"], "--html"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: Text) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("optuna", ["--budget", "1"]),
        ("distributed", ["--cluster", "tcp://127.0.0.1:9"]),
        ("pyarrow.parquet", ["--parquet", "chips.parquet"]),
    ],
)
def test_a_package_that_is_missing_is_named(
    package: str, arguments: list[str], capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    command = [*KERNEL[:-2], "--set", "BATCH=1,2", *arguments]
    assert main(command) == 1
    extra = {"optuna": "explore", "distributed": "cluster"}.get(package, "parquet")
    told = capsys.readouterr().err
    assert "[H046]" in told
    assert f"pip install 'hwgen[{extra}]'" in told


def test_a_database_of_another_program_stays_as_it_is(tmp_path: Path, capsys: Text) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as sql:
        sql.execute("CREATE TABLE mine (x)")
    before = file.read_bytes()
    assert main([*KERNEL, "--db", str(file)]) == 1
    assert "another program" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_damaged_outcome_is_told(tmp_path: Path, capsys: Text) -> None:
    file = tmp_path / "results.db"
    assert main([*KERNEL, "--db", str(file)]) == 0
    with sqlite3.connect(file) as sql:
        sql.execute('UPDATE outcomes SET outcome = \'{"cycles": "many"}\'')
    capsys.readouterr()
    assert main([*KERNEL, "--db", str(file)]) == 1
    assert "[H047]" in capsys.readouterr().err


def test_a_defect_is_a_result_that_is_not_kept(
    tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("hwgen.exploration.work.kernel_of", broken)
    file = tmp_path / "results.db"
    assert main([*KERNEL, "--db", str(file)]) == 1
    assert "internal error: KeyError: 'lost'" in capsys.readouterr().out
    assert _count(file) == 0


def test_a_defect_is_told_before_what_a_chip_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = load_workload("gemm", {"M": 2, "N": 32, "K": 32})
    other = replace(workload, name="other")

    def one_broken(work: Work) -> Outcome:
        if work.workload is other:
            return Outcome(refused=Refused(code="H000", message="internal error"))
        return Outcome(refused=Refused(code="H301", message="no intrinsic"))

    monkeypatch.setattr("hwgen.exploration.points.outcome_of", one_broken)
    network = Problem("net", (), (Layer("0 a", workload), Layer("1 b", other)), network=True)
    with Processes(1) as workers, Store() as store:
        explorer = Explorer(workers, store, SearchOptions())
        (point,) = explorer.points([(Chip((), load_hardware("vta")), network)])
    assert point.error is not None
    assert (point.error.code, point.error.field, point.refused) == ("H000", "1 b", 2)


def test_a_budget_takes_that_many_chips_and_always_the_same(capsys: Text) -> None:
    pytest.importorskip("optuna")
    command = [*KERNEL, "--set", "BATCH=1,2,4,8", "--set", "BLOCK_IN=8..64x2", "--budget", "5"]
    found = results(command, capsys)
    assert len({str(c["set"]) for c in found["chips"]}) == 5
    assert results([*command[:-4], *command[-4:]], capsys) == found
    every = results([*command[:-2], "--budget", "16"], capsys)
    assert len(every["chips"]) == 16
    known = {str(c["set"]): c["cycles"] for c in every["chips"]}
    assert all(known[str(c["set"])] == c["cycles"] for c in found["chips"])


def test_progress_is_that_of_the_whole_run(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    gemm = Problem("gemm", (), (Layer("gemm", load_workload("gemm", {"N": 32, "K": 32})),))
    axes = (Axis("READ_LATENCY", tuple(range(20, 40))),)
    space = Space(ROOT / "hw_specs" / "vta.yaml", axes, (), (gemm,))

    def told(budget: int) -> list[tuple[int, int]]:
        said: list[tuple[int, int]] = []

        def tell(done: int, of: int) -> None:
            said.append((done, of))

        with Processes(1) as workers, Store(tmp_path / "results.db") as store:
            explored_space(space, Plan(("cycles",), budget), workers, store, tell)
        return said

    assert told(10) == [(n, 10) for n in range(1, 11)]
    assert told(12) == [(11, 12), (12, 12)]  # Those in the file are done.


def test_a_sampler_that_repeats_itself_finds_others() -> None:
    pytest.importorskip("optuna")
    asked: list[tuple[int, ...]] = []

    def measured(wanted: Sequence[tuple[int, ...]]) -> list[tuple[float, ...] | None]:
        asked.extend(wanted)
        return [None if v == (2,) else (float(v[0]),) for v in wanted]

    guided([Axis("A", tuple(range(30)))], 29, 0, 1, measured)
    assert len(set(asked)) == len(asked) == 29


@WITH_READER
@pytest.mark.parametrize("chip", tiered(["cpu_generic", "vta"], ["cpu_generic"], values=True))
def test_a_network_takes_what_compile_says(
    chip: str, tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.tflite").write_bytes(small_network())
    main(["compile", "tiny.tflite", "--spec", chip, "--jobs", "1", "--json"])
    total = json.loads(capsys.readouterr().out)["total"]
    command = ["explore", "--spec", chip, "--model", "tiny.tflite", "--jobs", "1"]
    command += ["--db", "results.db", "--objective", "cycles"]
    (only,) = explored(command, capsys)["chips"]
    (point,) = only["points"]
    assert point["cycles"] == total["cycles"] == only["cycles"]
    assert point["off_chip_bytes"] == total["off_chip_bytes"]
    assert point["lower_bound_cycles"] == total["lower_bound_cycles"]
    first = point["layers"][0]
    kind = first["layer"].split()[1]
    less = explored([*command, "--without", kind], capsys)
    assert less["run"]["computed"] == 0
    assert less["chips"][0]["cycles"] <= only["cycles"] - first["cycles"]
