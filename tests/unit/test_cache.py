"""Schedules kept on disk: found again by content only, checked when read, never in the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hwgen
from hwgen.cli import main
from hwgen.model.folders import FOLDER_VARIABLE, cache_folder
from hwgen.passes import phase
from hwgen.passes.cache import ScheduleCache, canonical, content_key
from hwgen.passes.phase import Kernel, SearchOptions
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.sampling import tiered

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "hw_specs" / "vta.yaml"
GEMM = ROOT / "workloads" / "gemm.yaml"
SIZES = {"M": 2, "N": 32, "K": 32}
COMMAND = f"--spec {SPEC} --workload {GEMM} --set M=2 --set N=32 --set K=32".split()
Text = pytest.CaptureFixture[str]
Edit = Callable[[dict[str, Any]], object]


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(SPEC)


@cache
def workload() -> Workload:
    return hwgen.load_workload(GEMM, SIZES)


def compiled(folder: Path) -> Kernel:
    options = SearchOptions(cache=ScheduleCache(folder))
    return hwgen.compile_kernel(workload(), chip(), options=options)


@cache
def fresh() -> Kernel:
    return hwgen.compile_kernel(workload(), chip())


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every search that is made."""
    made: list[int] = []
    search = phase.search

    def counted(*arguments: Any, **named: Any) -> Any:
        made.append(1)
        return search(*arguments, **named)

    monkeypatch.setattr(phase, "search", counted)
    return made


def test_a_kept_schedule_replaces_the_search(tmp_path: Path, searches: list[int]) -> None:
    first = compiled(tmp_path / "new" / "folder")
    made = len(searches)
    again = compiled(tmp_path / "new" / "folder")
    assert made > 0
    assert len(searches) == made
    for stage in first.artefacts():
        assert first.stage(stage) == again.stage(stage) == fresh().stage(stage)


def test_the_library_keeps_nothing_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    hwgen.compile_kernel(workload(), chip())
    assert not list(tmp_path.iterdir())


def test_keys_depend_on_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = content_key(workload(), chip())
    moved = tmp_path / "moved.yaml"
    moved.write_text("# another line\n" + SPEC.read_text(encoding="utf-8"), encoding="utf-8")
    assert content_key(workload(), hwgen.load_hardware(moved)) == key
    others = {
        content_key(workload(), hwgen.load_hardware(SPEC, {"BATCH": 2})),
        content_key(workload(), hwgen.load_hardware(SPEC, {"READ_LATENCY": 21})),
        content_key(hwgen.load_workload(GEMM, SIZES | {"M": 5}), chip()),
        content_key(workload(), chip(), "an option"),
    }
    monkeypatch.setattr("hwgen.passes.cache.package_hash", lambda: "changed")
    others.add(content_key(workload(), chip()))
    assert len(others | {key}) == 6


def test_canonical_text_leaves_out_places_and_orders() -> None:
    assert canonical({"b": (1, None), "a": [2.0]}) == canonical({"a": [2.0], "b": (1, None)})
    assert canonical(frozenset({"b", "a"})) == "{'a','b'}"
    assert canonical(("1",)) != canonical((1,))
    assert canonical(chip().location) == ""
    with pytest.raises(AssertionError, match="no canonical text"):
        canonical(object())


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"check": 1}', b"[" * 100_000]
)
def test_a_damaged_file_is_ignored_and_rewritten(
    content: bytes, tmp_path: Path, searches: list[int]
) -> None:
    compiled(tmp_path)
    path = only_file(tmp_path)
    good = path.read_bytes()
    path.write_bytes(content)
    made = len(searches)
    assert compiled(tmp_path).cycles == fresh().cycles
    assert len(searches) > made
    assert path.read_bytes() == good
    assert only_file(tmp_path) == path


def test_one_changed_character_is_noticed(tmp_path: Path, searches: list[int]) -> None:
    compiled(tmp_path)
    path = only_file(tmp_path)
    good = path.read_text(encoding="utf-8")
    path.write_text(good.replace('"group":0', '"group":1'), encoding="utf-8")
    made = len(searches)
    assert compiled(tmp_path).stage("schedule") == fresh().stage("schedule")
    assert len(searches) > made


EDITS: dict[str, Edit] = {
    "tile too large": lambda e: e["tiles"][0].__setitem__(1, 1000),
    "tile of nothing": lambda e: e["tiles"][0].__setitem__(1, 0),
    "another tile": lambda e: e["tiles"].__setitem__(0, ["k", 1]),
    "unknown loop": lambda e: e["tiles"][0].__setitem__(0, "q"),
    "order twice": lambda e: e["order"].append(e["order"][0]),
    "order missing": lambda e: e["order"].clear(),
    "depth too deep": lambda e: e["depths"][0].__setitem__(1, 9),
    "slots": lambda e: e["slots"][0].__setitem__(1, 5),
    "storage missing": lambda e: e["slots"].pop(),
    "match": lambda e: e.__setitem__("match", 7),
    "group": lambda e: e.__setitem__("group", 1),
    "negative group": lambda e: e.__setitem__("group", -2),
    "match text": lambda e: e.__setitem__("match_text", ""),
    "type": lambda e: e.__setitem__("group", "0"),
    "extra": lambda e: e.__setitem__("more", 1),
    "format": lambda e: e.__setitem__("format", 1),
    "larger tiles": lambda e: e["outer"].append(["m", 2]),
    "parts": lambda e: e.__setitem__("parts", True),
    "key": lambda e: e.__setitem__("key", "0" * 64),
    "cycles": lambda e: e["counts"].__setitem__("cycles", 1),
}


@pytest.mark.parametrize("name", tiered([*EDITS], [*EDITS][::6]))
def test_a_file_that_does_not_fit_is_ignored(
    name: str, tmp_path: Path, searches: list[int]
) -> None:
    compiled(tmp_path)
    path = only_file(tmp_path)
    good = path.read_bytes()
    entry: dict[str, Any] = json.loads(good)["entry"]
    EDITS[name](entry)
    body = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    check = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(json.dumps({"check": check, "entry": entry}), encoding="utf-8")
    made = len(searches)
    again = compiled(tmp_path)
    assert len(searches) > made
    assert again.stage("schedule") == fresh().stage("schedule")
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert compiled(blocked / "below").cycles == fresh().cycles
    assert blocked.read_text() == "not a folder"


def test_a_search_that_was_cut_short_is_not_kept(tmp_path: Path) -> None:
    options = SearchOptions(seconds=0.0, cache=ScheduleCache(tmp_path))
    cut = hwgen.compile_kernel(workload(), chip(), options=options)
    assert not cut.account.search.exhausted
    assert not list(tmp_path.iterdir())


def test_the_command_line_keeps_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text, searches: list[int]
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    command = ["generate", *COMMAND, "--stage", "schedule"]
    assert main([*command, "--no-cache"]) == 0
    assert not list(tmp_path.iterdir())
    text = capsys.readouterr().out
    assert main(command) == 0
    assert len(list(tmp_path.iterdir())) == 1
    made = len(searches)
    assert main(command) == 0
    assert main(["simulate", *COMMAND]) == 0
    assert len(searches) == made
    assert capsys.readouterr().out.startswith(text + text)
    assert main([*command, "--no-cache"]) == 0
    assert len(searches) > made


def test_the_command_line_limits_a_search(capsys: Text) -> None:
    command = ["generate", *COMMAND, "--stage", "schedule", "--no-cache"]
    assert main([*command, "--search-seconds", "0"]) == 0
    assert "time limit of 0 s" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--search-seconds", "3600"]) == 0
    assert "all of the space" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--search-seconds", "-1"]) == 2


def test_where_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv(FOLDER_VARIABLE, "/some/where")
    assert cache_folder() == Path("/some/where")
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert cache_folder() is None
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/hwgen")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/someone/.cache/hwgen")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/someone/.cache/hwgen")
