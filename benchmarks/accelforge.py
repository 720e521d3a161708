"""The front of one parametric chip by hwgen and by AccelForge, a mapper for accelerators.

`python -m benchmarks.accelforge PYTHON` compares ten chips, those of docs/explore.md, on its
product of 128 x 128 x 128 floats. PYTHON is the interpreter of an environment of its own, 3.12 or
later, with `pip install accelforge` and Graphviz: hwgen does not need it, nor share its packages.

Both have the same memory outside and on the chip, bytes a cycle, picojoules a byte, array of T x T
and areas (`accelforge_chip.py`). Both count two operands and a sum on the chip for each product.
They differ in what a cycle is. AccelForge takes the best of all mappings; each memory and the array
work at their rates all the time, in parallel from the first cycle on, reads beside writes. hwgen
emits the C and counts its calls: latency of the bus, which reads and writes share, calls that start
and wait for each other, and the first and the last tile, beside which nothing runs. Its vector unit
empties the array. Energies are each tool's own minimum: hwgen's are those of a second search with
that objective.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hwgen.exploration.points import Measure
from hwgen.exploration.run import explore
from hwgen.report.sweep import pareto
from hwgen.spec.find import find_spec
from hwgen.spec.load import load_workload
from hwgen.spec.table import Cell, table
from tests.pages import blocks, put

PAGE = Path(__file__).parents[1] / "docs" / "explore.md"
KIB, WIDTHS = (8, 16, 32, 64, 128), (8, 16)
SIZE = 128
Chip = tuple[int, int]
"""KiB of the buffer, and the width of the array."""


def of_hwgen(objective: Measure) -> dict[Chip, tuple[float, float]]:
    """An objective and the area of each chip."""
    (sections,) = (text for language, text in blocks(PAGE) if language == "yaml")
    floats: dict[str, str] = dict.fromkeys(("T", "ACC", "OUT"), "float32")
    product = load_workload("gemm", dict.fromkeys("MNK", SIZE), floats)
    with tempfile.TemporaryDirectory() as folder:
        chip = Path(folder) / "chip.yaml"
        like = find_spec("npu_shared_buffer").read_text(encoding="utf-8")
        chip.write_text(put(like, sections), encoding="utf-8")
        found = explore(
            chip, [product], parameters={"KIB": KIB, "T": WIDTHS}, objective=(objective, "area"),
            jobs=2, cached=True,
        )  # fmt: skip
    made: dict[Chip, tuple[float, float]] = {}
    for total in found.totals:
        given = dict(total.settings)
        made[given["KIB"], given["T"]] = (total.value(objective), total.value("area"))
    return made


def of_accelforge(python: str) -> dict[Chip, tuple[float, float]]:
    """The cycles and the picojoules of each chip."""
    sizes = json.dumps([(kib, width) for kib in KIB for width in WIDTHS])
    # -P: this file has the name of the package.
    script = str(Path(__file__).with_name("accelforge_chip.py"))
    ran = subprocess.run(
        [python, "-P", script, sizes], check=True, text=True, stdout=subprocess.PIPE
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {(r["KIB"], r["T"]): (r["cycles"], r["energy"]) for r in lines}


def front(values: Mapping[Chip, Sequence[float]]) -> frozenset[Chip]:
    """The chips that no other one beats."""
    chips = [*values]
    return frozenset(chips[n] for n in pareto([tuple(values[c]) for c in chips]))


def main(python: str) -> None:
    cycles, energy, theirs = of_hwgen("cycles"), of_hwgen("energy"), of_accelforge(python)
    ours = {chip: (cycles[chip][0], energy[chip][0], cycles[chip][1]) for chip in cycles}
    rivals = {chip: (*theirs[chip], cycles[chip][1]) for chip in cycles}
    rows: list[tuple[Cell, ...]] = []
    for chip, own in ours.items():
        marks = ("best" if chip in front(values) else "" for values in (ours, rivals))
        other = rivals[chip]
        rows.append(
            (str(chip[0]), str(chip[1]), int(own[0]), int(other[0]), own[0] / other[0],
             round(own[1]), round(other[1]), own[1] / other[1], *marks)
        )  # fmt: skip
    header = ("KIB", "T", "cycles", "AccelForge", "ratio", "energy pJ", "AccelForge", "ratio")
    print(table((*header, "hwgen", "AccelForge"), rows))
    both = len(front(ours) & front(rivals))
    print(f"on the front of cycles, energy and area: {len(front(ours))} chips by hwgen, "
          f"{len(front(rivals))} by AccelForge, {both} by both")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
