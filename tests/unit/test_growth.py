"""Compiling takes steps in proportion to the statements, and no recursion as deep as a chain is
long.

Steps are calls of Python functions and of C's, isl's among them: they are the same on every
machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

import hwgen
from benchmarks.growth import KINDS
from hwgen.autoschedule.options import Options
from hwgen.errors import HwgenError
from hwgen.passes.phase import SearchOptions
from hwgen.polyhedral import phases
from hwgen.polyhedral.tree import legality
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_workload
from hwgen.spec.workload import Workload
from tests.sampling import tiered

ROOT = Path(__file__).parents[2]
FRAMES = 700
"""Calls inside one another, with those of pytest, that no chain of any length may exceed: how deep
values nest is bounded, and each level of one takes a few calls."""


MOST = {"chain": 2.6, "diamonds": 3.8, "layers": 4.4}
"""How many times as many steps the second half of a workload may take as the first. Where stages
share tensors, the search still looks at a whole tree for each nest that it changes."""


def chip(name: str) -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def compiled(workload: Workload, hardware: HardwareSpec) -> str:
    """Its C, with the least search: how much is tried is no part of the question."""
    options = SearchOptions(work=0) if hardware.units else Options()
    return hwgen.build(workload, hardware, options=options).c


def steps(action: Callable[[], object]) -> int:
    """How many calls an action makes."""
    count = 0

    def counted(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    legality.forget()
    gc.disable()
    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


CHIPS = ["cpu_generic", "vta", "npu_shared_buffer"]


@pytest.mark.parametrize("name", tiered(CHIPS, CHIPS[::2]))
@pytest.mark.parametrize("kind", tiered([*KINDS], ["chain"]))
def test_steps_grow_with_the_statements(kind: str, name: str) -> None:
    """Twice the statements take twice as many steps more: four times as many if all pairs were
    looked at, eight times if all pairs were after each edit."""
    hardware = chip(name)
    compiled(KINDS[kind](6, name), hardware)
    given = [KINDS[kind](count, name) for count in (12, 24, 48)]
    taken = [steps(partial(compiled, w, hardware)) for w in given]
    assert taken[2] - taken[1] < MOST[kind] * (taken[1] - taken[0]), taken


@pytest.mark.parametrize("name", tiered(CHIPS, CHIPS[::2]))
def test_no_recursion_follows_a_chain(name: str) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(FRAMES)
    try:
        assert compiled(KINDS["chain"](200, name), chip(name))
    finally:
        sys.setrecursionlimit(limit)


DRAWN = (
    "{a}[m, n] + 1", "max({a}[m, n], {b}[m, n])", "{a}[m, n]", "{a}[n, m]", "{a}[m, 0]",
    "select(m < 3, {a}[m, n], 0)", "{a}[m, n] * {b}[m, n]",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_phases_are_those_of_each_prefix_looked_at_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is added to a nest statement by statement against all of its statements each time."""
    tensors: dict[str, object] = {"x": "float32[6, 6]", "z": "float32[6, 6]"}
    compute: list[str] = []
    made = ["x", "z"]
    for number in range(2 + seed % 8):
        drawn = seed * 7919 + number * 104729
        a, b = made[-1 - drawn % min(3, len(made))], made[drawn // 7 % len(made)]
        now = f"t{number}"
        tensors[now] = "float32[6, 6]"
        how = drawn // 11 % 10
        value = f"+= {a}[m, k] * {b}[k, n]" if how < 2 else f"= {DRAWN[drawn // 13 % len(DRAWN)]}"
        compute.append(f"{now}[m, n] {value.format(a=a, b=b)}")
        made.append(now)
    read = " ".join(c.split("=", 1)[1] for c in compute)
    tensors = {n: t for n, t in tensors.items() if n not in ("x", "z") or f"{n}[" in read}
    data: dict[str, object] = {"name": "drawn", "tensors": tensors, "compute": compute}
    found = _phases(data)

    def anew(*_: object) -> bool:
        return False

    monkeypatch.setattr(phases._Growing, "_goes_on", anew)  # pyright: ignore[reportPrivateUsage]
    assert _phases(data) == found


def _phases(data: dict[str, object]) -> object:
    """The phases of a workload, or why it has none."""
    try:
        return phases.split_phases(parse_workload(data))
    except HwgenError as error:
        return str(error)
