"""Every way a command can fail, as an exit status and one message."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import typer

from hwgen.cli import BROKEN_PIPE, INTERRUPTED, TERMINATED, discard_output
from hwgen.cli.signals import TerminatedError
from hwgen.errors import HwgenError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Failures of writing alone; most often of standard output, which has no name."""


@contextmanager
def guarded() -> Generator[None, None, None]:
    """Turn exceptions of a command's body into a message on standard error and an exit status."""
    try:
        yield
    except typer.Exit:
        raise
    except TerminatedError:
        fail("terminated", TERMINATED)
    except HwgenError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except MemoryError:
        fail(
            "error[H792]: out of memory\n"
            "  repair:  smaller sizes, with --set; or a machine with more memory"
        )
    except OSError as error:
        if error.errno in _NO_ROOM and not error.filename:
            discard_output()
            fail(f"error[H009]: cannot write the output: {os.strerror(error.errno).lower()}")
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or type(error).__name__
        fail(f"{where}error[H001]: {reason[0].lower()}{reason[1:]}")
    except Exception as error:  # A defect of hwgen: the user gets one line, not our stack.
        if os.environ.get("HWGEN_TRACEBACK"):
            traceback.print_exc()
        text = " ".join(str(error).split())[:300]
        fail(
            f"error[H000]: internal error: {type(error).__name__}{': ' if text else ''}{text}\n"
            "  repair:  report it with this command; HWGEN_TRACEBACK=1 shows where it happened"
        )


def fail(message: str, status: int = 1) -> NoReturn:
    """Print a message to standard error and leave.

    Raises:
        typer.Exit: always.
    """
    sys.stdout.flush()
    sys.stderr.write(message + "\n")
    raise typer.Exit(status) from None
