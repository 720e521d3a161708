"""Whether another way to make a kernel is worth looking at: what it might save, by bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import SearchOptions
from hwgen.spec.workload import Tensor

NEAR = 1.03
"""A kernel that takes hardly longer than its bound needs no other."""


def is_near(made: Kernel, options: SearchOptions) -> bool:
    """Whether a kernel is hardly to be improved in cycles, where these are looked for."""
    return options.objective == "cycles" and made.cycles <= NEAR * made.bound.cycles


def may_be_faster(made: Kernel, options: SearchOptions, stored: Iterable[Tensor]) -> bool:
    """Whether a kernel that stores some tensors off chip and loads them again may be faster."""
    if options.objective != "cycles" or is_near(made, options):
        return False
    return _least(made, stored) < made.cycles


def _least(made: Kernel, stored: Iterable[Tensor]) -> int:
    """What a kernel takes at least that computes the same and also moves some tensors out and in
    again, as far as one unit alone can do so."""
    size = sum(t.bytes for t in stored)
    busy = Counter(dict(made.bound.per_resource))
    movers: dict[str, set[str]] = {}
    beat = 1
    for intrinsic in made.hardware.intrinsics:
        operand = made.hardware.offchip_operand(intrinsic)
        if operand is not None:
            movers.setdefault(operand.access, set()).add(f"unit {intrinsic.unit}")
            beat = max(beat, made.hardware.bus_of(operand).beat_bytes)
    alone = {u for units in movers.values() if len(units) == 1 for u in units}
    for unit in alone:
        busy[unit] += sum(units == {unit} for units in movers.values()) * size // beat
    return max(made.bound.cycles, *busy.values())


def is_scarce(made: Kernel, slots: int) -> bool:
    """Whether there is a memory in which not every buffer could have so many slots."""
    taken: Counter[str] = Counter()
    for buffer in made.program.buffers:
        taken[buffer.memory] += buffer.entries
    capacity = made.hardware.memory
    return any(slots * n > capacity[m].capacity_entries for m, n in taken.items())
