"""Loops over ranges in which each block runs always or never: tails and borders are peeled.

A loop is cut where a condition inside begins or ceases to hold for all that lies further in. Where
a condition decides in the midst of a range, it stays with the block. A block that runs later than
its own iterations has a condition too: the loop runs as much longer, and what that peels are the
first and last iterations of a software pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hwgen.codegen.lower.ranges import (
    Condition,
    Ranges,
    bounded,
    bounds,
    decided,
    for_any,
    is_bound,
    parts_of,
)
from hwgen.codegen.processor.conditions import conjuncts
from hwgen.polyhedral.tree.loop_tree import Block, Loop, Node, Site, alone, blocks, sites
from hwgen.spec.expression import Binary, Const, Expr, Name, add, substitute

MOST_PEELED = 4
"""Iterations, in each of which a condition holds for other inner ones, that stand apart each."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A block, and what still decides whether an instance of it runs."""

    block: Block
    guards: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Nest:
    """`for name in low ..< high`."""

    name: str
    low: int
    high: int
    body: tuple[Piece, ...]


Piece = Nest | Leaf


def peeled(
    root: Sequence[Node],
    whole: Mapping[str, Collection[str]],
    *,
    guarded: bool = False,
    ordered: Collection[str] = (),
    parallel: Collection[str] = (),
) -> tuple[Piece, ...]:
    """The same instances, with as few conditions as can be; those of different blocks in the same
    order. `whole`: by block, loops of lanes that run to their end wherever one of them does;
    `guarded`: what runs later than its own iterations has conditions rather than that loops are cut
    for it; `ordered`: stages whose own instances stay in order, too; `parallel`: loops that are not
    cut, as workers would wait for each other between the parts."""
    found = [_timed(s, whole.get(s.block.name, ())) for s in sites(tuple(root))]
    spans: dict[str, tuple[int, int]] = {}
    for timed in found:
        for name, (low, high) in timed.ranges.items():
            early, late = spans.get(name, (low, high))
            spans[name] = min(early, low), max(late, high)
    conditions = {id(t.block): [Condition.of(c) for c in _conditions(t, spans)] for t in found}
    return tuple(_Peeling(spans, conditions, guarded, ordered, parallel).pieces(root, {}))


@dataclass(frozen=True, slots=True)
class _Timed:
    """A block, when it may run by loop, and where it does beyond that."""

    block: Block
    ranges: Ranges
    others: tuple[Expr, ...]


def _timed(site: Site, whole: Collection[str]) -> _Timed:
    """What a block's predicate, over its own iterations, says of those in which it runs."""
    block = site.block
    found = [c for p in block.predicate for c in conjuncts(p)]
    lanes = {n: site.extents[n] for n in whole}
    found = [for_any(c, lanes) for c in found]
    own = {n: bounded(found, n, 0, extent) for n, extent in site.extents.items()}
    later = dict(zip(site.names, site.delays, strict=True))
    moved: dict[str, Expr] = {n: add(Name(n), Const(-k)) for n, k in later.items() if k}
    moved |= {n: Const(low) for n, (low, high) in own.items() if high == low + 1}
    others = [c for c in found if not is_bound(c) and decided(c, own) is not True]
    ranges = {n: (low + later[n], high + later[n]) for n, (low, high) in own.items()}
    return _Timed(block, ranges, tuple(substitute(c, moved) for c in others))


def _conditions(timed: _Timed, spans: Ranges) -> tuple[Expr, ...]:
    """Where a block runs, over its loops."""
    found = list(timed.others)
    for name, own in timed.ranges.items():
        found += bounds(name, own, spans[name])
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Peeling:
    """One walk over a tree. `spans`: of each loop; `conditions`: of each block, by its identity:
    to hash it takes long."""

    spans: Ranges
    conditions: Mapping[int, Sequence[Condition]]
    guarded: bool
    ordered: Collection[str]
    parallel: Collection[str]

    def pieces(self, nodes: Sequence[Node], ranges: Ranges) -> Iterator[Piece]:
        for node in nodes:
            match node:
                case Block():
                    yield from self.leaf(node, ranges)
                case Loop(name):
                    for low, high in self._parts(node, ranges):
                        body = tuple(self.pieces(node.body, {**ranges, name: (low, high)}))
                        if self._is_free(node):  # Each part of the loops inside may be one call.
                            yield from (Nest(name, low, high, (piece,)) for piece in body)
                        elif body:
                            yield Nest(name, low, high, body)

    def _is_free(self, loop: Loop) -> bool:
        """Whether all inside is one block, whose instances may run in any order."""
        block = alone(loop)
        return block is not None and block.stage not in self.ordered

    def _parts(self, loop: Loop, ranges: Ranges) -> Iterator[tuple[int, int]]:
        """The parts of a loop's range. A condition of a block that others do not mind, which run
        throughout, stays with the block; where there are no such others, it cuts the loop."""
        if loop.name in self.parallel:
            yield self.spans[loop.name]
            return
        within = {**self.spans, **ranges}
        held = list(blocks((loop,)))
        strong = [c for b in held for c in self._about(b, loop, within, weak=False)]
        for low, high in _segments(loop.name, self.spans[loop.name], strong, within):
            here = {**within, loop.name: (low, high)}
            inside = [b for b in held if self._runs(b, here)]
            weak = [self._about(b, loop, here, weak=True) for b in inside]
            found = [c for w in weak for c in w] if all(weak) else []
            yield from _segments(loop.name, (low, high), found, here)

    def _runs(self, block: Block, ranges: Ranges) -> bool:
        """Whether a block may run at all."""
        return all(c.holds(ranges) is not False for c in self.conditions[id(block)])

    def _about(self, block: Block, loop: Loop, ranges: Ranges, *, weak: bool) -> list[Condition]:
        """The conditions on a loop that are open, of a block that may run."""
        if not self._runs(block, ranges):
            return []
        mine = [c for c in self.conditions[id(block)] if loop.name in c.loops]
        mine = [c for c in mine if c.holds(ranges) is None]
        return [c for c in mine if self._is_weak(block, c.expr) == weak]

    def _is_weak(self, block: Block, condition: Expr) -> bool:
        """Whether a condition holds of one iteration, or only of a block that has been moved."""
        match condition:
            case Binary("==", Name(), Const()):
                return True
            case _:
                return self.guarded and bool(block.shifts) and is_bound(condition)

    def leaf(self, block: Block, ranges: Ranges) -> Iterator[Leaf]:
        guards: list[Expr] = []
        for condition in self.conditions[id(block)]:
            match condition.holds(ranges):
                case True:
                    continue
                case False:
                    return
                case None:
                    guards.append(condition.expr)
        yield Leaf(block, tuple(guards))


def _segments(
    loop: str, span: tuple[int, int], conditions: Sequence[Condition], ranges: Ranges
) -> Iterator[tuple[int, int]]:
    """The parts of a loop's range; a few iterations that differ stand apart each."""
    cuts = {*span}
    mixed: set[tuple[int, int]] = set()
    for condition in dict.fromkeys(conditions):
        for low, high, holds in parts_of(condition, loop, *span, ranges):
            cuts |= {low, high}
            if holds is None:
                mixed.add((low, high))
    ends = sorted(cuts)
    for low, high in pairwise(ends):
        differs = any(a <= low and high <= b for a, b in mixed)
        if differs and high - low <= MOST_PEELED:
            yield from ((n, n + 1) for n in range(low, high))
        else:
            yield low, high
