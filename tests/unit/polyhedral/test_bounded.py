"""Polyhedral work is bounded, and a search says what it left out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.matching import ranked_matches
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.choose import choose
from hwgen.polyhedral.search.search import Candidate, Watch, search
from hwgen.polyhedral.search.space import tile_options
from tests.made import Made

ROOT = Path(__file__).parents[3]


def test_too_long_a_computation_is_given_up() -> None:
    with pytest.raises(HwgenError) as caught, isl.bounded(100):
        isl.Set("{ [i] : exists a: i = 3a and 0 <= i < 100 }").subtract(isl.Set("{ [i] : i > 7 }"))
    assert caught.value.code == "H407"


def test_the_bound_ends_with_its_block() -> None:
    with isl.bounded():
        pass
    left = isl.Set("{ [i] : 0 <= i < 10 }").subtract(isl.Set("{ [i] : i > 7 }"))
    assert left.is_equal(isl.Set("{ [i] : 0 <= i <= 7 }"))


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(Exception, match="syntax error"), isl.bounded():
        isl.Set("{ [i : }")


def long_computation() -> None:
    for n in range(1000):
        isl.Set(f"{{ [i] : 0 <= i < {n + 100} }}").subtract(isl.Set(f"{{ [i] : i > {n} }}"))


def test_a_bound_within_a_bound_counts_for_itself() -> None:
    with isl.bounded(1000):
        with pytest.raises(HwgenError, match="H407"), isl.bounded(100):
            long_computation()
        isl.Set("{ [i] : 0 <= i < 10 }").subtract(isl.Set("{ [i] : i > 7 }"))
        with pytest.raises(Exception, match="call to isl_"):
            long_computation()


@pytest.mark.parametrize("long", [0, 1, 2])
def test_a_schedule_that_takes_too_long_leaves_what_was_found(
    long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where nothing was found before is the kernel refused."""
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml")
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    scop = build_scop(workload)
    found = search(hardware, next(ranked_matches(scop, select(scop, hardware)))[:1])
    monkeypatch.setattr(isl, "bounded", partial(isl.bounded, 1000))
    seen: list[Candidate] = []

    def build(candidate: Candidate) -> Made:
        seen.append(candidate)
        if len(seen) > long:
            long_computation()
        return Made(100_000 - len(seen))

    if not long:
        with pytest.raises(HwgenError, match="H407"):
            choose(hardware, found, build, Watch())
        kept, result = choose(hardware, found, build, Watch(), Made(1_000_000))
        assert kept.cycles == 1_000_000
    else:
        kept, result = choose(hardware, found, build, Watch())
        assert kept.cycles == 100_000 - long
    assert result.simulated + result.beside == long
    assert not result.exhausted
    assert "take too long" in str(result).replace("\n", " ")


@pytest.mark.parametrize(("size", "exhausted"), [(1, True), (4096, True), (65536, False)])
def test_search_says_whether_the_space_was_exhausted(size: int, exhausted: bool) -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", {"M": size})
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    compiled = hwgen.compile_kernel(workload, hardware)
    assert compiled.account.search.exhausted is exhausted
    assert ("all of the space" in str(compiled.account.search).replace("\n", " ")) is exhausted


def test_tile_sizes_cover_every_number_of_tiles() -> None:
    assert tile_options(10) == [1, 2, 3, 4, 5, 10]
    counts = {-(-97 // size) for size in tile_options(97, limit=97)}
    assert counts >= set(range(1, 10))


def test_thinned_tile_sizes_keep_divisors_and_ends() -> None:
    sizes = tile_options(8192)
    assert len(sizes) <= 21
    assert sizes[0] == 1
    assert sizes[-1] == 8192
    assert sum(8192 % s == 0 for s in sizes) >= 10
