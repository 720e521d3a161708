"""Progress on standard error: a bar on a terminal, else a line now and then; never backwards.

Rich draws the bar, and leaves colours out where `NO_COLOR` is set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hwgen.verify.executors import Executor

QUIET_SECONDS = 2.0
"""What is shorter than this shows no progress."""
LINE_SECONDS = 5.0
"""Without a terminal, a line of progress this often."""
REACH = 0.9
"""Of the bar that is left, how much one of several searches may fill: another may follow."""

Report = Callable[[str, int, int], None]
"""Called with a name, how much of it is done, and how much there is."""


class Forward:
    """How far several searches one after another are, as a share that only grows.

    A search may find more to do, and another may begin: neither takes the bar back.
    """

    def __init__(self) -> None:
        self._begun = 0.0
        self._last = 0.0
        self.share = 0.0

    def __call__(self, done: int, steps: int) -> float:
        """The share after `done` of `steps` of the current search."""
        now = min(1.0, done / steps) if steps > 0 else 0.0
        if done == 0 and self._last > 0.0:  # Another search begins.
            self._begun = self.share
        self._last = now
        self.share = max(self.share, self._begun + REACH * (1.0 - self._begun) * now)
        return self.share


class Bar:
    """The bar of a search, which appears once the search has become long."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self._name = name
        self._stack = stack
        self._start = monotonic()
        self._forward = Forward()
        self._draw: Callable[[float], None] | None = None

    def __call__(self, done: int, steps: int) -> None:
        share = self._forward(done, steps)
        if self._draw is None:
            if monotonic() - self._start < QUIET_SECONDS:
                return
            self._draw = _drawn(f"searching {self._name}", self._stack)
        self._draw(share)


def _drawn(text: str, stack: ExitStack) -> Callable[[float], None]:
    """A bar that takes shares."""
    from rich.console import Console
    from rich.progress import Progress

    bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = bar.add_task(text, total=1.0)
    return lambda share: bar.update(task, completed=share)


def tell_lost(workers: Executor) -> None:
    """Say how many workers died, on standard error."""
    from hwgen.verify.executors import lost_text

    if workers.lost:
        typer.echo(lost_text(workers.lost, workers.late), err=True)


@contextmanager
def campaign_progress(title: str, total: int) -> Generator[Report, None, None]:
    """Progress of `total` things under several names, each with its own count."""
    done: dict[str, int] = {}
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)

            def advance(name: str, count: int, of: int) -> None:
                done[name] = max(count, done.get(name, 0))
                text = f"{name} {done[name]}/{of}"
                bar.update(task, completed=sum(done.values()), description=text)

            yield advance
        return
    last = monotonic() + QUIET_SECONDS - LINE_SECONDS

    def line(name: str, count: int, of: int) -> None:
        nonlocal last
        done[name] = max(count, done.get(name, 0))
        if monotonic() - last >= LINE_SECONDS:
            last = monotonic()
            typer.echo(f"{title}: {name} {done[name]}/{of}", err=True)

    yield line
