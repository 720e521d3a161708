"""What was decided for a kernel and what it costs, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hwgen.model.columns import (
    Energy,
    SharedBanks,
    TensorTraffic,
    off_chip_traffic,
    shared_banks,
)
from hwgen.report.banks import banked, conflict_lines
from hwgen.report.refused import Refusal
from hwgen.spec.shown import rate_text, seconds_text
from hwgen.spec.table import Cell, table

if TYPE_CHECKING:
    from hwgen.model.bound import Bound
    from hwgen.model.timing import TimingResult
    from hwgen.passes.kernel import Kernel
    from hwgen.polyhedral.match.explain import Explanation
    from hwgen.polyhedral.scop import Scop


@dataclass(frozen=True)
class Measured:
    """A compilation with its modelled cycles and their lower bound."""

    compilation: Kernel
    timing: TimingResult
    bound: Bound

    @property
    def ratio(self) -> float:
        """Cycles over their lower bound."""
        return self.timing.cycles / self.bound.cycles

    @cached_property
    def traffic(self) -> tuple[TensorTraffic, ...]:
        c = self.compilation
        return off_chip_traffic(c.program, c.hardware, c.workload)

    @cached_property
    def shared_banks(self) -> tuple[SharedBanks, ...]:
        """Calls whose own accesses wait for each other in banks."""
        return shared_banks(self.compilation.program, self.compilation.hardware)

    @property
    def off_chip_bytes(self) -> int:
        """What calls move between the chip and its images, and code in the processor's memory."""
        return self.compilation.offchip_bytes


def measure(compilation: Kernel) -> Measured:
    """Run the timing model and the bound."""
    return Measured(compilation, compilation.timing, compilation.bound)


def title(compilation: Kernel) -> str:
    """The kernel, the chip and the sizes, in one line."""
    sizes = ", ".join(f"{n}={v}" for n, v in compilation.workload.sizes)
    return f"{compilation.workload.name} on {compilation.hardware.name}: {sizes or 'no sizes'}"


def describe(measured: Measured) -> str:
    """One kernel: matched, tiled, placed, moved, and the cycles with their bound."""
    c = measured.compilation
    if c.nest:
        return _describe_nest(c, measured)
    phases = [
        section
        for number, part in enumerate(c.parts)
        for section in _phase(part, f"phase {number}: " if len(c.parts) > 1 else "")
    ] or [_section("scheduled", c.stage("schedule").splitlines())]
    parts = [
        title(c),
        *phases,
        _section("placed", _placement(c)),
        _section("moved off chip", [*_movement(measured.traffic), *c.notes]),
        _section("cycles", describe_cycles(measured)),
    ]
    if c.hardware.has_energy:
        parts.append(_section("energy", _energy(c.energies)))
    return "\n".join([*parts, *cut_short([c])])


def _describe_nest(c: Kernel, measured: Measured) -> str:
    """The schedule of a kernel of a processor, what it was chosen from, and what it costs."""
    parts = [f"{c.workload.name} on {c.hardware.name}", "", str(c.schedule), ""]
    if c.account.report is not None:
        parts += [_section("search", str(c.account.report).splitlines()), ""]
    parts.append(_section("cycles", describe_cycles(measured)))
    return "\n".join([*parts, *c.notes])


def _phase(part: Kernel, label: str) -> list[str]:
    return [
        _section(f"{label}statements", map(str, part.scop.statements)),
        _section(f"{label}matched", str(part.match).splitlines()),
        _section(f"{label}tiled", _tiles(part)),
    ]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _tiles(c: Kernel) -> list[str]:
    tiling = c.tiling
    lines: list[str] = []
    for loop in tiling.loops:
        lanes = tiling.match.block.get(loop.loop, 1)
        last = "" if loop.last == loop.tile else f", the last one {loop.last * lanes}"
        lines.append(f"{loop.loop}: {loop.count} tiles of {loop.tile * lanes}{last}")
    return lines or ["one tile"]


def _placement(c: Kernel) -> list[str]:
    memory = c.hardware.memory
    rows: list[tuple[Cell, ...]] = [
        (
            b.memory,
            f"{b.base}..{b.end - 1}",
            b.name,
            b.tensor,
            b.slots,
            b.entries * memory[b.memory].entry_bytes,
        )
        for b in c.program.buffers
    ]
    header = ["memory", "entries", "buffer", "tensor", "slots", "bytes"]
    if banked(c.hardware):
        header.append("banks")
        held = [", ".join(map(str, b.banks)) or "-" for b in c.program.buffers]
        rows = [(*row, banks) for row, banks in zip(rows, held, strict=True)]
    return table(header, rows).splitlines()


def _movement(traffic: Sequence[TensorTraffic]) -> list[str]:
    rows: list[tuple[Cell, ...]] = [
        (t.tensor, t.role, t.loaded, t.stored, t.size, t.times) for t in traffic
    ]
    header = ("tensor", "role", "loaded bytes", "stored bytes", "tensor bytes", "times")
    return table(header, rows).splitlines()


def _energy(energy: Energy) -> list[str]:
    total = energy.picojoules
    rows: list[tuple[Cell, ...]] = [
        (p.name, p.bytes or "-", round(p.picojoules), p.picojoules / total) for p in energy.parts
    ]
    header = ("where", "accessed bytes", "picojoules", "of all")
    return [f"{total:,.0f} pJ", *table(header, rows).splitlines()]


BLOCKS = ("block", "cycles", "arithmetic", "memory bytes")
"""What is told of each block of a kernel of a processor."""


def block_rows(c: Kernel) -> list[tuple[Cell, ...]]:
    """The same of all its blocks."""
    return [
        (b.block, round(b.cycles), round(b.compute_cycles), round(b.memory_bytes))
        for b in c.cost.blocks
    ]


def describe_cycles(measured: Measured) -> list[str]:
    """Cycles, bound and each unit's busy and waiting cycles; of a processor alone block by block,
    by the closed form."""
    c, timing, bound = measured.compilation, measured.timing, measured.bound
    if c.nest:
        return [
            f"{c.cycles:,}, lower bound {bound.cycles:,}, ratio {measured.ratio:.3f} (closed form)",
            *_speed(c),
            *table(BLOCKS, block_rows(c)).splitlines(),
        ]
    with_banks = banked(c.hardware)
    rows: list[tuple[Cell, ...]] = [
        (u.unit, u.busy, u.busy / timing.cycles, u.tokens, u.bus, u.fetch + u.queue)
        + ((u.banks,) if with_banks else ())
        for u in timing.units
    ]
    header = ["unit", "busy", "of all", "waits: order", "bus", "fetch"]
    header += ["banks"] if with_banks else []
    return [
        f"{timing.cycles:,}, lower bound {bound.cycles:,} ({bound.resource}), "
        f"ratio {measured.ratio:.3f}",
        *_speed(c),
        *table(header, rows).splitlines(),
        *(conflict_lines(timing, measured.shared_banks) if with_banks else []),
    ]


def _speed(c: Kernel) -> list[str]:
    return [f"{c.speed} (a multiply-add is two operations)"] if c.speed else []


def cut_short(compilations: Iterable[Kernel]) -> list[str]:
    """A line per kernel whose search ended before it had looked at all that it meant to."""
    return [
        f"{c.workload.name}: search cut short, {'; '.join(c.ended_by)}"
        for c in compilations
        if c.ended_by
    ]


def results(measured: Sequence[Measured]) -> str:
    """The table of `generate`: one line per kernel."""
    if not measured:
        return "no workload can be run"
    kernels = [m.compilation for m in measured]
    header = ["workload", "cycles", "bound", "ratio"]
    shared: list[tuple[Cell, ...]] = [
        (m.compilation.workload.name, m.timing.cycles, m.bound.cycles, m.ratio) for m in measured
    ]
    if any(c.speed for c in kernels):
        header[2:2] = ["time", "speed"]
        shared = [
            (*row[:2], *_time_and_rate(c), *row[2:]) for row, c in zip(shared, kernels, strict=True)
        ]
    if nests := [c for c in kernels if c.nest]:
        own = [(len(c.script.splitlines()), c.cost.memory_bytes) for c in nests]
        rows = [(*row, *more) for row, more in zip(shared, own, strict=True)]
        return table([*header, "edits", "memory bytes"], rows)
    rows = [
        (*row, m.compilation.main_intrinsic, m.off_chip_bytes)
        for row, m in zip(shared, measured, strict=True)
    ]
    coded = [line for m in measured for line in _coded(m)]
    if coded:
        coded.append("hwgen explain says what the units lack for it")
    shown = table([*header, "intrinsic", "off-chip bytes"], rows)
    return "\n".join([shown, *coded, *cut_short(kernels)])


def _time_and_rate(c: Kernel) -> tuple[str, str]:
    if not c.seconds:
        return "-", "-"
    return seconds_text(c.seconds), rate_text(c.operations / c.seconds)


def _coded(measured: Measured) -> Iterator[str]:
    """What a processor beside the units does of a kernel."""
    c = measured.compilation
    if once := [code for code in c.program.codes if code.once]:
        made = ", ".join(code.name for code in once)
        yield f"{c.workload.name}: the processor computes {made} once, where constants are packed"
    if codes := [code for code in c.program.codes if not code.once]:
        cycles = sum(code.cycles for code in codes)
        made = ", ".join(code.name for code in codes)
        yield (
            f"{c.workload.name}: the processor computes {made}, {cycles:,} of "
            f"{measured.timing.cycles:,} cycles"
        )


def refusals(refused: Sequence[Refusal]) -> str:
    """Workloads without a kernel, with who prevents it, the reason and its repair."""
    lines: list[str] = []
    for one in refused:
        d = one.error.diagnostic
        lines.append(f"{one.name}: cannot run, [{d.code}] {d.message}")
        lines += [
            f"  {label}: {text}"
            for label, text in (
                ("verdict", one.text),
                ("found", d.found),
                ("allowed", d.allowed),
                ("repair", d.repair),
            )
            if text
        ]
    return "\n".join(lines)


def explanations(scop: Scop, found: Sequence[Explanation]) -> str:
    """Per statement: the intrinsics that serve it, then the others with what prevents them."""
    lines: list[str] = []
    for statement in scop.statements:
        mine = [e for e in found if e.statement == statement.name]
        width = max((len(e.intrinsic) for e in mine), default=0)
        lines.append(str(statement))
        for e in sorted(mine, key=lambda e: not e.binding):
            if e.binding:
                lines.append(f"  {e.intrinsic:<{width}}  {e.binding}")
                continue
            lines.append(f"  {e.intrinsic:<{width}}  no: {e.reason}")
            if e.repair:
                lines.append(f"  {'':<{width}}  repair: {e.repair}")
    return "\n".join(lines)


def stage_text(compilation: Kernel, stage: str) -> str:
    """A stage's artefact; `load` and `simulate` are those before and after the compiler.

    Raises:
        HwgenError: H007 where there is no such stage.
    """
    if stage == "load":
        from hwgen.report.chip import summary, workload_text

        return f"{workload_text(compilation.workload)}\n\n{summary(compilation.hardware)}"
    if stage == "simulate":
        return describe(measure(compilation))
    return compilation.stage(stage)
