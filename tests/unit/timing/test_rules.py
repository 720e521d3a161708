"""Each timing rule on a program small enough to count by hand, at L = W = 20."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, Loop, Node, Pop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.model.timing import estimate_cycles
from hwgen.model.timing_result import TimelineEntry, TimingResult
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Const, Expr, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from tests.samples import ROOT, chip
from tests.sampling import QUICK
from tests.unit.timing.nests import image, operand, sizes

FIRST = 20 + 18
"""Start of the first operation when a whole group of eight is fetched."""


@cache
def slow_chip() -> HardwareSpec:
    """L = W = 100."""
    return load_hardware(
        ROOT / "hw_specs" / "vta.yaml", {"READ_LATENCY": 100, "WRITE_LATENCY": 100}
    )


def partial(operations: int) -> int:
    """Start of the first operation of a stream that short: two beats fewer per missing one."""
    return FIRST - 2 * (8 - operations)


def kernel(name: str, intrinsic: str, *extents: int, variants: int = 1) -> MicroKernelDef:
    strides = {"gemm": 3, "reset": 1}.get(intrinsic, 2)
    loops = tuple(KernelLoop(n, (1,) * strides) for n in extents)
    bases = tuple((v,) * strides for v in range(variants))
    immediates = (("imm", 1),) if intrinsic.endswith("_imm") else ()
    return MicroKernelDef(name, intrinsic, loops, (), bases, immediates)


def call_kernel(definition: MicroKernelDef, variant: Expr | int = 0, site: int = 0) -> Call:
    index = Const(variant) if isinstance(variant, int) else variant
    return Call(
        site, definition.intrinsic, "compute", (), (), (), definition.name, index
    )  # fmt: skip


def load(rows: int = 1, entries: int = 1, stride: int = 0, at: Expr | int = 0) -> Call:
    return Call(
        1, "load_inp", "load",
        (operand("dst", "x", 0, entries, 1), operand("src", "a", at, stride, 1)),
        sizes(rows, entries),
    )  # fmt: skip


def load_acc(rows: int, entries: int) -> Call:
    return Call(
        2, "load_acc", "compute",
        (operand("dst", "y", 0, entries, 1), operand("src", "bias", 0, 0, 1)),
        sizes(rows, entries),
    )  # fmt: skip


def store(entries: int, at: int = 0) -> Call:
    return Call(
        3, "store_out", "store",
        (operand("dst", "c", at, 0, 1), operand("src", "y", 0, 0, 1)), sizes(1, entries),
    )  # fmt: skip


def program(*body: Node, kernels: tuple[MicroKernelDef, ...] = ()) -> Program:
    images = (
        image("a", "int8", (4096,), (1, 16)),
        image("b", "int8", (4096,), (16, 16)),
        image("bias", "int32", (4096,), (1, 16)),
        image("c", "int8", (4096,), (1, 16)),
    )
    return Program("p", "vta", "w", ("a",), ("c",), images, (), kernels, body)


def entries(result: TimingResult, name: str) -> list[TimelineEntry]:
    assert result.timeline is not None
    return [e for e in result.timeline if e.name == name]


def run(p: Program, hardware: HardwareSpec | None = None) -> TimingResult:
    return simulate_timing(p, hardware or chip(), timeline=True)


def test_empty_program_is_completion_only() -> None:
    # Pushes of store and load, the pops, finish: four operations of two cycles, two after it.
    result = run(program())
    assert result.operations == 4
    # They arrive one cycle apart; the last pop waits for the load unit's push at +1 + 2.
    assert result.cycles == partial(4) + 1 + 2 + 2 + 2 + 2


def test_gemm_takes_iterations_plus_seven_after_its_micro_kernel_load() -> None:
    gemm = kernel("k", "gemm", 10, 20)
    result = run(program(call_kernel(gemm), kernels=(gemm,)))
    (first,), (second,) = entries(result, "load_uop"), entries(result, "gemm")
    assert (first.start, first.end) == (partial(6), partial(6) + 4 + 20 + 1)
    assert (second.start, second.end) == (first.end, first.end + 200 + 7)
    assert result.cycles == second.end + 2 + 2 + 2


@pytest.mark.parametrize(("intrinsic", "cycles"), [("add", 2 * 50 + 7), ("add_imm", 50 + 7)])
def test_alu_cost_depends_on_its_operands(intrinsic: str, cycles: int) -> None:
    alu = kernel("k", intrinsic, 50)
    (entry,) = entries(run(program(call_kernel(alu), kernels=(alu,))), intrinsic)
    assert entry.end - entry.start == cycles


def test_micro_kernel_variants_are_loaded_once_each() -> None:
    sequence = (KernelLoop(6, (1,)),)
    reset = MicroKernelDef("k", "reset", (), sequence, ((0,), (6,)), ())
    calls = tuple(call_kernel(reset, v) for v in (0, 1, 0, 1))
    result = run(program(*calls, kernels=(reset,)))
    # Six operations of four bytes are three beats; the second variant's begin at byte 24.
    assert [e.end - e.start for e in entries(result, "load_uop")] == [4 + 20 + 3] * 2
    assert [e.name for e in result.timeline or () if e.unit == "compute"] == [
        "load_uop", "reset", "load_uop", "reset", "reset", "reset", "nop", "finish"
    ]  # fmt: skip


def test_load_is_latency_and_beats() -> None:
    (entry,) = entries(run(program(load(4, 8, 100))), "load_inp")
    assert entry.end - entry.start == 5 + 20 + 4 * 16
    (entry,) = entries(run(program(load(4, 8, 100)), slow_chip()), "load_inp")
    assert entry.end - entry.start == 5 + 100 + 4 * 16


def test_load_of_many_short_rows_is_limited_by_requests_in_flight() -> None:
    (entry,) = entries(run(program(load(40, 1, 100)), slow_chip()), "load_inp")
    # Two beats a row: L + 2 > 32, so each sixteen wait for the sixteen before.
    assert entry.end - entry.start == 5 + 2 * (100 + 2) + 100 + (40 - 32) * 2


def test_store_is_one_plus_its_bursts() -> None:
    (entry,) = entries(run(program(store(20, at=4))), "store_out")
    # Entries 4..7, 8..15, 16..23 of 16 bytes lie in three bursts of at most 128 bytes.
    assert entry.end - entry.start == 1 + 3 * 20 + 3 * (20 + 1)


def test_units_run_back_to_back_and_tokens_are_usable_when_the_call_ends() -> None:
    reset = kernel("k", "reset", 100)
    result = run(
        program(
            load(), load(), Push("load", "compute"), Pop("load", "compute"), call_kernel(reset),
            Push("compute", "store"), Pop("compute", "store"), store(8),
            kernels=(reset,),
        )
    )  # fmt: skip
    first, second = entries(result, "load_inp")
    (loaded,), (cleared,), (stored,) = (
        entries(result, name) for name in ("load_uop", "reset", "store_out")
    )
    assert first.start == FIRST
    assert second.start == first.end == FIRST + 5 + 20 + 2
    # The pop belongs to the load of the micro-kernel: the next instruction of that unit.
    assert loaded.start == second.end
    assert cleared.start == loaded.end
    assert stored.start == cleared.end
    assert result.cycles == stored.end + 2 + 2 + 2


def test_a_push_whose_unit_does_not_own_the_last_call_takes_an_empty_one() -> None:
    body = (load(), Push("compute", "load"), Pop("compute", "load"), load())
    result = run(program(*body))
    compute = [e.name for e in result.timeline or () if e.unit == "compute"]
    assert compute == ["nop", "nop", "finish"]
    first, second = entries(result, "load_inp")
    assert second.start == max(first.end, entries(result, "nop")[0].end)


def test_a_second_push_of_the_same_direction_takes_an_empty_one() -> None:
    pops = (Pop("load", "compute"), Pop("load", "compute"))
    result = run(program(load(), Push("load", "compute"), Push("load", "compute"), *pops))
    # For the second push; for the first pop; at the end for the two units' pushes, for the pops
    # of the program's second token and of the store unit's, and for the load unit's.
    assert dict(result.calls)["nop"] == 6


def test_fetch_brings_eight_at_a_time() -> None:
    # Empty calls of two cycles are over long before the next eight arrive.
    result = run(program(*(Push("compute", "load"), Pop("compute", "load")) * 12))
    starts = sorted(e.start for e in result.timeline or ())
    assert starts[0] == FIRST
    assert len([t for t in starts if t < FIRST + 47]) == 8
    assert {FIRST + 47, FIRST + 94} <= set(starts)


def test_fetch_stalls_when_a_queue_is_full() -> None:
    reset = kernel("k", "reset", 1000)
    loop = Loop("t", Const(0), Const(600), (call_kernel(reset),))
    late = (loop, load())
    result = run(program(*late, kernels=(reset,)))
    (entry,) = entries(result, "load_inp")
    # 601 operations of compute come before it, one more than 512 fit when 89 are done.
    uop = 4 + 20 + 1
    assert entry.start > FIRST + uop + 88 * 1007
    assert entry.start < FIRST + uop + 90 * 1007


def test_a_load_of_higher_priority_takes_the_beats_of_an_accumulator_load() -> None:
    result = run(program(load(64, 8, 8), load_acc(32, 16)))
    (fast,), (slow,) = entries(result, "load_inp"), entries(result, "load_acc")
    total = 64 * 16 + 32 * 16 * 8
    # Requests of both alternate while the bus takes one in each cycle: of the first 16 in flight,
    # 8 are the accumulator load's. From then on the other load gets every place that is free.
    assert fast.end - fast.start == 5 + 20 + 64 * 16 + 8 * 16
    # The accumulator's load starts a cycle later and ends when every beat is over.
    assert slow.end - slow.start == 5 + 20 + total - 1


def straightforward() -> Program:
    """256 x 256 x 256 with bias and requantisation, two halves of 128 rows, nothing overlapped."""
    gemm = MicroKernelDef(
        "gemm", "gemm", (KernelLoop(128, (16, 16, 0)), KernelLoop(16, (0, 1, 1))),
        (KernelLoop(16, (1, 0, 16)),), ((0, 0, 0),), (),
    )  # fmt: skip
    alu = tuple(
        MicroKernelDef(name, name, (KernelLoop(2048, (1, 1)),), (), ((0, 0),), (("imm", value),))
        for name, value in (("shr_imm", 8), ("max_imm", -128), ("min_imm", 127))
    )
    body: list[Node] = []
    for half in range(2):
        if half:
            body.append(Pop("compute", "load"))
        body.append(load(1, 2048, at=half * 2048))
        if not half:
            weights = (operand("dst", "z", 0, 256, 1), operand("src", "b", 0, 256, 1))
            body.append(Call(4, "load_wgt", "load", weights, sizes(1, 256)))
        body.append(Push("load", "compute"))
        if half:
            body.append(Pop("store", "compute"))
        body += [load_acc(128, 16), Pop("load", "compute"), call_kernel(gemm)]
        if not half:
            body.append(Push("compute", "load"))
        body += [call_kernel(k) for k in alu]
        body += [Push("compute", "store"), Pop("compute", "store"), store(2048, half * 2048)]
        if not half:
            body.append(Push("store", "compute"))
    return program(*body, kernels=(gemm, *alu))


def test_a_program_that_was_measured() -> None:
    result = run(straightforward())
    busy = dict(result.busy_by_name)
    assert result.cycles == 146_432
    assert result.unit("compute").busy == 123_348
    assert (busy["gemm"], busy["load_acc"], busy["store_out"]) == (65_550, 45_132, 23_042)
    assert busy["shr_imm"] + busy["max_imm"] + busy["min_imm"] == 12_330
    assert run(straightforward(), slow_chip()).cycles == 187_872


def single_buffered() -> Program:
    """1 x 256 x 256, one block of the depth at a time in one slot."""
    reset = MicroKernelDef("reset", "reset", (KernelLoop(16, (1,)),), (), ((0,),), ())
    gemm = MicroKernelDef("gemm", "gemm", (KernelLoop(16, (1, 0, 1)),), (), ((0, 0, 0),), ())
    weights = (operand("dst", "z", 0, 1, 1), operand("src", "b", Name("t"), 16, 1))
    body = (
        Pop("compute", "load"),
        Call(4, "load_wgt", "load", weights, sizes(16, 1)),
        load(1, 1, at=Name("t")),
        Push("load", "compute"),
        Pop("load", "compute"),
        call_kernel(gemm),
        Push("compute", "load"),
    )
    return program(
        call_kernel(reset), Push("compute", "load"),
        Loop("t", Const(0), Const(16), body),
        Push("compute", "store"), Pop("compute", "load"), Pop("compute", "store"), store(16),
        kernels=(reset, gemm),
    )  # fmt: skip


def test_a_second_program_that_was_measured() -> None:
    # The measured one's exact order of calls is not known: 9,632 and 12,592 cycles, load 9,060.
    fast, slow = run(single_buffered()), run(single_buffered(), slow_chip())
    assert fast.unit("load").busy == 9_060
    assert abs(fast.cycles - 9_632) <= 11
    assert slow.cycles == 12_592


def test_deadlock_is_reported() -> None:
    with pytest.raises(HwgenError, match=r"H761.*deadlock: unit load"):
        simulate_timing(program(Pop("compute", "load"), load()), chip())


def test_unknown_edge_is_reported() -> None:
    with pytest.raises(HwgenError, match="H763"):
        simulate_timing(program(load(), Push("load", "store")), chip())


def test_estimate_equals_simulation_of_short_streams() -> None:
    for p in (straightforward(), single_buffered()):
        assert estimate_cycles(p, chip()) == simulate_timing(p, chip())


@pytest.mark.parametrize(("cycles", "like"), [("6.5", "7"), ("6.01", "7"), ("13/2", "7")])
def test_a_fraction_of_a_cycle_is_rounded_up(cycles: str, like: str, tmp_path: Path) -> None:
    text = (ROOT / "hw_specs" / "vta.yaml").read_text(encoding="utf-8")
    assert text.count("    cycles: iterations + 7\n") > 1
    workload = load_workload(ROOT / "workloads" / "gemm.yaml")
    timings: list[TimingResult] = []
    for fixed in (cycles, like):
        file = tmp_path / "chip.yaml"
        file.write_text(text.replace("cycles: iterations + 7", f"cycles: iterations + {fixed}"))
        timings.append(compile_kernel(workload, load_hardware(file), options=QUICK).timing)
    assert timings[0] == timings[1]
