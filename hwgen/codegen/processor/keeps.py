"""Running values in scalars: around loops that only update one element of a buffer."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.processor.program import (
    Allocate,
    Assign,
    For,
    If,
    Keep,
    Launch,
    Node,
    Routine,
)
from hwgen.spec.expression import Access, names, walk

_IN_ORDER = ("serial",)


def keep(body: tuple[Node, ...], in_order: tuple[str, ...] = _IN_ORDER) -> tuple[Node, ...]:
    """The nodes with a `Keep` around every outermost loop that updates one element only.

    `in_order`: kinds of loops whose iterations run one after the other.
    """
    return tuple(_kept(node, in_order) for node in body)


def _kept(node: Node, in_order: tuple[str, ...]) -> Node:
    match node:
        case For():
            target = _updated(node, (), in_order)
            if target is not None:
                return Keep(target, (node,))
            return replace(node, body=keep(node.body, in_order))
        case If() | Allocate() | Launch() | Routine():
            return replace(node, body=keep(node.body, in_order))
        case _:
            return node


def _updated(node: Node, inside: tuple[str, ...], in_order: tuple[str, ...]) -> Access | None:
    """The one element that a nest updates, if it does nothing else."""
    match node:
        case For() if node.kind in in_order and len(node.body) == 1:
            return _updated(node.body[0], (*inside, node.variable), in_order)
        case If(_, (only,)):
            return _updated(only, inside, in_order)
        case Assign(_, target, op, value) if inside:
            moves = set(inside) & {n for i in target.indices for n in names(i)}
            own = [n for n in walk(value) if isinstance(n, Access) and n.tensor == target.tensor]
            updates = all(n == target for n in own) and bool(own) if op == "=" else not own
            return target if updates and not moves else None
        case _:
            return None
