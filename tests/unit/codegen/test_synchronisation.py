"""Synchronisation found on the shortened program is that of the whole program."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hwgen
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.nodes import Pop, Push, SyncNode, Wait
from hwgen.codegen.synchronisation import SyncSite, synchronise
from hwgen.codegen.touches import runs_of
from hwgen.constants import TOUCHED_RUNS
from hwgen.errors import HwgenError
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, build_scop
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.polyhedral.search.search import Candidate, search
from hwgen.polyhedral.search.tiling_script import apply_tiling
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Synchronization
from hwgen.spec.load import parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import EVERYTHING, examples, tiered
from tests.streams import stream_of

ROOT = Path(__file__).parents[3]


@cache
def chip() -> HardwareSpec:
    return hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")


@cache
def candidates(workload: str, sizes: tuple[tuple[str, int], ...]) -> tuple[Scop, list[Candidate]]:
    """The best tilings of each workload."""
    loaded = hwgen.load_workload(ROOT / "workloads" / f"{workload}.yaml", dict(sizes))
    scop = build_scop(loaded)
    found = search(chip(), match(scop, select(scop, chip())), keep=60)
    return scop, list(found.candidates)


@cache
def program(workload: str, sizes: tuple[tuple[str, int], ...], number: int) -> Stream | None:
    """The calls of one of them; None where it is beyond a limit of the chip."""
    scop, found = candidates(workload, sizes)
    schedule = Schedule(scop.workload, chip())
    try:
        apply_tiling(schedule, scop, found[number % len(found)].tiling)
        return stream_of(schedule)
    except HwgenError as error:
        if error.code not in LIMITS:
            raise
        return None


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


MOST_CALLS = 5000
"""Of a whole program that is looked at."""

UNITS = ("load", "compute", "store")
KINDS: dict[str, Synchronization | None] = {
    "tokens": None,
    "events": Events(tuple(permutations(UNITS, 2)), 16, False, 1, "", "", 0, 0),
    "barriers": Barriers(UNITS, "wait", "", 0),
    "barriers of both kinds": Barriers(UNITS, "wait", "wait_all", 0),
    "barriers for all": Barriers((), "", "wait_all", 0),
}


@pytest.mark.parametrize("kind", tiered([*KINDS], [*KINDS][:1]))
@settings(max_examples=examples(10), deadline=None, derandomize=True)
@given(case=st.sampled_from(CASES), number=st.integers(0, 59))
def test_shortened_loops_stand_for_whole_loops(
    kind: str, case: tuple[str, tuple[tuple[str, int], ...]], number: int
) -> None:
    stream = program(*case, number)
    assume(stream is not None)
    assert stream is not None
    hardware = replace(chip(), synchronization=KINDS[kind] or chip().synchronization)
    long = stream.cut(1 << 20)
    assume(sum(prod(counts) for counts in long.short) <= MOST_CALLS)
    short, whole = synchronise(hardware, stream), synchronise(hardware, long)
    assert instances(short) == instances(whole)


@pytest.mark.parametrize("case", tiered(CASES, CASES[::3], values=True))
def test_pushes_and_pops_balance(case: tuple[str, tuple[tuple[str, int], ...]]) -> None:
    for number in range(10 if EVERYTHING else 6):
        stream = program(*case, number)
        if stream is None:
            continue
        tokens = synchronise(chip(), stream)
        nodes = [node for node, _, _ in instances(tokens)]
        for edge in {(n.source, n.target) for n in nodes if isinstance(n, Push)}:
            counts = [sum(n == kind(*edge) for n in nodes) for kind in (Push, Pop)]
            assert counts[0] == counts[1]


def test_parts_of_a_slot_wait_for_their_own_users_alone() -> None:
    """Columns of a block that are stored while others are computed: the second ones wait for what
    they read, not for the store of the first, though all lie between each other."""
    tensors = {"x": "float32[16, 16]", "w": "float32[16, 64]", "y": "float32[16, 64]"}
    compute = ["y[i, j] += x[i, k] * w[k, j]"]
    product = parse_workload({"name": "product", "tensors": tensors, "compute": compute})
    s = Schedule(product, hwgen.load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml"))
    result, *loaded = s.cache_write("y", "local"), s.cache_read("x", "local")
    loaded.append(s.cache_read("w", "local"))
    begins = s.decompose_reduction(result, s.get_loops(result)[0])
    parts: list[str] = []
    for stage in (result, "y"):
        row, column, *inner = s.get_loops(stage)
        part, column = s.split(column, factor=32)
        s.reorder(part, row, column, *inner)
        parts.append(part)
    s.merge(*parts)
    calls = {result: "matmul", begins: "zero", "y": "store"} | dict.fromkeys(loaded, "load")
    for stage, call in calls.items():
        s.tensorize(stage, call)
    found = stream_of(s).instances
    assert [c.unit for c in found] == ["vector", "dma", "dma", "matrix", "dma", "matrix", "dma"]
    first = {"dma": 2, "vector": 0}
    waits = [dict(call.latest) for call in found[3:]]
    assert waits == [first, {"matrix": 3, "vector": 0}, first, {"matrix": 5, "vector": 0}]


def of_two_phases() -> Schedule:
    """Two slots of one phase lie where the next, in a long loop, fills a slot in each iteration."""
    tensors = {"x": "float32[32, 16]", "q": "float32[32, 16]", "k": "float32[64, 16]"}
    compute = ["q[i, j] = max(x[i, j], 0)", "s[o, i, j] = max(k[i, j], 0)"]
    work = {"name": "phases", "tensors": {**tensors, "s": "float32[2, 64, 16]"}, "compute": compute}
    s = Schedule(parse_workload(work), hwgen.load_hardware(ROOT / "hw_specs/vtcm_two_banks.yaml"))
    loaded: list[str] = []
    for result, source, dimension, rows in (("q", "x", 0, 16), ("s", "k", 1, 1)):
        made, read = s.cache_write(result, "vmem"), s.cache_read(source, "vmem")
        tiles, _ = s.split(s.get_loops(result)[dimension], factor=rows)
        s.compute_at(made, tiles)
        s.compute_at(read, tiles)
        for stage, call in {made: "relu", result: "store", read: "load_vmem"}.items():
            s.tensorize(stage, call)
        s.set_address(read, 0)
        loaded.append(read)
    s.double_buffer(loaded[0], 2)
    s.retain(loaded[1], s.get_loops("s")[0])
    return s


@pytest.mark.parametrize("events", [False, True])
def test_iterations_of_a_loop_wait_for_different_calls_of_an_earlier_one(events: bool) -> None:
    """Each once its own slot needs it, not those next to the ends of the loop's range alone."""
    schedule = of_two_phases()
    hardware, stream = schedule.hardware, stream_of(schedule)
    if events:
        edges = tuple(permutations(("dma_in", "vector", "dma_out"), 2))
        hardware = replace(hardware, synchronization=Events(edges, 64, False, 99, "", "", 0, 0))
    assert stream.short[3][1] < 64
    found = instances(synchronise(hardware, stream))
    assert found == instances(synchronise(hardware, stream.cut(1 << 20)))
    waits = {at for node, site, at in found if site == 3 and isinstance(node, (Pop, Wait))}
    assert waits == {(0, 0), (0, 16), (0, 32)}


def test_what_waits_for_an_earlier_loop_is_given_what_it_waits_for() -> None:
    compiled = compile_tree(of_two_phases())
    examine(compiled, draw_inputs(compiled.schedule.workload, 1))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-12, 40)), max_size=4))
@settings(max_examples=examples(200), deadline=None)
def test_runs_are_what_loops_reach(walks: list[tuple[int, int]]) -> None:
    reached = {
        sum(c * step for c, (_, step) in zip(at, walks, strict=True))
        for at in product(*(range(extent) for extent, _ in walks))
    }
    least, runs = runs_of(tuple(walks))
    assert least == min(reached)
    mine = {least + entry for low, high in runs for entry in range(low, high)}
    assert reached <= mine
    if prod(extent for extent, _ in walks) <= TOUCHED_RUNS:
        assert reached == mine
    assert all(a[1] < b[0] for a, b in pairwise(runs))
