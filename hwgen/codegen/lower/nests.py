"""Loops over ranges in which each block runs always or never: tails and borders are peeled.

A loop is cut where a condition inside begins or ceases to hold for all that lies further in. Where
a condition decides in the midst of a range, it stays with the block. A block that runs later than
its own iterations has a condition too: the loop runs as much longer, and what that peels are the
first and last iterations of a software pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
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
)
from hwgen.constants import PEELED_ITERATIONS
from hwgen.polyhedral.tree.loop_tree import Block, Loop, Node, Site, alone, blocks, sites
from hwgen.spec.expression import Binary, Const, Expr, Name, add, conjuncts, substitute


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
    open_ = {id(t.block): _Open(t.block, _conditions(t, spans)) for t in found}
    open_ = _still(open_, spans.keys(), spans)
    return tuple(_Peeling(spans, guarded, ordered, parallel).pieces(root, {}, open_))


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


def _conditions(timed: _Timed, spans: Ranges) -> list[Condition]:
    """Where a block runs, over its loops."""
    found = list(timed.others)
    for name, own in timed.ranges.items():
        found += bounds(name, own, spans[name])
    return [Condition.of(c) for c in dict.fromkeys(found)]


@dataclass(frozen=True, slots=True)
class _Open:
    """A block, and the conditions that some iterations meet, and some do not."""

    block: Block
    conditions: Sequence[Condition]


Runs = Mapping[int, _Open]
"""Blocks that may run, by their identity: to hash one takes long."""


def _still(runs: Runs, loops: Set[str], ranges: Ranges) -> Runs:
    """Those of some blocks that may run in a part of some loops, and what is open there."""
    found: dict[int, _Open] = {}
    for key, one in runs.items():
        if all(loops.isdisjoint(c.loops) for c in one.conditions):
            found[key] = one
            continue
        held = [(c, None if loops.isdisjoint(c.loops) else c.holds(ranges)) for c in one.conditions]
        if all(holds is not False for _, holds in held):
            found[key] = _Open(one.block, [c for c, holds in held if holds is None])
    return found


@dataclass(frozen=True, slots=True)
class _Peeling:
    """One walk over a tree. `spans`: of each loop."""

    spans: Ranges
    guarded: bool
    ordered: Collection[str]
    parallel: Collection[str]

    def pieces(self, nodes: Sequence[Node], ranges: Ranges, runs: Runs) -> Iterator[Piece]:
        """What runs of some nodes; `ranges`: of the loops around."""
        for node in nodes:
            match node:
                case Block():
                    if id(node) in runs:
                        yield Leaf(node, tuple(c.expr for c in runs[id(node)].conditions))
                case Loop(name):
                    for low, high, inside in self._parts(node, ranges, runs):
                        body = tuple(self.pieces(node.body, {**ranges, name: (low, high)}, inside))
                        if self._is_free(node):  # Each part of the loops inside may be one call.
                            yield from (Nest(name, low, high, (piece,)) for piece in body)
                        elif body:
                            yield Nest(name, low, high, body)

    def _is_free(self, loop: Loop) -> bool:
        """Whether all inside is one block, whose instances may run in any order."""
        block = alone(loop)
        return block is not None and block.stage not in self.ordered

    def _parts(self, loop: Loop, ranges: Ranges, runs: Runs) -> Iterator[tuple[int, int, Runs]]:
        """The parts of a loop's range, and what may run there. A condition of a block that others
        do not mind, which run throughout, stays with the block; where there are no such others, it
        cuts the loop."""
        name, span = loop.name, self.spans[loop.name]
        inside = {k: runs[k] for k in map(id, blocks((loop,))) if k in runs}
        open_ = any(name in c.loops for one in inside.values() for c in one.conditions)
        if name in self.parallel or not open_:
            yield *span, inside
            return
        within = {**self.spans, **ranges}
        strong = [c for one in inside.values() for c in self._about(one, name, weak=False)]
        for low, high in _segments(name, span, strong, within):
            here = {**within, name: (low, high)}
            held = _still(inside, {name}, here)
            weak = [self._about(one, name, weak=True) for one in held.values()]
            found = [c for w in weak for c in w] if all(weak) else []
            for part in _segments(name, (low, high), found, here):
                yield *part, _still(held, {name}, {**within, name: part}) if found else held

    def _about(self, one: _Open, loop: str, *, weak: bool) -> list[Condition]:
        """What is open of a block about a loop."""
        about = (c for c in one.conditions if loop in c.loops)
        return [c for c in about if self._is_weak(one.block, c.expr) == weak]

    def _is_weak(self, block: Block, condition: Expr) -> bool:
        """Whether a condition holds of one iteration, of all but one, or only of a moved block."""
        match condition:
            case Binary("==", Name(), Const()) | Binary("!=", _, Const()):
                return True
            case _:
                return self.guarded and bool(block.shifts) and is_bound(condition)


def _segments(
    loop: str, span: tuple[int, int], conditions: Sequence[Condition], ranges: Ranges
) -> Iterator[tuple[int, int]]:
    """The parts of a loop's range; a few iterations that differ stand apart each."""
    cuts = {*span}
    mixed: set[tuple[int, int]] = set()
    for condition in dict.fromkeys(conditions):
        for low, high, holds in condition.parts(loop, *span, ranges):
            cuts |= {low, high}
            if holds is None:
                mixed.add((low, high))
    ends = sorted(cuts)
    for low, high in pairwise(ends):
        differs = any(a <= low and high <= b for a, b in mixed)
        if differs and high - low <= PEELED_ITERATIONS:
            yield from ((n, n + 1) for n in range(low, high))
        else:
            yield low, high
