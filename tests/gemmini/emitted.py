"""hwgen's own kernels for the chip of `harness.py`: compiled, emitted and executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.pipeline import Compilation, compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import first_difference
from tests.gemmini import harness
from tests.gemmini.harness import Run, Signature

ROOT = harness.HERE.parents[1]

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What replaces the search's choice: tiles in blocks, loops around the load of each buffer and
    its slots."""

    tiles: tuple[tuple[str, int], ...]
    depths: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, of `workloads/` or of these tests, with some of its sizes."""

    workload: str
    sizes: Sizes
    schedule: Schedule | None = None

    def __str__(self) -> str:
        sizes = "_".join(f"{name}{value}" for name, value in self.sizes)
        if self.schedule is None:
            return f"{self.workload}-{sizes}"
        parts = (*self.schedule.tiles, *self.schedule.depths, *self.schedule.slots)
        return f"{self.workload}-{sizes}-{'_'.join(f'{name}{value}' for name, value in parts)}"


def case(workload: str, schedule: Schedule | None = None, **sizes: int) -> Case:
    return Case(workload, tuple(sizes.items()), schedule)


@cache
def chip() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "gemmini.yaml")


def _path(name: str) -> Path:
    shared = ROOT / "workloads" / f"{name}.yaml"
    return shared if shared.exists() else harness.HERE / "workloads" / f"{name}.yaml"


@cache
def compiled(which: Case) -> Compilation:
    workload = load_workload(_path(which.workload), dict(which.sizes))
    found = compile_kernel(workload, chip())
    if which.schedule is None:
        return found
    tiling = found.schedule.tiling
    given = which.schedule
    tiling = replace(
        tiling,
        tiles=tuple((tiling.tile | dict(given.tiles)).items()),
        depths=tuple((tiling.depth | dict(given.depths)).items()),
        slots=tuple((tiling.slot | dict(given.slots)).items()),
    )
    return compile_kernel(workload, chip(), replace(found.search.candidates[0], tiling=tiling))


def execute(compilation: Compilation, inputs: Mapping[str, Array]) -> Run:
    """Build a kernel's C against the executing header and call it once."""
    source = compilation.source
    signature = Signature(source.function, source.inputs, source.outputs, status=True)
    program = harness.build(source.c, (signature,), flags=("-O1",), heap=True)
    return harness.run(program, source.function, inputs)


def assert_agrees(compilation: Compilation, seed: int = 0) -> Run:
    """The executed kernel keeps every rule and equals the reference, bit for bit."""
    inputs = random_inputs(compilation.workload, seed)
    found = execute(compilation, inputs)
    assert (found.code, found.error, found.status) == ("", "", 0)
    difference = first_difference(found.outputs, run_reference(compilation.workload, inputs))
    assert difference is None, str(difference)
    return found
