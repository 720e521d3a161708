"""Signals: an interrupt is never lost, and being terminated is no other end than it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer
from typing import NoReturn

AGAIN_SECONDS = 0.01
"""After this long, an interrupt that was lost comes once more."""


class TerminatedError(SystemExit):
    """What SIGTERM raises, so that processes that were started are stopped too."""


def _send(number: int) -> None:
    """A signal to this process, and on POSIX to whatever its main thread waits for."""
    if sys.platform == "win32":  # There `kill` ends the process, whatever the signal.
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)


@contextmanager
def handled(terminated: int) -> Generator[None, None, None]:
    """While a command runs, SIGTERM ends it with the exit status `terminated`, and a signal whose
    exception comes up where Python can only ignore it, as in the callbacks of imports, is sent
    again.

    Raises:
        KeyboardInterrupt: one was lost at the very end.
    """

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise TerminatedError(terminated)

    waiting: list[Timer] = []
    ignored = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            number = signal.SIGINT
        elif issubclass(lost.exc_type, TerminatedError):
            number = signal.SIGTERM
        else:
            ignored(lost)
            return
        timer = Timer(AGAIN_SECONDS, _send, (number,))
        timer.daemon = True
        waiting.append(timer)
        timer.start()

    before = signal.signal(signal.SIGTERM, terminate)
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = ignored
        signal.signal(signal.SIGTERM, before)
        late = [timer for timer in waiting if timer.is_alive()]
        for timer in late:
            timer.cancel()
    if late:
        raise KeyboardInterrupt
