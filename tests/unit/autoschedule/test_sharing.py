"""Nests that follow one another share loops where that keeps tensors in caches, and only there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from hwgen.autoschedule.options import Options
from hwgen.autoschedule.report import Choice
from hwgen.autoschedule.search import autoschedule
from hwgen.codegen.processor.lower import lower_nest
from hwgen.model.code import run_code
from hwgen.model.reference import random_inputs, run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.cost import estimate_nest
from hwgen.polyhedral.tree.loop_tree import Loop
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, make_workload
from hwgen.spec.workload import Workload
from tests.samples import ROOT


@cache
def chip(cores: int = 1) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml", {"CORES": cores})


def workload(name: str, sizes: Mapping[str, int]) -> Workload:
    return load_workload(ROOT / "workloads" / f"{name}.yaml", dict(sizes))


def scheduled(workload: Workload, cores: int = 1, options: Options | None = None) -> Schedule:
    s = Schedule(workload, chip(cores))
    autoschedule(s, options or Options())
    return s


def right(s: Schedule) -> bool:
    inputs = random_inputs(s.workload, 0)
    code, _ = lower_nest(s.resolved, s.homes, s.hardware)
    found = run_code(code, s.hardware, inputs).outputs
    expected = run_reference(s.workload, inputs)
    return all(np.allclose(found[n], expected[n], rtol=1e-3, atol=1e-3) for n in expected)


def products(m: int, k: int, n: int) -> Workload:
    """The weights of each are brought once where it has loops of its own."""
    return make_workload(
        "products",
        sizes={"M": m, "K": k, "N": n},
        tensors={
            "x": "float32[M, K]", "v": "float32[K, N]", "h": "float32[M, N]",
            "w": "float32[N, K]", "y": "float32[M, K]",
        },
        compute=["h[i, j] += x[i, k] * v[k, j]", "y[i, j] += h[i, k] * w[k, j]"],
    )  # fmt: skip


@pytest.mark.parametrize("m", [128, 126, 127])
def test_normalised_rows_share_a_loop(m: int) -> None:
    s = scheduled(workload("layernorm", {"M": m, "N": 768}))
    (loop,) = s.state.root
    assert isinstance(loop, Loop)
    assert all(s.homes[t] == (loop.name,) for t in ("total", "c", "sq", "r"))
    assert right(s)


def test_workers_share_what_was_merged() -> None:
    s = scheduled(workload("layernorm", {"M": 512, "N": 768}), cores=4)
    assert [(x.kind, x.extent >= 16) for x in s.state.root if isinstance(x, Loop)] == [
        ("parallel", True)
    ]


def test_one_worker_is_not_started() -> None:
    s = scheduled(workload("layernorm", {"M": 512, "N": 768}))
    assert all(x.kind != "parallel" for x in s.state.loop.values())


def test_workers_count_their_iterations() -> None:
    """One of them has as many as nobody else has: its start is all that it adds."""
    s = Schedule(workload("layernorm", {"M": 64, "N": 768}), chip())
    alone = estimate_nest(s.resolved, s.homes, chip()).cycles
    s.parallel("m")
    start = chip().machine.start_cycles
    assert estimate_nest(s.resolved, s.homes, chip()).cycles == alone + start


def test_loops_go_together_of_which_none_would_alone() -> None:
    """With its squares alone, each row would be out of the cache before its result is made."""
    vectors = load_hardware(ROOT / "hw_specs" / "x86_avx512.yaml")
    s = Schedule(workload("layernorm", {"M": 64, "N": 1024}), vectors)
    report = autoschedule(s)
    (loop,) = s.state.root
    assert isinstance(loop, Loop)
    assert all(s.homes[t] == (loop.name,) for t in ("total", "c", "sq", "r"))
    assert any(", " in c.stage for c in report.choices)
    assert right(s)


def test_loops_of_one_iteration_do_not_hide_others() -> None:
    s = scheduled(workload("depthwise_conv2d", {}))
    (loop,) = s.state.root
    assert isinstance(loop, Loop)
    assert loop.extent == 32
    assert right(s)


def test_products_whose_weights_do_not_fit_together_stay_apart() -> None:
    s = scheduled(products(512, 512, 512))
    made = [{b.block.stage for b in s.state.sites if b.names[0] == x.name} for x in s.state.root]
    assert not any({"h", "y"} <= stages for stages in made)


def test_what_a_user_scheduled_is_not_merged() -> None:
    s = Schedule(workload("layernorm", {"M": 512, "N": 768}), chip())
    s.split(s.loops("c")[0], factor=64)
    before = s.loops("c")
    autoschedule(s)
    assert s.loops("c") == before
    around = [b.block.stage for b in s.state.sites if before[0] in b.names]
    assert around == ["c"]


def test_it_is_modelled_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    given = workload("layernorm", {"M": 512, "N": 768})
    merged = scheduled(given)

    def none(*_: object) -> list[Choice]:
        return []

    monkeypatch.setattr("hwgen.autoschedule.search.share_loops", none)
    apart = scheduled(given)
    cycles = [estimate_nest(s.resolved, s.homes, chip()).cycles for s in (merged, apart)]
    assert len(apart.state.root) > 1
    assert cycles[0] < 0.8 * cycles[1]


def test_a_merge_that_spares_nothing_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of a state that legality has not seen may be too good."""
    seen: list[float] = []

    def falling(*_: object) -> float:
        seen.append(0.0)
        return 5.0 if len(seen) % 3 == 2 else 10.0

    monkeypatch.setattr("hwgen.autoschedule.sharing._cycles", falling)
    s = scheduled(workload("layernorm", {"M": 64, "N": 768}))
    assert "s.merge(" not in s.trace()
    assert seen
