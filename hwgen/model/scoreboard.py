"""A scoreboard: calls that touch the same on-chip entries start one after the other.

Calls are entered in the order of the stream. A call waits, of every other unit, for the latest
earlier call that touched an entry of its own, one of the two writing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from hwgen.codegen.program import Call, KernelProgram, MicroKernelDef
from hwgen.spec.hardware import HardwareSpec

from .costs import CycleCosts
from .footprints import FootprintCosts, Space
from .periodicity import Watched
from .stream import Costs, Operation

Awaited = tuple[tuple[int, int], ...]
"""(unit, number): calls by their number among their unit's, from 1 on."""

KEPT_ENDS = 4096
"""Ends of a unit's calls after which those that nobody can wait for are forgotten."""


def cycle_costs(program: KernelProgram, hardware: HardwareSpec) -> Costs:
    """Costs for the timing model: with footprints where a scoreboard reads them."""
    costs = CycleCosts(program, hardware)
    if hardware.scoreboard is None:
        return costs
    return _TouchingCosts(costs, FootprintCosts(program, hardware))


class _TouchingCosts:
    """Durations and footprints of each call."""

    def __init__(self, cycles: CycleCosts, footprints: FootprintCosts) -> None:
        self._cycles = cycles
        self._footprints = footprints
        self.spaces = footprints.spaces

    def watched(self, call: Call) -> tuple[Watched, ...]:
        return (*self._cycles.watched(call), *self._footprints.watched(call))

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        count = len(self._cycles.watched(call))
        touches = self._footprints.operation(call, values[count:]).touches
        return replace(self._cycles.operation(call, values[:count]), touches=touches)

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        return self._cycles.kernel_load(call, kernel, first)


class Board:
    """The latest accesses to each entry, and when the calls that made them end."""

    def __init__(self, costs: Costs, units: int, cycles: int) -> None:
        spaces = costs.spaces if isinstance(costs, _TouchingCosts) else []
        # Registered while the stream is made: looked up by their number.
        self._spaces: list[Space] = spaces
        self._cycles = cycles
        self._entered = [0] * units
        self._done = [0] * units
        self._ends: list[dict[int, int]] = [{} for _ in range(units)]

    def enter(self, operation: Operation) -> Awaited:
        """What an operation, the next of the stream, waits for."""
        unit = operation.unit
        self._entered[unit] += 1
        latest: dict[int, int] = {}
        for place, footprint, write in operation.touches:
            space = self._spaces[place]
            for atom in space.atoms[footprint] if space.onchip else ():
                writes, reads = space.writes[atom], space.reads[atom]
                for row in (writes, reads) if write else (writes,):
                    for other, number in enumerate(row):
                        if number and other != unit:
                            latest[other] = max(latest.get(other, 0), number)
        for place, footprint, write in operation.touches:
            space = self._spaces[place]
            for atom in space.atoms[footprint] if space.onchip else ():
                (space.writes if write else space.reads)[atom][unit] = self._entered[unit]
        return tuple(latest.items())

    def ready(self, awaited: Awaited) -> int:
        """When all of them are done; -1 where that is not known yet."""
        when = 0
        for unit, number in awaited:
            if number > self._done[unit]:
                return -1
            if number in self._ends[unit]:
                when = max(when, self._ends[unit][number] + self._cycles)
        return when

    def finish(self, unit: int, end: int) -> None:
        """The next operation of a unit ends then."""
        self._done[unit] += 1
        self._ends[unit][self._done[unit]] = end

    def forget(self, free: list[int]) -> None:
        """Drop ends that no unit, free from then on, can still wait for."""
        before = min(free)
        for unit, ends in enumerate(self._ends):
            if len(ends) > KEPT_ENDS:
                self._ends[unit] = {n: e for n, e in ends.items() if e + self._cycles > before}

    def relative(self, awaited: Awaited, now: int) -> Hashable:
        """What is awaited, relative to now and to what is done."""
        return tuple([(unit, self._age(unit, number, now)) for unit, number in awaited])

    def signature(self, now: int) -> Hashable:
        return tuple(
            [
                tuple([self._age(unit, number, now) for unit, number in enumerate(row)])
                for space in self._spaces
                if space.onchip
                for row in (*space.writes, *space.reads)
            ]
        )

    def shift(self, cycles: int) -> None:
        """Be as if everything had happened so much later."""
        self._ends = [{n: e + cycles for n, e in ends.items()} for ends in self._ends]

    def _age(self, unit: int, number: int, now: int) -> int:
        """Cycles from now until a call lets others start, 0 if it does; below 0: calls before
        it that are not done."""
        if number > self._done[unit]:
            return self._done[unit] - number
        end = self._ends[unit].get(number)
        return 0 if end is None else max(0, end + self._cycles - now)
