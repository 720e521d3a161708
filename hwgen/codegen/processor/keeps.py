"""Running values in scalars: around loops that only update one element of a buffer."""

from __future__ import annotations

from hwgen.codegen.nodes import Assign, If, Keep, Loop, Node, with_inner
from hwgen.spec.expression import Access, names, walk


def keep(body: tuple[Node, ...], adding: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes with a `Keep` around every outermost loop that updates one element only.

    `adding`: kinds of loops whose iterations run one after the other, or in lanes that share a sum.
    """
    return tuple(_kept(node, adding) for node in body)


def _kept(node: Node, adding: tuple[str, ...]) -> Node:
    match node:
        case Loop():
            target = _updated(node, (), adding)
            if target is not None:
                return Keep(target, (node,))
        case _:
            pass
    return with_inner(node, lambda body: keep(body, adding))


def _updated(node: Node, inside: tuple[str, ...], adding: tuple[str, ...]) -> Access | None:
    """The one element that a nest updates, if it does nothing else."""
    match node:
        case Loop() if node.kind in adding and len(node.body) == 1:
            return _updated(node.body[0], (*inside, node.variable), adding)
        case If(_, (only,), ()):
            return _updated(only, inside, adding)
        case Assign(_, target, op, value) if inside:
            moves = set(inside) & {n for i in target.indices for n in names(i)}
            own = [n for n in walk(value) if isinstance(n, Access) and n.tensor == target.tensor]
            updates = all(n == target for n in own) and bool(own) if op == "=" else not own
            return target if updates and not moves else None
        case _:
            return None
