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

from hwgen.codegen.nest.conditions import conjuncts, implied
from hwgen.polyhedral.nest.state import Block, Loop, Node, Site, blocks, sites
from hwgen.polyhedral.nest.terms import addends, simplify
from hwgen.spec.expression import Binary, BinaryOp, Const, Expr, Name, add, names, substitute

MOST_PEELED = 4
"""Iterations, in each of which a condition holds for other inner ones, that stand apart each."""

ANY_EXTENT = 1 << 30
"""Of a loop whose range shall decide nothing."""

Ranges = Mapping[str, tuple[int, int]]
"""By loop, the half-open interval that it runs over."""


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


def peeled(root: Sequence[Node], whole: Mapping[str, Collection[str]]) -> tuple[Piece, ...]:
    """The same instances in the same order, with as few conditions as can be. `whole`: by block,
    loops of lanes that run to their end wherever one of them does."""
    found = list(sites(tuple(root)))
    spans: dict[str, tuple[int, int]] = {}
    for site in found:
        for loop, later in zip(site.loops, site.delays, strict=True):
            early, late = spans.get(loop.name, (later, loop.extent + later))
            spans[loop.name] = min(early, later), max(late, loop.extent + later)
    conditions = {s.block.name: _conditions(s, spans, whole.get(s.block.name, ())) for s in found}
    return tuple(_Peeling(spans, conditions).pieces(root, {}))


def leaves(pieces: Sequence[Piece]) -> Iterator[Leaf]:
    """Every leaf, in textual order."""
    for piece in pieces:
        match piece:
            case Leaf():
                yield piece
            case Nest():
                yield from leaves(piece.body)


def _conditions(site: Site, spans: Ranges, whole: Collection[str]) -> tuple[Expr, ...]:
    """Where a block runs, over its loops: where its predicate holds of its own iterations, which
    are those that its loops have by themselves."""
    own = _own(site.block)
    found = [c for p in site.block.predicate for c in conjuncts(substitute(p, own))]
    found = [_for_any(c, {n: site.extents[n] for n in whole}) for c in found]
    for loop in site.loops:
        low, high = spans[loop.name]
        value = own.get(loop.name, Name(loop.name))
        if (low, high) != (0, loop.extent):
            found.append(Binary(">=", value, Const(0)))
            found.append(Binary("<", value, Const(loop.extent)))
    return tuple(dict.fromkeys(found))


def _for_any(condition: Expr, lanes: Mapping[str, int]) -> Expr:
    """The condition that another one holds for at least one lane."""
    match condition:
        case Binary("<" | "<=" | ">" | ">=" as op, left, right) if lanes:
            slack = Binary("-", left, right)
            extents = dict.fromkeys(names(slack), ANY_EXTENT) | dict(lanes)
            for coefficient, term in addends(simplify(slack, extents)):
                if isinstance(term, Name) and term.name in lanes:
                    least = (coefficient > 0) == (op in ("<", "<="))
                    value = 0 if least else lanes[term.name] - 1
                    condition = substitute(condition, {term.name: Const(value)})
            return condition
        case _:
            return condition


def _own(block: Block) -> dict[str, Expr]:
    """A block's own iteration of the loops that it runs later in."""
    return {n: add(Name(n), Const(-later)) for n, later in block.shifts}


@dataclass(frozen=True, slots=True)
class _Peeling:
    """One walk over a tree. `spans`: of each loop; `conditions`: of each block."""

    spans: Ranges
    conditions: Mapping[str, tuple[Expr, ...]]

    def pieces(self, nodes: Sequence[Node], ranges: Ranges) -> Iterator[Piece]:
        for node in nodes:
            match node:
                case Block():
                    yield from self.leaf(node, ranges)
                case Loop(name):
                    conditions = [
                        c
                        for b in blocks((node,))
                        for c in self.conditions[b.name]
                        if name in names(c)
                    ]
                    within = {**self.spans, **ranges}
                    for low, high in _segments(name, self.spans[name], conditions, within):
                        body = tuple(self.pieces(node.body, {**ranges, name: (low, high)}))
                        if body:
                            yield Nest(name, low, high, body)

    def leaf(self, block: Block, ranges: Ranges) -> Iterator[Leaf]:
        guards: list[Expr] = []
        for condition in self.conditions[block.name]:
            match decided(condition, ranges):
                case True:
                    continue
                case False:
                    return
                case None:
                    guards.append(condition)
        yield Leaf(block, tuple(guards))


def _segments(
    loop: str, span: tuple[int, int], conditions: Sequence[Expr], ranges: Ranges
) -> Iterator[tuple[int, int]]:
    """The parts of a loop's range; a few iterations that differ stand apart each."""
    cuts = {*span}
    mixed: set[tuple[int, int]] = set()
    for condition in dict.fromkeys(conditions):
        for low, high, holds in _known(condition, loop, *span, ranges):
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


def _known(
    condition: Expr, loop: str, low: int, high: int, ranges: Ranges
) -> list[tuple[int, int, bool | None]]:
    """Parts of a range in which a condition holds always, never, or as inner loops decide."""

    def over(a: int, b: int) -> bool | None:
        return decided(condition, {**ranges, loop: (a, b)})

    whole = over(low, high)
    if (
        whole is not None
        or high - low == 1
        or (over(low, low + 1), over(high - 1, high))
        == (
            None,
            None,
        )
    ):
        return [(low, high, whole)]
    middle = (low + high) // 2
    first, *rest = _known(condition, loop, middle, high, ranges)
    found = _known(condition, loop, low, middle, ranges)
    if found[-1][2] == first[2]:
        found[-1] = (found[-1][0], first[1], first[2])
    else:
        found.append(first)
    return [*found, *rest]


_OPPOSITE: dict[str, BinaryOp] = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==",
}  # fmt: skip


def decided(condition: Expr, ranges: Ranges) -> bool | None:
    """Whether a condition holds wherever loops are in these ranges, nowhere there, or neither."""
    used = [n for n in dict.fromkeys(names(condition)) if n in ranges]
    shifted = {n: add(Name(n), Const(ranges[n][0])) for n in used if ranges[n][0]}
    extents = {n: ranges[n][1] - ranges[n][0] for n in used}
    condition = substitute(condition, shifted)
    if _holds(condition, extents):
        return True
    return False if _fails(condition, extents) else None


def _holds(condition: Expr, extents: Mapping[str, int]) -> bool:
    match condition:
        case Binary("and", left, right):
            return _holds(left, extents) and _holds(right, extents)
        case Binary("or", left, right):
            return _holds(left, extents) or _holds(right, extents)
        case Binary("!=", left, right):
            return any(
                implied(Binary(op, simplify(left, extents), simplify(right, extents)), extents)
                for op in ("<", ">")
            )
        case Binary("<" | "<=" | ">" | ">=" | "==" as op, left, right):
            return implied(Binary(op, simplify(left, extents), simplify(right, extents)), extents)
        case _:
            return False


def _fails(condition: Expr, extents: Mapping[str, int]) -> bool:
    match condition:
        case Binary("and", left, right):
            return _fails(left, extents) or _fails(right, extents)
        case Binary("or", left, right):
            return _fails(left, extents) and _fails(right, extents)
        case Binary(op, left, right) if op in _OPPOSITE:
            return _holds(Binary(_OPPOSITE[op], left, right), extents)
        case _:
            return False
