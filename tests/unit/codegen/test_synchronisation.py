"""Synchronisation found on the shortened program is that of the whole program."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.codegen.allocation import allocate
from hwgen.codegen.image_layout import image_layouts
from hwgen.codegen.layout import buffer_layouts
from hwgen.codegen.program import Pop, Push, SyncNode
from hwgen.codegen.short_program import ShortProgram
from hwgen.codegen.sites import Site, build_sites
from hwgen.codegen.synchronisation import SyncSite, synchronise
from hwgen.polyhedral.matching import match
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search import search
from hwgen.polyhedral.select import select
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Synchronization

ROOT = Path(__file__).parents[3]


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")


@cache
def programs(workload: str, sizes: tuple[tuple[str, int], ...]) -> list[list[Site]]:
    loaded = hwgen.load_workload(ROOT / "workloads" / f"{workload}.yaml", dict(sizes))
    scop = build_scop(loaded)
    found = search(chip(), match(scop, select(scop, chip())), keep=60)
    result: list[list[Site]] = []
    for candidate in found.candidates:
        tiling = candidate.tiling
        images = image_layouts(scop, chip(), tiling.match)
        buffers = buffer_layouts(tiling, images)
        allocation = allocate(chip(), [(tiling, buffers)])
        result.append(build_sites(chip(), tiling, images, buffers, allocation))
    return result


def instances(tokens: list[SyncSite]) -> set[tuple[SyncNode, int, tuple[int, ...]]]:
    return {
        (t.node, t.site, point)
        for t in tokens
        for box in t.boxes
        for point in product(*(range(*span) for span in box))
    }


CASES = [
    ("gemm_requant", (("M", 256), ("N", 256), ("K", 256))),
    ("gemm_requant", (("M", 300), ("N", 330), ("K", 410))),
    ("gemm", (("M", 700), ("N", 640), ("K", 1300))),
    ("conv2d_requant", (("H", 14), ("W", 14), ("C", 256), ("O", 256))),
    ("conv2d", (("H", 30), ("W", 7), ("C", 70), ("O", 33), ("S", 2))),
    ("add", (("M", 300), ("N", 400))),
]


UNITS = ("load", "compute", "store")
KINDS: dict[str, Synchronization | None] = {
    "tokens": None,
    "events": Events(tuple(permutations(UNITS, 2)), 8, False, 1, "", "", 0, 0),
    "barriers": Barriers(UNITS, "wait", "", 0),
    "barriers of both kinds": Barriers(UNITS, "wait", "wait_all", 0),
    "barriers for all": Barriers((), "", "wait_all", 0),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(case=st.sampled_from(CASES), number=st.integers(0, 59))
def test_shortened_loops_stand_for_whole_loops(
    kind: str, case: tuple[str, tuple[tuple[str, int], ...]], number: int
) -> None:
    found = programs(*case)
    sites = found[number % len(found)]
    hardware = replace(chip(), synchronization=KINDS[kind] or chip().synchronization)
    short = synchronise(hardware, ShortProgram(sites))
    whole = synchronise(hardware, ShortProgram(sites, 1 << 20))
    assert instances(short) == instances(whole)


@pytest.mark.parametrize("case", CASES)
def test_pushes_and_pops_balance(case: tuple[str, tuple[tuple[str, int], ...]]) -> None:
    for sites in programs(*case)[:10]:
        tokens = synchronise(chip(), ShortProgram(sites))
        nodes = [node for node, _, _ in instances(tokens)]
        for edge in {(n.source, n.target) for n in nodes if isinstance(n, Push)}:
            counts = [sum(n == kind(*edge) for n in nodes) for kind in (Push, Pop)]
            assert counts[0] == counts[1]
