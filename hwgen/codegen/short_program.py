"""A program's calls with its loops cut short, and what each conflicts with.

Conflicts only reach a few generations of a slot back, so what synchronisation is needed depends on
tile counters near the ends of their ranges only: it is found on a program whose loops are cut to
their first and last iterations and a period in between, which then stands for the whole middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import lcm
from typing import Protocol

from hwgen.codegen.positions import INNER_LOOP, Position
from hwgen.codegen.sites import Site, Touch
from hwgen.polyhedral.operations import Operation

Counters = tuple[int, ...]
Span = tuple[int, int, int]
"""First, end (not included) and step."""
Box = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One call of the short program. `latest`: by unit other than its own, the position of the
    latest earlier call that it conflicts with; units in sorted order."""

    site: int
    unit: str
    counters: Counters
    latest: tuple[tuple[str, int], ...]


class Touching(Protocol):
    """A site, of whatever tree."""

    @property
    def unit(self) -> str: ...
    @property
    def operation(self) -> Operation: ...
    @property
    def touches(self) -> tuple[Touch, ...]: ...
    @property
    def ranges(self) -> tuple[tuple[int, int], ...]: ...


class CutProgram(Protocol):
    """A program's calls with its loops cut. `short`: the counts of loops around each site; equal
    where two programs are."""

    @property
    def sites(self) -> Sequence[Touching]: ...
    @property
    def short(self) -> Sequence[Sequence[int]]: ...
    @property
    def reach(self) -> int: ...
    @property
    def period(self) -> int: ...

    def cut(self, reach: int, period: int = 1) -> CutProgram: ...
    def offchip(self) -> CutProgram: ...
    def instances(self) -> list[Instance]: ...
    def real(self, call: Instance) -> Counters: ...
    def boxes(self, points: Collection[Counters], site: int) -> tuple[Box, ...]: ...


@dataclass(slots=True)
class Record:
    """Latest accesses to one part of memory by unit, as positions in the stream."""

    reads: dict[str, int] = field(default_factory=dict[str, int])
    writes: dict[str, int] = field(default_factory=dict[str, int])


class ShortProgram:
    """`reach`: iterations that each end of a cut loop keeps; by default what the slots require.
    `period`: iterations after which what is needed repeats, or a divisor of their number: where
    other buffers lie in the same entries, that of the slots is one too."""

    def __init__(self, sites: Sequence[Site], reach: int | None = None, period: int = 1) -> None:
        self.sites = sites
        if reach is None:
            slots = max((t.slots for s in sites for t in s.touches if not t.kept), default=1)
            # Order that goes through a third unit reaches a generation of its buffers further.
            reach = 1 + slots * (2 if has_triangle(sites) else 1)
        self.segments = segments(sites)
        period = lcm(period, *_turns(sites, self.segments))
        self.reach, self.period = reach, period
        # Counts of the loops around each site, real and cut; a cut changes no counter's remainder
        # by the period.
        self.counts = [[loop.count for loop in site.loops] for site in sites]
        self.short = [
            [min(n, 2 * reach + period + (n - 2 * reach) % period) for n in counts]
            for counts in self.counts
        ]

    def cut(self, reach: int, period: int = 1) -> ShortProgram:
        """The same program, its loops cut elsewhere."""
        return ShortProgram(self.sites, reach, period)

    def offchip(self) -> ShortProgram:
        """The same program, what its calls touch on the chip left out."""
        apart = (replace(s, touches=tuple(t for t in s.touches if t.offchip)) for s in self.sites)
        return ShortProgram(list(apart))

    def instances(self) -> list[Instance]:
        """Every call in stream order."""
        slots: dict[tuple[str, int], Record] = {}  # by memory and start of a segment
        found: list[Instance] = []
        for position, (index, counters) in enumerate(self._stream()):
            site = self.sites[index]
            unit = site.unit
            touched: list[tuple[bool, Record]] = []
            for touch in site.touches:
                for used in self._slots(site, touch, counters):
                    for key in self.segments[touch.buffer, used]:
                        touched.append((touch.write, slots.setdefault(key, Record())))
            found.append(Instance(index, unit, counters, latest(unit, position, touched)))
        return found

    def _stream(self) -> Iterator[tuple[int, Counters]]:
        """(site, shortened tile counters) in stream order."""
        keyed: list[tuple[int, tuple[tuple[Position, int], ...], int, Counters]] = []
        for site in self.sites:
            spans = [
                range(*(self._shorten(b, n, m) for b in bounds))
                for bounds, n, m in zip(site.ranges, *self._extents(site), strict=True)
            ]
            for counters in product(*spans):
                around = tuple((INNER_LOOP, c) for c in counters)
                keyed.append((site.phase, (*around, (site.position, 0)), site.index, counters))
        keyed.sort()
        for _, _, index, counters in keyed:
            yield index, counters

    def _shorten(self, bound: int, count: int, short: int) -> int:
        """A bound of a tile counter in the shortened program."""
        if bound <= self.reach or count == short:
            return bound
        return max(min(bound, self.reach + self.period), bound - (count - short))

    def _extents(self, site: Site) -> tuple[list[int], list[int]]:
        """Counts of the loops around a site, real and cut."""
        return self.counts[site.index], self.short[site.index]

    def _slots(self, site: Site, touch: Touch, counters: Counters) -> list[int]:
        """The slots in use: one, by the number of the tile in the shortened loops that take turns;
        of a kept buffer, those of all real tiles that it stands for."""
        turning = touch.turn.names
        found = [0]
        around = zip(site.loops, counters, *self._extents(site), strict=True)
        for loop, c, n, m in around:
            if f"{loop.loop}_tile" not in turning:
                continue
            if touch.kept:
                found = [v * n + r for v in found for r in self._stands_for(c, n, m)]
            else:
                found = [v * m + c for v in found]
        return [v % touch.slots for v in found]

    def _stands_for(self, counter: int, count: int, short: int) -> range:
        """Real values of a tile counter."""
        end = self.reach + self.period
        if count == short or counter < self.reach:
            return range(counter, counter + 1)
        if counter < end:
            return range(counter, count - (short - end), self.period)
        return range(counter + count - short, counter + count - short + 1)

    def real(self, call: Instance) -> Counters:
        """The real tile counters of a call; in the middle, the first that it stands for."""
        extents = self._extents(self.sites[call.site])
        return tuple(
            c if c < self.reach + self.period else c + n - m
            for c, n, m in zip(call.counters, *extents, strict=True)
        )

    def boxes(self, points: Collection[Counters], site: int) -> tuple[Box, ...]:
        """Boxes of real tile counters that the shortened counters of a site stand for."""
        boxes: list[Box] = []
        for counters in sorted(points):
            box: list[Span] = []
            for c, n, m in zip(counters, *self._extents(self.sites[site]), strict=True):
                end = self.reach + self.period
                if m == n or c < self.reach:
                    box.append((c, c + 1, 1))
                elif c < end:
                    box.append((c, n - (m - end), self.period))
                else:
                    box.append((c + n - m, c + n - m + 1, 1))
            boxes.append(tuple(box))
        for dimension in reversed(range(self.sites[site].depth)):
            boxes = joined(boxes, dimension, self.period)
        return tuple(sorted(boxes))


def latest(
    unit: str, position: int, touched: Sequence[tuple[bool, Record]]
) -> tuple[tuple[str, int], ...]:
    """By unit other than a call's own, the position of the latest call before it that it conflicts
    with; what it touches (written or read) then records it."""
    found: dict[str, int] = {}
    for write, record in touched:
        for accesses in [record.writes, record.reads] if write else [record.writes]:
            for other, when in accesses.items():
                if other != unit:
                    found[other] = max(found.get(other, -1), when)
    for write, record in touched:
        (record.writes if write else record.reads)[unit] = position
    return tuple(sorted(found.items()))


def inside(counters: Counters, boxes: Collection[Box]) -> bool:
    """Whether one of the boxes holds these counters."""
    return any(
        all(c in range(*span) for c, span in zip(counters, box, strict=True)) for box in boxes
    )


def segments(sites: Sequence[Touching]) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """By buffer and slot, the parts of memory that it covers, as memory and first entry: parts are
    cut so that every slot covers whole ones, as buffers of different phases overlap."""
    touches = {t.buffer: t for s in sites for t in s.touches}
    cuts: dict[str, set[int]] = {}
    for t in touches.values():
        for low in (t.base + n * t.slot_stride for n in range(t.slots)):
            cuts.setdefault(t.memory, set()).update((low, low + t.slot_entries))
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for name, t in touches.items():
        for slot in range(t.slots):
            low = t.base + slot * t.slot_stride
            inner = sorted(c for c in cuts[t.memory] if low <= c < low + t.slot_entries)
            found[name, slot] = [(t.memory, c) for c in inner]
    return found


def _turns(
    sites: Sequence[Site], segments: Mapping[tuple[str, int], Sequence[tuple[str, int]]]
) -> Iterator[int]:
    """Slots of each buffer in whose entries others lie in other phases: which of the slots a tile
    has is then no longer all the same."""
    covered = Counter(part for parts in segments.values() for part in parts)
    for t in {t.buffer: t for s in sites for t in s.touches if not t.kept}.values():
        parts = [part for slot in range(t.slots) for part in segments[t.buffer, slot]]
        if t.slots > 1 and any(covered[part] > 1 for part in parts):
            yield t.slots


def has_triangle(sites: Sequence[Touching]) -> bool:
    """Whether some three units share memories pairwise."""
    users: dict[str, set[str]] = {}
    for site in sites:
        for touch in site.touches:
            users.setdefault(touch.memory, set()).add(site.unit)
    shared = {(a, b) for units in users.values() for a in units for b in units if a != b}
    return any((b, c) in shared and (c, a) in shared for a, b in shared for _, c in shared)


def joined(boxes: list[Box], dimension: int, period: int) -> list[Box]:
    """Merge boxes that differ in one dimension only and continue each other there."""
    groups: dict[Box, list[Span]] = {}
    for box in boxes:
        rest = (*box[:dimension], *box[dimension + 1 :])
        groups.setdefault(rest, []).append(box[dimension])
    result: list[Box] = []
    for rest, spans in groups.items():
        for span in _merged(spans, period):
            result.append((*rest[:dimension], span, *rest[dimension:]))
    return result


def _merged(spans: list[Span], period: int) -> list[Span]:
    """Spans with the same numbers, fewer where they continue each other."""
    strided = [s for s in spans if s[2] > 1]
    dense = [s for s in spans if s[2] == 1]
    if len(strided) == period:
        dense.append((min(s[0] for s in strided), strided[0][1], 1))
        strided = []
    merged: list[Span] = []
    for low, high, _ in sorted(dense):
        if merged and merged[-1][1] == low:
            merged[-1] = (merged[-1][0], high, 1)
        else:
            merged.append((low, high, 1))
    for low, high, step in sorted(strided):
        # Single numbers around it that continue it.
        first, last = low, low + (high - 1 - low) // step * step
        while (first - step, first - step + 1, 1) in merged:
            first -= step
            merged.remove((first, first + 1, 1))
        while (last + step, last + step + 1, 1) in merged:
            last += step
            merged.remove((last, last + 1, 1))
        merged.append((first, last + 1, step))
    return sorted(merged)
