"""What a call updates off chip is read first, then written: it is charged both ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Loop
from hwgen.codegen.program import Program
from hwgen.model.bound import lower_bound
from hwgen.model.timing import estimate_cycles
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, Name, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from tests.sampling import tiered
from tests.unit.timing.nests import image, operand

READ, WRITE, FIXED = 10, 7, 1
"""Latencies, and what `store_add` takes beside its transfer: a beat each way."""
TIMES = 8


def chip(posted: int = 0) -> HardwareSpec:
    """A vector unit whose memory is far away, one write in flight."""
    given = load_hardware(Path("hw_specs/x86_avx2.yaml"))
    (bus,) = given.buses
    read = replace(bus.read, latency_cycles=READ)
    write = replace(bus.write, latency_cycles=WRITE, in_flight_bursts=1, posted_bursts=posted)
    return replace(given, buses=(replace(bus, read=read, write=write),))


def program(name: str, entries: int) -> Program:
    """Vectors `entries` apart, one after the other."""
    at = multiply(Name("n"), Const(entries))
    call = Call(0, name, "store", (operand("dst", "c", at), operand("src", "z", 0)), ())
    loop = Loop("n", Const(0), Const(TIMES), (call,))
    return Program(
        "p", "x", "w", (), ("c",), (image("c", "float32", (4096,), ()),), (), (), (loop,)
    )


def test_an_update_takes_its_read_and_its_write() -> None:
    each = FIXED + (READ + 1) + (WRITE + 1)
    assert simulate_timing(program("store_add", 8), chip()).unit("store").busy == TIMES * each
    assert estimate_cycles(program("store_add", 8), chip()).unit("store").busy == TIMES * each


def test_a_posted_update_is_handed_over_once_it_is_read() -> None:
    each = FIXED + (READ + 1) + 1
    apart, again = (simulate_timing(program("store_add", n), chip(64)) for n in (8, 0))
    # The buffer takes all; what reads the tensor waits for the last response.
    assert apart.unit("store").busy == again.unit("store").busy == TIMES * each
    assert apart.cycles == again.cycles == TIMES * each + (TIMES - 1) * (WRITE - 1) + WRITE - 1


@pytest.mark.parametrize("posted", [0, 64])
def test_the_bound_counts_both_ways(posted: int) -> None:
    hardware, made = chip(posted), program("store_add", 8)
    need = dict(lower_bound(made, hardware).per_resource)
    written = TIMES if posted else TIMES * (WRITE + 1)
    assert need["unit store"] == TIMES + written
    assert need["bus lines read"] == TIMES
    assert need.get("bus lines write of store", 0) == (TIMES * (WRITE + 1) if posted else 0)
    assert lower_bound(made, hardware).cycles <= simulate_timing(made, hardware).cycles


@pytest.mark.parametrize("posted", tiered([0, 2, 64], [2]))
def test_a_kernel_that_adds_in_memory(posted: int) -> None:
    workload = load_workload(Path("workloads/matmul.yaml"), {"M": 8, "N": 24, "K": 512})
    made = compile_kernel(workload, load_hardware(Path("hw_specs/x86_avx2.yaml")))
    assert "store_add" in str(made.program)
    hardware = chip(posted)
    full, skipped = (f(made.program, hardware) for f in (simulate_timing, estimate_cycles))
    assert lower_bound(made.program, hardware).cycles <= full.cycles == skipped.cycles
    # Its updates, without their writes.
    without = replace(hardware, buses=(replace(hardware.buses[0], write=chip().buses[0].write),))
    assert simulate_timing(made.program, without).cycles >= full.cycles
