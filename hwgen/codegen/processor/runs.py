"""Loops over runs of elements: what compilers turn into few wide instructions.

A loop of which some iterations make a choice one way is cut there: padding becomes rows that are
filled, and rows that are copied between two ends. Where lanes are too few for a vector, and the
loop around them goes on where they end in all that they touch, one loop runs over both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.lower.ranges import Condition
from hwgen.codegen.nodes import SERIAL, Assign, If, Loop, Node, nodes, with_inner
from hwgen.codegen.storages import Array
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.affine import affine
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Const,
    Expr,
    Name,
    add,
    conjunction,
    conjuncts,
    map_accesses,
    names,
    rewrite,
    substitute,
    walk,
)
from hwgen.spec.processor import Processor

Extents = Mapping[str, int]


def in_runs(
    body: Sequence[Node],
    arrays: Mapping[str, Array],
    processor: Processor,
    around: Extents | None = None,
) -> tuple[Node, ...]:
    """The nodes with loops over runs; `around`: extents of the loops around them."""
    result: list[Node] = []
    for node in body:
        for part in _cut(node, around or {}):
            extents = dict(around or {})
            if isinstance(part, Loop):
                extents[part.variable] = part.extent
            inner = with_inner(part, lambda b, e=extents: in_runs(b, arrays, processor, e))
            result.append(_joined(inner, arrays, processor, extents))
    return tuple(result)


def _is_plain(loop: Loop) -> bool:
    """Whether all iterations run, one after the other."""
    return loop.upper == Const(loop.extent) and loop.kind == SERIAL and not loop.pragmas


# --- cuts ----------------------------------------------------------------------------------------


def _cut(node: Node, around: Extents) -> list[Node]:
    """A loop around a choice: its iterations before those in which all holds that the loop alone
    decides of the choice, these, and those after them."""
    choice = _choice(node)
    if choice is None or not isinstance(node, Loop):
        return [node]
    low, high = 0, node.extent
    others: list[Expr] = []
    for part in conjuncts(choice.condition):
        condition = Condition.of(part)
        if {*condition.loops} != {node.variable}:
            others.append(part)
            continue
        held = [p for p in condition.parts(node.variable, 0, node.extent, {}) if p[2] is not False]
        if len(held) != 1 or not held[0][2]:
            return [node]
        low, high = max(low, held[0][0]), min(high, held[0][1])
    if len(others) == len(conjuncts(choice.condition)) or low >= high:
        return [node]
    rest = conjunction(tuple(others))
    then = choice.then if rest is None else (replace(choice, condition=rest),)
    end, other = node.extent, choice.otherwise
    parts = [(0, low, other), (low, high, then), (high, end, other)]
    run = [p for p in parts if p[0] < p[1] and p[2]]
    return [n for part in run for n in _part(node, *part, around)]


def _choice(node: Node) -> If | None:
    """The choice between statements in loops that is all that runs in loops directly inside one
    another, the outermost of which is plain."""
    if not isinstance(node, Loop) or not _is_plain(node):
        return None
    while isinstance(node, Loop) and len(node.body) == 1:
        (node,) = node.body
    simple = all(isinstance(n, Loop | If | Assign) for n in nodes((node,)))
    return node if isinstance(node, If) and simple else None


def _part(
    node: Loop, low: int, high: int, inside: tuple[Node, ...], around: Extents
) -> tuple[Node, ...]:
    """Some iterations of a loop, in which these nodes are what its choice comes to."""
    extent = high - low
    now = Name(node.variable) if extent > 1 else Const(0)
    own = {node.variable: add(now, Const(low))}

    def moved(part: Node, extents: Extents) -> Node:
        def tidy(expr: Expr) -> Expr:
            return simplify(expr, extents)

        def of(expr: Expr) -> Expr:
            return tidy(substitute(expr, own))

        if not low and extent > 1:
            return part
        match part:
            case If():
                part = replace(part, condition=substitute(part.condition, own))
            case Assign(target=target):
                value = map_accesses(substitute(part.value, own), lambda a: _at(a, tidy))
                part = replace(part, target=_at(target, of), value=value)
            case Loop(name):
                extents = {**extents, name: part.extent}
                part = replace(part, upper=of(part.upper))
            case _:
                pass
        return with_inner(part, lambda b: tuple(moved(n, extents) for n in b))

    def chosen(part: Node) -> tuple[Node, ...]:
        if not isinstance(part, Loop):
            return inside
        return (replace(part, body=chosen(part.body[0])),)

    extents = {**around, node.variable: extent}
    body = tuple(moved(n, extents) for n in chosen(node.body[0]))
    return (replace(node, upper=Const(extent), extent=extent, body=body),) if extent > 1 else body


def _at(access: Access, of: Callable[[Expr], Expr]) -> Access:
    """An element with its indices changed."""
    return Access(access.tensor, tuple(of(i) for i in access.indices))


# --- runs ----------------------------------------------------------------------------------------


def _joined(
    node: Node, arrays: Mapping[str, Array], processor: Processor, extents: Extents
) -> Node:
    """Two loops as one, where the inner one has few lanes and its elements lie in a row."""
    match node:
        case Loop(outer, body=(Loop(inner, body=(Assign(op="=") as only,)) as lanes,)):
            pass
        case _:
            return node
    whole = lanes.upper == Const(lanes.extent) and not lanes.pragmas
    if not (_is_plain(node) and whole and processor.runs(lanes.kind) in ("serial", "vectorize")):
        return node
    touched = [only.target, *(a for a in walk(only.value) if isinstance(a, Access))]
    narrow = min(DTYPES[arrays[a.tensor].dtype] for a in touched)
    if lanes.extent * narrow >= processor.lanes_bytes:
        return node
    forms = [affine(a.indices[0]) for a in touched]
    steps = [(f.coefficient(outer), f.coefficient(inner)) for f in forms if f is not None]
    in_a_row = len(steps) == len(forms) and all(a == b * lanes.extent for a, b in steps)
    loose = names(rewrite(only.value, lambda e: Const(0) if isinstance(e, Access) else e))
    if not in_a_row or not steps[0][1] or not {outer, inner}.isdisjoint(loose):
        return node
    count = node.extent * lanes.extent
    ranges = {**extents, inner: count}

    def of(expr: Expr) -> Expr:
        return simplify(substitute(expr, {outer: Const(0)}), ranges)

    value = map_accesses(only.value, lambda a: _at(a, of))
    one = replace(only, target=_at(only.target, of), value=value)
    return replace(lanes, upper=Const(count), extent=count, body=(one,))
