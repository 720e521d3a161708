"""Files by path or name, and the owner of every --set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hwgen
from hwgen.cli.resolve import Assignment, parse_assignments, resolve
from hwgen.errors import HwgenError
from hwgen.spec.find import find_spec, find_workload, nearest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one chip and two workloads, as the current one."""
    files = {
        "hw_specs/chip.yaml": "name: chip\nparameters: {BLOCK: 4, M: 2}\nmemories: {}\n",
        "workloads/one.yaml": "name: one\nsizes: {M: 8, N: 8, SHIFT: 1}\n",
        "workloads/two.json": '{"name": "two", "sizes": {"N": 3}}',
        "workloads/notes.txt": "no workload",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def code_of(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(HwgenError) as caught:
        call(*arguments)
    return caught.value.code


def test_assignments_are_parsed() -> None:
    assert parse_assignments(["M=4", " spec.B = -2 ", "workload.B=+7"]) == (
        Assignment("", "M", 4),
        Assignment("spec", "B", -2),
        Assignment("workload", "B", 7),
    )


@pytest.mark.parametrize(
    "text",
    ["", "M", "M=", "=3", "M=x", "M=1.5", "chip.M=1", "M N=1", "M=1;2", "M=" + "9" * 30, "Ä=1"],
)
def test_malformed_assignments_are_refused(text: str) -> None:
    assert code_of(parse_assignments, [text]) == "H004"


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        ("T=float16", "a data type is set by --dtype T=float16"),
        ("M=1,2", "one value; several go with generate"),
        ("M=x", "for example --set M=64"),
    ],
)
def test_what_another_option_takes_is_said(text: str, repair: str) -> None:
    with pytest.raises(HwgenError) as caught:
        parse_assignments([text])
    assert caught.value.diagnostic.repair == repair


def test_a_size_is_no_data_type() -> None:
    with pytest.raises(HwgenError) as caught:
        resolve("vta", ["gemm"], [], ["M=int8"])
    assert caught.value.code == "H005"
    assert caught.value.diagnostic.repair.endswith("M is a size, which --set sets")


@pytest.mark.usefixtures("project")
def test_a_workload_named_as_a_spec_is_said_to_be_one() -> None:
    with pytest.raises(HwgenError) as caught:
        find_spec("one")
    assert caught.value.diagnostic.repair == "one is a workload: --workload one"
    with pytest.raises(HwgenError) as caught:
        resolve("chip", ["chip.yaml"], [])
    assert caught.value.diagnostic.repair == "chip.yaml is a spec: --spec chip.yaml"


def test_an_owner_that_there_is_not_is_named() -> None:
    with pytest.raises(HwgenError) as caught:
        parse_assignments(["foo.M=4"])
    found = caught.value.diagnostic
    assert (found.code, found.message) == ("H004", "foo is neither spec nor workload")
    assert found.repair.startswith("--set M=4, or ")


def test_a_name_set_twice_is_refused() -> None:
    assert code_of(parse_assignments, ["M=1", "M=2"]) == "H004"


@pytest.mark.usefixtures("project")
def test_a_spec_is_found_by_name_and_by_path() -> None:
    for text in ("chip", "chip.yaml", "hw_specs/chip.yaml"):
        assert find_spec(text).samefile("hw_specs/chip.yaml")


def test_a_folder_called_like_a_chip_does_not_hide_it(project: Path) -> None:
    (project / "chip").mkdir()
    assert find_spec("chip").name == "chip.yaml"


@pytest.mark.parametrize("folder", ["", "hw_specs"])
@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_a_chip_here_hides_one_that_comes_with_hwgen(
    folder: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = find_spec("vta")
    assert theirs.is_absolute()
    assert theirs.name == "vta.yaml"
    mine = Path(folder) / f"vta{suffix}"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text('{"name": "vta", "memories": {}}')
    assert find_spec("vta") == mine


def test_a_file_here_comes_before_one_of_a_folder_here(project: Path) -> None:
    (project / "chip.yaml").write_text("name: chip\nmemories: {}\n")
    (project / "one.yaml").write_text("name: one\ntensors: {}\n")
    assert find_spec("chip") == Path("chip.yaml")
    assert find_workload("one") == Path("one.yaml")


def test_a_chip_here_hides_no_workload_of_its_name(project: Path) -> None:
    (project / "one.yaml").write_text("name: one\nmemories: {}\n")
    assert find_workload("one") == Path("workloads/one.yaml")
    assert find_spec("one") == Path("one.yaml")
    for text in ("memories: {\n", "nothing: that tells\n"):
        (project / "one.yaml").write_text(text)
        assert find_workload("one") == Path("workloads/one.yaml")


TRACE = '{"displayTimeUnit": "ms", "otherData": {"tensors": {}, "memories": {}}, "traceEvents": []}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("{}.json", TRACE),
        ("{}.json", json.dumps(json.loads(TRACE), indent=2)),
        ("{}.json", TRACE[:-20]),  # Not written to its end.
        ("{}.json", TRACE + " " * (1 << 19)),  # Too long for either.
        ("{}.json", '{"hwgen": 1, "command": "check", "memories": {}, "compute": []}'),
        ("{}.yaml", "report:\n  memories: {}\n  compute: []\n"),
        ("{}.yml", "- memories\n- compute\n"),
        ("{}.json", ""),
        ("{}", "#!/bin/sh\n"),  # A program that was made of the kernel's C.
    ],
)
def test_a_trace_report_or_record_here_is_no_chip_and_no_workload(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = find_spec("vta"), find_workload("gemm")
    for stem in ("vta", "gemm", "other"):
        Path(name.format(stem)).write_text(text)
    assert (find_spec("vta"), find_workload("gemm")) == shipped
    named = [w.path.stem for w in resolve("vta", [], []).workloads]
    assert "gemm" in named
    assert "other" not in named
    path = Path(name.format("gemm"))
    assert find_workload(str(path)) == (path if path.suffix else shipped[1])


def test_a_name_that_only_a_trace_has_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text(TRACE)
    with pytest.raises(HwgenError) as caught:
        find_workload("mine")
    found = caught.value.diagnostic
    assert (found.code, found.found) == (
        "H003", "mine, and mine.json here, which has neither tensors nor compute",
    )  # fmt: skip
    assert found.repair == "name mine.json with its ending, to see what it lacks"


@pytest.mark.parametrize("folder", ["", "workloads"])
def test_a_trace_beside_a_workload_does_not_hide_it(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = Path(folder) / "mine.yaml"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("name: mine\ntensors: {}\n")
    mine.with_suffix(".json").write_text(TRACE)
    assert find_workload("mine") == mine
    assert mine in [w.path for w in resolve("vta", [], []).workloads]


@pytest.mark.parametrize(
    "text",
    [
        "name: mine\ncompute: [\n",
        '{"name": "mine", "compute": [',
        "# A comment\n\n{name: mine, tensors: {}}\n",
        '\ufeff"tensors" : {}\n',
        "---\n  name: mine\n  tensors: {}\n",
        "memories: {}\ntensors: {}\n",
    ],
)
def test_a_workload_here_may_be_broken(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by its name, so that its errors are told."""
    monkeypatch.chdir(tmp_path)
    Path("gemm.yaml").write_text(text, encoding="utf-8")
    assert find_workload("gemm") == Path("gemm.yaml")


def test_a_mistyped_name_of_a_file_here_is_repaired(project: Path) -> None:
    (project / "engine.yaml").write_text("name: engine\nmemories: {}\n")
    with pytest.raises(HwgenError) as caught:
        find_spec("engin")
    assert caught.value.diagnostic.repair == "did you mean engine?"


def test_only_files_that_are_chips_are_named(project: Path) -> None:
    """Other YAML stays out, in the current folder and in hw_specs/."""
    for name in ("settings.yaml", "hw_specs/settings.yaml", "hw_specs/one.yaml"):
        (project / name).write_text("a: 1\n")
    for text in ("settinks", "hw_specs"):
        with pytest.raises(HwgenError) as caught:
            find_spec(text)
        found = caught.value.diagnostic
        assert found.allowed.startswith("a path, or one of: apple_amx, arm_neon, chip, ")
        assert "settings" not in found.allowed + found.repair


@pytest.mark.usefixtures("project")
def test_python_finds_by_name_too() -> None:
    assert hwgen.load_hardware("vta").name == "vta"
    assert hwgen.load_workload("gemm").name == "gemm"
    with pytest.raises(HwgenError) as caught:
        hwgen.load_workload("gem")
    assert (caught.value.code, caught.value.diagnostic.repair) == ("H003", "did you mean gemm?")
    with pytest.raises(HwgenError) as caught:
        hwgen.load_hardware(Path("vta"))
    assert caught.value.code == "H002"


@pytest.mark.usefixtures("project")
def test_an_unknown_spec_names_the_nearest() -> None:
    with pytest.raises(HwgenError) as caught:
        find_spec("chap")
    assert caught.value.code == "H003"
    assert caught.value.diagnostic.repair == "did you mean chip?"


@pytest.mark.parametrize(
    ("text", "close"),
    [
        ("quantized/conv2d", "quantised/conv2d"),
        ("fully_connect", "quantised/fully_connected"),
        ("softmax.yaml", "quantised/softmax"),
        ("gem", "gemm"),
    ],
)
def test_workloads_in_folders_are_named_too(text: str, close: str) -> None:
    with pytest.raises(HwgenError) as caught:
        find_workload(text)
    found = caught.value.diagnostic
    assert found.repair == f"did you mean {close}?"
    assert ", relu, quantised/add, quantised/average_pool, " in found.allowed


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("text", "code"), [("workloads", "H001"), ("", "H003"), ("a/b", "H003")])
def test_what_is_no_file_is_refused(text: str, code: str) -> None:
    assert code_of(find_spec, text) == code


def test_a_name_may_have_a_folder(project: Path) -> None:
    (project / "workloads" / "small").mkdir()
    (project / "workloads" / "small" / "three.yaml").write_text("name: three\n")
    for text in ("small/three", "small/three.yaml"):
        assert find_workload(text) == Path("workloads/small/three.yaml")
    shipped = find_workload("quantised/conv2d")
    assert shipped.is_file()
    assert shipped.parts[-3:] == ("workloads", "quantised", "conv2d.yaml")
    assert code_of(find_workload, "small/four") == "H003"
    assert code_of(find_workload, str(project / "small" / "three")) == "H003"


@pytest.mark.usefixtures("project")
def test_every_workload_is_taken_when_none_is_named() -> None:
    request = resolve("chip", [], [])
    assert request.every
    assert [w.path.name for w in request.workloads] == ["one.yaml", "two.json"]


def test_workloads_here_are_taken_too_and_first(project: Path) -> None:
    (project / "one.yaml").write_text("name: one\ntensors: {}\n")
    (project / "three.yaml").write_text("name: three\ntensors: {}\n")
    (project / "mine.yaml").write_text("name: mine\nmemories: {}\n")
    paths = [w.path for w in resolve("chip", [], []).workloads]
    assert paths == [Path("one.yaml"), Path("three.yaml"), Path("workloads/two.json")]


@pytest.mark.usefixtures("project")
def test_a_workload_named_twice_is_taken_once() -> None:
    assert len(resolve("chip", ["one", "workloads/one.yaml"], []).workloads) == 1


@pytest.mark.usefixtures("project")
def test_each_setting_goes_to_whoever_has_the_name() -> None:
    request = resolve("chip", [], ["BLOCK=8", "N=5", "SHIFT=3"])
    assert request.parameters == (("BLOCK", 8),)
    assert [w.sizes for w in request.workloads] == [(("N", 5), ("SHIFT", 3)), (("N", 5),)]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "settings", [["workload.N=5", "N=5"], ["N=5", "workload.N=6"], ["BLOCK=8", "spec.BLOCK=8"]]
)
def test_a_name_set_with_and_without_its_owner_is_refused(settings: list[str]) -> None:
    assert code_of(resolve, "chip", ["one"], settings) == "H004"


@pytest.mark.usefixtures("project")
def test_a_name_that_both_have_needs_a_prefix() -> None:
    with pytest.raises(HwgenError) as caught:
        resolve("chip", ["one"], ["M=4"])
    assert caught.value.code == "H006"
    assert caught.value.diagnostic.repair == "write spec.M=4 or workload.M=4"
    assert resolve("chip", ["one"], ["spec.M=4"]).parameters == (("M", 4),)
    assert resolve("chip", ["one"], ["workload.M=4"]).workloads[0].sizes == (("M", 4),)
    assert resolve("chip", ["two"], ["M=4"]).parameters == (("M", 4),)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("text", "repair"),
    [
        ("SHIF=2", "did you mean SHIFT=2?"),
        ("block=2", "did you mean BLOCK=2?"),
        ("spec.SHIFT=2", ""),
        ("workload.BLOCK=2", ""),
    ],
)
def test_a_name_that_nobody_has_is_refused(text: str, repair: str) -> None:
    with pytest.raises(HwgenError) as caught:
        resolve("chip", ["one"], [text])
    assert caught.value.code == "H005"
    assert caught.value.diagnostic.repair == repair


def test_the_nearest_name_ignores_case() -> None:
    assert nearest("shift", ["SHIFT", "M"]) == "SHIFT"
    assert nearest("zzz", ["SHIFT", "M"]) == ""
