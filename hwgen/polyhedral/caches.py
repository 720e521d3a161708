"""Caches between units and the memory that they share with a core, as the cost sees them."""

from __future__ import annotations

from hwgen.spec.hardware import HardwareSpec


def through_caches(hardware: HardwareSpec) -> bool:
    """Whether the units are those of a core with caches: what they read and write off chip, and
    arrays on the chip that are no registers, lie there."""
    machine = hardware.processor
    return (
        bool(hardware.units)
        and machine is not None
        and machine.units_shared_by == "thread"
        and bool(machine.caches)
    )


def in_caches(hardware: HardwareSpec, memory: str) -> bool:
    """Whether a memory is no register file of such a core."""
    return through_caches(hardware) and not hardware.memory[memory].literal
