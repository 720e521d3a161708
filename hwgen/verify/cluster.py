"""Executors on a Dask cluster: `distributed` hands the work out, and again where a worker dies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from threading import Timer
from time import sleep
from types import TracebackType
from typing import Any

from hwgen.errors import HwgenError
from hwgen.packages import needed
from hwgen.passes.cache import package_hash
from hwgen.verify.executors import LATE_TRIES, Executor, Lost, R, W

AHEAD = 256
"""Pieces of work that a cluster is given at least before one is done."""
CONNECT_SECONDS = 10
"""Wait for the scheduler of a cluster."""
TOLD_SECONDS = 1
"""A worker of a cluster that is late says so this long before it ends itself."""


@dataclass(frozen=True, slots=True)
class _Far:
    """A call on a worker of a cluster. `package`: the hash of the hwgen that asks; `topic`: where
    the worker says that it is late."""

    call: Callable[[Any], Any]
    package: str
    topic: str
    seconds: float | None

    def __call__(self, one: object) -> object:
        if self.package != package_hash():
            raise HwgenError(
                "H048", "a worker has another version of hwgen", field="--cluster",
                found="other source files", allowed="the same hwgen on all machines",
                repair="install the same hwgen there, and start the workers again",
            )  # fmt: skip
        if self.seconds is None:
            return self.call(one)
        worker = import_module("distributed").get_worker()
        key = worker.get_current_task()
        timer = Timer(self.seconds, partial(_end_late, worker, self.topic, key))
        timer.daemon = True
        timer.start()
        try:
            return self.call(one)
        finally:
            timer.cancel()


def _end_late(worker: Any, topic: str, key: str) -> None:
    """No thread can be ended from outside, but its process can; a nanny starts another one."""
    worker.log_event(topic, key)
    sleep(TOLD_SECONDS)
    os._exit(1)


class Cluster(Executor):
    """A Dask cluster by the address of its scheduler.

    Raises:
        HwgenError: H046 without the package `distributed`; H048 no scheduler answers there.
    """

    def __init__(self, address: str, seconds: float | None = None) -> None:
        self._dask = needed("distributed", "runs work on a cluster", "cluster")
        self.lost = self.late = 0
        self.seconds = seconds
        self.here = False
        self._late = Counter[str]()
        self._futures: dict[Any, int] = {}
        try:
            self._dask.comm.get_address_host_port(address)  # A client of none hangs when it ends.
            self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise HwgenError(
                "H048", "no scheduler of a cluster answers", field="--cluster", found=address,
                allowed="the address that `dask scheduler` prints, as tcp://127.0.0.1:8786",
                repair="start `dask scheduler` there, and `dask worker ADDRESS` on each machine",
            ) from error  # fmt: skip
        self._topic = f"hwgen-{self._client.id}"
        self._client.subscribe_topic("all", self._note)
        self._client.subscribe_topic(self._topic, self._note_late)

    def _note(self, event: tuple[float, Mapping[str, object]]) -> None:
        """Count workers that leave without being told to."""
        what = event[1]
        self.lost += what.get("action") == "remove-worker" and not what.get("expected")

    async def _note_late(self, event: tuple[float, str]) -> None:
        """Count work that takes too long; Dask gives it to another worker, until it is given up."""
        key = event[1]
        self.late += 1
        self._late[key] += 1
        if self._late[key] == LATE_TRIES:
            mine = [f for f in [*self._futures] if f.key == key]
            await self._client.cancel(mine, asynchronous=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for topic in ("all", self._topic):
            self._client.unsubscribe_topic(topic)
        self._client.close()

    def run(self, call: Callable[[W], R], work: Sequence[W]) -> Iterator[tuple[int, R | Lost]]:
        waiting = iter(range(len(work)))
        far = _Far(call, package_hash(), self._topic, self.seconds)
        futures = self._futures = {}
        done = self._dask.as_completed(loop=self._client.loop)

        def submit(count: int) -> None:
            for number in islice(waiting, count):
                future = self._client.submit(far, work[number], pure=False)
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
        if self._late[future.key] >= LATE_TRIES:
            return Lost(late=True)
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
