"""Executors: the same call for many pieces of work, in processes here or on a Dask cluster.

A worker that dies is replaced, and its piece of work is given to another one. So is work that takes
longer than a time-out: its worker is ended. Both are counted.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, TypeVar

from hwgen.errors import HwgenError

R = TypeVar("R")
W = TypeVar("W")

TRIES = 4
"""Workers that one piece of work may cost; it is then given up. The default of Dask is the same."""
LATE_TRIES = 2
"""Workers on which one piece of work may take too long: the first one may have been at fault."""
LOOK_SECONDS = 0.5
"""Wait before processes that are starting are looked at again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of work that was given up: at every try its worker died, or was `late`
    and ended."""

    late: bool = False

    @property
    def error(self) -> HwgenError:
        """What is told of it."""
        if self.late:
            return HwgenError(
                "H060", "this took longer than the time-out each time that a worker was given it",
                field="--timeout", found=f"{LATE_TRIES} workers that were ended",
                allowed="work that is done within the time-out",
                repair="repeat the command with a longer --timeout, or without one",
            )  # fmt: skip
        return HwgenError(
            "H049", "a worker died each time that it was given this", found=f"{TRIES} workers",
            allowed="workers that end by themselves",
            repair="give them more memory, or take fewer --jobs",
        )  # fmt: skip


class Executor(AbstractContextManager[Any], Protocol):
    """Workers, until the block ends."""

    lost: int
    """Workers that died, or were ended."""
    late: int
    """Those that were ended as they took too long."""
    here: bool
    """True if the caller's own process does the work."""
    seconds: float | None
    """The time-out of one piece of work."""

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        """The number of each piece of work and its result, as they are done."""
        ...


class Processes(Executor):
    """Processes on this machine; with `count` 1 and no time-out, the caller's own."""

    def __init__(self, count: int, seconds: float | None = None) -> None:
        self.lost = self.late = 0
        self.seconds = seconds
        self.here = count == 1 and seconds is None
        self._slots = [_Slot() for _ in range(0 if self.here else count)]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for slot in self._slots:
            slot.end(at_once=kind is not None)

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        if self.here or (len(work) == 1 and self.seconds is None):
            yield from enumerate(map(call, work))
            return
        waiting, idle = deque(range(len(work))), [*self._slots]
        tries, late = Counter[int](), Counter[int]()
        running: dict[Future[R], tuple[int, _Slot]] = {}
        while waiting or running:
            while waiting and idle:
                number, slot = waiting.popleft(), idle.pop()
                running[slot.start(call, work[number])] = (number, slot)
            slots = [slot for _, slot in running.values()]
            patience = self._patience(slots)
            for future in wait(running, patience, return_when=FIRST_COMPLETED).done:
                number, slot = running.pop(future)
                idle.append(slot)
                expired = slot.expired
                try:
                    result = future.result()
                except BrokenProcessPool:
                    slot.end(at_once=True)
                    self.lost += 1
                    self.late += expired
                    tries[number] += 1
                    late[number] += expired
                    if late[number] == LATE_TRIES:
                        yield number, Lost(late=True)
                    elif tries[number] == TRIES:
                        yield number, Lost()
                    else:
                        waiting.appendleft(number)
                else:
                    if expired:  # It was done as it was ended.
                        slot.end(at_once=True)
                    yield number, result

    def _patience(self, slots: Sequence[_Slot]) -> float | None:
        """How long to wait for a result; ends those that take too long."""
        if self.seconds is None:
            return None
        left = [slot.left(self.seconds) for slot in slots]
        for slot, seconds in zip(slots, left, strict=True):
            if seconds <= 0:
                slot.expire()
        return max(0.0, min((s for s in left if s > 0), default=LOOK_SECONDS))


class _Slot:
    """A process that takes one call at a time, so that its death is blamed on no other call."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._process: set[BaseProcess] = set()
        self._began: float | None = None
        self.expired = False

    def start(self, call: Callable[[W], R], one: W) -> Future[R]:
        """Processes that begin now never see an interrupt: this one does, and ends them."""
        before = set(active_children())
        new = self._pool is None
        self._began = None if new else monotonic()
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        if not hasattr(signal, "pthread_sigmask"):  # Windows: they see it, and end by it.
            future = self._submit(self._pool, call, one, new)
        else:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                future = self._submit(self._pool, call, one, new)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._process |= set(active_children()) - before
        return future

    def _submit(
        self, pool: ProcessPoolExecutor, call: Callable[[W], R], one: W, new: bool
    ) -> Future[R]:
        if new:  # The time that a process takes to start, and to import, is not that of its work.
            pool.submit(_imported, call).add_done_callback(self._begin)
        return pool.submit(call, one)

    def _begin(self, _: Future[None]) -> None:
        self._began = monotonic()

    def left(self, seconds: float) -> float:
        """Seconds until its call is late."""
        if self._began is None or self.expired:
            return LOOK_SECONDS
        return self._began + seconds - monotonic()

    def expire(self) -> None:
        """End the process: its call fails."""
        self.expired = True
        for process in self._process:
            process.kill()

    def end(self, *, at_once: bool) -> None:
        """End the process. At once: its result is of no use any more."""
        if at_once:
            for process in self._process:
                process.kill()
        if self._pool is not None:
            self._pool.shutdown()
        self._pool, self._process, self.expired = None, set(), False


def _imported(_: object) -> None:
    """A process has imported what it is given."""


def _end_with_parent() -> None:
    """A process whose parent is killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Workers:
    """Who is to work: so many `jobs`, processes here (None: one per core), or the cluster at an
    address. `seconds`: the time-out of one piece of work."""

    jobs: int | None = None
    cluster: str | None = None
    seconds: float | None = None

    def executor(self, most: int | None = None) -> Executor:
        """They, to be entered; no more processes than `most` pieces of work.

        Raises:
            HwgenError: as `Cluster`.
        """
        if self.cluster is not None:
            from hwgen.verify.cluster import Cluster

            return Cluster(self.cluster, self.seconds)
        jobs = self.jobs or os.cpu_count() or 1
        return Processes(max(1, min(jobs, most or jobs)), self.seconds)


def each(call: Callable[[W], R], work: Sequence[W], processes: int) -> Iterator[R]:
    """The results of a call in order, made by several processes.

    Raises:
        HwgenError: H049 where a process dies at every try of one piece of work.
    """
    with Processes(min(processes, len(work)) or 1) as workers:
        for result in in_order(call, work, workers):
            if isinstance(result, Lost):
                raise result.error
            yield result


def in_order(call: Callable[[W], R], work: Sequence[W], workers: Executor) -> Iterator[R | Lost]:
    """The results of a call in the order of the work."""
    made: dict[int, R | Lost] = {}
    following = 0
    for number, result in workers.run(call, work):
        made[number] = result
        while following in made:
            yield made.pop(following)
            following += 1


def lost_text(lost: int, late: int) -> str:
    """Workers that died, and of these were ended as they took too long; "" where none did."""
    ended = f", {late} of them ended at the time-out" if late else ""
    return f"{lost} worker{'s' if lost > 1 else ''} died{ended}" if lost else ""
