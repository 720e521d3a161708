"""Banks of on-chip memories: which call held which bank when, who waited for whom, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.program import Program
from hwgen.model.columns import SharedBanks
from hwgen.model.timing import TimingResult
from hwgen.report.figures import (
    SEPARATED,
    Figure,
    Json,
    bars,
    colours,
    in_rows,
    since_launch,
    striped,
)
from hwgen.report.recording import RecordedCall, Recording
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.table import Cell, table

WAITING = "waits for a port"
ROW = 30
"""Height in pixels of one bank's row."""


@dataclass(frozen=True, slots=True)
class BankUse:
    """A call that touched a bank. `row`: the bank's name; `operands`: what it did there, in
    words."""

    memory: str
    bank: int
    row: str
    call: RecordedCall
    operands: tuple[str, ...]


def banked(hardware: HardwareSpec) -> bool:
    """Whether a memory of the chip has banks."""
    return any(m.banks is not None for m in hardware.of_kind("scratchpad"))


def bank_uses(
    recording: Recording, program: Program, hardware: HardwareSpec
) -> tuple[BankUse, ...]:
    """Every bank that a recorded call touches, from the addresses of its operands."""
    found: list[BankUse] = []
    for call in recording.calls:
        held: dict[tuple[str, int], list[str]] = {}
        for touched in call.touched:
            buffer = program.buffer.get(touched.buffer)
            banks = hardware.memory[buffer.memory].banks if buffer is not None else None
            if buffer is None or banks is None:
                continue
            for bank in range(banks.of(touched.first), banks.of(touched.last) + 1):
                held.setdefault((buffer.memory, bank), []).append(str(touched))
        for (name, bank), texts in sorted(held.items()):
            row = hardware.memory[name].bank_name(bank)
            found.append(BankUse(name, bank, row, call, tuple(texts)))
    return tuple(found)


def conflict_rows(timing: TimingResult, shared: Sequence[SharedBanks]) -> list[tuple[Cell, ...]]:
    """Memory, bank, port, the waiting and the holding call, how often, cycles; the worst first.

    `shared`: calls that wait for their own accesses, with the operand that makes them wait most.
    """
    rows: list[tuple[int, tuple[Cell, ...]]] = [
        (
            c.cycles,
            (c.memory, str(c.bank), c.port, *(f"{n} (site {s})" for n, s in (c.waiting, c.holding)),
             c.times, c.cycles),
        )
        for c in timing.conflicts
    ]  # fmt: skip
    for s in shared:
        waits, holds = f"{s.intrinsic} (site {s.site})", f"its own {s.operand}"
        rows.append((s.lost, (s.memory, "any", "any", waits, holds, s.calls, s.lost)))
    return [row for _, row in sorted(rows, key=lambda item: -item[0])]


def conflict_cycles(timing: TimingResult, shared: Sequence[SharedBanks]) -> int:
    """Cycles that calls waited for ports that others, or accesses of their own, held."""
    return timing.conflict_cycles + sum(s.lost for s in shared)


CONFLICT_HEADER = ("memory", "bank", "port", "waits", "for", "times", "cycles")


def conflict_lines(timing: TimingResult, shared: Sequence[SharedBanks]) -> list[str]:
    """Bank conflicts as text, with what they cost."""
    if not timing.conflicts and not shared:
        return ["bank conflicts: none"]
    cycles = conflict_cycles(timing, shared)
    return [
        f"bank conflicts: {cycles:,} cycles of waiting for a port, "
        f"{cycles / timing.cycles:.1%} of the kernel's",
        *table(CONFLICT_HEADER, conflict_rows(timing, shared)).splitlines(),
    ]


def banks_figure(recording: Recording, uses: Sequence[BankUse], hardware: HardwareSpec) -> Figure:
    """A row per bank: a bar for each call that touches it, and pale ones while a call waits."""
    rows = [
        m.bank_name(bank)
        for m in hardware.of_kind("scratchpad")
        if m.banks is not None
        for bank in range(m.banks.count)
    ]
    names = [i.name for i in hardware.intrinsics if any(u.call.name == i.name for u in uses)]
    paint = colours(names)
    traces = [_bars(n, paint[n], [u for u in uses if u.call.name == n]) for n in names]
    waits = [c for c in recording.calls if c.waited]
    if waits:
        traces.append(_waiting(waits))
    margin = {"l": 120, "r": 24, "t": 16, "b": 48}
    return in_rows(traces, rows, since_launch(recording), row=ROW, margin=margin)


def _bars(name: str, colour: str, uses: Sequence[BankUse]) -> Json:
    parting = 0.5 if len(uses) <= SEPARATED else 0
    return bars(
        name,
        [u.row for u in uses],
        [u.call.cycles for u in uses],
        [_describe(u) for u in uses],
        {"color": colour, "line": {"color": "#ffffff", "width": parting}},
        meta="calls",
        base=[u.call.start for u in uses],
        width=0.8,
    )


def _describe(use: BankUse) -> str:
    call = use.call
    lines = [
        f"<b>{call.name}</b> on {call.unit} in {use.row}",
        f"{call.start:,} to {call.end:,}: {call.cycles:,} cycles",
        *use.operands,
    ]
    if call.waited:
        lines.append(f"waited {call.waited:,} cycles for {call.waited_for}")
    return "<br>".join(lines)


def _waiting(calls: Sequence[RecordedCall]) -> Json:
    told = [
        f"<b>{c.name}</b> on {c.unit} waits for {c.waited_for}<br>"
        f"{c.start - c.waited:,} to {c.start:,}: {c.waited:,} cycles"
        for c in calls
    ]
    return bars(
        WAITING,
        [c.waited_for for c in calls],
        [c.waited for c in calls],
        told,
        striped("#c44e52", "#c44e52", "#ffffff"),
        meta="waits",
        base=[c.start - c.waited for c in calls],
        width=0.3,
    )
