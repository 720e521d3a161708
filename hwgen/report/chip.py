"""A chip in a few lines of text."""

from __future__ import annotations

from hwgen.report.table import table
from hwgen.spec.hardware import HardwareSpec, Memory
from hwgen.spec.processor import Processor


def summary(hardware: HardwareSpec) -> str:
    """Parameters; memories, units and intrinsics; the processor's loops and workspaces."""
    parameters = ", ".join(f"{n}={v}" for n, v in hardware.parameters) or "none"
    parts = [f"{hardware.name}\nparameters  {parameters}"]
    if hardware.units:
        memories = [
            (m.name, m.kind, m.dtype or "-", _entry(m), *_capacity(m)) for m in hardware.memories
        ]
        units = [
            (u.name, ", ".join(i.name for i in hardware.intrinsics if i.unit == u.name) or "-")
            for u in hardware.units
        ]
        parts.append(table(("memory", "kind", "dtype", "entry", "entries", "bytes"), memories))
        banks = [f"{m.name:<12}{m.banks}" for m in hardware.memories if m.banks is not None]
        if banks:
            parts.append("\n".join(banks))
        parts.append(table(("unit", "intrinsics"), units))
    if hardware.processor is not None:
        parts += _processor(hardware, hardware.processor)
    return "\n\n".join(parts)


def _processor(hardware: HardwareSpec, processor: Processor) -> list[str]:
    vectors = f"{processor.lanes_bytes} bytes" if processor.lanes_bytes else "none"
    special = ", ".join(i.name for i in hardware.intrinsics if not i.unit) or "none"
    blocks = bool(processor.coordinates("block") or processor.coordinates("thread"))
    threads = f", {processor.threads} threads a block in warps of {processor.warp}" * blocks
    workspaces = [
        (
            w.name + " (default)" * (w.name == processor.default_memory),
            w.shared_by,
            w.capacity_bytes or "-",
            w.align_bytes,
            f"{w.banks} x {w.bank_bytes} bytes" if w.banks else "-",
        )
        for w in processor.workspaces
    ]
    loops = [
        (x.name, x.kind, x.level if x.kind in ("parallel", "bind") else "-", str(x.extent))
        for x in processor.loops
    ]
    parts = [
        f"processor   {processor.workers} workers, vectors: {vectors}{threads}, "
        f"intrinsics: {special}",
        table(("workspace", "shared by", "bytes", "align", "banks"), workspaces),
    ]
    if loops:
        parts.append(table(("loop", "kind", "level", "extent"), loops))
    if processor.caches:
        caches = [
            (c.name, c.shared_by, c.capacity_bytes, c.bytes_per_cycle) for c in processor.caches
        ]
        parts.append(table(("cache", "shared by", "bytes", "bytes per cycle"), caches))
    return parts


def _entry(memory: Memory) -> str:
    return " x ".join(map(str, memory.entry_shape)) or "1" if memory.dtype else "-"


def _capacity(memory: Memory) -> tuple[int | str, int | str]:
    if memory.kind == "offchip":
        return "-", "-"
    return memory.capacity_entries, memory.capacity_entries * memory.entry_bytes
