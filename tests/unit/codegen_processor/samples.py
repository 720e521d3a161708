"""Chips, small workloads, and one call that lowers, emits and runs a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from hwgen.codegen.nodes import Code
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.source import CSource
from hwgen.model.native import compile_portable
from hwgen.model.numeric import Array
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from tests.shim.cuda import device

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = tuple(sorted(p.stem for p in (ROOT / "workloads").glob("*.yaml")))
ODD = {"M": 5, "N": 7, "K": 9, "C": 3, "H": 7, "W": 5, "O": 4, "L": 5, "D": 3, "G": 2}
SEEDS = range(3)


@cache
def cpu() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")


@cache
def gpu() -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")


def workload(name: str, **sizes: int) -> Workload:
    """A shipped workload at small odd sizes."""
    path = ROOT / "workloads" / f"{name}.yaml"
    known = dict(load_workload(path).sizes)
    wanted = {**ODD, **({"N": 2} if "conv" in name else {}), **sizes}
    return load_workload(path, {k: v for k, v in wanted.items() if k in known})


def schedule(name: str, hardware: HardwareSpec, **sizes: int) -> Schedule:
    return Schedule(workload(name, **sizes), hardware)


def program(s: Schedule) -> Code:
    return lower_nest(s.resolved, s.homes, s.hardware)[0]


def source(s: Schedule) -> CSource:
    return emit_nest(program(s), s.hardware, s.workload)


def check_native(s: Schedule) -> CSource:
    """Run on this machine and compare with the reference."""
    made = source(s)
    inputs = random_inputs(s.workload, 7)
    agree(compile_portable(made, s.hardware).run(inputs), run_reference(s.workload, inputs))
    return made


def check_blocks(s: Schedule) -> CSource:
    """Run on the shim, threads in several orders, and compare with the reference."""
    made = source(s)
    inputs = random_inputs(s.workload, 7)
    expected = run_reference(s.workload, inputs)
    for seed in SEEDS:
        done = device.run(made, inputs, seed)
        assert done.message == ""
        agree(done.outputs, expected)
    return made


def agree(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":
            wide = found[name].astype(np.float64)
            np.testing.assert_allclose(wide, array.astype(np.float64), rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], array)
