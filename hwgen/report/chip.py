"""Chips and workloads in a few lines of text."""

from __future__ import annotations

from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import (
    Table,
    assigned,
    clock_text,
    processor_line,
    processor_tables,
    unit_tables,
)
from hwgen.spec.table import table
from hwgen.spec.workload import Workload


def summary(hardware: HardwareSpec) -> str:
    """Parameters; memories, units and intrinsics; the processor's loops and workspaces."""
    parts = [f"{hardware.name}\nparameters  {assigned(hardware.parameters) or 'none'}"]
    if clock := clock_text(hardware):
        parts[0] += f"\nclock       {clock}"
    if hardware.units:
        memories, units = unit_tables(hardware)
        parts.append(_text(memories))
        held = hardware.of_kind("scratchpad")
        banks = [f"{m.name:<12}{m.banks}" for m in held if m.banks is not None]
        if banks:
            parts.append("\n".join(banks))
        parts.append(_text(units))
    if hardware.processor is not None:
        workspaces, loops, caches = processor_tables(hardware)
        parts += [f"processor   {processor_line(hardware)}", _text(workspaces)]
        parts += [_text(t) for t in (loops, caches) if t.rows]
    return "\n\n".join(parts)


def _text(shown: Table) -> str:
    return table(shown.header, shown.rows)


def workload_text(workload: Workload) -> str:
    """Sizes, tensors and statements."""
    lines = [workload.name]
    if workload.sizes:
        lines.append("sizes  " + ", ".join(f"{n}={v}" for n, v in workload.sizes))
    for t in workload.tensors:
        constant = ", constant" if t.constant else ""
        lines.append(f"{t.name}: {t.dtype}{list(t.extents)} {t.role}{constant}")
    for s in workload.statements:
        loops = ", ".join(f"{n}<{e}" for n, e in s.loops)
        lines.append(f"{s.name}: {s}  for {loops or 'one point'}")
    return "\n".join(lines)
