"""Files written all or none: made beside their place, then moved into it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from hwgen.errors import HwgenError, Location

Writer = Callable[[Path], None]

_SCRATCH = ".hwgen-"


def write_files(folder: Path, files: Mapping[str, str | Writer]) -> list[Path]:
    """Write texts, or call writers, under `folder`; created where it does not exist.

    Raises:
        HwgenError: H009 where something cannot be written; the folder is then as it was.
    """
    within = {p for name in files for p in (folder / name).parents if p.is_relative_to(folder)}
    folders = (*sorted(within, reverse=True), *folder.parents)
    new = [p for p in folders if not p.exists()]
    scratch: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder))
        for name, content in files.items():
            target = folder / name
            if target.is_dir():
                raise _is_directory(target)
            for place in (folder, scratch):
                (place / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                (scratch / name).write_text(content, encoding="utf-8", newline="\n")
            else:
                content(scratch / name)
        return [(scratch / name).replace(folder / name) for name in files]
    except OSError as error:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch = None
        for path in new:
            if path.is_dir():
                path.rmdir()
        raise _unwritable(folder, error) from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written before the work whose results go there.

    Raises:
        HwgenError: H009. Nothing is left either way, nor made of the folder.
    """
    place = next(p for p in (folder, *folder.parents) if os.path.exists(p))  # noqa: PTH110 - never raises
    try:
        Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=place)).rmdir()
    except OSError as error:
        raise _unwritable(folder, error) from error


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written, as `check_folder` does a folder.

    Raises:
        HwgenError: H009 as `check_folder`; a directory has the file's name.
    """
    check_folder(path.parent)
    if path.is_dir():
        raise _unwritable(path.parent, _is_directory(path))


def _is_directory(path: Path) -> OSError:
    return IsADirectoryError(21, "a directory has the file's name", str(path))


def _unwritable(folder: Path, error: OSError) -> HwgenError:
    where = Path(error.filename or folder)
    scratch = next((p for p in (where, *where.parents) if p.name.startswith(_SCRATCH)), None)
    if scratch is not None:
        where = scratch.parent / where.relative_to(scratch)
    return HwgenError(
        "H009",
        "cannot write the output",
        location=Location(str(folder)),
        found=f"{where}: {(error.strerror or type(error).__name__).lower()}",
        allowed="a folder that can be created or written",
        repair="choose another folder",
    )


def add_files(files: dict[str, str], kernel: str, own: Mapping[str, str]) -> None:
    """Add a kernel's files to those of others.

    Raises:
        HwgenError: H009 where another one has its name.
    """
    if not files.keys().isdisjoint(own):
        raise HwgenError(
            "H009",
            f"two workloads are called {kernel}",
            repair="compile them into different folders",
        )
    files.update(own)
