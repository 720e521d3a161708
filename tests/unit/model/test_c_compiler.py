"""Libraries from C text: which compiler makes them, where they are kept, damage."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.model import c_compiler
from hwgen.model.c_compiler import find_compiler, have_compiler, load_library
from hwgen.model.folders import FOLDER_VARIABLE, trim, used

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

FLAGS = ("-std=c11", "-O1")


def answer(number: int, *, fresh: bool = True) -> int:
    """What a library that is loaded as if by a new process says."""
    if fresh:
        c_compiler._loaded.clear()  # pyright: ignore[reportPrivateUsage]
    return load_library(f"int answer(void) {{ return {number}; }}", "answer", FLAGS).answer()


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "changed"])
def test_a_damaged_library_is_made_anew(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert answer(41) == 41
    (kept,) = tmp_path.glob("*.so")
    whole = kept.read_bytes()
    middle = len(whole) // 2
    damaged = {
        "empty": b"",
        "cut": whole[:middle],
        "text": b"not a library",
        "changed": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
    }
    # Another file in its place: the one that is loaded stays as it is.
    kept.unlink()
    kept.write_bytes(damaged[damage])
    assert answer(41) == 41
    assert kept.read_bytes() == whole


def test_a_kept_library_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert answer(42) == 42

    def refuse(*_: object) -> Path:
        raise AssertionError("compiled again")

    monkeypatch.setattr(c_compiler, "_compile", refuse)
    assert answer(42) == 42


def test_no_cache_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, scratch = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert answer(43) == 43
    assert answer(43, fresh=False) == 43
    assert list(home.iterdir()) == list(scratch.iterdir()) == []


def test_every_word_of_cc_and_cflags_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = find_compiler()
    assert compiler is not None
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\necho "$1" >> "$(dirname "$0")/said"\nexec "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    monkeypatch.setenv("CC", f"{wrapper} {compiler[0]} -DNUMBER=44")
    monkeypatch.setenv("CFLAGS", "-DOTHER='1 + 1'")
    text = "int answer(void) { return NUMBER + OTHER; }"
    assert load_library(text, "answer", FLAGS).answer() == 46
    assert compiler[0] in (tmp_path / "said").read_text()


@pytest.mark.parametrize("variable", ["CC", "CFLAGS"])
def test_an_open_quotation(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "gcc 'open")
    with pytest.raises(HwgenError) as raised:
        answer(45)
    assert raised.value.code == "H706"
    assert variable in str(raised.value)


def test_a_compiler_that_is_named_and_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "nocc -O1")
    with pytest.raises(HwgenError, match="CC names no program") as refused:
        find_compiler()
    assert (refused.value.code, refused.value.diagnostic.found) == ("H703", "CC=nocc")
    monkeypatch.setenv("CC", "")
    found = find_compiler()
    assert found is not None
    assert shutil.which(found[0])


def test_a_folder_keeps_what_was_used_last(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.so"
        path.write_bytes(b"x" * 100)
        os.utime(path, (number, number))
    used(tmp_path / "0.so")
    trim(tmp_path, 250)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.so", "4.so"]
    trim(tmp_path / "none", 0)
