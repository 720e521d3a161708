"""Executors: results of every piece of work, whoever dies; the same in processes and a cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hwgen.errors import HwgenError
from hwgen.verify.cluster import Cluster
from hwgen.verify.executors import (
    LATE_TRIES,
    TRIES,
    Executor,
    Lost,
    Processes,
    Workers,
    each,
    lost_text,
)

WITH_CLUSTER = pytest.mark.skipif(
    find_spec("distributed") is None, reason="package distributed is not installed"
)


def square(number: int) -> int:
    return number * number


def dies_once(work: tuple[str, int]) -> int:
    """Kill the worker that is given the number 3 first."""
    mark, number = work
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def dies(number: int) -> int:
    """Kill every worker that is given the number 1."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def cannot(_: int) -> int:
    raise ValueError("not here")


def refuses(_: int) -> int:
    raise HwgenError("H048", "another hwgen")


def slow(_: int) -> None:
    time.sleep(0.2)


def late_once(work: tuple[str, int]) -> int:
    """Hold up the worker that is given the number 3 first."""
    mark, number = work
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        time.sleep(600)
    return number * number


def stuck(number: int) -> int:
    """Hold up every worker that is given the number 1."""
    if number == 1:
        time.sleep(600)
    return number


@contextmanager
def local_cluster(seconds: float | None = None) -> Generator[Cluster]:
    """Two workers of Dask on this machine."""
    dask: Any = import_module("distributed")
    with (
        dask.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made,
        Cluster(made.scheduler_address, seconds) as workers,
    ):
        yield workers


def by_number(workers: Executor, call: Any, work: Any) -> list[Any]:
    return [result for _, result in sorted(workers.run(call, work))]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_piece_of_work_has_its_result(count: int) -> None:
    with Processes(count) as workers:
        assert by_number(workers, square, range(7)) == [n * n for n in range(7)]
        assert by_number(workers, square, [4]) == [16]  # The same processes again.
        assert workers.lost == 0


def test_work_of_a_process_that_dies_goes_elsewhere(tmp_path: Path) -> None:
    mark = str(tmp_path / "died")
    with Processes(2) as workers:
        made = by_number(workers, dies_once, [(mark, n) for n in range(6)])
        assert workers.lost == 1
    assert made == [n * n for n in range(6)]


def test_work_that_no_process_survives_is_given_up_alone() -> None:
    with Processes(2) as workers:
        found = dict(workers.run(dies, range(4)))
        assert workers.lost == TRIES
    assert found == {0: 0, 1: Lost(), 2: 2, 3: 3}
    with pytest.raises(HwgenError) as caught:
        list(each(dies, range(4), 2))
    assert caught.value.code == "H049"


@WITH_CLUSTER
def test_a_cluster_does_the_same(tmp_path: Path) -> None:
    mark = str(tmp_path / "died")
    with local_cluster() as workers:
        assert by_number(workers, square, range(7)) == [n * n for n in range(7)]
        assert workers.lost == 0
        work = [(mark, n) for n in range(6)]
        assert by_number(workers, dies_once, work) == [n * n for n in range(6)]
        assert workers.lost == 1
        for call, said in ((cannot, "ValueError: not here"), (refuses, "another hwgen")):
            with pytest.raises(HwgenError) as caught:
                by_number(workers, call, range(3))
            assert caught.value.code == "H048"
            assert said in str(caught.value)


@WITH_CLUSTER
def test_a_cluster_that_goes_away_is_told() -> None:
    dask: Any = import_module("distributed")
    made = dask.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with Cluster(made.scheduler_address) as workers:
        found = workers.run(slow, range(9))
        assert next(found)[1] is None
        made.close()
        with pytest.raises(HwgenError) as caught:
            list(found)
    assert caught.value.code == "H048"


@WITH_CLUSTER
@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:9", "tcp://127.0.0.1", ""])
def test_an_address_of_no_scheduler_makes_no_client(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("distributed.Client")
    with pytest.raises(HwgenError) as caught:
        Cluster(address)
    assert caught.value.code == "H048"


def test_processes_are_taken_without_an_address() -> None:
    with Workers(4).executor(most=1) as workers:
        assert isinstance(workers, Processes)
        assert workers.here
    with Workers(4, seconds=1.0).executor(most=1) as workers:
        assert not workers.here  # Nothing could end this process and go on.


@pytest.mark.parametrize("count", [1, 2])
def test_work_that_is_late_on_one_process_goes_elsewhere(count: int, tmp_path: Path) -> None:
    mark = str(tmp_path / "late")
    with Processes(count, seconds=3) as workers:
        assert by_number(workers, late_once, [(mark, n) for n in range(5)]) == [
            n * n for n in range(5)
        ]
        assert (workers.lost, workers.late) == (1, 1)


def test_work_that_is_always_late_is_given_up_alone() -> None:
    with Processes(2, seconds=3) as workers:
        found = dict(workers.run(stuck, range(4)))
        assert (workers.lost, workers.late) == (LATE_TRIES, LATE_TRIES)
        assert by_number(workers, square, range(3)) == [0, 1, 4]  # All slots work again.
    assert found == {0: 0, 1: Lost(late=True), 2: 2, 3: 3}
    assert Lost(late=True).error.code == "H060"


def test_what_takes_long_is_not_late_without_a_time_out() -> None:
    with Processes(2) as workers:
        assert by_number(workers, slow, range(3)) == [None] * 3
        assert workers.lost == 0


@WITH_CLUSTER
def test_a_cluster_ends_workers_that_are_late(tmp_path: Path) -> None:
    mark = str(tmp_path / "late")
    with local_cluster(seconds=2) as workers:
        work = [(mark, n) for n in range(5)]
        assert by_number(workers, late_once, work) == [n * n for n in range(5)]
        assert workers.late == 1
        assert dict(workers.run(stuck, range(4))) == {0: 0, 1: Lost(late=True), 2: 2, 3: 3}
        assert workers.late == 1 + LATE_TRIES


@WITH_CLUSTER
def test_a_worker_with_another_hwgen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwgen.verify.cluster.package_hash", lambda: "ours")
    with (
        local_cluster() as workers,
        pytest.raises(HwgenError, match="another version of hwgen") as caught,
    ):
        by_number(workers, square, range(3))
    assert caught.value.code == "H048"


@pytest.mark.parametrize(
    ("lost", "late", "text"),
    [
        (0, 0, ""),
        (1, 0, "1 worker died"),
        (3, 2, "3 workers died, 2 of them ended at the time-out"),
    ],
)
def test_lost_workers_are_told(lost: int, late: int, text: str) -> None:
    assert lost_text(lost, late) == text


def test_a_result_is_given_before_all_are_there() -> None:
    def told(number: int) -> int:
        seen.append(number)
        return number

    seen: list[int] = []
    with Processes(1) as workers:
        assert next(workers.run(told, [5, 6])) == (0, 5)
    assert seen == [5]
