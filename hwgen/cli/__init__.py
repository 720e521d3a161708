"""The command line. `main` is the console script; commands live in `app`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from hwgen.cli.signals import TerminatedError, handled

INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143
"""128 + the signal's number, as a shell reports it."""

COLLECTED_AFTER = 200_000
"""New objects after which cyclic garbage is looked for: most of what a command makes stays."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit status.

    0: done. 1: an error that was reported, or a check that failed. 2: wrong usage.
    130: interrupted. 141: the reader of standard output went away. 143: terminated.
    """
    try:
        with handled():
            return _run(arguments)
    except KeyboardInterrupt:  # While it began or ended.
        return INTERRUPTED
    except TerminatedError:
        return TERMINATED


def _run(arguments: Sequence[str] | None) -> int:
    gc.set_threshold(COLLECTED_AFTER)
    if sys.__stderr__ is None:  # Closed by the caller: what is written is lost, and no failure.
        _to_null_device(2)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    if sys.__stdout__ is None:
        sys.stderr.write("error[H009]: cannot write standard output: it is closed\n")
        return 1
    try:
        for stream in (sys.stdout, sys.stderr):
            # A terminal without UTF-8 gets escapes instead of an encoding error.
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

        from hwgen.cli.app import app
        from hwgen.cli.complete import rejoin

        rejoin(os.environ)
        app(args=None if arguments is None else list(arguments), prog_name="hwgen")
        status = 0  # Not reached by a typer application: it always exits.
    except SystemExit as exit_request:
        code = exit_request.code
        status = code if isinstance(code, int) else int(code is not None)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:  # Only help and the version are written outside a command's guard.
        return _unwritable(error)
    return _flush(status)


def _flush(status: int) -> int:
    """Write what is left now: at interpreter shutdown a failure could only print a traceback."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        lost = _unwritable(error)
        return status or lost
    return status


def _unwritable(error: OSError) -> int:
    """Say that standard output cannot be written; the exit status for it."""
    discard_output()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    reason = (error.strerror or type(error).__name__).lower()
    os.write(2, f"error[H009]: cannot write standard output: {reason}\n".encode())
    return 1


def discard_output() -> None:
    """Point standard output at the null device, so that nothing later fails on it."""
    _to_null_device(1)


def _to_null_device(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
