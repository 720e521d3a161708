"""Areas of a chip's file: expressions over parameters and sizes, in square millimetres."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hwgen.errors import HwgenError
from hwgen.passes.cache import canonical
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware
from hwgen.spec.source import read_document

ROOT = Path(__file__).parents[3]


def with_area(place: str, area: object, **parameters: int) -> HardwareSpec:
    """A shipped chip with an area at `section.name` of its file."""
    data = cast("dict[str, Any]", read_document(ROOT / "hw_specs" / "vta.yaml").data)
    section, entry = place.split(".")
    data[section][entry]["area"] = area
    return parse_hardware(data, parameters)


@pytest.mark.parametrize(
    ("place", "area", "parameters", "found"),
    [
        ("units.compute", "BLOCK_IN * BLOCK_OUT / 1000", {}, 0.256),
        ("units.compute", "BLOCK_IN * BLOCK_OUT / 1000", {"BLOCK_IN": 32}, 0.512),
        ("units.load", 2, {}, 2.0),
        ("memories.wgt", "0.5 + bytes / 1048576", {}, 0.75),
        ("memories.inp", 0.125, {}, 0.125),
    ],
)
def test_the_chip_has_the_sum(
    place: str, area: object, parameters: dict[str, int], found: float
) -> None:
    assert with_area(place, area, **parameters).area == pytest.approx(found)


def test_a_chip_without_areas_has_none() -> None:
    assert load_hardware("vta").area == 0


def test_an_area_changes_no_kernel() -> None:
    """Results of searches are found by this text."""
    small, large = (with_area("memories.wgt", n) for n in (1, 2))
    assert small.area != large.area
    assert canonical(small) == canonical(large)


@pytest.mark.parametrize(
    ("place", "area", "code"),
    [
        ("memories.wgt", 0, "H026"),
        ("memories.wgt", "0 - bytes", "H026"),
        ("memories.wgt", "1 / 0", "H024"),
        ("memories.wgt", "byte", "H025"),
        ("memories.wgt", "1 +", "H020"),
        ("memories.wgt", True, "H032"),
        ("memories.wgt", [1], "H032"),
        ("memories.dram", 1, "H115"),
        ("memories.heap", 1, "H115"),
        ("units.load", -1, "H026"),
        ("units.load", "bytes", "H025"),
        ("units.load", "1..2", "H024"),
    ],
)
def test_what_is_no_area_is_refused(place: str, area: object, code: str) -> None:
    with pytest.raises(HwgenError) as caught:
        with_area(place, area)
    assert caught.value.code == code
    assert caught.value.diagnostic.field == f"{place}.area"
