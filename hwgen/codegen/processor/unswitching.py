"""Loop unswitching: a choice by where an element is, made outside the loops that it does not depend
on.

Padding that is read in place, `select(0 <= i + r - 1 and ..., x[i + r - 1, c], 0) * w[c]`, becomes
`if (...)` around the loop over `c`, with a product of `x` inside, and another for what lies outside.
Where loops of a register tile stand in between, all of a tile is first asked for at once: the tiles
inside have no conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwgen.codegen.nodes import SERIAL, Assign, If, Loop, Node, with_inner
from hwgen.codegen.processor.conditions import holds, needed
from hwgen.polyhedral.tree.terms import addends, simplify, total
from hwgen.spec.expression import (
    Access,
    Binary,
    Call,
    Const,
    Expr,
    Name,
    conjunction,
    conjuncts,
    names,
    rewrite,
    walk,
)
from hwgen.spec.processor import Processor

Extents = Mapping[str, int]


def unswitched(
    body: tuple[Node, ...], processor: Processor, extents: Extents | None = None
) -> tuple[Node, ...]:
    """The nodes with each choice as far outside as it can stand; `extents`: of the variables around
    them."""
    result: list[Node] = []
    for node in body:
        chain = _chain(node)
        if chain is not None:
            result += _Nest(processor, dict(extents or {}))(*chain)
            continue
        inside = dict(extents or {})
        if isinstance(node, Loop):
            inside[node.variable] = node.extent
        result.append(with_inner(node, lambda b, e=inside: unswitched(b, processor, e)))
    return tuple(result)


def _chain(node: Node) -> tuple[tuple[Loop, ...], Assign] | None:
    """Loops around one statement; None where there is more in them."""
    loops: list[Loop] = []
    while isinstance(node, Loop) and len(node.body) == 1:
        loops.append(node)
        (node,) = node.body
    return (tuple(loops), node) if isinstance(node, Assign) and loops else None


class _Nest:
    """`extents`: of the variables around the loops."""

    def __init__(self, processor: Processor, extents: Extents) -> None:
        self.processor, self.extents = processor, extents

    def __call__(self, loops: tuple[Loop, ...], inner: Assign) -> tuple[Node, ...]:
        every = {**self.extents, **{x.variable: x.extent for x in loops}}
        for choice in walk(inner.value):
            match choice:
                case Call("select", (condition, _, _)) if _by_place(condition, every):
                    made = self._without(loops, inner, choice, condition, every)
                    if made is not None:
                        return made
                case _:
                    pass
        return (_around(loops, (inner,)),)

    def _without(
        self, loops: tuple[Loop, ...], inner: Assign, choice: Expr, condition: Expr, every: Extents
    ) -> tuple[Node, ...] | None:
        """The loops without a choice inside of the last one that it depends on; None where none is
        further inside."""
        used = names(condition)
        place = max((n for n, x in enumerate(loops, 1) if x.variable in used), default=0)
        if place == len(loops):
            return None
        decided = conjunction(tuple(needed([condition], every).values()))
        if decided is None:
            return self(loops, _replaced(inner, choice, 1))
        outer = place
        while outer and (loops[outer - 1].variable not in used or self._is_tile(loops[outer - 1])):
            outer -= 1
        between = loops[outer:place]
        chosen = tuple(x for x in between if x.variable in used)
        further = tuple(x for x in between if x.variable not in used)
        yes, no = (self((*further, *loops[place:]), _replaced(inner, choice, n)) for n in (1, 2))
        made: Node = _around(chosen, (If(decided, yes, no),))
        clear = _in_all(decided, {x.variable: x.extent for x in between}, every)
        if clear is not None:
            made = If(clear, self(loops[outer:], _replaced(inner, choice, 1)), (made,))
        return (_around(loops[:outer], (made,)),)

    def _is_tile(self, loop: Loop) -> bool:
        """Whether a loop's iterations are of one register tile."""
        return loop.kind != SERIAL and self.processor.runs(loop.kind) in ("unroll", "vectorize")


def _around(loops: tuple[Loop, ...], body: tuple[Node, ...]) -> Node:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    (node,) = body
    return node


def _replaced(inner: Assign, choice: Expr, branch: int) -> Assign:
    """The statement with one of the values that a choice is between."""

    def taken(part: Expr) -> Expr:
        return part.arguments[branch] if isinstance(part, Call) and part == choice else part

    return replace(inner, value=rewrite(inner.value, taken))


def _by_place(condition: Expr, extents: Extents) -> bool:
    """Whether a condition is one over loops alone."""
    return set(names(condition)) <= set(extents) and not any(
        isinstance(part, Access) for part in walk(condition)
    )


def _in_all(condition: Expr, tile: Extents, every: Extents) -> Expr | None:
    """Where a condition holds in all iterations of some loops; None where that is nowhere, where it
    is the condition itself, or not known."""
    if tile.keys().isdisjoint(names(condition)):
        return None
    parts = [_everywhere(c, tile, every) for c in conjuncts(condition)]
    found = conjunction(tuple(needed([p for p in parts if p is not None], every).values()))
    impossible = found is None or any(holds(c, every) is False for c in conjuncts(found))
    return None if None in parts or impossible else found


def _everywhere(condition: Expr, tile: Extents, every: Extents) -> Expr | None:
    """A comparison that holds where another one holds in all iterations of some loops; None where
    there is no such one."""
    match condition:
        case Binary(">=" | ">", left, right):
            slack = Binary("-", left, right)
        case Binary("<=" | "<", left, right):
            slack = Binary("-", right, left)
        case _:
            return None
    parts: list[tuple[int, Expr | None]] = [(-1 if condition.op in ("<", ">") else 0, None)]
    for factor, term in addends(simplify(slack, every)):
        if isinstance(term, Name) and term.name in tile:
            parts.append((min(0, factor * (tile[term.name] - 1)), None))
        elif term is not None and not tile.keys().isdisjoint(names(term)):
            return None
        else:
            parts.append((factor, term))
    return Binary(">=", total(parts), Const(0))
