"""Nodes of a program that order calls of different units: what each is, and how it is written.

Each says how it is shown to people, and which template of the chip's spec writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Written:
    """A template of `synchronization`, by its field; `values`: by name what it may use, units by
    their names."""

    field: str
    template: str
    values: tuple[tuple[str, str | int], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """What stands between calls: it orders those of different units, or sets what later ones
    depend on; a base class, so that walks name it once."""

    def written(self, hardware: HardwareSpec) -> Written | None:
        """How the chip's spec writes it; None where the chip has no such synchronisation."""
        del hardware
        return None


@dataclass(frozen=True, slots=True)
class Edge(Sync):
    """Orders calls of one unit after those of another; a base class."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.source} -> {self.target}"

    def by(self, template: str | None) -> Written | None:
        """How a template writes it, where there is one."""
        if template is None:
            return None
        ends = (("source", self.source), ("target", self.target))
        return Written(type(self).__name__.lower(), template, ends)


@dataclass(frozen=True, slots=True)
class Push(Edge):
    """A token from `source` to `target`, given when the stream's last call of `source` ends."""

    def written(self, hardware: HardwareSpec) -> Written | None:
        return self.by(hardware.tokens and hardware.tokens.push)


@dataclass(frozen=True, slots=True)
class Pop(Edge):
    """The next call of `target` waits for a token from `source`."""

    def written(self, hardware: HardwareSpec) -> Written | None:
        return self.by(hardware.tokens and hardware.tokens.pop)


@dataclass(frozen=True, slots=True)
class Barrier(Sync):
    """No later call begins before all earlier calls of `unit` ("": of every unit), but for the
    latest `outstanding` of them, are done, and `start_cycles` more have passed: what it takes to
    start workers."""

    unit: str
    start_cycles: int = 0
    outstanding: int = 0

    @property
    def awaited(self) -> str:
        """What it waits for, in words."""
        but = f" but for the latest {self.outstanding}" if self.outstanding else ""
        return f"{self.unit or 'all units'}{but}"

    def __str__(self) -> str:
        return f"barrier {self.awaited}"

    def written(self, hardware: HardwareSpec) -> Written | None:
        barriers, scoreboard = hardware.barriers, hardware.scoreboard
        if barriers and not self.unit and barriers.emit_all:
            return Written("emit_all", barriers.emit_all, ())
        if scoreboard and not self.unit and scoreboard.fence:
            return Written("fence", scoreboard.fence, ())
        if barriers and self.unit in barriers.units:
            left = (("outstanding", self.outstanding),) if barriers.outstanding else ()
            return Written("emit", barriers.emit, (("unit", self.unit), *left))
        return None


@dataclass(frozen=True, slots=True)
class Flagged(Edge):
    """By flags that take turns: the k-th executed one from `source` to `target`, from 0 on, takes
    flag `first + k % count`; a base class."""

    first: int
    count: int

    def __str__(self) -> str:
        last = self.first + self.count - 1
        flags = f"flags {self.first}..{last} in turn" if self.count > 1 else f"flag {last}"
        return f"{Edge.__str__(self)}, {flags}"


@dataclass(frozen=True, slots=True)
class Signal(Flagged):
    """Adds one to a flag when all calls of `source` before it are done."""

    def written(self, hardware: HardwareSpec) -> Written | None:
        return self.by(hardware.events and hardware.events.signal)


@dataclass(frozen=True, slots=True)
class Wait(Flagged):
    """No later call of `target` begins before a flag from `source` is above 0; takes one of it."""

    def written(self, hardware: HardwareSpec) -> Written | None:
        return self.by(hardware.events and hardware.events.wait)
