"""Files are written all or none, and never seen half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hwgen.cli import main
from hwgen.cli.pictures import Pictures
from hwgen.errors import HwgenError
from hwgen.report.output import check_folder, write_files


def test_files_are_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        path.write_bytes(b"y")

    folder = tmp_path / "a" / "b"
    write_files(folder, {"x.c": "int x;\n", "y.npy": save})
    assert sorted(p.name for p in folder.iterdir()) == ["x.c", "y.npy"]
    assert (folder / "x.c").read_bytes() == b"int x;\n"


def test_existing_files_are_replaced_and_others_kept(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("old")
    (tmp_path / "z").write_text("mine")
    write_files(tmp_path, {"x.c": "new"})
    assert (tmp_path / "x.c").read_text() == "new"
    assert (tmp_path / "z").read_text() == "mine"


def failing(path: Path) -> None:
    path.write_text("half")
    raise OSError(28, "No space left on device", str(path))


def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("old")
    with pytest.raises(HwgenError) as caught:
        write_files(tmp_path, {"x.c": "new", "y.c": failing})
    assert caught.value.code == "H009"
    assert [p.name for p in tmp_path.iterdir()] == ["x.c"]
    assert (tmp_path / "x.c").read_text() == "old"


def test_a_failure_removes_the_folders_it_made(tmp_path: Path) -> None:
    with pytest.raises(HwgenError):
        write_files(tmp_path / "a" / "b", {"y.c": failing})
    assert not list(tmp_path.iterdir())


def test_a_failure_that_is_no_error_of_the_system_leaves_nothing_either(tmp_path: Path) -> None:
    def interrupted(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, {"y.c": interrupted})
    assert not list(tmp_path.iterdir())


def test_a_directory_in_the_way_is_reported_before_anything_is_moved(tmp_path: Path) -> None:
    (tmp_path / "y.c").mkdir()
    with pytest.raises(HwgenError) as caught:
        write_files(tmp_path, {"x.c": "x", "y.c": "y"})
    assert caught.value.code == "H009"
    assert [p.name for p in tmp_path.iterdir()] == ["y.c"]


def test_a_file_where_the_folder_should_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "sub"):
        with pytest.raises(HwgenError) as caught:
            write_files(folder, {"x.c": "x"})
        assert caught.value.code == "H009"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HwgenError) as caught:
        write_files(tmp_path, {"x.c": "x"})
    assert caught.value.code == "H009"


def test_a_folder_is_checked_and_nothing_is_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "sub"):
        with pytest.raises(HwgenError) as caught:
            check_folder(folder)
        assert caught.value.code == "H009"
        assert caught.value.diagnostic.found.startswith(f"{tmp_path / 'file'}: ")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


GEMM = ("--spec", "vta", "--workload", "gemm")


@pytest.mark.parametrize(
    "command",
    [
        ("generate", *GEMM, "-o"),
        ("generate", *GEMM, "--report"),
        ("generate", *GEMM, "--trace"),
        ("simulate", *GEMM, "--output-dir"),
        ("simulate", *GEMM, "--report"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_said_before_the_work(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("compiled first")

    monkeypatch.setattr("hwgen.cli.generate._compile_all", worked)
    monkeypatch.setattr("hwgen.verify.examine.compile_case", worked)
    (tmp_path / "file").write_text("")
    assert main([*command, str(tmp_path / "file" / "out")]) == 1
    assert "error[H009]: cannot write the output" in capsys.readouterr().err


def test_a_plot_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worked(*_: object) -> None:
        raise AssertionError("compiled first")

    monkeypatch.setattr("hwgen.cli.sweep.problem_of", worked)
    (tmp_path / "file").write_text("")
    plot = str(tmp_path / "file" / "plot.svg")
    assert main(["generate", *GEMM, "--set", "M=1,2", "--plot", plot]) == 1
    assert "error[H009]: cannot write the output" in capsys.readouterr().err


def test_a_page_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(HwgenError) as caught:
        Pictures(report=tmp_path / "x.json").check()
    assert caught.value.code == "H009"
    assert caught.value.diagnostic.repair == f"write --report {tmp_path / 'x.html'}"
    (tmp_path / "x.json").mkdir()
    Pictures(report=tmp_path / "x.json", trace=tmp_path / "y.json").check()
