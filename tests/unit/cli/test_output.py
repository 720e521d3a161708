"""Files are written all or none, and never seen half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hwgen.cli.output import write_files
from hwgen.errors import HwgenError


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
