"""Reading what a user names: files alone, of a bounded size, without ever waiting for anybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hwgen.errors import HwgenError, Location

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file, `most` at most.

    Where a pipe is opened or read, the process waits, and an interrupt that comes just before is
    seen only afterwards, so that nothing but a regular file is read.

    Raises:
        HwgenError: H001 it cannot be read, or is no regular file; H013 it is larger.
    """
    try:
        # Without waiting for the other end of a pipe; on Windows the bytes as they are.
        flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, os.O_RDONLY | flags)
        with os.fdopen(descriptor, "rb") as stream:
            check_regular(path, os.fstat(descriptor).st_mode)
            raw = stream.read(most + 1)
    except IsADirectoryError as problem:
        raise _no_file(path, "a directory") from problem
    except OSError as problem:
        reason = (problem.strerror or type(problem).__name__).lower()
        link = f"a link to {path.readlink()}" if path.is_symlink() else ""
        raise HwgenError(
            "H001", f"cannot read the file: {reason}", location=Location(str(path)), found=link
        ) from problem
    if len(raw) > most:
        raise HwgenError(
            "H013", "the input is too large", location=Location(str(path)),
            found=f"more than {most} bytes", allowed=f"at most {most} bytes",
        )  # fmt: skip
    return raw


def check_regular(path: Path, mode: int) -> None:
    """Raises:
    HwgenError: H001 where a file of this mode is not a regular one.
    """
    for holds, kind in _KINDS:
        if holds(mode):
            raise _no_file(path, kind)


def _no_file(path: Path, kind: str) -> HwgenError:
    return HwgenError(
        "H001", "cannot read the file: it is none", location=Location(str(path)), found=kind,
        allowed="a file", repair="write the text to a file, and name that",
    )  # fmt: skip
