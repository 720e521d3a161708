"""Every polyhedral computation runs under a bound on its steps, whatever asks for it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import islpy
import pytest

import hwgen
from hwgen.cli import main
from hwgen.codegen.processor.lower import lower_nest
from hwgen.completing import complete_script
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.scripting import compile_script
from hwgen.polyhedral import isl
from hwgen.report.text import stage_text
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.sampling import THOROUGH

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nothing_outside() -> Generator[None, None, None]:
    """No step is left for what is computed outside of all bounds, and nothing is remembered."""
    isl.forget()
    context = islpy.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(1)
    yield
    context.reset_operations()
    context.set_max_operations(isl.MAX_OPERATIONS)


def chip(name: str) -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def shipped(name: str, **sizes: int) -> Workload:
    return hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", sizes)


def test_there_is_a_bound_from_the_start() -> None:
    assert islpy.DEFAULT_CONTEXT.get_max_operations() == isl.MAX_OPERATIONS


@pytest.mark.usefixtures("nothing_outside")
def test_without_a_bound_of_its_own_nothing_is_computed() -> None:
    with pytest.raises(islpy.Error):
        isl.Set("{ [i] : 0 <= i < 10 }").subtract(isl.Set("{ [i] : 3 < i < 5 }"))


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize(
    ("name", "layer"),
    [("vta", "gemm"), pytest.param("npu_shared_buffer", "linear_relu", marks=THOROUGH)],
)
def test_chips_with_units(name: str, layer: str) -> None:
    workload, hardware = shipped(layer, M=1, N=16, K=16), chip(name)
    found = hwgen.compile_kernel(workload, hardware)
    for stage in ("dependences", "match", "lower", "emit", "simulate"):
        assert stage_text(found, stage)
    script = found.script
    assert compile_script(workload, hardware, script).cycles == found.cycles
    assert complete_script(workload, hardware, "").cycles


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("name", ["cpu_generic", "cuda_generic"])
def test_processors(name: str) -> None:
    found = compile_nest(shipped("conv2d", H=4, W=4, C=4, O=4), chip(name))
    for stage in found.artefacts():
        assert found.stage(stage)
    replayed = hwgen.Schedule(found.workload, found.hardware).replay(found.script)
    lower_nest(replayed.resolved, replayed.homes, found.hardware)
    replayed.undo()


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "--spec", "{vta}", "--workload", "{gemm}", "--set", "M=1", "--set", "N=16",
         "--set", "K=16"),
        ("simulate", "--spec", "{vta}", "--workload", "{gemm}", "--set", "M=1", "--set", "N=16",
         "--set", "K=16"),
        ("simulate", "--spec", "{cpu_generic}", "--workload", "{gemm}", "--set", "N=16"),
    ],
)  # fmt: skip
def test_commands(command: tuple[str, ...]) -> None:
    files = {p.stem: str(p) for p in ROOT.glob("*/*.yaml")}
    assert main([part.format(**files) for part in command]) == 0
