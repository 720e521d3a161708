"""Print what the host core's code is modelled to retire, and what it does.

`python -m benchmarks.host [CHIP ...]`: by default of all shipped chips with a core beside units.

Every shipped workload, the quantised ones included, is compiled for each chip; its C is compiled
for RISC-V at -O2 and run in an emulator, which counts. `code`: what the core computes; `packing`:
what puts images into the chip's order and back; `issuing`: of a core that issues the units' calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table
from tests.host.kernels import WORKLOADS, counted
from tests.host.retired import MISSING, can_count

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 0.15


def chips() -> list[str]:
    """Shipped chips whose specs say what the code of a core beside their units retires."""
    paths = sorted((ROOT / "hw_specs").glob("*.yaml"))
    return [p.stem for p in paths if _has_host(load_hardware(p))]


def _has_host(hardware: HardwareSpec) -> bool:
    machine = hardware.processor
    return bool(hardware.units) and machine is not None and machine.instructions is not None


def rows(chip: str) -> Iterator[tuple[Cell, ...]]:
    """Of each kernel, what is modelled and what is counted."""
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    for path in WORKLOADS:
        name = path.relative_to(ROOT / "workloads").with_suffix("").as_posix()
        try:
            compiled = compile_workload(load_workload(path), hardware)
        except HwgenError as error:
            yield chip, name, error.code, "", "", ""
            continue
        for work in counted(compiled):
            ratio = work.modelled / work.retired
            yield chip, name, work.name, work.modelled, work.retired, ratio


def main(names: Sequence[str]) -> int:
    if not can_count():
        sys.stdout.write(f"{MISSING}\n")
        return 1
    found = [row for chip in names or chips() for row in rows(chip)]
    header = ("chip", "workload", "work", "modelled", "retired", "ratio")
    ratios = [r[5] for r in found if isinstance(r[5], float)]
    near = sum(abs(r - 1) <= LIMIT for r in ratios)
    sys.stdout.write(f"{table(header, found)}\n{near} of {len(ratios)} within {LIMIT:.0%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
