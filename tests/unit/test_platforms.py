"""What other systems lack, taken away here."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hwgen.cli.signals import handled
from hwgen.spec.regular_file import read_regular
from hwgen.verify.executors import each


def test_processes_are_shared_without_signal_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask")
    assert list(each(abs, [-1, 2], 2)) == [1, 2]


def test_a_lost_interrupt_kills_nothing_where_signals_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows `os.kill` ends the process."""
    killed: list[int] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda _pid, number: killed.append(number))  # type: ignore[reportUnknownLambdaType]

    class Loses:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def lose_and_wait() -> None:
        with handled():
            Loses()
            end = time.monotonic() + 5
            while time.monotonic() < end:
                time.sleep(0.001)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # CI may ignore it.
    try:
        with pytest.raises(KeyboardInterrupt):
            lose_and_wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert killed == []


def test_bytes_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows a descriptor reads text, unless it is opened for bytes."""
    binary = 1 << 40
    opened: list[int] = []
    real = os.open

    def spy(path: Path, flags: int) -> int:
        opened.append(flags)
        return real(path, flags & ~binary)

    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
    monkeypatch.setattr(os, "open", spy)
    (tmp_path / "file").write_bytes(b"a\r\n")
    assert read_regular(tmp_path / "file", 10) == b"a\r\n"
    assert opened[0] & binary
