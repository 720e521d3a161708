"""Every workload on every chip with a processor: the simulator, the emitted text, the script."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hwgen.autoschedule.options import Options
from hwgen.model.compiled import have_compiler
from hwgen.model.numeric import Array
from hwgen.passes.kernel import Kernel
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.samples import ROOT, WORKLOADS
from tests.sampling import THOROUGH
from tests.shim.cuda import device

CHIPS = tuple(p for p in sorted((ROOT / "hw_specs").glob("*.yaml")) if not load_hardware(p).units)
ODD = {
    "add": {"M": 7, "N": 33},
    "attention": {"L": 13, "D": 9},
    "conv2d": {"C": 3, "H": 7, "W": 9, "O": 5},
    "conv2d_requant": {"C": 2, "H": 7, "W": 9, "O": 17, "S": 2},
    "conv2d_scaled": {"C": 2, "H": 9, "W": 7, "O": 19, "S": 2},
    "depthwise_conv2d": {"C": 3, "H": 7, "W": 9, "P": 2},
    "gemm": {"M": 5, "N": 37, "K": 29},
    "gemm_requant": {"M": 13, "N": 19, "K": 70},
    "gemm_scaled": {"M": 19, "N": 13, "K": 70},
    "layernorm": {"M": 5, "N": 33},
    "matmul": {"M": 33, "N": 17, "K": 130},
    "matvec": {"M": 33, "K": 131},
    "mlp": {"M": 3, "K": 17, "H": 19, "G": 9, "N": 7},
    "relu": {"M": 5, "N": 130},
}
BUSY = Options(parallel_cycles=0.0)

every_kernel = pytest.mark.parametrize(
    ("chip", "workload"),
    [
        pytest.param(
            chip, workload, id=f"{chip.stem}-{workload.stem}", marks=THOROUGH if (c + w) % 2 else ()
        )
        for c, chip in enumerate(CHIPS)
        for w, workload in enumerate(WORKLOADS)
    ],
)
"""Each workload on every second chip is tried by `make test`."""


@cache
def hardware(path: Path) -> HardwareSpec:
    return load_hardware(path)


@cache
def compiled(chip: Path, workload: Path) -> Kernel:
    small = load_workload(workload, ODD.get(workload.stem, {}))
    return compile_nest(small, hardware(chip), options=BUSY)


def differs(workload: Workload, inputs: dict[str, Array], outputs: dict[str, Array]) -> str:
    from hwgen.model.reference import run_reference

    found = unexplained(workload, inputs, outputs, run_reference(workload, inputs))
    return str(found or "")


@every_kernel
def test_the_simulator_agrees_with_the_reference(chip: Path, workload: Path) -> None:
    c = compiled(chip, workload)
    examine(c, draw_inputs(c.workload, 1))
    assert c.cycles >= c.bound.cycles > 0


@every_kernel
def test_the_text_agrees_with_the_reference(chip: Path, workload: Path) -> None:
    if not have_compiler():
        pytest.skip("no C compiler")
    c = compiled(chip, workload)
    inputs = draw_inputs(c.workload, 2)
    assert c.hardware.processor is not None
    if c.hardware.processor.language == "c":
        examine(c, inputs, "c")
        return
    done = device.run(c.source, inputs, seed=3)
    assert done.message == ""
    assert differs(c.workload, inputs, done.outputs) == ""


@every_kernel
def test_the_script_replays_to_the_same_bytes(chip: Path, workload: Path) -> None:
    c = compiled(chip, workload)
    again = compile_nest(c.workload, c.hardware, script=c.script, auto=False)
    assert c.script
    assert again.account.report is None
    assert again.script == c.script
    assert str(again.program) == str(c.program)
    assert again.source == c.source


@every_kernel
def test_it_compiles_without_a_schedule(chip: Path, workload: Path) -> None:
    small = load_workload(workload, ODD.get(workload.stem, {}))
    plain = compile_nest(small, hardware(chip), auto=False)
    assert plain.script == ""
    examine(plain, draw_inputs(small, 3))


@pytest.mark.parametrize("chip", CHIPS, ids=lambda p: p.stem)
def test_every_stage_prints(chip: Path) -> None:
    c = compiled(chip, ROOT / "workloads" / "gemm.yaml")
    shown = {stage: c.stage(stage) for stage in c.artefacts()}
    assert all(shown.values())
    assert len(set(shown.values())) == len(c.artefacts())
