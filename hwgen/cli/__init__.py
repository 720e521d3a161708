"""The command line. `main` is the console script; commands live in `app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
BROKEN_PIPE = 141
"""128 + the signal's number, as a shell reports it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit status.

    0: done. 1: an error that was reported, or a check that failed. 2: wrong usage.
    130: interrupted. 141: the reader of standard output went away.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            # A terminal without UTF-8 gets escapes instead of an encoding error.
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

        from hwgen.cli.app import app

        app(args=None if arguments is None else list(arguments), prog_name="hwgen")
        status = 0  # Not reached by a typer application: it always exits.
    except SystemExit as exit_request:
        code = exit_request.code
        status = code if isinstance(code, int) else int(code is not None)
    except KeyboardInterrupt:
        status = INTERRUPTED
    return _flush(status)


def _flush(status: int) -> int:
    """Write what is left now: at interpreter shutdown a failure could only print a traceback."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        discard_output()
        return status or BROKEN_PIPE
    except OSError as error:
        discard_output()
        os.write(2, f"error[H009]: cannot write standard output: {error.strerror}\n".encode())
        return status or 1
    return status


def discard_output() -> None:
    """Point standard output at the null device, so that nothing later fails on it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
