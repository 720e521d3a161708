"""Padding against bank conflicts: rows of a buffer a few entries further apart than they must be.

Where banks are interleaved, a column of a buffer may lie in few of them, or in one. The steps
between neighbours along its dimensions are then chosen anew, each among those that differ modulo
the banks, so that the calls on the buffer take the fewest cycles; of equal ones, the smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod

from hwgen.codegen.lower.place import Place
from hwgen.codegen.lower.program import Lowered, Part
from hwgen.codegen.lower.sites import CallSite
from hwgen.codegen.lower.trials import Trials
from hwgen.errors import Tolerating
from hwgen.spec.call_cycles import unhindered
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import BANK_CYCLES, Banks


@dataclass(frozen=True, order=True, slots=True)
class Align:
    """The step between neighbours along an axis of a tensor's buffer: `offset` modulo `factor`
    elements."""

    tensor: str
    axis: int
    factor: int
    offset: int


def paddings(hardware: HardwareSpec, lowered: Lowered) -> tuple[Align, ...]:
    """The padding that a program's calls are fastest with; what a buffer's layout says by hand
    stays, and buffers without room for padding stay dense."""
    return tuple(sorted(a for part in lowered.parts for a in _of_part(hardware, part)))


def _of_part(hardware: HardwareSpec, lowered: Part) -> Iterator[Align]:
    held = {p.name: p for p in lowered.places.values() if p.image is None}
    names = [n for n, p in held.items() if _contended(hardware, lowered, p)]
    if not names:
        return
    search = _Search(hardware, lowered, held, Trials(lowered.covered, lowered.whole))
    before = dict(held)
    for name in names:
        search.improve(name)
    for name in names:
        memory = hardware.memory[held[name].memory]
        size = 1 if memory.by_element else memory.entry_elements
        for axis, factor, offset in held[name].aligns:
            if held[name] != before[name]:
                yield Align(name, axis, factor * size, offset * size)


@dataclass
class _Search:
    """One buffer and one axis after the other. `held`: the places of buffers, the best so far."""

    hardware: HardwareSpec
    lowered: Part
    held: dict[str, Place]
    trials: Trials

    def improve(self, name: str) -> None:
        """Choose the step along each axis of a buffer."""
        place = self.held[name]
        banks = _banks(self.hardware, place.memory)
        assert banks is not None
        least, best = self._cost(name), self._cost(name, conflicts=False)
        order = sorted(range(len(place.strides)), key=lambda d: -place.strides[d])
        for axis in reversed(order):
            for offset in range(banks.ways) if place.counts[axis] > 1 else ():
                if least <= best:
                    return
                now = self.held[name]
                others = (a for a in now.aligns if a[0] != axis)
                aligns = tuple(sorted((*others, (axis, banks.turn, offset * banks.run))))
                made = replace(now, aligns=aligns)
                self.held[name] = replace(made, strides=made.arranged(order))
                cost = self._cost(name) if self._free(place.memory) else float("inf")
                if cost < least:
                    least = cost
                else:
                    self.held[name] = now

    def _free(self, memory: str) -> bool:
        """Whether the buffers of a memory have room, each of its own."""
        mine = [p for p in self.held.values() if p.memory == memory]
        low = max(p.reach.start for p in mine)
        return sum(p.slots * p.slot_entries for p in mine) <= (
            min(p.reach.stop for p in mine) - low
        )

    def _cost(self, name: str, *, conflicts: bool = True) -> float:
        """Cycles of all calls on a buffer, as if every buffer began in the first bank."""
        uses = self.lowered.places
        places = {use: self.held.get(p.name, p) for use, p in uses.items()}
        users = frozenset(block for (block, _), p in uses.items() if p.name == name)
        with Tolerating("H614"):  # No call can be so.
            return sum(self._cycles(x, conflicts) for x in self.trials.sites(places, users))
        return float("inf")

    def _cycles(self, site: CallSite, conflicts: bool) -> float:
        intrinsic, absorbed = site.operation.intrinsic, site.absorbed
        names: dict[str, int | float] = {"iterations": absorbed.iterations}
        names |= dict.fromkeys(("transfer", "bursts", "beats"), 0)
        both = zip(intrinsic.loops, absorbed.hardware, strict=True)
        names |= {loop.name: w.extent for loop, w in both if not loop.software}
        names |= unhindered(intrinsic, absorbed.iterations)
        if conflicts and intrinsic.iterations_per_cycle:
            names[BANK_CYCLES] = _served(self.hardware, site)
        times = absorbed.issued * prod(x.high - x.low for x in site.loops)
        return evaluate(intrinsic.cycles, names) * times


def _banks(hardware: HardwareSpec, memory: str) -> Banks | None:
    banks = hardware.memory[memory].banks
    return banks if banks is not None and banks.ways > 1 else None


def _contended(hardware: HardwareSpec, lowered: Part, place: Place) -> bool:
    """Whether calls on a buffer may wait for banks, and nothing says how it is laid out."""
    if _banks(hardware, place.memory) is None or place.aligns or place.dimensions:
        return False
    return any(
        p.name == place.name
        and lowered.covered.state.site[block].block.call.intrinsic.iterations_per_cycle
        for (block, _), p in lowered.places.items()
    )


def _served(hardware: HardwareSpec, site: CallSite) -> int:
    """Cycles in which banks serve a call, as if each group of its iterations were the first."""
    intrinsic, walks = site.operation.intrinsic, site.absorbed.hardware
    at_once = intrinsic.iterations_per_cycle
    # The last loop is the fastest.
    group = list(islice(product(*(range(w.extent) for w in walks)), at_once))
    wanted: Counter[tuple[str, str, int]] = Counter()
    ports: dict[tuple[str, str], int] = {}
    for position, operand in enumerate(intrinsic.operands):
        banks = hardware.memory[operand.memory].banks
        if banks is None:
            continue
        steps = [w.strides[position] for w in walks]
        first = {sum(s * i for s, i in zip(steps, point, strict=True)) for point in group}
        entries = {entry + n for entry in first for n in range(operand.span)}
        ways = Counter(entry // banks.run % banks.ways for entry in entries)
        for kind, count in banks.ports(operand.access):
            ports[operand.memory, kind] = count
            for way, times in ways.items():
                wanted[operand.memory, kind, way] += times
    longest = max((-(-n // ports[key[:2]]) for key, n in wanted.items()), default=1)
    return longest * -(-site.absorbed.iterations // at_once)
