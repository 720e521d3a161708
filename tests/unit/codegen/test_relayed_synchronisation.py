"""Units that have no queue between them are ordered through a third one, inside a phase too."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import cast

import pytest

import hwgen
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.nodes import Pop, Push, SyncNode
from hwgen.codegen.synchronisation import SyncSite, synchronise
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.polyhedral.search.search import search
from hwgen.polyhedral.search.tiling_script import apply_tiling
from hwgen.spec.hardware import Events, HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.draws import Spec
from tests.sampling import QUICK
from tests.streams import stream_of

ROOT = Path(__file__).parents[3]
EVENTS = Events(
    (("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute")),
    16, False, 1, "", "", 0, 0,
)  # fmt: skip


@cache
def chip() -> HardwareSpec:
    """One unit fills what another empties, and both tell a third alone."""
    spec = cast(Spec, read_document(ROOT / "hw_specs" / "vta.yaml").data)
    spec["intrinsics"]["load_acc"]["unit"] = "load"
    return parse_hardware(spec)


def workload(rows: int, columns: int, value: str) -> Workload:
    tensors = {n: f"int8[{rows}, {columns}]" for n in "xzy" if n == "y" or f"{n}[" in value}
    return hwgen.workload("relayed", tensors=tensors, compute=[f"y[m, n] = int8({value})"])


RELU = "max(x[m, n], 0)"
SUM = "clip(x[m, n] + z[m, n], -128, 127)"


@pytest.mark.parametrize("value", [RELU, SUM])
@pytest.mark.parametrize(("rows", "columns"), [(4, 16), (20, 40)])
def test_results_are_right_and_all_conflicts_ordered(rows: int, columns: int, value: str) -> None:
    work = workload(rows, columns, value)
    examine(hwgen.compile_kernel(work, chip(), options=QUICK), draw_inputs(work, 1))


@cache
def programs(value: str) -> list[Stream]:
    work = workload(140, 96, value)
    scop = build_scop(work)
    found = search(chip(), match(scop, select(scop, chip())), keep=40)
    result: list[Stream] = []
    for candidate in found.candidates:
        schedule = Schedule(work, chip())
        try:
            apply_tiling(schedule, scop, candidate.tiling)
            result.append(stream_of(schedule))
        except HwgenError as error:
            if error.code not in LIMITS:
                raise
    return result


def instances(tokens: list[SyncSite]) -> set[tuple[SyncNode, int, tuple[int, ...]]]:
    return {
        (t.node, t.site, point)
        for t in tokens
        for box in t.boxes
        for point in product(*(range(*span) for span in box))
    }


@pytest.mark.parametrize("kind", ["tokens", "events"])
@pytest.mark.parametrize("value", [RELU, SUM])
def test_shortened_loops_stand_for_whole_loops(kind: str, value: str) -> None:
    hardware = chip() if kind == "tokens" else replace(chip(), synchronization=EVENTS)
    compared = 0
    for stream in programs(value)[::6]:
        try:
            short = synchronise(hardware, stream)
        except HwgenError as error:
            if error.code != "H611":
                raise
            continue
        whole = synchronise(hardware, stream.cut(1 << 20))
        assert instances(short) == instances(whole)
        counts = [sum(isinstance(n, k) for n, _, _ in instances(short)) for k in (Push, Pop)]
        assert counts[0] == counts[1]
        compared += 1
    assert compared


def test_one_slot_leaves_no_call_between() -> None:
    """With one slot there is nothing between a store and the load that overwrites what it reads:
    such schedules are left out, and where there are no others the chip is told."""
    spec = cast(Spec, read_document(ROOT / "hw_specs" / "vta.yaml").data)
    spec["intrinsics"]["load_acc"]["unit"] = "load"
    spec["memories"]["acc"]["size"] = "64 B"
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if operand["memory"] == "acc":
                operand["address"] = "0..0"
    # No product with weights takes words.
    words = hwgen.workload(
        "relayed",
        tensors={"x": "int32[4, 16]", "y": "int8[4, 16]"},
        compute=["y[m, n] = int8(clip(x[m, n], 0, 127))"],
    )
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(words, parse_hardware(spec))
    assert caught.value.code == "H611"
    assert "units store and load share data but no token queue" in str(caught.value)
