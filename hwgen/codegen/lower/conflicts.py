"""What calls of a program whose loops are cut short conflict with, and where.

Conflicts only reach a few generations of a slot back, so what synchronisation is needed depends on
counters near the ends of their ranges only: it is found on a program whose loops are cut to their
first and last iterations and a period in between, which then stands for the whole middle.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hwgen.codegen.lower.sites import CallSite
from hwgen.codegen.touches import Runs

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


Accesses = dict[str, dict[Runs, int]]
"""By unit, which entries it touches when, as positions in the stream, the latest ones last; ()
are all."""


@dataclass(slots=True)
class Record:
    """Latest accesses to one part of memory, those to each of its parts."""

    reads: Accesses = field(default_factory=dict[str, dict[Runs, int]])
    writes: Accesses = field(default_factory=dict[str, dict[Runs, int]])


@dataclass(frozen=True, slots=True)
class Access:
    """A call reads or writes entries of a part of memory; () are all."""

    write: bool
    runs: Runs
    record: Record


def latest(unit: str, position: int, touched: Sequence[Access]) -> tuple[tuple[str, int], ...]:
    """By unit other than a call's own, the position of the latest call before it that it conflicts
    with; what it touches then records it."""
    found: dict[str, int] = {}
    for access in touched:
        record = access.record
        for accesses in [record.writes, record.reads] if access.write else [record.writes]:
            for other, when in accesses.items():
                if other != unit:
                    at = _met(when, access.runs)
                    if at > found.get(other, -1):
                        found[other] = at
    for access in touched:
        record = access.record
        mine = (record.writes if access.write else record.reads).setdefault(unit, {})
        if not access.runs:
            mine.clear()
        mine.pop(access.runs, None)
        mine[access.runs] = position
    return tuple(sorted(found.items()))


def _met(when: dict[Runs, int], touched: Runs) -> int:
    """When entries were touched last; -1 where they were not."""
    if not touched:
        return next(reversed(when.values()), -1)
    return next((at for runs, at in reversed(when.items()) if meet(runs, touched)), -1)


def meet(one: Runs, other: Runs) -> bool:
    """Whether entries are in both; () are all."""
    if not one or not other:
        return True
    a = b = 0
    while a < len(one) and b < len(other):
        if one[a][0] < other[b][1] and other[b][0] < one[a][1]:
            return True
        if one[a][1] <= other[b][1]:
            a += 1
        else:
            b += 1
    return False


def inside(counters: Counters, boxes: Collection[Box]) -> bool:
    """Whether one of the boxes holds these counters."""
    return any(
        all(c in range(*span) for c, span in zip(counters, box, strict=True)) for box in boxes
    )


def segments(sites: Sequence[CallSite]) -> dict[tuple[str, int], list[tuple[str, int]]]:
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


def has_triangle(sites: Sequence[CallSite]) -> bool:
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
