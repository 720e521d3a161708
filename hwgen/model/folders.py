"""Where hwgen keeps what it can make again."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

FOLDER_VARIABLE = "HWGEN_CACHE_DIR"
"""Environment variable that names the folder; set to nothing, there is no cache."""


def cache_folder() -> Path | None:
    """The user's folder for caches, or what `HWGEN_CACHE_DIR` names; None where that is empty."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = str(Path("~/Library/Caches").expanduser())
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path there is to be ignored, says the XDG base directory specification.
    return (Path(base) if Path(base).is_absolute() else _home() / ".cache") / "hwgen"


MOST_BYTES = 256 << 20
"""Kept in one folder; past that, files go, those used longest ago first."""


def trim(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove the files used longest ago until the others have at most `most` bytes."""
    with suppress(OSError):
        files = [(e.stat(), Path(e.path)) for e in os.scandir(folder) if e.is_file()]
        left = sum(s.st_size for s, _ in files)
        for stat, path in sorted(files, key=lambda f: (f[0].st_mtime_ns, f[1])):
            if left <= most:
                break
            left -= stat.st_size
            with suppress(OSError):
                path.unlink()


def used(path: Path) -> None:
    """Note that a file was used, so that it is not the next to go."""
    with suppress(OSError):
        os.utime(path)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())
