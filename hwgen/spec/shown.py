"""How chips, workloads and what is made of them show themselves: one line as `repr`, and HTML in a
notebook: a title, facts, and tables, without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.memory import Memory
    from hwgen.spec.workload import Workload

LONGEST = 160
"""Characters of a `repr` after the class's name."""

Cell = str | int | float


class Brief:
    """What a user looks at: its `repr` is one line, however much it holds."""

    __slots__ = ()

    def brief(self, /) -> str:
        """What it is, in one line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        line = " ".join(self.brief().split())
        shown = line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
        return f"<{type(self).__name__} {shown}>"


class Printed(Brief):
    """The same of what has a text: notebooks show that."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by title, and rows."""

    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def html(self) -> str:
        """The table, numbers to the right."""
        head = "".join(
            _heading(title, [row[n] for row in self.rows]) for n, title in enumerate(self.header)
        )
        rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _heading(title: str, cells: Iterable[Cell]) -> str:
    side = "left" if all(isinstance(cell, str) for cell in cells) else "right"
    return f'<th style="text-align:{side}">{escape(title)}</th>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f'<td style="text-align:left">{escape(cell)}</td>'
    number = f"{cell:,}" if isinstance(cell, int) else f"{cell:.3f}"
    return f'<td style="text-align:right">{number}</td>'


def card(
    title: str, note: str, facts: Iterable[tuple[str, str]], tables: Iterable[Table] = ()
) -> str:
    """Something as HTML; facts without a value are left out."""
    lines = [f"<b>{escape(label)}</b>: {escape(value)}" for label, value in facts if value]
    parts = [
        f"<p><b>{escape(title)}</b> {escape(note)}</p>",
        f"<p>{'<br/>'.join(lines)}</p>" if lines else "",
        *(t.html() for t in tables if t.rows),
    ]
    return f"<div>{''.join(parts)}</div>"


def assigned(values: Iterable[tuple[str, int]]) -> str:
    """Sizes or parameters with their values."""
    return ", ".join(f"{name}={value}" for name, value in values)


def with_unit(value: float, units: Iterable[tuple[float, str]]) -> str:
    """A number with four digits, in the largest of the units that it has one of, or the last."""
    found = [*units]
    size, name = next((u for u in found if value >= u[0]), found[-1])
    return f"{value / size:.4g} {name}"


def hertz_text(hertz: float) -> str:
    """A frequency as a chip's file has it."""
    return with_unit(hertz, ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1, "Hz")))


def seconds_text(seconds: float) -> str:
    """A time, with four digits."""
    return with_unit(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def rate_text(operations: float) -> str:
    """Operations per second, with four digits."""
    return with_unit(operations, ((1e12, "TOPS"), (1e9, "GOPS"), (1e6, "MOPS")))


def first_sentence(text: str) -> str:
    """A text's first sentence, without its asides."""
    plain = re.sub(r" \([^()]*\)", "", " ".join(text.split()))
    return re.split(r"(?<=\S)\. (?=[A-Z])", plain)[0].removesuffix(".")


def unit_tables(hardware: HardwareSpec) -> tuple[Table, Table]:
    """A chip's memories; its units with their intrinsics."""
    memories = [
        (m.name, m.kind, m.dtype or "-", _entry(m), *_capacity(m))
        for m in hardware.memories
        if m.kind != "workspace"
    ]
    units = [
        (u.name, ", ".join(i.name for i in hardware.intrinsics if i.unit == u.name) or "-")
        for u in hardware.units
    ]
    return (
        Table(("memory", "kind", "dtype", "entry", "entries", "bytes"), memories),
        Table(("unit", "intrinsics"), units),
    )


def processor_tables(hardware: HardwareSpec) -> tuple[Table, Table, Table]:
    """A processor's workspaces, kinds of loops, and caches."""
    processor = hardware.machine
    workspaces = [
        (
            w.name + " (default)" * (w.name == processor.default_memory),
            w.shared_by,
            w.capacity_bytes or "-",
            w.align_bytes,
            f"{w.banks.ways} x {w.banks.run} bytes" if w.banks else "-",
        )
        for w in hardware.of_kind("workspace")
    ]
    loops = [
        (x.name, x.kind, x.level if x.kind in ("parallel", "bind") else "-", str(x.extent))
        for x in processor.loops
    ]
    caches = [
        (c.name, c.shared_by, c.capacity_bytes, f"{c.bytes_per_cycle:g}") for c in processor.caches
    ]
    return (
        Table(("workspace", "shared by", "bytes", "align", "banks"), workspaces),
        Table(("loop", "kind", "level", "extent"), loops),
        Table(("cache", "shared by", "bytes", "bytes per cycle"), caches),
    )


def processor_line(hardware: HardwareSpec) -> str:
    """Workers, vectors, threads and intrinsics of a processor."""
    processor = hardware.machine
    vectors = f"{processor.lanes_bytes} bytes" if processor.lanes_bytes else "none"
    special = ", ".join(i.name for i in hardware.intrinsics if not i.unit) or "none"
    blocks = bool(processor.coordinates("block") or processor.coordinates("thread"))
    threads = f", {processor.threads} threads a block in warps of {processor.warp}" * blocks
    return f"{processor.workers} workers, vectors: {vectors}{threads}, intrinsics: {special}"


def _entry(memory: Memory) -> str:
    return " x ".join(map(str, memory.entry_shape)) or "1" if memory.dtype else "-"


def _capacity(memory: Memory) -> tuple[int | str, int | str]:
    if memory.kind == "offchip":
        return "-", "-"
    return memory.capacity_entries, memory.capacity_bytes


def chip_brief(hardware: HardwareSpec) -> str:
    """Units and memories, or what a processor runs on."""
    parts: list[str] = []
    if hardware.units:
        units = ", ".join(u.name for u in hardware.units)
        memories = ", ".join(m.name for m in hardware.memories if m.kind != "workspace")
        parts += [f"units {units}", f"memories {memories}"]
    if hardware.processor is not None:
        vectors = hardware.processor.lanes_bytes
        parts.append(f"a processor of {hardware.processor.workers} workers")
        parts += [f"vectors of {vectors} bytes"] if vectors else []
    return f"{hardware.name}: {'; '.join(parts)}; {len(hardware.intrinsics)} intrinsics"


def clock_text(hardware: HardwareSpec) -> str:
    """A chip's clock; "" where its file has none."""
    return "" if hardware.clock_hz is None else hertz_text(hardware.clock_hz)


def chip_html(hardware: HardwareSpec) -> str:
    """A chip as HTML."""
    facts = [("parameters", assigned(hardware.parameters)), ("clock", clock_text(hardware))]
    tables: list[Table] = []
    if hardware.units:
        held = hardware.of_kind("scratchpad")
        banks = "; ".join(f"{m.name}: {m.banks}" for m in held if m.banks is not None)
        facts.append(("banks", banks))
        tables += unit_tables(hardware)
    if hardware.processor is not None:
        facts.append(("processor", processor_line(hardware)))
        tables += processor_tables(hardware)
    return card(hardware.name, first_sentence(hardware.description), facts, tables)


def workload_brief(workload: Workload) -> str:
    """Sizes, inputs, outputs and statements."""
    inputs, outputs = (", ".join(t.name for t in ts) for ts in (workload.inputs, workload.outputs))
    sizes = f", {assigned(workload.sizes)}" if workload.sizes else ""
    count = len(workload.statements)
    statements = f"{count} statement{'s' if count != 1 else ''}"
    return f"{workload.name}{sizes}: {inputs} -> {outputs} in {statements}"


def workload_html(workload: Workload) -> str:
    """A workload as HTML."""
    tensors = [
        (t.name, t.dtype, " x ".join(map(str, t.extents)), t.role + ", constant" * t.constant)
        for t in workload.tensors
    ]
    statements = [
        (s.name, str(s), ", ".join(f"{n}<{e}" for n, e in s.loops) or "one point")
        for s in workload.statements
    ]
    return card(
        workload.name,
        "",
        [("sizes", assigned(workload.sizes))],
        [
            Table(("tensor", "dtype", "shape", "role"), tensors),
            Table(("statement", "computes", "for"), statements),
        ],
    )
