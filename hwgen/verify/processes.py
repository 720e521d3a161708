"""Independent pieces of a campaign, done by several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

W = TypeVar("W")
R = TypeVar("R")


def each(call: Callable[[W], R], work: Sequence[W], processes: int) -> Iterator[R]:
    """The results of a call in order, made by several processes."""
    processes = min(processes, len(work))
    if processes <= 1:
        yield from map(call, work)
        return
    from multiprocessing import get_context

    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(call, work)
