"""Loop unswitching: a choice by where an element is, made outside the loops that it does not depend
on.

Padding that is read in place, `select(i + r >= 1, x[i + r - 1, c], 0) * w[r, c]`, becomes
`if (i + r >= 1)` around the loop over `c`, with a product of `x` inside, and `0 * w[r, c]` in the
loop of its other side. Where loops of a register tile stand in between, all of a tile is asked for
first: most tiles meet no border, and have no conditions inside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.nodes import SERIAL, Assign, If, Loop, Node, with_inner
from hwgen.codegen.processor.conditions import holds, needed
from hwgen.polyhedral.tree.padding import is_by_place
from hwgen.polyhedral.tree.terms import addends, simplify, total
from hwgen.spec.affine import affine
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
    around = dict(extents or {})
    result: list[Node] = []
    for node in body:
        chain = _chain(node)
        if chain is not None:
            result.append(_unswitched(*chain, processor, around))
            continue
        inside = {**around, node.variable: node.extent} if isinstance(node, Loop) else around
        result.append(with_inner(node, lambda b, e=inside: unswitched(b, processor, e)))
    return tuple(result)


def _chain(node: Node) -> tuple[tuple[Loop, ...], Assign] | None:
    """Loops around one statement; None where there is more in them."""
    loops: list[Loop] = []
    while isinstance(node, Loop) and len(node.body) == 1:
        loops.append(node)
        (node,) = node.body
    return (tuple(loops), node) if isinstance(node, Assign) and loops else None


def _unswitched(
    loops: tuple[Loop, ...], inner: Assign, processor: Processor, around: Extents
) -> Node:
    """Loops around a statement, without its choices where loops inside do not move these."""
    every = {**around, **{x.variable: x.extent for x in loops}}
    conditions = _conditions(inner.value, every, loops[-1].variable)
    decided = conjunction(tuple(needed(conditions, every).values()))
    clean = _chosen(inner, conditions, yes=True)
    if decided is None:
        return _around(loops, clean)
    used = names(decided)
    place = max((n for n, x in enumerate(loops, 1) if x.variable in used), default=0)
    outer = place
    while outer and (
        loops[outer - 1].variable not in used or _is_tile(loops[outer - 1], processor)
    ):
        outer -= 1
    between = loops[outer:place]
    first, rest = _tile_first(between, used, inner, every)
    inside = (*rest, *loops[place:])
    other = inner if len(conditions) > 1 else _chosen(inner, conditions, yes=False)
    made = _around(first, If(decided, (_around(inside, clean),), (_around(inside, other),)))
    clear = _in_all(decided, {x.variable: x.extent for x in between}, every)
    if clear is not None:
        made = If(clear, (_around(loops[outer:], clean),), (made,))
    return _around(loops[:outer], made)


def _conditions(value: Expr, every: Extents, innermost: str) -> list[Expr]:
    """The conditions of choices by place that the innermost loop does not move, each once."""
    found: dict[str, Expr] = {}
    for choice in walk(value):
        if isinstance(choice, Call) and is_by_place(choice):
            condition = choice.arguments[0]
            if innermost not in names(condition) and set(names(condition)) <= set(every):
                found.setdefault(str(condition), condition)
    return list(found.values())


def _chosen(inner: Assign, conditions: Sequence[Expr], *, yes: bool) -> Assign:
    """The statement where conditions hold, or where they do not."""

    def taken(part: Expr) -> Expr:
        if isinstance(part, Call) and is_by_place(part) and part.arguments[0] in conditions:
            return part.arguments[1 if yes else 2]
        return part

    return replace(inner, value=rewrite(inner.value, taken))


def _is_tile(loop: Loop, processor: Processor) -> bool:
    """Whether a loop's iterations are of one register tile."""
    return processor.runs(loop.kind) in ("unroll", "vectorize")


def _tile_first(
    loops: tuple[Loop, ...], used: Collection[str], inner: Assign, every: Extents
) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Loops that a condition depends on, and the others, to stand inside of these, where each
    element keeps the order of its updates: the former move the element, no two iterations of loops
    that do so have the same one, and nothing else in its array is read. Each is then executed by
    itself, in code that is short, as borders are. Else all, and none."""
    first = tuple(replace(x, kind=SERIAL) for x in loops if x.variable in used)
    rest = tuple(x for x in loops if x.variable not in used)
    target = inner.target
    alone = all(
        a == target or a.tensor != target.tensor for a in walk(inner.value) if isinstance(a, Access)
    )
    own = {x.variable for x in first}
    bounds = {n for x in loops for n in names(x.upper)}
    free = alone and own <= set(names(target)) and bounds.isdisjoint(x.variable for x in loops)
    form = affine(target.indices[0])
    once = form is not None and form.is_injective(every)
    return (first, rest) if free and once else (loops, ())


def _around(loops: tuple[Loop, ...], node: Node) -> Node:
    for loop in reversed(loops):
        node = replace(loop, body=(node,))
    return node


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
