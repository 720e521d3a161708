"""The models of a folder, compiled for chips: seconds, figures, and whether every layer is equal.

python -m benchmarks.network_chips FOLDER [CHIP ...] [--samples N]

Seconds are those of one process that compiles, of its own and its children's CPU time. Half of the
inputs are random, half are the ends of the type's range; each layer is compared with the model's
own runtime.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.network.compiled import compile_model
from hwgen.network.report import total_figures
from hwgen.spec.table import Cell, table

CHIPS = ("cpu_generic", "x86_avx512", "vta", "gemmini", "tpu_v1", "davinci_core")
COLUMNS = ("chip", "model", "seconds", "cycles", "% on units", "arena", "code bytes", "result")


def row(path: Path, chip: str, samples: int) -> tuple[list[Cell], bool]:
    """A line of the table, and whether all layers are equal."""
    before = sum(os.times()[:4])
    net = compile_model(path, chip)
    seconds = sum(os.times()[:4]) - before
    total = total_figures(net)
    share = "-"
    if total.macs_on_units is not None:
        share = f"{100 * total.macs_on_units / max(total.macs, 1):.1f}"
    code = "-" if total.code_bytes is None else f"{total.code_bytes:,}"
    try:
        said, equal = str(net.compare(samples)), True
    except HwgenError as different:
        said, equal = different.diagnostic.found, False
    arena = f"{net.plan.arena.bytes:,}"
    return [chip, path.stem, f"{seconds:.1f}", f"{net.cycles:,}", share, arena, code, said], equal


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a layer differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("chips", nargs="*", default=CHIPS)
    parser.add_argument("--samples", type=int, default=20)
    given = parser.parse_args(arguments)
    models = sorted(p for p in given.folder.iterdir() if p.suffix in (".tflite", ".onnx"))
    rows = [row(path, chip, given.samples) for chip in given.chips for path in models]
    print(table(COLUMNS, [cells for cells, _ in rows]))
    return int(not all(equal for _, equal in rows))


if __name__ == "__main__":
    sys.exit(main())
