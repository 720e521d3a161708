"""Random schedules of a chip with units: lowered as trees and right, or refused with a code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from hwgen.codegen.lower import places, program
from hwgen.polyhedral.tree import aliases, legality
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from tests.conftest import Mutate
from tests.drawn_trees import drawn
from tests.fuzz.nest_calls import Call
from tests.fuzz.schedules import Case, Failure, FindingError, reduced
from tests.fuzz.tree_schedules import LACKING, PHYSICAL, failure, outcome
from tests.hosts import behind_a_host
from tests.sampling import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
EDGES = (16, 3, 4)
"""Of the matrix unit's tiles: its calls take whole loops, parts of them, and tails."""
SEEDS = 40
"""Schedules in which what is missing must be found."""
DRAWN = SEEDS if EVERYTHING else 8
"""Schedules of one test."""
BLOCKS = 50 if EVERYTHING else 1


def npu(seed: int) -> HardwareSpec:
    path = ROOT / "hw_specs" / "npu_shared_buffer.yaml"
    return load_hardware(path, {"T": EDGES[seed % len(EDGES)]})


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_trees(block: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(DRAWN * block, DRAWN * (block + 1)):
        case = drawn(seed, npu(seed))
        engine = "both" if seed % 8 == 0 else "python"
        try:
            found[outcome(case, npu(seed), engine)] += 1
        except FindingError as finding:
            pytest.fail(f"seed {seed}: {finding}\n{case.data}\n{case.script()}")
    assert set(found) <= {"", *PHYSICAL, *LACKING}
    assert found[""] >= 0.6 * DRAWN, found


def test_random_trees_behind_a_host() -> None:
    """Blocks that run later have conditions there, and loops are not cut for them."""
    for seed in range(DRAWN):
        chip = behind_a_host(EDGES[seed % len(EDGES)])
        case = drawn(seed, chip)
        try:
            assert outcome(case, chip) in ("", *PHYSICAL, *LACKING)
        except FindingError as finding:
            pytest.fail(f"seed {seed}: {finding}\n{case.data}\n{case.script()}")


@pytest.mark.parametrize("seed", [10011, 10162, 10308])
def test_what_once_failed(seed: int) -> None:
    """Divisions by lanes' extents; what two calls leave for each other, computed several times."""
    assert outcome(drawn(seed, npu(seed)), npu(seed)) in ("", *PHYSICAL, *LACKING)


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(3, npu(3)) == drawn(3, npu(3))
    assert drawn(3, npu(3)) != drawn(4, npu(3))


# What it must find


def nothing(*_: object, **__: object) -> None:
    """Stands in for a check that finds nothing wrong."""


def no_nodes(*_: object) -> tuple[()]:
    """Stands in for the synchronisation of a program."""
    return ()


@pytest.mark.parametrize(
    ("module", "name", "instead", "code", "first"),
    [
        (program, "synchronise", no_nodes, "H760", 0),
        (legality, "_flow", nothing, "H717", 4),
        (legality, "overtaken", nothing, "H790", 3),
        (aliases, "_check_dead", nothing, "H790", 25),
    ],
    ids=["synchronisation", "flow", "slots", "places"],
)
def test_what_is_missing_is_found(
    mutate: Mutate,
    module: ModuleType,
    name: str,
    instead: Callable[..., object],
    code: str,
    first: int,
) -> None:
    mutate(module, name, instead)
    seeds = range(first, first + SEEDS)
    assert any(code in failure(drawn(seed, npu(seed)), npu(seed)) for seed in seeds)


def test_a_failure_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "synchronise", no_nodes)
    case = drawn(0, npu(0))
    small = reduced(Failure(case, "wrong", ""), lambda c: failure(c, npu(0))).case
    assert failure(small, npu(0)).startswith("wrong: ")
    assert 0 < len(small.calls) < len(case.calls)


def test_an_address_that_is_not_heeded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(place: places.Place, _: object, __: object) -> range:
        return place.reach

    data = {
        "name": "k",
        "tensors": {"x": "float32[5]", "y": "float32[5]"},
        "compute": ["y[i] = max(x[i], 0)"],
    }
    calls = (
        Call("cache_read", ("x", "local")),
        Call("cache_write", ("y", "local")),
        Call("set_address", ("x_local", 256)),
        Call("tensorize", ("x_local", "load")),
        Call("tensorize", ("y_local", "relu")),
        Call("tensorize", ("y", "store")),
    )
    case = Case(data, calls)
    assert outcome(case, npu(0)) == ""
    monkeypatch.setattr(places, "_fixed", anywhere)
    assert failure(case, npu(0)) == "address: x_local is at byte 0 and not at 256"
