"""Blocks that run later in a band of loops, as blocks that run later in each loop by itself.

`lag` iterations later in the order of several loops is `lag` modulo the innermost one's extent
later in that, or as much earlier as it then is one iteration later in the next loop out; and so on
outwards. Which of the two it is depends on the iteration: each way is a block of its own, for the
iterations that it is right for. No two of them run at one time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hwgen.codegen.lower.ranges import (
    Condition,
    Ranges,
    bounded,
    bounds,
    for_any,
    is_bound,
)
from hwgen.polyhedral.tree.loop_tree import Block, Loop, Node, alone, loops, map_blocks
from hwgen.spec.expression import Expr, conjuncts, names


def unbanded(
    root: Sequence[Node], whole: Mapping[str, Collection[str]], *, guarded: bool = False
) -> tuple[Node, ...]:
    """The same tree without bands; blocks may occur several times. `whole`, `guarded`: as `peeled`
    takes them. Where it is guarded, moved blocks are parted where their tails begin, too."""
    return tuple(_Unbanding(whole, guarded).nodes(root, ()))


@dataclass(frozen=True, slots=True)
class Way:
    """Some iterations of a block, by loop of a band, and how many later it runs in each then."""

    own: tuple[tuple[int, int], ...]
    later: tuple[int, ...]


def ways(lag: int, own: Sequence[tuple[int, int]], extents: Sequence[int]) -> Iterator[Way]:
    """All ways of a block with iterations of its own in loops of these extents."""
    *outer, (low, high) = own
    if not outer:
        yield Way(((low, high),), (lag,))
        return
    extent = extents[-1]
    for turns in range((low + lag) // extent, (high - 1 + lag) // extent + 1):
        later = lag - turns * extent
        mine = max(low, -later), min(high, extent - later)
        for way in ways(turns, outer, extents[:-1]):
            yield Way((*way.own, mine), (*way.later, later))


@dataclass(frozen=True, slots=True)
class _Unbanding:
    whole: Mapping[str, Collection[str]]
    guarded: bool

    def nodes(self, nodes: Sequence[Node], around: tuple[Loop, ...]) -> Iterator[Node]:
        outside = {x.name for x in around}
        for node in nodes:
            block = alone(node)
            moved = (
                {*block.band, *(n for n, _ in block.shifts)} if block is not None else set[str]()
            )
            if block is not None and moved <= outside:
                for way in self._ways(block, (*around, *loops((node,)))):
                    yield from map_blocks((node,), lambda _, way=way: way)
            elif isinstance(node, Loop):
                yield replace(node, body=tuple(self.nodes(node.body, (*around, node))))
            else:
                yield node

    def _ways(self, block: Block, around: Sequence[Loop]) -> Iterator[Block]:
        """The blocks that a block becomes."""
        extents = {x.name: x.extent for x in around}
        lanes = {n: extents[n] for n in self.whole.get(block.name, ())}
        conditions = [for_any(c, lanes) for p in block.predicate for c in conjuncts(p)]
        own = {n: bounded(conditions, n, 0, e) for n, e in extents.items()}
        if any(low >= high for low, high in own.values()):
            return
        if not block.band:
            yield from self._parted(block, conditions, own, extents)
            return
        band = block.band
        for way in ways(block.lag, [own[n] for n in band], [extents[n] for n in band]):
            shifts = {**dict(block.shifts), **dict(zip(band, way.later, strict=True))}
            moved = tuple(sorted((n, k) for n, k in shifts.items() if k))
            made = replace(block, shifts=moved, band=(), lag=0)
            mine = own | dict(zip(band, way.own, strict=True))
            yield from self._parted(made, conditions, mine, extents)

    def _parted(
        self, block: Block, conditions: Sequence[Expr], own: Ranges, extents: Mapping[str, int]
    ) -> Iterator[Block]:
        """A block in some of its iterations; where it is to be guarded, in parts in which no
        condition begins or ceases to hold."""
        for loop, _ in block.shifts if self.guarded else ():
            cuts = {*own[loop]}
            for condition in conditions:
                if loop in names(condition) and not is_bound(condition):
                    for low, high, _ in Condition.of(condition).parts(loop, *own[loop], own):
                        cuts |= {low, high}
            if len(cuts) > 2:
                for part in pairwise(sorted(cuts)):
                    yield from self._parted(block, conditions, {**own, loop: part}, extents)
                return
        found = [c for n, span in own.items() for c in bounds(n, span, (0, extents[n]))]
        kept = [p for p in block.predicate if not all(map(is_bound, conjuncts(p)))]
        yield replace(block, predicate=(*kept, *found))
