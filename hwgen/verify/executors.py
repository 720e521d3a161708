"""Executors: the same call for many pieces of work, in processes here or on a Dask cluster.

A worker that dies is replaced, and its piece of work is given to another one. `lost` counts them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from threading import Thread
from types import TracebackType
from typing import Any, Protocol, TypeVar

from hwgen.errors import HwgenError

R = TypeVar("R")
W = TypeVar("W")

TRIES = 4
"""Workers that one piece of work may cost; it is then given up. The default of Dask is the same."""
AHEAD = 256
"""Pieces of work that a cluster is given at least before one is done."""
CONNECT_SECONDS = 10
"""Wait for the scheduler of a cluster."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of work whose worker died at every try."""


class Executor(AbstractContextManager[Any], Protocol):
    """Workers, until the block ends."""

    lost: int
    """Workers that died."""

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        """The number of each piece of work and its result, as they are done."""
        ...


class Processes(Executor):
    """Processes on this machine; with `count` 1, the caller's own."""

    def __init__(self, count: int) -> None:
        self.lost = 0
        self._slots = [_Slot() for _ in range(count if count > 1 else 0)]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for slot in self._slots:
            slot.end(at_once=kind is not None)

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        if not self._slots or len(work) == 1:
            yield from enumerate(map(call, work))
            return
        waiting, idle, tries = deque(range(len(work))), [*self._slots], Counter[int]()
        running: dict[Future[R], tuple[int, _Slot]] = {}
        while waiting or running:
            while waiting and idle:
                number, slot = waiting.popleft(), idle.pop()
                running[slot.start(call, work[number])] = (number, slot)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, slot = running.pop(future)
                idle.append(slot)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    slot.end(at_once=True)
                    self.lost += 1
                    tries[number] += 1
                    if tries[number] == TRIES:
                        yield number, Lost()
                    else:
                        waiting.appendleft(number)
                else:
                    yield number, result


class _Slot:
    """A process that takes one call at a time, so that its death is blamed on no other call."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._process: set[BaseProcess] = set()

    def start(self, call: Callable[[W], R], one: W) -> Future[R]:
        """Processes that begin now never see an interrupt: this one does, and ends them."""
        before = set(active_children())
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        if not hasattr(signal, "pthread_sigmask"):  # Windows: they see it, and end by it.
            future = self._pool.submit(call, one)
        else:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                future = self._pool.submit(call, one)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._process |= set(active_children()) - before
        return future

    def end(self, *, at_once: bool) -> None:
        """End the process. At once: its result is of no use any more."""
        if at_once:
            for process in self._process:
                process.kill()
        if self._pool is not None:
            self._pool.shutdown()
        self._pool, self._process = None, set()


def _end_with_parent() -> None:
    """A process whose parent is killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class Cluster(Executor):
    """A Dask cluster by the address of its scheduler.

    Raises:
        HwgenError: H046 without the package `distributed`; H048 no scheduler answers there.
    """

    def __init__(self, address: str) -> None:
        self._dask = extra("distributed", "cluster", "--cluster")
        self.lost = 0
        try:
            self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise HwgenError(
                "H048", "no scheduler of a cluster answers", field="--cluster", found=address,
                allowed="the address that `dask scheduler` prints, as tcp://127.0.0.1:8786",
                repair="start `dask scheduler` there, and `dask worker ADDRESS` on each machine",
            ) from error  # fmt: skip
        self._client.subscribe_topic("all", self._note)

    def _note(self, event: tuple[float, Mapping[str, object]]) -> None:
        """Count workers that leave without being told to."""
        what = event[1]
        self.lost += what.get("action") == "remove-worker" and not what.get("expected")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.unsubscribe_topic("all")
        self._client.close()

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        waiting = iter(range(len(work)))
        futures: dict[Any, int] = {}
        done = self._dask.as_completed(loop=self._client.loop)

        def submit(count: int) -> None:
            for number in islice(waiting, count):
                future = self._client.submit(call, work[number], pure=False)
                futures[future] = number
                done.add(future)

        submit(max(AHEAD, 2 * sum(self._client.nthreads().values())))
        try:
            for future in done:
                number = futures.pop(future)
                submit(1)
                yield number, self._result(future)
        finally:
            self._client.cancel([*futures])

    def _result(self, future: Any) -> Any:
        if future.status == "finished":
            return future.result()
        error = future.exception() if future.status == "error" else None
        if isinstance(error, self._dask.scheduler.KilledWorker):
            return Lost()
        if isinstance(error, HwgenError):
            raise error
        said = f"{type(error).__name__}: {error}" if error else f"work that is {future.status}"
        raise HwgenError(
            "H048", "the cluster does not do its work", field="--cluster", found=said[:200],
            allowed="a scheduler that goes on, and the same hwgen there and on the workers",
            repair="start them again, and repeat the command: with --db it goes on from here",
        ) from error  # fmt: skip


def executor(jobs: int, cluster: str | None = None) -> Executor:
    """The cluster at an address, else processes.

    Raises:
        HwgenError: as `Cluster`.
    """
    return Processes(jobs) if cluster is None else Cluster(cluster)


def each(call: Callable[[W], R], work: Sequence[W], processes: int) -> Iterator[R]:
    """The results of a call in order, made by several processes.

    Raises:
        HwgenError: H049 where a process dies at every try of one piece of work.
    """
    made: dict[int, R] = {}
    following = 0
    with Processes(min(processes, len(work))) as workers:
        for number, result in workers.run(call, work):
            if isinstance(result, Lost):
                raise worker_died()
            made[number] = result
            while following in made:
                yield made.pop(following)
                following += 1


def worker_died() -> HwgenError:
    """The error of work that no worker survives."""
    return HwgenError(
        "H049", "a worker died each time that it was given this", found=f"{TRIES} workers",
        allowed="workers that end by themselves",
        repair="give them more memory, or take fewer --jobs",
    )  # fmt: skip


def extra(package: str, name: str, option: str) -> Any:
    """A package that an option needs.

    Raises:
        HwgenError: H046 where it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise HwgenError(
            "H046", f"the package {package} is not installed", field=option,
            found=f"{option} without {package}", allowed=f"hwgen with its extra `{name}`",
            repair=f"pip install 'hwgen[{name}]'",
        ) from error  # fmt: skip
