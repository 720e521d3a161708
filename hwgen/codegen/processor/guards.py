"""Nodes with the conditions that they still need, and where those settle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.nodes import If, Node
from hwgen.spec.expression import Expr, conjunction


@dataclass(frozen=True)
class Guarded:
    """A node that may run only where its conditions (by their text) hold; `touches`: buffers."""

    node: Node
    conditions: dict[str, Expr]
    touches: frozenset[str] = frozenset()


def common(items: Sequence[Guarded]) -> dict[str, Expr]:
    """The conditions that every item needs."""
    if not items:
        return {}
    first, *rest = items
    return {t: c for t, c in first.conditions.items() if all(t in i.conditions for i in rest)}


def settled(items: Sequence[Guarded], above: dict[str, Expr]) -> tuple[Node, ...]:
    """The nodes, guarded by those of their conditions that nothing above checks."""
    result: list[Node] = []
    pending: list[Node] = []
    guard: dict[str, Expr] = {}

    def close() -> None:
        condition = conjunction(tuple(guard.values()))
        if condition is None:
            result.extend(pending)
        elif pending:
            result.append(If(condition, tuple(pending)))
        pending.clear()

    for item in items:
        own = {t: c for t, c in item.conditions.items() if t not in above}
        if own.keys() != guard.keys():
            close()
            guard = own
        pending.append(item.node)
    close()
    return tuple(result)


def touched(items: Sequence[Guarded]) -> frozenset[str]:
    return frozenset(name for i in items for name in i.touches)
