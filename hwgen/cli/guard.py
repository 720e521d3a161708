"""Every way a command can fail, as an exit status and one message."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import typer

from hwgen.cli import BROKEN_PIPE, INTERRUPTED, TERMINATED, discard_output
from hwgen.cli.signals import TerminatedError
from hwgen.errors import Diagnostic, HwgenError, Location

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Failures of writing alone; most often of standard output, which has no name."""


@contextmanager
def guarded(json_of: str = "") -> Generator[None, None, None]:
    """Turn exceptions of a command's body into a message on standard error and an exit status.

    `json_of`: the command's name where errors are to be one object on standard output instead.
    """
    try:
        yield
    except typer.Exit:
        raise
    except TerminatedError:
        fail("terminated", TERMINATED)
    except HwgenError as error:
        report(error.diagnostics, json_of)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except MemoryError:
        repair = "smaller sizes, with --set; or a machine with more memory"
        report([Diagnostic("H792", "out of memory", repair=repair)], json_of)
    except OSError as error:
        if error.errno in _NO_ROOM and not error.filename:
            discard_output()
            fail(f"error[H009]: cannot write the output: {os.strerror(error.errno).lower()}")
        where = Location(str(error.filename)) if error.filename else None
        reason = error.strerror or type(error).__name__
        report([Diagnostic("H001", f"{reason[0].lower()}{reason[1:]}", where)], json_of)
    except Exception as error:  # A defect of hwgen: the user gets one line, not our stack.
        if os.environ.get("HWGEN_TRACEBACK"):
            traceback.print_exc()
        text = " ".join(str(error).split())[:300]
        said = f"internal error: {type(error).__name__}{': ' if text else ''}{text}"
        repair = "report it with this command; HWGEN_TRACEBACK=1 shows where it happened"
        report([Diagnostic("H000", said, repair=repair)], json_of)


def report(diagnostics: Sequence[Diagnostic], json_of: str) -> NoReturn:
    """Say what is wrong, as text or as JSON, and leave with status 1.

    Raises:
        typer.Exit: always.
    """
    if json_of:
        from hwgen.cli.records import print_record

        print_record(json_of, ok=False, errors=diagnostics)
        raise typer.Exit(1) from None
    from hwgen.cli.shown_errors import shown, wants_colour

    fail(shown(diagnostics, colour=wants_colour()))


def fail(message: str, status: int = 1) -> NoReturn:
    """Print a message to standard error and leave.

    Raises:
        typer.Exit: always.
    """
    sys.stdout.flush()
    sys.stderr.write(message + "\n")
    raise typer.Exit(status) from None
