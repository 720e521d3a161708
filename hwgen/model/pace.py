"""How far units get beside each other, where one waits for nothing but what it reads of another.

Such units may get on at different rates: one that others wait for, and that waits for nobody, runs
ahead of them for ever. What they do repeats where all that has to wait does so equally again, and
what had not to wait has more time to spare than before.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.hardware import HardwareSpec

from .banks import bank_ports

Counts = tuple[tuple[int, ...], ...]


def own_pace(hardware: HardwareSpec) -> bool:
    """Whether nothing but reading results, a bus and barriers keeps units from getting on."""
    board = hardware.scoreboard
    together = hardware.fetch is not None or hardware.issue is not None or bank_ports(hardware)
    posts = any(bus.write.posted_bursts for bus in hardware.buses)
    return board is not None and board.renames and not together and not posts


@dataclass(frozen=True, slots=True)
class Shift:
    """Cycles by which each unit, each bus, the latest barrier and the front end are later."""

    units: list[int]
    buses: list[int]
    barrier: int
    front: int


class Pace:
    """Who waited for whom so far: calls of units for those of others and for buses."""

    def __init__(self, units: int, buses: int) -> None:
        self._waits = [[0] * units for _ in range(units)]
        self._delays = [[0] * units for _ in range(units)]
        self._reads = [[0] * units for _ in range(buses)]
        self._barriers = 0

    def waited(self, unit: int, other: int, delayed: bool) -> None:
        """A call of a unit read what one of another had written; `delayed`: it started later."""
        self._waits[unit][other] += 1
        self._delays[unit][other] += delayed

    def read(self, bus: int, unit: int) -> None:
        """A call of a unit went to a bus."""
        self._reads[bus][unit] += 1

    def passed(self) -> None:
        """All units waited for a barrier."""
        self._barriers += 1

    def counts(self) -> Counts:
        """What was counted so far."""
        rows = (*self._waits, *self._delays, *self._reads, (self._barriers,))
        return tuple([tuple(row) for row in rows])

    def steady(self, before: Counts, later: Shift) -> bool:
        """Whether what happened since these counts happens again and again, each unit, each bus and
        the barriers getting on by the same cycles each time, where the state looks the same.

        So it does where one that is delayed by another keeps up with it exactly, and one that is
        not is not faster than the one that it waits for: it has as much time to spare, or more.
        """
        units = range(len(self._waits))
        since = [
            [now - old for now, old in zip(row, known, strict=True)]
            for row, known in zip(self.counts(), before, strict=True)
        ]
        count = len(units)
        waits, delays, reads = since[:count], since[count : 2 * count], since[2 * count : -1]
        cycles = later.units
        if since[-1][0]:
            moved = [c for c in (*cycles, *later.buses) if c]
            return all(c == later.barrier for c in moved)
        return all(
            cycles[u] == cycles[v] if delays[u][v] else cycles[u] >= cycles[v] or not waits[u][v]
            for u in units
            for v in units
        ) and all(
            cycles[u] == moved
            for row, moved in zip(reads, later.buses, strict=True)
            for u in units
            if row[u]
        )
