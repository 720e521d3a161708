"""hwgen's own kernels for the chip of `harness.py`: compiled, emitted and executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from hwgen.codegen.source import CSource
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import first_difference
from tests.gemmini import harness
from tests.gemmini.harness import Run, Signature
from tests.sampling import QUICK

ROOT = harness.HERE.parents[1]

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What replaces the search's choice: tiles of each loop, tile loops around the load of each
    buffer, and its slots."""

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


def case(workload: str, **sizes: int) -> Case:
    return Case(workload, tuple(sizes.items()))


@cache
def chip() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "gemmini.yaml")


def path(name: str) -> Path:
    shared = ROOT / "workloads" / f"{name}.yaml"
    return shared if shared.exists() else harness.HERE / "workloads" / f"{name}.yaml"


@cache
def compiled(which: Case, options: SearchOptions = QUICK) -> Kernel:
    workload = load_workload(path(which.workload), dict(which.sizes))
    found = compile_kernel(workload, chip(), options=options)
    if which.schedule is None:
        return found
    tiling = found.tiling
    given = which.schedule
    sizes = {loop: -(-tiling.match.count[loop] // count) for loop, count in given.tiles}
    tiling = replace(
        tiling,
        tiles=tuple((tiling.tile | sizes).items()),
        depths=tuple((tiling.depth | dict(given.depths)).items()),
        slots=tuple((tiling.slot | dict(given.slots)).items()),
    )
    return compile_kernel(
        workload, chip(), replace(found.account.search.candidates[0], tiling=tiling)
    )


def inputs(workload: Workload, seed: int) -> dict[str, Array]:
    """Data over the whole range of int8; of int32 too, but for seed 0: there a bias is as large as
    sums are, so that these are seen in the outputs."""
    return {
        name: np.right_shift(x, 15) if seed == 0 and x.dtype == np.int32 else x
        for name, x in random_inputs(workload, seed).items()
    }


def execute_source(source: CSource, given: Mapping[str, Array]) -> Run:
    """Build a kernel's C against the executing header and call it once."""
    signature = Signature(source.function, source.inputs, source.outputs, status=True)
    program = harness.build(_told(source.c), (signature,), flags=("-O0",), heap=True)
    return harness.run(program, source.function, given)


def _told(text: str) -> str:
    """The C with what its packing does to heap buffers told to the harness, which sees no loops."""
    packs = r"^( *\w+_(?:fill|pack)_\w+\(.*, (\w+)\);)$"
    text = re.sub(packs, r"\1 shim_host_loops(\2, 1);", text, flags=re.M)
    return re.sub(
        r"^( *)(\w+_unpack_\w+\((\w+), )", r"\1shim_host_loops(\3, 0); \2", text, flags=re.M
    )


def assert_agrees(compilation: Kernel, seed: int = 0) -> Run:
    """The executed kernel keeps every rule and equals the reference, bit for bit."""
    given = inputs(compilation.workload, seed)
    found = execute_source(compilation.source, given)
    assert (found.code, found.error, found.status) == ("", "", 0)
    difference = first_difference(found.outputs, run_reference(compilation.workload, given))
    assert difference is None, str(difference)
    return found
