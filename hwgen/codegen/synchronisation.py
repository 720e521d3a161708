"""Dependence tokens: the fewest that order every cross-unit conflict.

Two calls of different units conflict where they touch one slot of a buffer and one of them
writes. For a pair of units, call v must wait for the latest earlier call u that it conflicts
with; as both units are in order, the wait is needed only if no earlier wait of v's unit was for u
or later. What remains is strictly increasing on both sides, so tokens pair up in order.

Conflicts only reach a few generations of a slot back, so the pattern depends on tile counters
near the ends of their ranges only: it is computed on a program whose loops are cut to their first
and last iterations and one in between, which then stands for the whole middle. The simulator's
race detector checks the result on the real program, with none of this reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from hwgen.codegen.sites import Site
from hwgen.errors import HwgenError
from hwgen.polyhedral.tiling import TileLoop
from hwgen.spec.hardware import HardwareSpec

Counters = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TokenSite:
    """A push after, or a pop before, the calls of a site at the tile counters in `boxes`."""

    kind: str
    source: str
    target: str
    site: int
    boxes: tuple[Box, ...]


@dataclass(slots=True)
class _Slot:
    """Latest accesses to one slot by unit: stream position and site instance."""

    reads: dict[str, int] = field(default_factory=dict[str, int])
    writes: dict[str, int] = field(default_factory=dict[str, int])


def synchronise(
    hardware: HardwareSpec,
    loops: Sequence[TileLoop],
    sites: Sequence[Site],
    reach: int | None = None,
) -> list[TokenSite]:
    """Tokens for a program given as sites.

    `reach`: iterations that each end of a cut loop keeps; by default what the slots require.

    Raises:
        HwgenError: H611 where two conflicting units have no queue between them.
    """
    if hardware.tokens is None:
        return []
    if reach is None:
        reach = 1 + max((t.slots for s in sites for t in s.touches), default=1)
    counts = [loop.count for loop in loops]
    short = [min(n, 2 * reach + 1) for n in counts]
    instances = list(_stream(sites, counts, short, reach))
    pushes, pops = _needed(hardware, sites, instances, short)
    result: list[TokenSite] = []
    for kind, found in (("push", pushes), ("pop", pops)):
        for (source, target, site), points in sorted(found.items()):
            boxes = _boxes(sorted(points), sites[site], counts, short, reach)
            result.append(TokenSite(kind, source, target, site, boxes))
    return result


def _stream(
    sites: Sequence[Site], counts: Sequence[int], short: Sequence[int], reach: int
) -> Iterator[tuple[int, Counters]]:
    """(site, shortened tile counters) in stream order."""
    keyed: list[tuple[tuple[int, ...], int, Counters]] = []
    for site in sites:
        spans = [
            range(*(_shorten(b, n, m, reach) for b in bounds))
            for bounds, n, m in zip(site.ranges, counts, short, strict=False)
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


def _shorten(bound: int, count: int, short: int, reach: int) -> int:
    """A bound of a tile counter in the shortened program."""
    if bound <= reach or count == short:
        return bound
    return max(reach, bound - (count - short))


def _needed(
    hardware: HardwareSpec,
    sites: Sequence[Site],
    instances: Sequence[tuple[int, Counters]],
    short: Sequence[int],
) -> tuple[dict[tuple[str, str, int], set[Counters]], dict[tuple[str, str, int], set[Counters]]]:
    slots: dict[tuple[str, int], _Slot] = {}
    waited: dict[tuple[str, str], int] = {}
    pushes: dict[tuple[str, str, int], set[Counters]] = {}
    pops: dict[tuple[str, str, int], set[Counters]] = {}
    for position, (index, counters) in enumerate(instances):
        site = sites[index]
        unit = site.operation.intrinsic.unit
        latest: dict[str, int] = {}
        for touch in site.touches:
            slot = slots.setdefault(
                (touch.buffer, _turn(site, touch.buffer, counters, short)), _Slot()
            )
            against = [slot.writes, slot.reads] if touch.write else [slot.writes]
            for accesses in against:
                for other, when in accesses.items():
                    if other != unit:
                        latest[other] = max(latest.get(other, -1), when)
        for touch in site.touches:
            slot = slots[(touch.buffer, _turn(site, touch.buffer, counters, short))]
            (slot.writes if touch.write else slot.reads)[unit] = position
        for other, when in sorted(latest.items()):
            if when <= waited.get((other, unit), -1):
                continue
            waited[(other, unit)] = when
            _check_edge(hardware, other, unit, site)
            source_site, source_counters = instances[when]
            pushes.setdefault((other, unit, source_site), set()).add(source_counters)
            pops.setdefault((other, unit, index), set()).add(counters)
    return pushes, pops


def _turn(site: Site, buffer: str, counters: Counters, short: Sequence[int]) -> int:
    """The slot in use: the generation counter of the shortened loops, modulo the slots."""
    touch = next(t for t in site.touches if t.buffer == buffer)
    depth = len(touch.turn.terms)
    value = 0
    for c, n in zip(counters[:depth], short[:depth], strict=True):
        value = value * n + c
    return value % touch.slots


def _check_edge(hardware: HardwareSpec, source: str, target: str, site: Site) -> None:
    assert hardware.tokens is not None
    if (source, target) in hardware.tokens.edges:
        return
    edges = ", ".join(f"{a} -> {b}" for a, b in hardware.tokens.edges)
    raise HwgenError(
        "H611",
        f"units {source} and {target} share data but no token queue",
        location=hardware.location,
        field="synchronization.edges",
        found=f"{site.operation.intrinsic.name} waits for {source}",
        allowed=edges,
        repair=f"add [{source}, {target}] if the chip has such a queue",
    )


def _boxes(
    points: list[Counters],
    site: Site,
    counts: Sequence[int],
    short: Sequence[int],
    reach: int,
) -> tuple[Box, ...]:
    """Boxes of real tile counters that the shortened counters stand for, merged greedily."""
    boxes: list[Box] = []
    for counters in points:
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
    for dimension in reversed(range(site.depth)):
        boxes = _join(boxes, dimension)
    return tuple(sorted(boxes))


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
