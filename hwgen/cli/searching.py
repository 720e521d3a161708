"""What the command line adds to a search: its time limit, the cache and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen.cli.progress import Bar

if TYPE_CHECKING:
    from hwgen.pipeline import SearchOptions
    from hwgen.polyhedral.search.objective import Objective


@dataclass(frozen=True, slots=True)
class Search:
    """What a command line says about searches; `seconds`: their time limit (none); `bar`: whether
    each shows one, on a terminal; `slack`: a part of the cycles (that of `SearchOptions`), as
    `units_only`."""

    seconds: float | None = None
    cached: bool = True
    bar: bool = True
    objective: Objective = "cycles"
    slack: float | None = None
    units_only: bool = False


@contextmanager
def searching(name: str, search: Search) -> Generator[SearchOptions, None, None]:
    """Options for one compilation; the bar, on a terminal only, is gone afterwards."""
    from hwgen.model.folders import cache_folder
    from hwgen.passes.cache import ScheduleCache
    from hwgen.pipeline import SearchOptions

    folder = cache_folder() if search.cached else None
    with ExitStack() as stack:
        yield SearchOptions(
            seconds=search.seconds,
            progress=Bar(name, stack) if search.bar and sys.stderr.isatty() else None,
            cache=ScheduleCache(folder) if folder is not None else None,
            objective=search.objective,
            slack=search.slack,
            units_only=search.units_only,
        )
