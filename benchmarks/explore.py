"""What handing out the work of `hwgen explore` costs, without the work itself.

`python -m benchmarks.explore SPEC MODEL` prints the bytes of a kernel to compile as it is sent, and
how many of them a second the executors hand out to two workers which do nothing: by processes, and
by a Dask cluster on this machine (`pip install 'hwgen[cluster]'`). CPU time is that of the process
that hands out, Dask's scheduler included.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from hwgen.explore.work import Outcome, Work
from hwgen.network.compiled import read_graph
from hwgen.network.operators.table import layers_of
from hwgen.passes.phase import DEFAULTS
from hwgen.spec.load import load_hardware
from hwgen.spec.table import table
from hwgen.verify.executors import Cluster, Executor, Processes

PIECES = 200
WORKERS = 2


def works(spec: str, model: Path) -> Iterator[Work]:
    """The kernels of a model."""
    hardware = load_hardware(spec)
    computations = (layer.computation for layer in layers_of(read_graph(model)))
    for own in dict.fromkeys(c for c in computations if c is not None):
        yield Work(own.workload(own.kind), hardware, DEFAULTS, layer=True)


def idle(_: Work) -> Outcome:
    """Stands for compiling."""
    return Outcome(cycles=1)


def rate(workers: Executor, given: list[Work]) -> tuple[int, float]:
    """Pieces of work a second, once the workers run; milliseconds of CPU time for each."""
    for _ in workers.run(idle, given):
        pass
    begun, used = perf_counter(), process_time()
    count = sum(1 for _ in workers.run(idle, [given[n % len(given)] for n in range(PIECES)]))
    return round(count / (perf_counter() - begun)), 1000 * (process_time() - used) / count


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


if __name__ == "__main__":
    # By its name: of `__main__`, Dask would send the functions themselves with every piece.
    import_module("benchmarks.explore").main(*sys.argv[1:])
