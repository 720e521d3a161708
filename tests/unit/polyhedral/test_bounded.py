"""Polyhedral work is bounded, and a search says what it left out."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.search_space import tile_options

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


@pytest.mark.parametrize(("size", "exhausted"), [(1, True), (4096, True), (65536, False)])
def test_search_says_whether_the_space_was_exhausted(size: int, exhausted: bool) -> None:
    workload = hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", {"M": size})
    hardware = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    compiled = hwgen.compile_kernel(workload, hardware)
    assert compiled.search.exhausted is exhausted
    assert ("all of the space" in str(compiled.search).replace("\n", " ")) is exhausted


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
