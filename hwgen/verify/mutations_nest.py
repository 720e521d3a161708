"""Deliberate defects of programs of a processor, which `codegen/processor/races.py` must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hwgen.codegen.nodes import (
    Assign,
    Code,
    If,
    Loop,
    Node,
    ThreadBarrier,
    with_inner,
)
from hwgen.spec.expression import Const, add

IN_PLACE = "in another's place:"

Change = Callable[[Node], tuple[Node, ...] | None]
"""What stands in a node's place; None where the defect is not possible there."""


def nest_mutations(program: Code) -> Iterator[tuple[str, Code]]:
    """Every program that differs by one defect, and its name. Not every one is wrong: a guard may
    be implied, and an overlong loop too."""
    for name, change in _CHANGES.items():
        number = 0
        while True:
            left = [number]
            body = _changed(program.body, change, left)
            if left[0] >= 0:
                break
            yield name, replace(program, body=body)
            number += 1

    yield from _moved(program)


def _moved(program: Code) -> Iterator[tuple[str, Code]]:
    """Every buffer of a room or pool in the place of each other one there."""
    placed = [b for b in program.arrays if b.address_bytes is not None]
    for buffer in placed:
        rest = [b for b in placed if (b.memory, b.within) == (buffer.memory, buffer.within)]
        for place in sorted({b.address_bytes or 0 for b in rest} - {buffer.address_bytes}):
            moved = replace(buffer, address_bytes=place)
            found = tuple(moved if b == buffer else b for b in program.arrays)
            yield f"{IN_PLACE} {buffer.name} at {place}", replace(program, arrays=found)


def _changed(body: tuple[Node, ...], change: Change, left: list[int]) -> tuple[Node, ...]:
    """The nodes, the `left[0]`-th that can be changed; it is -1 afterwards."""
    result: list[Node] = []
    for node in body:
        changed = change(node) if left[0] >= 0 else None
        if changed is not None:
            left[0] -= 1
            if left[0] < 0:
                result += changed
                continue
        result.append(with_inner(node, lambda inside: _changed(inside, change, left)))
    return tuple(result)


def _no_barrier(node: Node) -> tuple[Node, ...] | None:
    return () if isinstance(node, ThreadBarrier) else None


def _no_guard(node: Node) -> tuple[Node, ...] | None:
    return node.then if isinstance(node, If) else None


def _one_more(node: Node) -> tuple[Node, ...] | None:
    return (replace(node, upper=add(node.upper, Const(1))),) if isinstance(node, Loop) else None


def _beside(node: Node) -> tuple[Node, ...] | None:
    if not isinstance(node, Assign):
        return None
    (index,) = node.target.indices
    return (replace(node, target=replace(node.target, indices=(add(index, Const(1)),))),)


_CHANGES: dict[str, Change] = {
    "dropped barrier": _no_barrier,
    "dropped guard": _no_guard,
    "one more iteration": _one_more,
    "written beside": _beside,
}
