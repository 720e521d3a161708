"""One parametric chip and one matrix product for AccelForge; runs in its Python, not in hwgen's.

`python accelforge_chip.py '[[8, 16], ...]'` prints a line of JSON for each size of the buffer in
KiB and width of the array: the best cycles and picojoules of all mappings, for each of both alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

CHIP = """
arch:
  nodes:
  - !Memory
    name: Global
    size: inf
    leak_power: 0
    area: 0
    tensors: {{keep: All}}
    actions:
    - {{name: read, energy: 160 / 8, throughput: 16 * 8, latency: 0}}
    - {{name: write, energy: 160 / 8, throughput: 16 * 8, latency: 0}}
  - !Memory
    name: Local
    size: {kib} * 1024 * 8
    leak_power: 0
    area: 0.002 + 0.6 * {kib} * 1024 / 1000000
    tensors: {{keep: All}}
    actions:
    - {{name: read, energy: (0.5 + {kib} / 64) / 8, throughput: inf, latency: 0}}
    - {{name: write, energy: (0.5 + {kib} / 64) / 8, throughput: inf, latency: 0}}
  - !Container
    name: Array
    spatial:
    - {{name: X, fanout: {width}, may_reuse: Nothing}}
    - {{name: Y, fanout: {width}, may_reuse: Nothing}}
  - !Compute
    name: MAC
    leak_power: 0
    area: 0.001
    actions:
    - {{name: compute, energy: 0, throughput: 1, latency: 0}}
"""
PRODUCT = """
workload:
  iteration_space_shape: {m: 0 <= m < 128, n: 0 <= n < 128, k: 0 <= k < 128}
  bits_per_value: {All: 32}
  einsums:
  - name: product
    tensor_accesses:
    - {name: A, projection: [m, k]}
    - {name: B, projection: [n, k]}
    - {name: C, projection: [m, n], output: True}
"""


def best(kib: int, width: int, forge: Any) -> dict[str, float]:
    """The least cycles and the least energy of all mappings, each with the other."""
    Path("chip.yaml").write_text(CHIP.format(kib=kib, width=width), encoding="utf-8")
    Path("product.yaml").write_text(PRODUCT, encoding="utf-8")
    found: dict[str, float] = {"KIB": kib, "T": width}
    for name, metric in (("cycles", "LATENCY"), ("energy", "ENERGY")):
        spec = forge.Spec.from_yaml("chip.yaml", "product.yaml")
        spec.mapper.metrics = getattr(forge.Metrics, metric)
        mapped = spec.map_workload_to_arch(print_progress=False)
        least = getattr(mapped, "latency" if name == "cycles" else "energy")
        found[name] = float(least())
    return found


def main(sizes: str) -> None:
    forge: Any = import_module("accelforge")
    forge.set_n_parallel_jobs(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # It writes a picture of each mapping.
        for kib, width in json.loads(sizes):
            print(json.dumps(best(kib, width, forge)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
