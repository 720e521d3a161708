"""Caches as every model of cost sees them: what fills them, how long it takes, and what comes into
one from a nest of loops directly inside one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor

Cycles = npt.NDArray[np.float64]


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


def filled(machine: Processor) -> list[tuple[float, float, bool]]:
    """Of each cache what a tile may fill of it, how many bytes a cycle come from the next one, or
    memory, and whether that is what each worker gets, or all together; of a machine without, what
    comes into registers."""
    rates = [(c.bytes_per_cycle, True) for c in machine.caches[1:]]
    rates.append((machine.memory_bytes_per_cycle, False))
    rooms = [c.usable_bytes for c in machine.caches] or [0.0]
    return [(room, rate, own) for room, (rate, own) in zip(rooms, rates, strict=True)]


def own_room(machine: Processor) -> float:
    """Bytes that the largest of a worker's own caches holds: what fits is taken to be there."""
    return max((c.usable_bytes for c in machine.caches if c.shared_by == "thread"), default=0.0)


def busiest(times: Sequence[Cycles], machine: Processor) -> Cycles:
    """What takes so long beside one another: the longest, and a share of the others."""
    total = most = times[0]
    for time in times[1:]:
        total = total + time
        most = np.maximum(most, time)
    return most + machine.costs.serial_share * (total - most)


def stays_from(moving: Sequence[bool], depth: int, first: int = 0) -> int:
    """How many loops, `first` or more, are around those of which what is touched inside of `depth`
    loops is brought once: what the next ones outside do not move is still there from their
    iteration before. `moving`: which loops move it, outermost first."""
    while depth > first and not moving[depth - 1]:
        depth -= 1
    return depth


def inside(found: Sequence[Cycles], together: Sequence[Cycles], room: float) -> Cycles:
    """What is found at the outermost depth at which all that is touched together has room."""
    result = found[-1]
    for depth in reversed(range(len(found) - 1)):
        result = np.where(together[depth] <= room, found[depth], result)
    return result
