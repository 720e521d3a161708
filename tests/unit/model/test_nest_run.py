"""The executor of schedules finds what is wrong with one, even where the values happen to agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.nest_run import run_nest
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.nest.state import Block, Loop, Node, State, map_blocks, map_loops
from hwgen.schedule import Schedule
from hwgen.spec.load import load_hardware, make_workload
from tests.samples import ROOT


def schedule() -> Schedule:
    workload = make_workload(
        "two",
        sizes={"M": 9, "N": 12, "K": 6},
        tensors={"a": "int32[M, K]", "b": "int32[K, N]", "t": "int32[M, N]", "y": "int32[M, N]"},
        compute=["t[m, n] += a[m, k] * b[k, n]", "y[m, n] = t[m, n] + 1"],
    )
    s = Schedule(workload, load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml"))
    outer, _ = s.split(s.loops("y")[0], factor=4)
    s.compute_at("t", outer)
    s.decompose_reduction("t", s.loops("t")[-1])
    return s


def test_it_agrees_with_the_reference() -> None:
    s = schedule()
    inputs = random_inputs(s.workload, 0)
    run = run_nest(s.resolved, s.homes, s.workload, inputs)
    assert np.array_equal(run.outputs["y"], run_reference(s.workload, inputs)["y"])
    assert run.written_elements["y"] == 9 * 12
    assert run.instances == 9 * 12 * (1 + 6 + 1)


def _late(state: State) -> State:
    def swap(x: Loop) -> tuple[Node, ...]:
        return (replace(x, body=x.body[::-1]) if len(x.body) > 1 else x,)

    return replace(state, root=map_loops(state.root, swap))


def _no_start(state: State) -> State:
    return replace(state, root=map_blocks(state.root, lambda b: None if b.part == "init" else b))


def _no_tail(state: State) -> State:
    def bare(block: Block) -> Block:
        return replace(block, predicate=())

    return replace(state, root=map_blocks(state.root, bare))


def _short(state: State) -> State:
    def cut(x: Loop) -> tuple[Node, ...]:
        return (replace(x, extent=x.extent - 1) if len(x.body) > 1 else x,)

    return replace(state, root=map_loops(state.root, cut))


@pytest.mark.parametrize("mutate", [_late, _no_start, _no_tail, _short])
def test_mutations_are_caught(mutate: Callable[[State], State]) -> None:
    s = schedule()
    inputs = random_inputs(s.workload, 0)
    with pytest.raises(HwgenError) as caught:
        run_nest(mutate(s.resolved), s.homes, s.workload, inputs)
    assert caught.value.code == "H729"


def test_a_home_too_deep_is_caught() -> None:
    """The values would be right: only the place where the buffer lives is wrong."""
    s = Schedule(schedule().workload, load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml"))
    s.compute_at("t", s.loops("y")[0])
    inputs = random_inputs(s.workload, 0)
    run_nest(s.resolved, s.homes, s.workload, inputs)
    s = schedule()
    s.compute_root("t")
    homes = {**s.homes, "t": ()}
    run_nest(s.resolved, homes, s.workload, inputs)
    with pytest.raises(HwgenError, match="H729"):
        run_nest(s.resolved, {**homes, "t": s.loops("y")[:1]}, s.workload, inputs)


def test_a_missing_input_is_refused() -> None:
    s = schedule()
    with pytest.raises(HwgenError) as caught:
        run_nest(s.resolved, s.homes, s.workload, {})
    assert caught.value.code == "H726"
