"""Signals: an interrupt is never lost, and being terminated is no other end than it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import NoReturn


class TerminatedError(BaseException):
    """What SIGTERM raises, so that processes that were started are stopped too.

    No `SystemExit`: Hypothesis, in whose examples `verify` spends its time, counts one as a failure
    of the example, and would run that again.
    """


def _send(number: int) -> None:
    """A signal to this process, which on POSIX ends what its main thread waits for."""
    if sys.platform == "win32":  # There `kill` ends the process, whatever the signal.
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)


def _resend(
    lost: SimpleQueue[sys.UnraisableHookArgs | None],
    ignored: Callable[[sys.UnraisableHookArgs], object],
) -> None:
    """Send the signals whose exceptions were lost again; `ignored` has the other exceptions."""
    while (one := lost.get()) is not None:
        if issubclass(one.exc_type, KeyboardInterrupt):
            _send(signal.SIGINT)
        elif issubclass(one.exc_type, TerminatedError):
            _send(signal.SIGTERM)
        else:
            ignored(one)


@contextmanager
def handled() -> Generator[None, None, None]:
    """While a command runs, SIGTERM raises, and a signal whose exception comes up where Python can
    only ignore it, as in the callbacks of imports, is sent again.

    Raises:
        KeyboardInterrupt: one was lost at the very end.
        TerminatedError: SIGTERM.
    """

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise TerminatedError

    lost: SimpleQueue[sys.UnraisableHookArgs | None] = SimpleQueue()
    ignored = sys.unraisablehook
    watcher = Thread(target=_resend, args=(lost, ignored), daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGTERM, terminate)
    # The hook is C code: no signal's exception can come up in it, and be lost there.
    sys.unraisablehook = lost.put
    try:
        yield
    finally:
        sys.unraisablehook = ignored
        lost.put(None)
        try:
            watcher.join()
        finally:
            signal.signal(signal.SIGTERM, before)
