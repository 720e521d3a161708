"""A scoreboard: calls that touch the same on-chip entries start one after the other.

Calls are entered in the order of the stream. A call waits, of every other unit, for the latest
earlier call that touched an entry of its own, one of the two writing; where what is written goes
to a fresh place, a call that reads waits for those that wrote, and no other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import replace

from hwgen.codegen.nodes import Call
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.spec.hardware import HardwareSpec

from .banks import HoldingCosts, bank_ports
from .costs import CycleCosts
from .ends import Ends
from .footprints import FootprintCosts, Space
from .periodicity import Use, Watched
from .stream import Costs, Operation

Awaited = tuple[tuple[int, int], ...]
"""(unit, number): calls by their number among their unit's, from 1 on."""


def cycle_costs(program: Program, hardware: HardwareSpec) -> Costs:
    """Costs for the timing model: with the ports of banks that calls hold, and with footprints
    where a scoreboard reads them."""
    costs: Costs = CycleCosts(program, hardware)
    if bank_ports(hardware):
        costs = HoldingCosts(costs, program, hardware)
    if hardware.scoreboard is None:
        return costs
    renames = hardware.scoreboard.renames
    return _TouchingCosts(costs, FootprintCosts(program, hardware, offchip=False, renames=renames))


class _TouchingCosts:
    """Durations and footprints of each call."""

    def __init__(self, cycles: Costs, footprints: FootprintCosts) -> None:
        self._cycles = cycles
        self._footprints = footprints
        self.spaces = footprints.spaces

    def watched(self, call: Call) -> tuple[Watched, ...]:
        return (*self._cycles.watched(call), *self._footprints.watched(call))

    def touched(self, call: Call) -> tuple[Use, ...]:
        return self._footprints.touched(call)

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        count = len(values) - len(self._footprints.watched(call))
        touches = self._footprints.operation(call, values[count:]).touches
        return replace(self._cycles.operation(call, values[:count]), touches=touches)

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        return self._cycles.kernel_load(call, kernel, first)


class Board:
    """The latest accesses to each entry, and when the calls that made them end."""

    def __init__(self, costs: Costs, units: int, cycles: int, renames: bool = False) -> None:
        spaces = costs.spaces if isinstance(costs, _TouchingCosts) else []
        # Registered while the stream is made: looked up by their number.
        self._spaces: list[Space] = spaces
        self._cycles = cycles
        self._renames = renames
        self._ends = Ends(units)
        # Of what a later operation may have to wait for: space, whether written, entries.
        self._recent: set[tuple[int, bool, int]] = set()
        # Of each space, the latest operation of each unit that writes there.
        self._latest: dict[int, list[int]] = {}
        self._units = units

    def enter(self, operation: Operation) -> Awaited:
        """What an operation, the next of the stream, waits for."""
        unit = operation.unit
        entered = self._ends.enter(unit)
        latest: dict[int, int] = {}
        for place, footprint, write in operation.touches:
            space = self._spaces[place]
            for atom in space.atoms[footprint] if space.onchip else ():
                writes, reads = space.writes[atom], space.reads[atom]
                for row in self._awaited(write, writes, reads):
                    for other, number in enumerate(row):
                        if other != unit and number > latest.get(other, 0):
                            latest[other] = number
        for place, footprint, write in operation.touches:
            if self._renames and not write:
                continue
            space = self._spaces[place]
            if write:
                self._latest.setdefault(place, [0] * self._units)[unit] = entered
            for atom in space.atoms[footprint] if space.onchip else ():
                (space.writes if write else space.reads)[atom][unit] = entered
                self._recent.add((place, write, atom))
        return tuple(latest.items())

    def _awaited(self, write: bool, writes: list[int], reads: list[int]) -> tuple[list[int], ...]:
        """Of calls that touched an entry, those that a call waits for that writes it, or reads."""
        if self._renames:
            return () if write else (writes,)
        return (writes, reads) if write else (writes,)

    def ready(self, awaited: Awaited) -> int:
        """When all of them are done; -1 where that is not known yet."""
        when = 0
        for unit, number in awaited:
            end = self.end(unit, number)
            if end < 0:
                return -1
            when = max(when, end)
        return when

    def end(self, unit: int, number: int) -> int:
        """When a call lets others start; -1 where that is not known yet, 0 where long past."""
        end = self._ends.end(unit, number)
        return end + self._cycles if end > 0 else end

    def settled(self, read: Use, now: int) -> bool:
        """Whether all that others wrote to a memory lets a unit start from now on."""
        latest = self._latest.get(read.place, ())
        return self._renames and not any(
            self._age(unit, number, now) for unit, number in enumerate(latest) if unit != read.unit
        )

    def finish(self, unit: int, end: int, free: list[int]) -> None:
        """The next operation of a unit ends then; no unit begins anything before it is `free`."""
        self._ends.finish(unit, end)
        self._ends.forget(min(free) - self._cycles)

    def relative(self, awaited: Awaited, now: int) -> Hashable:
        """What is awaited, relative to now and to what is done."""
        return tuple([(unit, self._age(unit, number, now)) for unit, number in awaited])

    def signature(self, clocks: Sequence[int], touched: Set[Use]) -> Hashable:
        """What operations of each unit may have to wait for, relative to its own clock; where only
        reading waits, of what is `touched` alone."""
        found: list[tuple[tuple[int, bool, int], tuple[tuple[int, ...], ...]]] = []
        for key in sorted(self._recent):
            place, write, atom = key
            space = self._spaces[place]
            row = (space.writes if write else space.reads)[atom]
            # Where anybody may wait, all have one clock.
            units = space.readers if self._renames else (-1,)
            ages = {unit: self._ages(row, unit, clocks[unit]) for unit in units}
            if any(map(any, ages.values())):
                if self._renames:
                    ages = {u: a for u, a in ages.items() if Use(place, u, False) in touched}
                found.append((key, tuple(ages.values())))
            else:  # Nothing waits for it until it is touched again.
                self._recent.remove(key)
        return tuple([item for item in found if any(map(any, item[1]))])

    def _ages(self, row: list[int], unit: int, now: int) -> tuple[int, ...]:
        return tuple([self._age(u, n, now) if u != unit else 0 for u, n in enumerate(row)])

    @property
    def done(self) -> tuple[int, ...]:
        """How many operations of each unit have ended."""
        return self._ends.done

    def shift(self, units: Sequence[int], done: Sequence[int]) -> None:
        """Be as if what ended after the first so many of each unit had ended so much later."""
        self._ends.shift(units, done)

    def _age(self, unit: int, number: int, now: int) -> int:
        """Cycles from now until a call lets others start, 0 if it does; below 0: calls up to it
        that are not done."""
        return self._ends.age(unit, number, now - self._cycles)
