"""A thousand points of two chips: interrupted, resumed, on a Dask cluster, with a worker killed.

`python -m benchmarks.explore_points AD.tflite` explores 60 chips like `vta` on the anomaly detector
of MLPerf Tiny, and 40 like `npu_shared_buffer`, which computes floats, on the same products of
floats: ten layers each, 1,000 points. Equal layers of a chip are compiled once. No cache of
searches is used. The command prints seconds, and how many kernels were compiled or found, of

1. two processes that nobody interrupts;
2. two processes, killed with their parent once half of the results are in another file;
3. the same command again, which goes on from there;
4. the same command once more, with all results in its file;
5. two Dask workers on this machine from nothing, of which one is killed half-way.

The fronts and what each parameter changes follow. The command ends with status 1 if the results of
1, 3, 4 and 5 are not equal, or if files differ.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep
from typing import Any, cast

from hwgen.exploration.guided import Axis, combinations
from hwgen.exploration.points import Layer, Problem
from hwgen.exploration.results import results_record, results_text
from hwgen.exploration.run import Plan, Space, explored, network_problems
from hwgen.exploration.store import Store
from hwgen.spec.find import find_spec
from hwgen.spec.load import load_workload
from hwgen.verify.cluster import Cluster
from hwgen.verify.executors import Executor, Workers

JOBS = 2
PLAN = Plan(("cycles", "traffic"), cached=False)
FLOATS = {"T": "float32", "ACC": "float32", "OUT": "float32"}
PRODUCTS = (
    (128, 640), (128, 128), (128, 128), (128, 128), (8, 128), (128, 8), (128, 128), (128, 128),
    (128, 128), (640, 128),
)  # fmt: skip
"""Columns and length of the sum of the detector's layers."""
Record = Mapping[str, Any]


def spaces(model: str) -> tuple[Space, Space]:
    """The chips, and what they have to compute."""
    (layers,) = network_problems([model])
    arrays = (
        Axis("BLOCK_IN", (8, 16, 32, 64)),
        Axis("BLOCK_OUT", (4, 8, 16, 32, 64)),
        Axis("READ_LATENCY", (20, 60, 150)),
    )
    products = [load_workload("gemm", {"M": 1, "N": n, "K": k}, FLOATS) for n, k in PRODUCTS]
    named = {w: Layer(f"{i} gemm", w, products.count(w)) for i, w in enumerate(products)}
    floats = Problem("ad of floats", (), tuple(named.values()), network=True)
    return (
        Space(find_spec("vta"), arrays, (), (layers,)),
        Space(find_spec("npu_shared_buffer"), (Axis("T", tuple(range(1, 41))),), (), (floats,)),
    )


def layers(space: Space) -> int:
    """Of each chip, equal ones included."""
    return sum(layer.times for p in space.problems for layer in p.layers)


def run(model: str, file: Path, workers: Executor) -> Record:
    """Both spaces; seconds, the account, the tables and all results."""
    begun, compiled, found = perf_counter(), 0, 0
    records: list[object] = []
    tables: list[str] = []
    with Store(file) as store:
        for space in spaces(model):
            results, account = explored(space, PLAN, workers, store)
            compiled, found = compiled + account.computed, found + account.found
            records.append(results_record(results))
            tables.append(results_text(results))
    return {
        "seconds": perf_counter() - begun, "compiled": compiled, "found": found,
        "lost": workers.lost, "results": json.loads(json.dumps(records)), "tables": tables,
    }  # fmt: skip


def outcomes(file: Path) -> list[tuple[str, ...]]:
    """What is in a file of results, in the order of its keys."""
    with sqlite3.connect(file, timeout=60) as sql:
        if not sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return []
        return sql.execute("SELECT * FROM outcomes ORDER BY key").fetchall()


def half_way(file: Path, half: int) -> int:
    """Wait until so many outcomes are there; returns how many."""
    while not file.exists() or len(outcomes(file)) < half:
        sleep(0.2)
    return len(outcomes(file))


def command(model: str, file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "benchmarks.explore_points", model, str(file)]


def killed(model: str, file: Path, half: int) -> float:
    """Seconds until a run with half of its results is killed."""
    begun = perf_counter()
    with subprocess.Popen(command(model, file), stdout=subprocess.DEVNULL) as running:
        half_way(file, half)
        running.send_signal(signal.SIGKILL)
    return perf_counter() - begun


def again(model: str, file: Path) -> Record:
    """A run in a process of its own."""
    ran = subprocess.run(command(model, file), check=True, text=True, stdout=subprocess.PIPE)
    return cast("Record", json.loads(ran.stdout))


def on_dask(model: str, file: Path, half: int) -> Record:
    """Two workers, of which one is killed half-way."""
    dask: Any = import_module("distributed")
    with (
        dask.LocalCluster(n_workers=JOBS, threads_per_worker=1, dashboard_address=None) as made,
        Cluster(made.scheduler_address) as workers,
    ):

        def kill() -> None:
            half_way(file, half)
            os.kill(made.workers[0].pid, signal.SIGKILL)

        Thread(target=kill, daemon=True).start()
        return run(model, file, workers)


def figures(record: Record) -> tuple[float, int, int, int]:
    """Seconds, kernels compiled and found, workers killed."""
    return record["seconds"], record["compiled"], record["found"], record["lost"]


def told(name: str, seconds: float, compiled: int, found: int, lost: int) -> None:
    """Print a run as soon as it has ended: they take minutes."""
    print(f"{name:30}{seconds:8.1f}{compiled:10,}{found:7,}{lost:16}", flush=True)


def main(model: str) -> None:
    both = spaces(model)
    counts = [combinations(s.axes) for s in both]
    points = sum(n * layers(s) for n, s in zip(counts, both, strict=True))
    kernels = sum(n * s.kernels for n, s in zip(counts, both, strict=True))
    print(f"{points:,} points of {sum(counts)} chips: {kernels} different kernels")
    print(f"{'run':30}{'seconds':>8}{'compiled':>10}{'found':>7}  workers killed")
    with tempfile.TemporaryDirectory() as folder:
        whole, one, other = (Path(folder) / f"{name}.db" for name in ("whole", "again", "dask"))
        first = again(model, whole)
        told("two processes", *figures(first))
        seconds = killed(model, one, kernels // 2)
        kept = len(outcomes(one))
        told("two processes, killed", seconds, kept, 0, JOBS)
        resumed = again(model, one)
        told("resumed", *figures(resumed))
        warm = again(model, one)
        told("once more", *figures(warm))
        far = on_dask(model, other, kernels // 2)
        told("two Dask workers, one killed", *figures(far))
        made = outcomes(whole)
        same_files = made == outcomes(one) == outcomes(other)
    runs = (first, resumed, warm, far)
    equal = all(r["results"] == first["results"] for r in runs)
    twice = [n - kernels for n in (first["compiled"], kept + resumed["compiled"], far["compiled"])]
    refused = sum('"refused"' in row[-1] for row in made)
    print(f"results equal: {equal}; files equal: {same_files}; kernels refused: {refused}; "
          f"compiled twice or lost: {twice}")  # fmt: skip
    print("\n\n".join(first["tables"]))
    sys.exit(not (equal and same_files and not any(twice)))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        # By its name: of `__main__`, Dask would send the functions themselves with every piece.
        import_module("benchmarks.explore_points").main(sys.argv[1])
    else:
        with Workers(JOBS).executor() as two:
            print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), two)))
