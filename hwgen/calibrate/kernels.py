"""Small kernels that need each cost of a processor, and others that no cost is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hwgen.autoschedule.search import autoschedule
from hwgen.errors import Tolerating
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.expression import FUNCTIONS
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_workload, make_workload
from hwgen.spec.processor import Processor
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload

COUNTED_SIZES = ((5, 20), (8, 24), (16, 32), (4, 61))
"""Rows and columns: few and many iterations, rows that are whole words and rows that are not."""
TIMED_ROWS = 16

Progress = Callable[[int, int], None]
"""Called with the number of kernels that are done, and of all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel that the processor runs alone. `held_out`: costs are only judged by it."""

    name: str
    kernel: Kernel
    held_out: bool = False


def samples(hardware: HardwareSpec, progress: Progress | None = None) -> list[Sample]:
    """The kernels of a chip's processor, without those that it refuses."""
    found: list[Sample] = []
    wanted = list(workloads(hardware.machine))
    for number, (name, workload, held_out) in enumerate(wanted, 1):
        with Tolerating(REFUSALS), isl.bounded():
            schedule = Schedule(workload, hardware)
            autoschedule(schedule)
            found.append(Sample(name, compile_tree(schedule), held_out))
        if progress is not None:
            progress(number, len(wanted))
    return found


def workloads(machine: Processor) -> Iterator[tuple[str, Workload, bool]]:
    """Names, workloads, and which are held out: those of `kernels.yaml`, one for each function that
    the spec has a cost of, and one for all other functions."""
    document = cast("Any", read_document(Path(__file__).with_name("kernels.yaml")).data)
    kinds, sizes = dict(document["fitted"]), COUNTED_SIZES
    counts = machine.instructions is not None
    if machine.instructions is None:
        sizes = _timed_sizes(machine)
    else:
        kinds |= document["counted"]
        tensors = {"x": "float32[M, N]", "y": "float32[M, N]"}
        names = (*dict(machine.instructions.functions), "tanh")
        for name in (n for n in names if FUNCTIONS.get(n) == 1):
            value = f"y[m, n] = {name}(x[m, n] * x[m, n] + 0.5)"
            kinds[name] = {"tensors": tensors, "compute": [value]}
    for kind, text in kinds.items():
        for m, n in sizes:
            yield f"{kind} {m} x {n}", make_workload(kind, sizes={"M": m, "N": n}, **text), False
    for name, small in document["held_out"].items():
        yield name, load_workload(name, small if counts else {}), True


def _timed_sizes(machine: Processor) -> tuple[tuple[int, int], ...]:
    """Sizes at which three tensors fill each cache but the smallest, and one for memory."""
    rooms = [c.usable_bytes for c in machine.caches[1:]] or [2.0**20]
    held = [*rooms, 4 * rooms[-1]]
    return tuple((TIMED_ROWS, int(room / TIMED_ROWS / 12) // 8 * 8) for room in held)
