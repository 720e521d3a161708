"""A program's calls with its loops cut short, and what each conflicts with.

Conflicts only reach a few generations of a slot back, so what synchronisation is needed depends on
tile counters near the ends of their ranges only: it is found on a program whose loops are cut to
their first and last iterations and one in between, which then stands for the whole middle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from hwgen.codegen.sites import Site
from hwgen.polyhedral.tiling import TileLoop

Counters = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One call of the short program. `latest`: by unit other than its own, the position of the
    latest earlier call that it conflicts with; units in sorted order."""

    site: int
    unit: str
    counters: Counters
    latest: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Slot:
    """Latest accesses to one slot by unit, as positions in the stream."""

    reads: dict[str, int] = field(default_factory=dict[str, int])
    writes: dict[str, int] = field(default_factory=dict[str, int])


class ShortProgram:
    """`reach`: iterations that each end of a cut loop keeps; by default what the slots require."""

    def __init__(
        self, loops: Sequence[TileLoop], sites: Sequence[Site], reach: int | None = None
    ) -> None:
        self.sites = sites
        if reach is None:
            slots = max((t.slots for s in sites for t in s.touches), default=1)
            # Order that goes through a third unit reaches a generation of its buffers further.
            reach = 1 + slots * (2 if _has_triangle(sites) else 1)
        self.reach = reach
        self.counts = [loop.count for loop in loops]
        self.short = [min(n, 2 * reach + 1) for n in self.counts]

    def instances(self) -> list[Instance]:
        """Every call in stream order."""
        slots: dict[tuple[str, int], _Slot] = {}
        found: list[Instance] = []
        for position, (index, counters) in enumerate(self._stream()):
            site = self.sites[index]
            unit = site.operation.intrinsic.unit
            touched: list[tuple[bool, _Slot]] = []
            for touch in site.touches:
                key = (touch.buffer, self._turn(site, touch.buffer, counters))
                touched.append((touch.write, slots.setdefault(key, _Slot())))
            latest: dict[str, int] = {}
            for write, slot in touched:
                for accesses in [slot.writes, slot.reads] if write else [slot.writes]:
                    for other, when in accesses.items():
                        if other != unit:
                            latest[other] = max(latest.get(other, -1), when)
            for write, slot in touched:
                (slot.writes if write else slot.reads)[unit] = position
            found.append(Instance(index, unit, counters, tuple(sorted(latest.items()))))
        return found

    def _stream(self) -> Iterator[tuple[int, Counters]]:
        """(site, shortened tile counters) in stream order."""
        keyed: list[tuple[tuple[int, ...], int, Counters]] = []
        for site in self.sites:
            spans = [
                range(*(self._shorten(b, n, m) for b in bounds))
                for bounds, n, m in zip(site.ranges, self.counts, self.short, strict=False)
            ]
            for counters in product(*spans):
                key: list[int] = []
                for c in counters:
                    key += [1 << 10, c]
                key.append(site.position)
                keyed.append((tuple(key), site.index, counters))
        keyed.sort()
        for _, index, counters in keyed:
            yield index, counters

    def _shorten(self, bound: int, count: int, short: int) -> int:
        """A bound of a tile counter in the shortened program."""
        if bound <= self.reach or count == short:
            return bound
        return max(self.reach, bound - (count - short))

    def _turn(self, site: Site, buffer: str, counters: Counters) -> int:
        """The slot in use: the generation counter of the shortened loops, modulo the slots."""
        touch = next(t for t in site.touches if t.buffer == buffer)
        depth = len(touch.turn.terms)
        value = 0
        for c, n in zip(counters[:depth], self.short[:depth], strict=True):
            value = value * n + c
        return value % touch.slots

    def boxes(self, points: Collection[Counters], site: int) -> tuple[Box, ...]:
        """Boxes of real tile counters that the shortened counters of a site stand for."""
        counts, short, reach = self.counts, self.short, self.reach
        boxes: list[Box] = []
        for counters in sorted(points):
            box: list[tuple[int, int]] = []
            for c, n, m in zip(counters, counts, short, strict=False):
                if m == n:
                    box.append((c, c + 1))
                elif c == reach:
                    box.append((reach, n - reach))
                else:
                    real = c if c < reach else c + n - m
                    box.append((real, real + 1))
            boxes.append(tuple(box))
        for dimension in reversed(range(self.sites[site].depth)):
            boxes = _join(boxes, dimension)
        return tuple(sorted(boxes))


def _has_triangle(sites: Sequence[Site]) -> bool:
    """Whether some three units share buffers pairwise."""
    users: dict[str, set[str]] = {}
    for site in sites:
        for touch in site.touches:
            users.setdefault(touch.buffer, set()).add(site.operation.intrinsic.unit)
    shared = {(a, b) for units in users.values() for a in units for b in units if a != b}
    return any((b, c) in shared and (c, a) in shared for a, b in shared for _, c in shared)


def _join(boxes: list[Box], dimension: int) -> list[Box]:
    """Merge boxes that differ in one dimension only and touch there."""
    groups: dict[Box, list[tuple[int, int]]] = {}
    for box in boxes:
        rest = (*box[:dimension], *box[dimension + 1 :])
        groups.setdefault(rest, []).append(box[dimension])
    result: list[Box] = []
    for rest, spans in groups.items():
        merged: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            if merged and merged[-1][1] == low:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        result += [(*rest[:dimension], span, *rest[dimension:]) for span in merged]
    return result
