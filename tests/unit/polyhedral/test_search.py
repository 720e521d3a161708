"""What a search says about its space, and that it says the same every time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hwgen
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import compile_phase
from hwgen.passes.start import Start
from hwgen.pipeline import SearchOptions
from hwgen.polyhedral.match.matching import Match, match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.bound import distinct_entries, least_work
from hwgen.polyhedral.search.estimate import Costing, Estimate, Wanted, estimate
from hwgen.polyhedral.search.estimate_moved import moved_cost
from hwgen.polyhedral.search.estimate_shape import Cache, Grid, Shape
from hwgen.polyhedral.search.objective import Objective
from hwgen.polyhedral.search.promising import promising
from hwgen.polyhedral.search.search import Candidate, SearchResult, Watch, search
from hwgen.polyhedral.search.space import (
    RESTRICTIONS,
    Space,
    active_depth,
    choose_space,
    length,
    smaller,
)
from hwgen.spec.affine import Affine
from hwgen.spec.hardware import HardwareSpec
from tests.sampling import THOROUGH, tiered

UNLIMITED = SearchOptions()
ROOT = Path(__file__).parents[3]
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"M": 20, "N": 100, "K": 300},
    "gemm_requant": {"M": 256, "N": 256, "K": 256},
    "conv2d_requant": {},
    "add": {"M": 56, "N": 256},
}


each = pytest.mark.parametrize("name", tiered([*SIZES], [n for n in SIZES if n != "gemm_requant"]))


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")


@cache
def compiled(name: str, options: SearchOptions = UNLIMITED) -> Kernel:
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", SIZES[name])
    return hwgen.compile_kernel(workload, chip(), options=options)


def matches(name: str) -> list[Match]:
    scop = build_scop(hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", SIZES[name]))
    return match(scop, select(scop, chip()))


@each
def test_every_point_is_accounted_for(name: str) -> None:
    found = compiled(name).account.search
    assert found.evaluated > 0
    assert found.left_out >= 0
    assert found.evaluated + found.too_large + found.too_slow + found.left_out == found.points
    assert found.exhausted is (not found.cuts) is (found.left_out == 0)
    assert found.cycles == compiled(name).cycles
    assert found.cycles >= compiled(name).bound.cycles > 0


def test_both_prunings_happen() -> None:
    found = compiled("conv2d_requant").account.search
    assert found.too_large > 0
    assert found.too_slow > 0


@each
def test_no_simulated_kernel_beats_the_bound_that_prunes(name: str) -> None:
    c = compiled(name)
    assert least_work(chip(), c.match) <= c.cycles
    for candidate in c.account.search.candidates:
        assert 0 < candidate.bound <= candidate.cycles


@each
def test_a_bound_prunes_nothing_that_is_among_the_best(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned = search(chip(), matches(name), keep=8)
    assert pruned.too_slow > 0 or name != "conv2d_requant"
    monkeypatch.setattr("hwgen.polyhedral.search.search.work_bound", _nothing)
    complete = search(chip(), matches(name), keep=8)
    assert complete.too_slow == 0
    assert [c.cycles for c in complete.candidates] == [c.cycles for c in pruned.candidates]


def _nothing(_: HardwareSpec, __: Match, grid: Grid) -> NDArray[np.float64]:
    return np.zeros(length(grid))


def test_the_same_search_gives_the_same_text() -> None:
    name = "gemm"
    workload = hwgen.load_workload(ROOT / "workloads" / f"{name}.yaml", SIZES[name])
    again = hwgen.compile_kernel(workload, chip())
    for stage in ("schedule", "lower"):
        assert again.stage(stage) == compiled(name).stage(stage)


def test_a_search_without_time_gives_a_kernel_and_says_so() -> None:
    cut = compiled("conv2d_requant", SearchOptions(seconds=0.0)).account.search
    full = compiled("conv2d_requant").account.search
    assert not cut.exhausted
    assert "time limit of 0 s reached" in cut.cuts
    assert cut.simulated == 1
    assert cut.points >= cut.evaluated < full.evaluated
    assert cut.cycles >= full.cycles
    assert cut.left_out > full.left_out


def test_a_limit_that_does_not_bind_changes_nothing() -> None:
    limited = compiled("gemm", SearchOptions(seconds=3600.0))
    assert limited.stage("schedule") == compiled("gemm").stage("schedule")


def test_progress_counts_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", SIZES["gemm"])
    note = SearchOptions(progress=lambda done, steps: seen.append((done, steps)))
    hwgen.compile_kernel(workload, chip(), options=note)
    assert seen == sorted(seen)
    assert all(0 < done <= steps for done, steps in seen)


def test_the_result_reads_as_a_paragraph() -> None:
    found = SearchResult(
        (), points=1_000, evaluated=700, too_large=200, too_slow=60, cuts=("a cut",), matches=2,
        matches_too_slow=1, simulated=5, beside=2, refused=1, cycles=1_210,
    )  # fmt: skip
    text = found.told(1_100)
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    assert words == (
        "search: 1,000 points of 2 matches, 700 costed, 200 pruned as too large "
        "for a memory, 60 pruned by the bound on their work, 40 left out; not exhausted: a cut; "
        "1 other match pruned by the bound on their work. 5 simulated, 2 more beside them and 1 "
        "refused by the hardware's limits: the best takes 1,210 cycles, 1.100 x its lower bound "
        "of 1,100."
    )
    assert "all of the space" in str(replace(found, cuts=()))
    assert " ".join(str(found).split()).endswith("the best takes 1,210 cycles.")


def test_a_given_schedule_is_not_searched_for() -> None:
    c = compiled("gemm")
    other = hwgen.compile_kernel(c.workload, c.hardware, schedule=Candidate(c.tiling, cycles=1.0))
    assert other.cycles == c.cycles
    assert str(other.account.search) == "search: none, the schedule was given"


@each
def test_what_the_search_builds_belongs_to_the_space(name: str) -> None:
    for candidate in compiled(name).account.search.candidates:
        tiling = candidate.tiling
        space = Space(chip(), tiling.match, RESTRICTIONS[0])
        assert space.contains(tiling)
        grown = tuple((n, t + 10_000) for n, t in tiling.tiles)
        assert not space.contains(replace(tiling, tiles=grown))
        assert not space.contains(replace(tiling, order=(*tiling.order, "q")))
        assert not space.contains(replace(tiling, order=tiling.order[1:]))
        deep = tuple((n, d + 10) for n, d in tiling.depths)
        assert not space.contains(replace(tiling, depths=deep))
        assert not space.contains(replace(tiling, slots=tuple((n, 3) for n, _ in tiling.slots)))


def test_a_large_space_is_restricted_and_a_small_one_whole() -> None:
    for name, whole in (("add", True), ("conv2d_requant", False)):
        complete, chosen = choose_space(chip(), matches(name)[0])
        assert (complete == chosen) is whole
        assert chosen.tiles * chosen.shapes <= complete.tiles * complete.shapes


def test_a_space_of_many_loops_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwgen.polyhedral.search.space.MAX_SHAPES", 100)
    monkeypatch.setattr("hwgen.polyhedral.search.space.MAX_POINTS", 1000)
    monkeypatch.setattr("hwgen.polyhedral.search.space.WHOLE_SPACE", 1000)
    (first, *_) = matches("conv2d_requant")
    large = Space(chip(), first, RESTRICTIONS[-1])
    assert large.choices > 100
    assert large.tiles > 1000
    few = smaller(large)
    assert few.choices <= 100
    assert few.tiles <= 1000
    assert choose_space(chip(), first)[1] == few
    for loop in (*few.spatial, *few.reduction):
        assert first.count[loop] in few.sizes(loop)


@THOROUGH
def test_orders_that_are_good_at_few_tile_sizes_hold_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hwgen.polyhedral.search.space.WHOLE_SPACE", 1 << 16)
    for name in ("gemm_requant", "conv2d_requant"):
        found = matches(name)[:1]
        monkeypatch.setattr("hwgen.polyhedral.search.search.LOOKED_AT", 1 << 40)
        every = search(chip(), found)
        monkeypatch.setattr("hwgen.polyhedral.search.search.LOOKED_AT", 0)
        some = search(chip(), found)
        assert some.candidates[0].cycles == every.candidates[0].cycles
    assert some.evaluated < every.evaluated / 2
    assert "most orders and placements at few tile sizes" in some.cuts


def test_a_short_last_tile_can_be_the_better_one() -> None:
    """The cost knows: fourteen columns of blocks, and two that drain sooner than eight would."""
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml")
    found = search(chip(), compile_phase(Start(workload, chip()), SearchOptions()).account.matches)
    (n, *_) = found.candidates[0].tiling.loops
    assert (n.loop, n.count) == ("n", 2)
    assert n.last < n.tile / 2


def test_an_expired_watch_says_its_limit() -> None:
    watch = Watch(seconds=0.0)
    while not watch.expired:
        pass
    assert watch.reason == "time limit of 0 s reached"
    assert not Watch().expired


def test_entries_are_not_counted_twice() -> None:
    found = matches("gemm")[0]
    m, n = Affine((("m", 1),)), Affine((("n", 1),))
    both = Affine((("m", 1), ("n", 1)))
    count = found.count
    assert distinct_entries(found, (m, n)) == count["m"] * count["n"]
    assert distinct_entries(found, (both,)) == max(count["m"], count["n"])
    assert distinct_entries(found, (both, both)) == 1


def test_no_place_of_a_load_is_there_twice() -> None:
    """In tiles as small as any, each order has every placement once."""
    (first, *_) = matches("conv2d_requant")
    whole, space = choose_space(chip(), first)
    assert space.cut < whole.cut  # Windows stay whole.
    tiles = {n: min(space.sizes(n)) for n in (*space.spatial, *space.reduction)}
    tiles = first.count | tiles

    def active(loops: tuple[str, ...], placement: dict[str, int]) -> tuple[tuple[str, int], ...]:
        return tuple((n, active_depth(first, tiles, loops, d)) for n, d in placement.items())

    seen = [(p.loops, p.parts, active(p.loops, p.placement)) for p in space.every()]
    assert len(seen) == len(set(seen)) > 0


@pytest.mark.parametrize("objective", ["cycles", "traffic"])
def test_orders_that_their_bounds_rule_out_are_not_among_the_best(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = matches("conv2d_requant")[0]
    space = smaller(choose_space(chip(), first)[1])
    grid, _ = space.grid()
    cache = Cache()
    shapes = [
        Shape(chip(), first, grid, p.loops, len(space.spatial), p.placement, cache, 2, p.parts)
        for p in space.every()
    ][:60]
    costed: list[Shape] = []
    whole = Costing.costed

    def counted(costing: Costing, wanted: Wanted) -> Estimate:
        costed.append(costing.shape)
        return whole(costing, wanted)

    def cost(shape: Shape) -> float:
        if objective == "cycles":
            return float(estimate(shape, Wanted(1)).cycles.min())
        fits = np.isfinite(Costing(shape).bound)
        return float(np.where(fits, moved_cost(shape, objective), np.inf).min())

    monkeypatch.setattr(Costing, "costed", counted)
    found = promising(shapes, 4, objective)
    monkeypatch.undo()
    every = [(bool(s.parts), cost(s), n) for n, s in enumerate(shapes)]
    sides = [sorted(x for x in every if x[0] is parts) for parts in (False, True)]
    assert found == sorted(n for side in sides for *_, n in side[:4])
    assert len(costed) < len({s.alike for s in shapes}) / 2
