"""Where hwgen keeps what it can make again."""

from __future__ import annotations

import os
import sys
import tempfile
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


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())
