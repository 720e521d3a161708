"""Work that several processes share, and that ends as a whole: done, failed or interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

R = TypeVar("R")
W = TypeVar("W")


def each(call: Callable[[W], R], work: Sequence[W], processes: int) -> Iterator[R]:
    """The results of a call in order, made by several processes."""
    processes = min(processes, len(work))
    if processes <= 1:
        yield from map(call, work)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    before = set(active_children())
    with ProcessPoolExecutor(processes, get_context("spawn")) as executor:
        try:
            yield from _started(executor.map, call, work)
        except BaseException:  # Not waited for: what they do is of no use any more.
            for process in set(active_children()) - before:
                process.kill()
            raise


def _started(
    start: Callable[[Callable[[W], R], Sequence[W]], Iterator[R]],
    call: Callable[[W], R],
    work: Sequence[W],
) -> Iterator[R]:
    """Processes that begin now never see an interrupt: this one does, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: they see it, and end by it.
        return start(call, work)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return start(call, work)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
