"""Deliberate defects of programs of a processor, which `codegen/processor/races.py` must find, and
those of what is executed, which `codegen/instances/` must."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwgen.codegen.nodes import (
    Assign,
    Code,
    CombineAcrossThreads,
    If,
    IntrinsicCall,
    Keep,
    Loop,
    Node,
    ThreadBarrier,
    nodes,
    with_inner,
)
from hwgen.spec.expression import (
    Access,
    Binary,
    Const,
    add,
    conjunction,
    conjuncts,
    replace_part,
    walk,
)

IN_PLACE = "in another's place:"

Statement = Assign | CombineAcrossThreads | IntrinsicCall

Change = Callable[[Node], tuple[Node, ...] | None]
"""What stands in a node's place; None where the defect is not possible there."""


def nest_mutations(program: Code) -> Iterator[tuple[str, Code]]:
    """Every program that differs by one defect, and its name. Not every one is wrong: a guard may
    be implied, and an overlong loop too."""
    yield from _each(program, _CHANGES)
    yield from _moved(program)


def executed_mutations(program: Code) -> Iterator[tuple[str, Code]]:
    """The same, of what is executed; each of them is wrong."""
    yield from _each(program, _EXECUTED)


def _each(program: Code, changes: Mapping[str, Change]) -> Iterator[tuple[str, Code]]:
    for name, change in changes.items():
        number = 0
        while True:
            left = [number]
            body = _changed(program.body, change, left)
            if left[0] >= 0:
                break
            yield name, replace(program, body=body)
            number += 1


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


def _left_out(node: Node) -> tuple[Node, ...] | None:
    return () if isinstance(node, Statement) else None


def _twice(node: Node) -> tuple[Node, ...] | None:
    return (node, node) if isinstance(node, Statement) else None


def _executes(node: Node) -> bool:
    return any(isinstance(n, Statement) for n in nodes((node,)))


def _one_less(node: Node) -> tuple[Node, ...] | None:
    if not isinstance(node, Loop) or not _executes(node):
        return None
    return (replace(node, upper=add(node.upper, Const(-1))),)


def _overlong(node: Node) -> tuple[Node, ...] | None:
    return _one_more(node) if _executes(node) else None


def _sides_swapped(node: Node) -> tuple[Node, ...] | None:
    if not isinstance(node, If) or not node.otherwise:
        return None
    return (replace(node, then=node.otherwise, otherwise=node.then),)


def _another_border(node: Node) -> tuple[Node, ...] | None:
    """One comparison of a choice between two sides is of the neighbour."""
    if not isinstance(node, If) or not node.otherwise:
        return None
    (first, *others) = conjuncts(node.condition)
    if not isinstance(first, Binary):
        return None
    moved = replace(first, left=add(first.left, Const(1)))
    return (replace(node, condition=conjunction((moved, *others))),)


def _unguarded(node: Node) -> tuple[Node, ...] | None:
    return _no_guard(node) if _executes(node) else None


def _read_beside(node: Node) -> tuple[Node, ...] | None:
    """The first element that a statement reads is the one behind it."""
    if not isinstance(node, Assign):
        return None
    read = next((n for n in walk(node.value) if isinstance(n, Access)), None)
    if read is None:
        return None
    beside = replace(read, indices=(add(read.indices[0], Const(1)),))
    return (replace(node, value=replace_part(node.value, read, beside)),)


def _operands_swapped(node: Node) -> tuple[Node, ...] | None:
    match node:
        case Assign(_, _, _, Binary(_, left, right)) if left != right:
            return (replace(node, value=replace(node.value, left=right, right=left)),)
        case _:
            return None


def _another_step(node: Node) -> tuple[Node, ...] | None:
    """A step of an intrinsic's first operand is one more."""
    if not isinstance(node, IntrinsicCall):
        return None
    first = node.operands[0]
    (loop, step), *others = first.steps
    wrong = replace(first, steps=((loop, step + 1), *others))
    return (replace(node, operands=(wrong, *node.operands[1:])),)


def _kept_beside(node: Node) -> tuple[Node, ...] | None:
    if not isinstance(node, Keep):
        return None
    (index,) = node.target.indices
    return (replace(node, target=replace(node.target, indices=(add(index, Const(1)),))),)


_EXECUTED: dict[str, Change] = {
    "statement left out": _left_out,
    "statement made twice": _twice,
    "one iteration fewer": _one_less,
    "one more iteration": _overlong,
    "dropped guard": _unguarded,
    "sides swapped": _sides_swapped,
    "another border": _another_border,
    "written beside": _beside,
    "read beside": _read_beside,
    "operands swapped": _operands_swapped,
    "step of an operand one more": _another_step,
    "kept beside": _kept_beside,
}

_CHANGES: dict[str, Change] = {
    "dropped barrier": _no_barrier,
    "dropped guard": _no_guard,
    "one more iteration": _one_more,
    "written beside": _beside,
}
