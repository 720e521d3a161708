"""A tree of sites with its loops cut short, and what each call conflicts with.

What synchronisation is needed mostly depends on counters near the ends of their ranges alone, so
it is found on loops cut to their first and last iterations and a period between.
Where it depends on others too, which `uneven` tells of pairs of calls, `uncut` leaves loops whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import lcm

from hwgen.codegen.lower.conflicts import (
    Access,
    Box,
    Counters,
    Instance,
    Record,
    Span,
    has_triangle,
    joined,
    latest,
    segments,
)
from hwgen.codegen.lower.ranges import bounded, is_bound
from hwgen.codegen.lower.sites import Around, Body, CallSite, Item, sites_of
from hwgen.codegen.touches import Runs, Touch
from hwgen.spec.expression import Expr, evaluate, names


class Stream:
    """`reach`: iterations that each end of a cut loop keeps; by default what the slots require.
    `period`: iterations after which what is needed repeats, or a divisor of their number.
    `uncut`: names of loops that stay whole."""

    def __init__(
        self,
        items: Sequence[Item],
        reach: int | None = None,
        period: int = 1,
        uncut: Collection[str] = (),
    ) -> None:
        self.items = tuple(items)
        self.sites = list(sites_of(items))
        slots = [t.slots for s in self.sites for t in s.touches if not t.kept]
        if reach is None:
            # Order that goes through a third unit reaches a generation of its buffers further.
            reach = 1 + max(slots, default=1) * (2 if has_triangle(self.sites) else 1)
        # A cut changes no counter's remainder by the period, so that slots stay the same.
        self.reach, self.period = reach, lcm(period, *slots)
        self.segments = segments(self.sites)
        self.whole = {n for s in self.sites for g in s.guards for n in _deciding(g, s.loops)}
        self.whole |= {*uncut}
        self.short = [[self._cut(x) for x in s.loops] for s in self.sites]
        self.apart = {
            (site.index, n)
            for site in self.sites
            for n, touch in enumerate(site.touches)
            if self._apart(site, touch)
        }

    def _apart(self, site: CallSite, touch: Touch) -> bool:
        """Whether it is known of each iteration which part of a slot it touches: not where it moves
        with a loop that is cut, whose middle stands for several."""
        cut = self.short[site.index]
        moving = [
            n
            for n, loop in enumerate(site.loops)
            if touch.offset.coefficient(loop.name) and loop.high - loop.low > 1
        ]
        whole = all(cut[n] == site.loops[n].high - site.loops[n].low for n in moving)
        return bool(touch.runs) and whole

    def cut(self, reach: int, period: int = 1) -> Stream:
        """The same program, its loops cut elsewhere; those that are whole stay so."""
        return Stream(self.items, reach, period, self.whole)

    def uncut(self, loops: Collection[str]) -> Stream:
        """The same program, some more of its loops whole."""
        return Stream(self.items, self.reach, self.period, {*self.whole, *loops})

    def uneven(self, one: Instance, other: Instance) -> set[str]:
        """Loops around one of two calls alone in whose middle it is.

        The middle of a loop around both stands for as many iterations of each. Of one around a
        single call, only some may meet the other: each may have a slot of its own, over what
        another phase had elsewhere.
        """
        bodies = self._bodies[one.site], self._bodies[other.site]
        shared = sum(a is b for a, b in zip(*bodies, strict=False))
        return {
            body.loop.name
            for call, around in zip((one, other), bodies, strict=True)
            for body, counter in list(zip(around, call.counters, strict=True))[shared:]
            if self._stands_for_several(body.loop, counter)
        }

    @cached_property
    def _bodies(self) -> list[tuple[Body, ...]]:
        """Of each site, the loops around it, the outermost first."""
        return list(_bodies(self.items, ()))

    def offchip(self) -> Stream:
        """The same program, what its calls touch on the chip left out."""
        return Stream([_offchip(item) for item in self.items])

    def _cut(self, loop: Around) -> int:
        count = loop.high - loop.low
        if loop.name in self.whole:
            return count
        ends = 2 * self.reach
        return min(count, ends + self.period + (count - ends) % self.period)

    @cached_property
    def instances(self) -> list[Instance]:
        """Every call in stream order."""
        found: list[Instance] = []
        seen: dict[tuple[str, int], Record] = {}  # by memory and start of a segment
        records = {
            place: [seen.setdefault(part, Record()) for part in parts]
            for place, parts in self.segments.items()
        }
        for site, counters, values in self._stream(self.items, (), {}):
            touched: list[Access] = []
            for n, touch in enumerate(site.touches):
                apart = (site.index, n) in self.apart
                for slot in self._slots(site, touch, counters, values):
                    runs = _runs(touch, slot, values) if apart else ()
                    parts = records[touch.buffer, slot]
                    touched += [Access(touch.write, runs, record) for record in parts]
            conflicts = latest(site.unit, len(found), touched)
            found.append(Instance(site.index, site.unit, counters, conflicts))
        return found

    def _slots(
        self, site: CallSite, touch: Touch, counters: Counters, values: Mapping[str, int]
    ) -> list[int]:
        """The slots in use: one; of a buffer whose tiles each have their own, those of all real
        iterations that the counters stand for."""
        if not touch.kept:
            return [touch.turn.at(values) % touch.slots]
        found = [touch.turn.constant]
        for loop, counter in zip(site.loops, counters, strict=True):
            step = touch.turn.coefficient(loop.name)
            if step:
                found = [v + step * r for v in found for r in range(*self._span(loop, counter))]
        return [v % touch.slots for v in found]

    def _stream(
        self, items: Sequence[Item], counters: Counters, values: Mapping[str, int]
    ) -> Iterator[tuple[CallSite, Counters, Mapping[str, int]]]:
        for item in items:
            match item:
                case CallSite():
                    if all(evaluate(g, values) for g in item.guards):
                        yield item, counters, values
                case Body(loop, inside):
                    for c in range(self._cut(loop)):
                        here = {**values, loop.name: self._real(loop, c)}
                        yield from self._stream(inside, (*counters, c), here)

    def _real(self, loop: Around, counter: int) -> int:
        """The loop's value; in the middle, the first that it stands for."""
        count, short = loop.high - loop.low, self._cut(loop)
        behind = counter >= self.reach + self.period
        return loop.low + counter + (count - short if behind else 0)

    def real(self, call: Instance) -> Counters:
        """The values of the loops around a call; in the middle, the first that it stands for."""
        pairs = zip(self.sites[call.site].loops, call.counters, strict=True)
        return tuple(self._real(loop, c) for loop, c in pairs)

    def _span(self, loop: Around, counter: int) -> Span:
        """The loop's values that a counter stands for."""
        value = self._real(loop, counter)
        if not self._stands_for_several(loop, counter):
            return value, value + 1, 1
        return value, loop.high - (self._cut(loop) - self.reach - self.period), self.period

    def _stands_for_several(self, loop: Around, counter: int) -> bool:
        """Whether it is in the middle of a loop that is cut."""
        cut = self._cut(loop) < loop.high - loop.low
        return cut and self.reach <= counter < self.reach + self.period

    def boxes(self, points: Collection[Counters], site: int) -> tuple[Box, ...]:
        """Boxes of the loops' values that shortened counters of a site stand for."""
        found: list[Box] = []
        loops = self.sites[site].loops
        for counters in sorted(points):
            box = [self._span(loop, c) for loop, c in zip(loops, counters, strict=True)]
            found.append(tuple(box))
        for dimension in reversed(range(len(loops))):
            found = joined(found, dimension, self.period)
        return tuple(sorted(found))


def _bodies(items: Sequence[Item], around: tuple[Body, ...]) -> Iterator[tuple[Body, ...]]:
    """The loops around each call site, in the order of the program."""
    for item in items:
        match item:
            case CallSite():
                yield around
            case Body():
                yield from _bodies(item.items, (*around, item))


def _runs(touch: Touch, slot: int, values: Mapping[str, int]) -> Runs:
    """The entries of its memory that an access touches of a slot."""
    first = touch.base + slot * touch.slot_stride + touch.offset.at(values)
    return tuple((first + low, first + high) for low, high in touch.runs)


def _deciding(guard: Expr, loops: Sequence[Around]) -> tuple[str, ...]:
    """The loops in whose middle a guard may hold of some iterations and not of others: unless it
    changes next to an end of their range."""
    for loop in loops:
        if is_bound(guard) and loop.name in names(guard):
            low, high = bounded([guard], loop.name, loop.low, loop.high)
            ends = (loop.low, loop.low + 1, loop.high - 1, loop.high)
            return () if low in ends and high in ends else (loop.name,)
    return tuple(names(guard))


def _offchip(item: Item) -> Item:
    match item:
        case CallSite():
            return replace(item, touches=tuple(t for t in item.touches if t.offchip))
        case Body():
            return replace(item, items=tuple(_offchip(i) for i in item.items))
