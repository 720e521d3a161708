"""What the command line adds to a search: its time limit, the cache and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.pipeline import SearchOptions

QUIET_SECONDS = 2.0
"""A search shorter than this shows no progress."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a command line says about searches; `seconds`: their time limit (none)."""

    seconds: float | None = None
    cached: bool = True


@contextmanager
def searching(name: str, search: Search) -> Generator[SearchOptions, None, None]:
    """Options for one compilation; the bar, on a terminal only, is gone afterwards."""
    from hwgen.cache import ScheduleCache
    from hwgen.folders import cache_folder
    from hwgen.pipeline import SearchOptions

    folder = cache_folder() if search.cached else None
    with ExitStack() as stack:
        yield SearchOptions(
            seconds=search.seconds,
            progress=_Bar(name, stack) if sys.stderr.isatty() else None,
            cache=ScheduleCache(folder) if folder is not None else None,
        )


class _Bar:
    """A progress bar on standard error that appears once a search has become long."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self._name = name
        self._stack = stack
        self._start = monotonic()
        self._update = self._wait

    def __call__(self, done: int, steps: int) -> None:
        self._update(done, steps)

    def _wait(self, done: int, steps: int) -> None:
        if monotonic() - self._start < QUIET_SECONDS:
            return
        from rich.console import Console
        from rich.progress import Progress

        bar = self._stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = bar.add_task(f"searching {self._name}", total=steps)

        def update(done: int, steps: int) -> None:
            bar.update(task, completed=done, total=steps)

        self._update = update
        update(done, steps)
