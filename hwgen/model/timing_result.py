"""What the timing model finds out about a program."""

from __future__ import annotations

from dataclasses import dataclass

from .banks import BankConflict


@dataclass(frozen=True, slots=True)
class UnitTime:
    """A unit's cycles: busy, and lost before or inside its operations by cause.

    `tokens`: waiting for another unit; `bus`: reads slowed by other readers; `fetch`: the
    operation had not arrived; `queue`: its arrival was delayed by a full queue; `banks`: calls of
    other units held the ports of its banks.
    """

    unit: str
    busy: int
    tokens: int
    bus: int
    fetch: int
    queue: int
    banks: int = 0


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One operation; `site` is the call site, or -1. `waited`: cycles before its start in which it
    waited for a port of `waited_for`, a bank."""

    unit: str
    name: str
    site: int
    start: int
    end: int
    waited: int = 0
    waited_for: str = ""


@dataclass(frozen=True, slots=True)
class TimingResult:
    """Cycles from launch to completion, and where they went.

    `calls`: operations executed by name (intrinsics, micro-kernel loads, `nop`, `signal`, `wait`,
    `barrier`, `fence`, `finish`).
    `busy_by_name`: their cycles; `busy_by_site`: the same by call site, -1 for what is none.
    `simulated`: operations stepped through; fewer than executed where repeating iterations were
    skipped. `exact`: the result is that of the full simulation.
    `conflicts`: calls that waited for ports of banks; their cycles are the units' `banks`.
    """

    cycles: int
    units: tuple[UnitTime, ...]
    calls: tuple[tuple[str, int], ...]
    busy_by_name: tuple[tuple[str, int], ...]
    simulated: int
    exact: bool
    timeline: tuple[TimelineEntry, ...] | None = None
    conflicts: tuple[BankConflict, ...] = ()
    busy_by_site: tuple[tuple[int, int], ...] = ()

    @property
    def conflict_cycles(self) -> int:
        """Cycles that calls waited for ports of banks, over all units."""
        return sum(c.cycles for c in self.conflicts)

    @property
    def operations(self) -> int:
        return sum(count for _, count in self.calls)

    def unit(self, name: str) -> UnitTime:
        return next(u for u in self.units if u.unit == name)
