"""What handing out the work of `hwgen explore` costs, and how many workers one coordinator feeds.

`python -m benchmarks.explore SPEC MODEL` prints

- the bytes of a kernel to compile as it is sent, and how many of them a second the executors hand
  out to two workers which do nothing: by processes, and by a Dask cluster on this machine
  (`pip install 'hwgen[cluster]'`). CPU time is that of the process that hands out, Dask's scheduler
  included;
- a simulation of that process with up to 1,000 workers: one piece after the other passes through
  it, each for the CPU time measured, and each worker has as many waiting as the executor gives it.
  Kernels take a time drawn from an exponential distribution;
- the same as a run: Dask with threads that sleep in place of workers that compile.

`python -m benchmarks.explore 1.4 7.1` simulates with these milliseconds of the two, and measures
nothing.
"""

from __future__ import annotations

import pickle
import sys
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heapreplace
from importlib import import_module
from pathlib import Path
from random import Random
from time import perf_counter, process_time, sleep
from typing import Any

from hwgen.exploration.work import Outcome, Work
from hwgen.network.compiled import read_graph
from hwgen.network.operators.table import layers_of
from hwgen.passes.phase import DEFAULTS
from hwgen.spec.load import load_hardware
from hwgen.spec.table import Cell, table
from hwgen.verify.cluster import Cluster
from hwgen.verify.executors import Executor, Processes

PIECES = 200
WORKERS = 2
COUNTS = (2, 10, 100, 300, 1000)
"""Workers that are simulated."""
SECONDS = (1.0, 3.0)
"""Of a kernel, on average."""
AHEAD_EACH = 2
"""Pieces that a cluster gives each worker, the one that it does included (`Cluster.run`)."""
ROUNDS = 50
"""Pieces of each worker that is simulated, on average."""
LEAST = 10_000
"""Pieces that are simulated at least."""
THREADS, NAPS, NAP = 100, 1500, 0.5
"""Threads that sleep, how often in all, and for how many seconds."""


def works(spec: str, model: Path) -> Iterator[Work]:
    """The kernels of a model."""
    hardware = load_hardware(spec)
    computations = (layer.computation for layer in layers_of(read_graph(model)))
    for own in dict.fromkeys(c for c in computations if c is not None):
        yield Work(own.workload(own.kind), hardware, DEFAULTS, layer=True)


def idle(_: Work) -> Outcome:
    """Stands for compiling."""
    return Outcome(cycles=1)


def nap(_: Work) -> Outcome:
    """Stands for compiling elsewhere: it takes time, and none of this machine's."""
    sleep(NAP)
    return Outcome(cycles=1)


def rate(workers: Executor, given: list[Work]) -> tuple[int, float]:
    """Pieces of work a second, once the workers run; milliseconds of CPU time for each."""
    for _ in workers.run(idle, given):
        pass
    begun, used = perf_counter(), process_time()
    count = sum(1 for _ in workers.run(idle, [given[n % len(given)] for n in range(PIECES)]))
    return round(count / (perf_counter() - begun)), 1000 * (process_time() - used) / count


def simulated(
    workers: int, handing: float, ahead: int, seconds: float, *, spread: bool
) -> tuple[float, float]:
    """Pieces of work a second, and the share of their time that workers work.

    `handing`: seconds of the coordinator for each; `ahead`: pieces that a worker is given before
    the first is done; `spread`: kernels differ in time.

    Each piece that is done passes through the coordinator, which sends the next one. A worker
    begins it once it is there, and the pieces before are done.
    """
    random, worked = Random(0), 0.0

    def took() -> float:
        return random.expovariate(1 / seconds) if spread else seconds

    coordinator, waiting = 0.0, [deque[float]() for _ in range(workers)]
    for _ in range(ahead):
        for queue in waiting:
            coordinator += handing
            queue.append(coordinator)
    ends = [(queue.popleft() + took(), n) for n, queue in enumerate(waiting)]
    heapify(ends)
    pieces = max(ROUNDS * workers, LEAST)
    for _ in range(pieces):
        end, worker = ends[0]
        coordinator = max(coordinator, end) + handing
        waiting[worker].append(coordinator)
        own = took()
        worked += own
        heapreplace(ends, (max(end, waiting[worker].popleft()) + own, worker))
    # What is begun last is as long, on average, as what is begun first.
    return pieces / coordinator, min(1.0, worked / (workers * coordinator))


def shares(name: str, handing: float, ahead: int) -> Iterator[tuple[Cell, ...]]:
    """For each number of workers: pieces a second, and the share of their time that they work."""
    for count in COUNTS:
        row: list[Cell] = [name, f"{count:,}"]
        for seconds in SECONDS:
            found, at_work = simulated(count, handing, ahead, seconds, spread=True)
            row += [f"{found:.1f}", f"{at_work:.0%}"]
        yield tuple(row)


def simulation(processes: float, dask: float) -> float:
    """Print what workers do whose coordinator takes so many seconds for each piece; the most pieces
    a second."""
    header = [x for s in SECONDS for x in (f"{s:g} s each: a second", "at work")]
    found = [*shares("processes", processes, 1), *shares("Dask", dask, AHEAD_EACH)]
    print(table(("simulated", "workers", *header), found))
    return max(float(str(row[2])) for row in found)


def main(spec: str, model: str) -> None:
    given = [*works(spec, Path(model))]
    sizes = [len(pickle.dumps(work)) for work in given]
    mean, result = sum(sizes) // len(sizes), len(pickle.dumps(idle(given[0])))
    print(f"{spec}, {model}: {len(given)} kernels, {min(sizes):,} to {max(sizes):,} bytes each")
    print(f"{mean:,} bytes on average; a result has {result:,}")
    dask: Any = import_module("distributed")
    with Processes(WORKERS) as workers:
        rows: list[tuple[str, int, float]] = [("processes", *rate(workers, given))]
    with (
        dask.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Cluster(cluster.scheduler_address) as workers,
    ):
        rows.append(("Dask", *rate(workers, given)))
    print(table(("executor", "pieces a second", "CPU ms each"), rows))
    costs = {name: cost / 1000 for name, _, cost in rows}
    fastest = simulation(costs["processes"], costs["Dask"])
    print(f"at most {mean * fastest / 1e6:.1f} MB a second are sent")
    each = THREADS // WORKERS
    with (
        dask.LocalCluster(
            n_workers=WORKERS, threads_per_worker=each, dashboard_address=None
        ) as cluster,
        Cluster(cluster.scheduler_address) as workers,
    ):
        begun = perf_counter()
        done = sum(1 for _ in workers.run(nap, [given[n % len(given)] for n in range(NAPS)]))
        ran = done / (perf_counter() - begun)
    told, _ = simulated(THREADS, costs["Dask"], AHEAD_EACH, NAP, spread=False)
    print(f"{THREADS} threads that sleep {NAP} s: {ran:.0f} a second, simulated {told:.0f}")


if __name__ == "__main__":
    # By its name: of `__main__`, Dask would send the functions themselves with every piece.
    own: Any = import_module("benchmarks.explore")
    if sys.argv[1][:1].isdigit():
        own.simulation(*(float(text) / 1000 for text in sys.argv[1:]))
    else:
        own.main(*sys.argv[1:])
