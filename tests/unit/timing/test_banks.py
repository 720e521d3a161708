"""Ports of banks: granted in the order of the stream, counted, and skipped over exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer
from hwgen.model.banks import bank_ports
from hwgen.model.periodicity import Watched, zones
from hwgen.model.timing import TimingResult, estimate_cycles
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.search.search import Candidate
from hwgen.report.recording import RecordedCall, record
from hwgen.spec.expression import Binary, Const, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.memory import Banks
from tests.sampling import QUICK, examples

ROOT = Path(__file__).resolve().parents[3]
PORTS = (
    Banks(0, 0, shared_ports=1), Banks(0, 0, shared_ports=2), Banks(0, 0, 1, 1), Banks(0, 0, 2, 1),
)  # fmt: skip


def chip(banks: int = 2) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / "vtcm_two_banks.yaml", {"banks": banks})


def with_banks(hardware: HardwareSpec, banks: dict[str, Banks]) -> HardwareSpec:
    """The chip with other banks of its memories; counts are given, entries follow."""
    memories = tuple(
        replace(m, banks=replace(b, entries=m.capacity_entries // b.count))
        if (b := banks.get(m.name)) is not None
        else m
        for m in hardware.memories
    )
    return replace(hardware, memories=memories)


def program(sizes: tuple[int, int, int], tiles: tuple[int, int, int]) -> Program:
    """The program of `tiled_kernel`."""
    return tiled_kernel(sizes, tiles).program


def tiled_kernel(sizes: tuple[int, int, int], tiles: tuple[int, int, int]) -> Kernel:
    """A tiled matmul on the chip, every buffer in two slots; laid out for two banks."""
    workload = load_workload(
        ROOT / "workloads" / "matmul.yaml", dict(zip("MNK", sizes, strict=True))
    )
    found = compile_kernel(workload, chip(), options=QUICK)
    tiling = found.tiling
    names = [n for n, _ in tiling.depths]
    wanted = dict(zip("mnk", tiles, strict=True))
    tiling = replace(
        tiling,
        tiles=tuple((n, min(wanted[n], count)) for n, count in tiling.match.count.items()),
        order=tuple(n for n in "mn" if n in tiling.match.count),
    )
    depth, outer = len(tiling.loops), tiling.spatial_depth
    depths = {n: outer if n.startswith("c") else depth for n in names}
    tiling = replace(
        tiling,
        depths=tuple(depths.items()),
        slots=tuple((n, 2 if d else 1) for n, d in depths.items()),
    )
    return compile_kernel(workload, chip(), Candidate(tiling, 0.0))


Port = tuple[str, int, str]


def held(call: RecordedCall, made: Program, hardware: HardwareSpec) -> Iterator[Port]:
    """Ports that a call holds, from the addresses that it was recorded with."""
    seen: set[Port] = set()
    for touched in call.touched:
        buffer = made.buffer.get(touched.buffer)
        banks = hardware.memory[buffer.memory].banks if buffer is not None else None
        if buffer is None or banks is None:
            continue
        kinds = {"read": ["r"], "write": ["w"], "update": ["r", "w"]}[touched.access]
        for bank in range(touched.first // banks.entries, touched.last // banks.entries + 1):
            for kind in ["any"] if banks.shared_ports else kinds:
                seen.add((buffer.memory, bank, kind))
    yield from sorted(seen)


def judge(made: Program, hardware: HardwareSpec) -> TimingResult:
    """Every start is late enough for its ports, no call waited without need, and all that was
    waited is in the conflicts; an independent walk over the recorded calls."""
    timing = simulate_timing(made, hardware)
    recording = record(made, hardware, timing, 1 << 30)
    latest: dict[Port, dict[str, RecordedCall]] = {}
    waited = 0
    for call in sorted(recording.calls, key=lambda c: c.number):
        ready = 0
        for port in held(call, made, hardware):
            memory, _, kind = port
            banks = hardware.memory[memory].banks
            assert banks is not None
            count = banks.shared_ports or {"r": banks.read_ports, "w": banks.write_ports}[kind]
            ends = sorted(
                (c.end for u, c in latest.get(port, {}).items() if u != call.unit), reverse=True
            )
            if len(ends) >= count:
                ready = max(ready, ends[count - 1])
        assert call.start >= ready, call
        if call.waited:
            assert call.start == ready, call
        waited += call.waited
        for port in held(call, made, hardware):
            latest.setdefault(port, {})[call.unit] = call
    assert waited == timing.conflict_cycles == sum(u.banks for u in timing.units)
    return timing


def agree(made: Program, hardware: HardwareSpec) -> None:
    """Skipping repetitions changes nothing, conflicts included."""
    full, quick = simulate_timing(made, hardware), estimate_cycles(made, hardware)
    assert quick.calls == full.calls
    if quick.exact:
        assert quick.cycles == full.cycles
        assert quick.units == full.units
        assert quick.conflicts == full.conflicts


SMALL = program((128, 128, 1024), (64, 64, 128))


def test_two_banks_have_no_conflict_and_one_has() -> None:
    two, one = chip(), with_banks(chip(), {"vtcm": Banks(1, 0, shared_ports=1)})
    assert judge(SMALL, two).conflicts == ()
    timing = judge(SMALL, one)
    (conflict,) = timing.conflicts
    assert (conflict.memory, conflict.bank, conflict.port) == ("vtcm", 0, "any")
    assert conflict.waiting[0] == "load"
    assert conflict.holding[0] == "matmul"
    assert conflict.cycles == timing.unit("dma_in").banks > 0
    agree(SMALL, one)


def test_ports_enough_are_no_ports() -> None:
    free = with_banks(chip(), {"vtcm": Banks(1, 0, shared_ports=2)})
    assert bank_ports(free) == ()
    none = replace(free, memories=tuple(replace(m, banks=None) for m in free.memories))
    assert simulate_timing(SMALL, free) == simulate_timing(SMALL, none)
    # One unit writes and another reads: a port each is enough.
    apart = with_banks(chip(), {"vtcm": Banks(1, 0, 1, 1)})
    assert simulate_timing(SMALL, apart) == simulate_timing(SMALL, none)


def test_an_update_needs_a_port_of_each_kind() -> None:
    """The vector memory: sums are updated while the channel reads others for the store."""
    apart = with_banks(chip(), {"vmem": Banks(1, 0, 1, 1)})
    timing = judge(program((128, 128, 256), (64, 64, 128)), apart)
    assert {c.port for c in timing.conflicts} == {"read"}
    assert any(c.waiting[0] == "store" or c.holding[0] == "store" for c in timing.conflicts)


def test_a_call_across_banks_holds_both() -> None:
    """Moved on by half a slot, every slot of b lies in two banks."""
    buffers: list[Buffer] = []
    for b in SMALL.buffers:
        buffers.append(replace(b, base=b.base + 4096) if b.name.startswith("b") else b)

    def moved(call: Call) -> Call:
        return replace(
            call,
            operands=tuple(
                replace(o, address=add(o.address, Const(4096))) if o.buffer.startswith("b_v") else o
                for o in call.operands
            ),
        )

    body = rewritten(SMALL.body, lambda n: (moved(n),) if isinstance(n, Call) else (n,))
    made = replace(SMALL, buffers=tuple(buffers), body=body)
    assert any("4096" in str(o.address) for c in calls(made.body) for o in c.operands)
    four = with_banks(chip(), {"vtcm": Banks(4, 0, shared_ports=1)})
    timing = judge(made, four)
    assert {c.bank for c in timing.conflicts}
    agree(made, four)


@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 160), st.integers(1, 160), st.integers(1, 500)),
    st.sampled_from([(64, 64, 128), (32, 64, 32), (64, 16, 40), (17, 33, 64)]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(PORTS),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(PORTS),
)
def test_random_banks(
    sizes: tuple[int, int, int],
    tiles: tuple[int, int, int],
    count: int,
    ports: Banks,
    others: int,
    more: Banks,
) -> None:
    made = program(sizes, tiles)
    hardware = with_banks(
        chip(), {"vtcm": replace(ports, count=count), "vmem": replace(more, count=others)}
    )
    judge(made, hardware)
    agree(made, hardware)


def test_long_programs_are_skipped_over() -> None:
    made = program((128, 128, 16384), (64, 64, 128))
    one = with_banks(chip(), {"vtcm": Banks(1, 0, shared_ports=1)})
    quick, full = estimate_cycles(made, one), simulate_timing(made, one)
    assert quick.exact
    assert quick.simulated < full.simulated / 2
    assert (quick.cycles, quick.units, quick.conflicts) == (full.cycles, full.units, full.conflicts)


@given(st.integers(-40, 40), st.integers(-300, 300), st.integers(1, 60), st.integers(1, 90))
def test_zones_of_quotients(slope: int, offset: int, size: int, end: int) -> None:
    """Inside a zone of period p, what is watched is the same p iterations later."""
    watched = Watched(add(multiply(Name("v"), Const(slope)), Const(offset)), divisor=size)
    found = zones([watched], "v", (0, end - 1), {"v": (0, end - 1)})
    assert [z.start for z in found] == [0, *(z.end for z in found)][:-1]
    for zone in found:
        values = [(slope * v + offset) // size for v in range(zone.start, zone.end)]
        if zone.period:
            later = values[zone.period :]
            assert later == values[: len(later)]


def test_a_slot_that_takes_turns_repeats() -> None:
    turn = multiply(Binary("%", Name("v"), Const(2)), Const(16384))
    watched = Watched(add(turn, multiply(Name("c"), Const(64))), divisor=16384)
    (zone,) = zones([watched], "v", (0, 99), {"v": (0, 99), "c": (0, 127)})
    assert zone.period == 2
