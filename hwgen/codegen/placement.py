"""Addresses of the buffers of one memory: first fit, or bank by bank where it has several.

Where a memory has banks, a buffer with several slots may be spread, each slot in a bank of its own,
or in as many as it needs; any buffer may lie whole in one bank; and where no bank has room it
crosses from one to the next. Which of these, and where, is searched: the least that units get in
each other's way (`meetings.py`), then the most regular.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hwgen.codegen.layout import BufferLayout
from hwgen.constants import PLACEMENTS
from hwgen.spec.memory import Banks

Slot = tuple[str, int]
"""A buffer and one of its slots."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A buffer to be placed inside the entries `usable`, which every call on it can address; alive
    from phase `first` to phase `last`."""

    name: str
    tensor: str
    layout: BufferLayout
    first: int
    last: int
    usable: range

    @property
    def entries(self) -> int:
        return self.layout.slots * self.layout.slot_entries

    def lowest(self, start: int, entries: int, taken: Sequence[tuple[int, int]]) -> int:
        """The first entry from `start` on where so many are free, and calls may begin."""
        granule = self.layout.granule
        base = -(-start // granule) * granule
        for low, high in taken:
            if base + entries <= low:
                break
            base = max(base, -(-high // granule) * granule)
        return base

    def meets(self, other: Wanted) -> bool:
        """Whether both are alive at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placed:
    """A buffer with its first entry, and the step between its slots, 0 where they are dense."""

    wanted: Wanted
    base: int
    stride: int = 0

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """First entry of each slot, and the one after its last."""
        layout = self.wanted.layout
        entries = layout.slot_entries
        first = (self.base + n * (self.stride or entries) for n in range(layout.slots))
        return tuple((low, low + entries) for low in first)

    @property
    def end(self) -> int:
        return self.spans[-1][1]

    @property
    def exceeds(self) -> int:
        """Entries past the last usable one."""
        return max(0, self.end - self.wanted.usable.stop)

    def banks(self, banks: Banks) -> tuple[range, ...]:
        """The banks of each slot."""
        return tuple(range(banks.of(a), banks.of(b - 1) + 1) for a, b in self.spans)


def first_fit(wanted: Sequence[Wanted]) -> list[Placed]:
    """Buffers with the least choice first, larger ones before smaller ones, equals as they are
    given, each at the lowest address where no earlier one is in its way."""
    placed: list[Placed] = []
    for w in _in_order(wanted):
        placed.append(Placed(w, w.lowest(w.usable.start, w.entries, _taken(w, placed))))
    return placed


def _in_order(wanted: Sequence[Wanted]) -> list[Wanted]:
    return sorted(wanted, key=lambda w: (len(w.usable), -w.entries))


def _taken(w: Wanted, placed: Sequence[Placed]) -> list[tuple[int, int]]:
    return sorted(span for p in placed if p.wanted.meets(w) for span in p.spans)


def by_bank(
    banks: Banks,
    wanted: Sequence[Wanted],
    overlaps: Mapping[tuple[Slot, Slot], float],
) -> list[Placed]:
    """The placement with the least overlap in one bank; first fit where the search finds none."""
    search = _Search(banks, _in_order(wanted), overlaps)
    search.extend(0.0, [], [])
    plain = first_fit(wanted)
    fits = not any(p.exceeds for p in plain)
    if search.best is None or (fits and _total(plain, banks, overlaps) <= search.cost):
        return plain
    return search.best


_Held = tuple[str, tuple[range, ...]]
"""A buffer's name, and the banks of each of its slots."""


class _Search:
    """Depth first over the buffers, the most promising place of each first."""

    def __init__(
        self,
        banks: Banks,
        order: Sequence[Wanted],
        overlaps: Mapping[tuple[Slot, Slot], float],
    ) -> None:
        self.banks = banks
        self.order = order
        self.overlaps = overlaps
        self.steps = 0
        self.best: list[Placed] | None = None
        self.cost = float("inf")

    def extend(self, cost: float, placed: list[Placed], held: list[_Held]) -> None:
        """Place the next buffer everywhere it can be, cheapest place first; `held`: where those
        that are placed lie."""
        if len(placed) == len(self.order):
            self.best, self.cost = list(placed), cost
            return
        ranked: list[tuple[float, int, Placed, _Held]] = []
        for number, option in enumerate(self.options(self.order[len(placed)], placed)):
            mine = _held(option, self.banks)
            added = sum(_between(mine, other, self.overlaps) for other in (mine, *held))
            ranked.append((cost + added, number, option, mine))
        for total, _, option, mine in sorted(ranked, key=lambda item: item[:2]):
            self.steps += 1
            if total >= self.cost or self.steps > PLACEMENTS:
                return
            self.extend(total, [*placed, option], [*held, mine])

    def options(self, w: Wanted, placed: Sequence[Placed]) -> Iterator[Placed]:
        """Spread from each bank on, whole in each bank, then across banks."""
        size, slots = self.banks.entries, w.layout.slots
        taken = _taken(w, placed)
        if slots > 1 and size % w.layout.granule == 0:
            step = -(-w.layout.slot_entries // size)
            for bank in range(self.banks.count - slots * step + 1):
                starts = [(bank + n * step) * size for n in range(slots)]
                inside = [(a - s, b - s) for s in starts for a, b in taken]
                low = max(0, *(w.usable.start - s for s in starts))
                least = w.lowest(low, w.layout.slot_entries, sorted(inside))
                yield from self.within(Placed(w, starts[0] + least, step * size), step)
        for bank in range(self.banks.count):
            low = max(bank * size, w.usable.start)
            yield from self.within(Placed(w, w.lowest(low, w.entries, taken)), 1, bank)
        dense = Placed(w, w.lowest(w.usable.start, w.entries, taken))
        if not dense.exceeds:
            yield dense

    def within(self, option: Placed, step: int, bank: int | None = None) -> Iterator[Placed]:
        """The option where every slot is in so many banks (the given one) and can be addressed."""
        held = option.banks(self.banks)
        inside = all(len(r) <= step and (bank is None or r.start == bank) for r in held)
        if inside and not option.exceeds:
            yield option


def _held(placed: Placed, banks: Banks) -> _Held:
    return placed.wanted.name, placed.banks(banks)


def _total(
    placed: Sequence[Placed], banks: Banks, overlaps: Mapping[tuple[Slot, Slot], float]
) -> float:
    held = [_held(p, banks) for p in placed]
    return sum(_between(a, b, overlaps) for n, a in enumerate(held) for b in held[: n + 1])


def _between(one: _Held, other: _Held, overlaps: Mapping[tuple[Slot, Slot], float]) -> float:
    """Overlap of the slots of two buffers, or of one's own, that share a bank."""
    total = 0.0
    for i, mine in enumerate(one[1]):
        for j, theirs in enumerate(other[1]):
            if mine.start < theirs.stop and theirs.start < mine.stop:
                a, b = (one[0], i), (other[0], j)
                if one is not other or i <= j:
                    total += overlaps.get((min(a, b), max(a, b)), 0.0)
    return total
