"""What a loop does not move is computed outside of it, beside units as on a processor alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hwgen.autoschedule.search import autoschedule
from hwgen.codegen.nodes import Allocate, nodes
from hwgen.codegen.processor.lower import lower_nest
from hwgen.model.code import run_code
from hwgen.model.reference import random_inputs, run_reference
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import loop_edits
from hwgen.polyhedral.tree.cost import NestCost, estimate_nest
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, make_workload
from hwgen.spec.workload import Workload
from tests.samples import ROOT

TYPES = {"acc": "int32[M, N]", "hi": "int32[M, N]", "y": "int8[M, N]"}
CHANNELS = {"bias": "int32[N]", "mul": "int32[N]", "right": "int32[N]"}
RESCALING = [
    "hi[m, n] = int32((int64(acc[m, n] + bias[n]) * int64(mul[n]) + (1 << 30)) >> 31)",
    "y[m, n] = int8(clip((hi[m, n] + ((1 << (right[n] % 8)) >> 1)) >> (right[n] % 8), -128, 127))",
]


@cache
def chip(name: str = "gemmini") -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def rescaling(m: int, n: int) -> Workload:
    """Factors and shifts belong to the channel `n`."""
    sizes = {"M": m, "N": n}
    return make_workload("rescaling", sizes=sizes, tensors=TYPES | CHANNELS, compute=RESCALING)


def scheduled(workload: Workload, name: str = "gemmini") -> Schedule:
    s = Schedule(workload, chip(name))
    autoschedule(s)
    return s


def cost(s: Schedule, state: LoopTree | None = None) -> NestCost:
    return estimate_nest(state or s.resolved, s.homes, s.hardware)


@pytest.mark.parametrize(("m", "n"), [(64, 16), (30, 7)])
def test_channels_are_outside(m: int, n: int) -> None:
    s = scheduled(rescaling(m, n))
    assert s.loops("y") == ("y_n", "y_m")
    as_written = loop_edits.reorder(s.state, ("y_m", "y_n"))
    assert cost(s).instructions < 0.7 * cost(s, as_written).instructions
    inputs = random_inputs(s.workload, 0)
    code, _ = lower_nest(s.resolved, s.homes, s.hardware)
    found = run_code(code, s.hardware, inputs).outputs["y"]
    assert np.array_equal(found, run_reference(s.workload, inputs)["y"])


def test_rows_go_in_parts_that_stay_in_a_cache() -> None:
    s = scheduled(rescaling(4096, 64))
    loops = s.loops("y")
    assert loops[1] == "y_n", loops
    part = s.extent(loops[2])
    assert s.extent(loops[0]) * part == 4096
    assert 1 < part < 4096
    whole = loop_edits.reorder(s.state, ("y_n", loops[0], loops[2]))
    as_written = loop_edits.reorder(s.state, (loops[0], loops[2], "y_n"))
    assert cost(s).cycles < min(cost(s, whole).cycles, cost(s, as_written).cycles)


def test_loops_stay_where_nothing_is_spared() -> None:
    square = make_workload(
        "square", sizes={"M": 64, "N": 64}, tensors={"x": "int32[M, N]", "y": "int32[M, N]"},
        compute=["y[m, n] = x[m, n] * x[m, n]"],
    )  # fmt: skip
    assert scheduled(square).loops("y") == ("m", "n")


def test_lanes_stay_innermost() -> None:
    s = scheduled(rescaling(64, 16), "cpu_generic")
    assert s.state.loop[s.loops("y")[-1]].kind == "vectorize"


def test_loops_of_a_script_stay() -> None:
    s = Schedule(rescaling(64, 16), chip())
    s.compute_inline("hi")
    s.split("y_m", factor=8)
    autoschedule(s)
    assert s.loops("y") == ("y_m_o", "y_m_i", "y_n")


@pytest.mark.parametrize("name", ["gemmini", "vta"])
def test_code_beside_units_keeps_no_whole_tensor(name: str) -> None:
    """Units add up; the host core rescales in one nest, without a second tensor in its memory."""
    layer = make_workload(
        "layer", sizes={"M": 32, "N": 16, "K": 16},
        tensors=TYPES | CHANNELS | {"x": "int8[M, K]", "w": "int8[N, K]"},
        compute=["acc[m, n] += x[m, k] * w[n, k]", *RESCALING],
    )  # fmt: skip
    made = compile_workload(layer, chip(name))
    (code,) = made.program.codes
    assert not [n for n in nodes(code.body) if isinstance(n, Allocate)]
    written = Schedule(rescaling(32, 16), chip(name))
    assert code.cycles < cost(written).cycles
