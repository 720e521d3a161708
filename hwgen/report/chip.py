"""A chip in a few lines of text."""

from __future__ import annotations

from hwgen.report.table import table
from hwgen.spec.hardware import HardwareSpec, Memory


def summary(hardware: HardwareSpec) -> str:
    """Parameters, memories, units and intrinsics."""
    parameters = ", ".join(f"{n}={v}" for n, v in hardware.parameters) or "none"
    memories = [
        (m.name, m.kind, m.dtype or "-", _entry(m), *_capacity(m)) for m in hardware.memories
    ]
    units = [
        (u.name, ", ".join(i.name for i in hardware.intrinsics if i.unit == u.name) or "-")
        for u in hardware.units
    ]
    return "\n\n".join(
        (
            f"{hardware.name}\nparameters  {parameters}",
            table(("memory", "kind", "dtype", "entry", "entries", "bytes"), memories),
            table(("unit", "intrinsics"), units),
        )
    )


def _entry(memory: Memory) -> str:
    return " x ".join(map(str, memory.entry_shape)) or "1" if memory.dtype else "-"


def _capacity(memory: Memory) -> tuple[int | str, int | str]:
    if memory.kind == "offchip":
        return "-", "-"
    return memory.capacity_entries, memory.capacity_entries * memory.entry_bytes
