"""The range of addresses that a site is said to have is that of the calls that are simulated."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwgen.codegen.lower.program
from hwgen.codegen.hardware_loops import Absorption, Walk
from hwgen.codegen.lower.sites import Around, CallSite
from hwgen.codegen.program import KernelLoop, Program
from hwgen.codegen.reach import check_reach, reach
from hwgen.codegen.storages import Image
from hwgen.codegen.touches import Address
from hwgen.model.geometry import reach as ends_of
from hwgen.model.trace import CallEvent, calls
from hwgen.passes.trees import compile_tree
from hwgen.pipeline import compile_kernel
from hwgen.spec.affine import combine
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.ranges import Range
from hwgen.spec.workload import Workload
from tests.sampling import QUICK, examples, tiered

ROOT = Path(__file__).parents[2]
RELAXED = settings(deadline=None, derandomize=True)

Ranges = dict[Hashable, list[Range]]
"""By calls that look alike, the range of each operand's addresses."""

Lowered = tuple[Program, HardwareSpec, Sequence[CallSite]]
"""A program, its chip, and the sites that it was lowered from."""

extents = st.one_of(st.integers(2, 40), st.sampled_from((63, 64, 100, 128, 257)))

SHAPES = {
    ("vta", "gemm_requant"): "MNK",
    ("vta", "conv2d"): "HW",
    ("vta", "add"): "MN",
    ("gemmini", "gemm_scaled"): "MNK",
    ("gemmini", "conv2d_scaled"): "HW",
    ("vtcm_two_banks", "matmul"): "MNK",
    ("npu_shared_buffer", "attention"): "LD",
    ("npu_shared_buffer", "mlp"): "MKHGN",
}
"""Shipped chips and workloads, with the sizes that are drawn."""


def lowered(chip: str, workload: str, sizes: dict[str, int]) -> Lowered:
    """The kernel that the search takes."""
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    known: list[Sequence[CallSite]] = []

    def recorded(workload: Workload, images: Collection[Image], sites: Sequence[CallSite]) -> None:
        known.append(sites)
        check_reach(workload, images, sites)

    text = ROOT / "workloads" / f"{workload}.yaml"
    found = compile_kernel(load_workload(text, sizes), hardware, options=QUICK)
    made = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hwgen.codegen.lower.program, "check_reach", recorded)
        program = compile_tree(made.schedule).program
    return program, hardware, known[-1]


def stated(sites: Sequence[CallSite]) -> Ranges:
    """What the sites say."""
    found: Ranges = {}
    for site in sites:
        hardware, intrinsic = site.absorbed.hardware, site.operation.intrinsic
        key = (
            intrinsic.name,
            site.operation.statement,
            tuple(a.buffer for a in site.addresses),
            tuple(tuple(w.strides[k] for w in hardware) for k in range(len(site.addresses))),
            tuple(w.extent for w in hardware),
            tuple((w.extent, w.strides) for w in site.absorbed.sequence),
            site.lanes,
        )
        merge(found, key, [reach(site, k) for k in range(len(intrinsic.operands))])
    return found


def simulated(program: Program, hardware: HardwareSpec) -> Ranges:
    """What the calls come to."""
    found: Ranges = {}
    for event in calls(program):
        call = event.call
        sequence = program.kernel[call.kernel].sequence if call.kernel else ()
        key = (
            call.intrinsic,
            call.statement,
            tuple(o.buffer for o in call.operands),
            event.strides,
            event.extents,
            tuple((x.extent, x.strides) for x in sequence),
            call.lanes,
        )
        count = hardware.intrinsic[call.intrinsic].software_loops
        merge(found, key, list(held(event, count, sequence)))
    return found


def held(event: CallEvent, count: int, sequence: Sequence[KernelLoop]) -> Iterator[Range]:
    """What the address field of each operand holds during a call, or a run of calls."""
    repeated = [
        KernelLoop(extent, tuple(strides[n] for strides in event.strides))
        for n, extent in enumerate(event.extents[:count])
    ]
    for k, address in enumerate(event.addresses):
        low, high = ends_of((*repeated, *sequence), k, 1)
        yield Range(address + low, address + high)


def merge(found: Ranges, key: Hashable, more: Sequence[Range]) -> None:
    known = found.get(key, more)
    found[key] = [
        Range(min(a.minimum, b.minimum), max(a.maximum, b.maximum))
        for a, b in zip(known, more, strict=True)
    ]


@pytest.mark.parametrize("pair", tiered([*SHAPES], [*SHAPES][::4], values=True), ids="-".join)
@given(data=st.data())
@settings(RELAXED, max_examples=examples(2))
def test_the_range_is_that_of_the_calls(pair: tuple[str, str], data: st.DataObject) -> None:
    sizes = {name: data.draw(extents, name) for name in SHAPES[pair]}
    program, hardware, sites = lowered(*pair, sizes)
    assert stated(sites) == simulated(program, hardware)


@cache
def sample() -> CallSite:
    """A site whose intrinsic has an operand that moves."""
    _, _, sites = lowered("vtcm_two_banks", "matmul", {"M": 16, "N": 16, "K": 16})
    assert isinstance(sites[0], CallSite)
    return sites[0]


@st.composite
def moving(draw: st.DrawFn) -> CallSite:
    """A site with loops that stay around it, others around the call, and slots that any turn."""
    spans = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=3))
    loops = tuple(Around(f"l{n}", low, low + count) for n, (low, count) in enumerate(spans))
    steps = st.integers(-9, 9)
    outer = tuple(
        Walk(draw(st.integers(1, 4)), (draw(steps),)) for _ in range(draw(st.integers(0, 2)))
    )
    slots = draw(st.integers(1, 5))
    counters = [loop.name for loop in loops]
    offset = [(name, draw(steps)) for name in counters]
    offset += [(f"call{n}", walk.strides[0]) for n, walk in enumerate(outer)]
    turn = combine([(name, draw(st.integers(0, 6))) for name in counters], draw(steps))
    return replace(
        sample(),
        loops=loops,
        repeats=tuple(f"call{n}" for n in range(len(outer))),
        absorbed=Absorption((), (), outer),
        addresses=(
            Address(
                "x",
                combine(offset, draw(steps)),
                turn if draw(st.booleans()) else None,
                slots,
                draw(st.integers(0, 9)),
            ),
        ),
    )


@given(moving())
@settings(RELAXED, max_examples=examples(300))
def test_slots_that_turn_with_what_moves(site: CallSite) -> None:
    (address,) = site.addresses
    spans = {x.name: range(x.low, x.high) for x in site.loops}
    spans |= {f"call{n}": range(walk.extent) for n, walk in enumerate(site.absorbed.outer)}
    found: list[int] = []
    for point in product(*spans.values()):
        values = dict(zip(spans, point, strict=True))
        turn = address.turn.fix(values).constant % address.slots if address.turn else 0
        found.append(address.offset.fix(values).constant + turn * address.slot_stride)
    assert reach(site, 0) == Range(min(found), max(found))
