"""Faults put into a kernel program, for the checks that must notice them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hwgen.codegen.nodes import Call, If, Loop, Node, Pop, Push
from hwgen.spec.expression import Const, add

Change = Callable[[Node], tuple[Node, ...]]
"""What one node becomes."""


def edit(nodes: tuple[Node, ...], change: Change) -> tuple[Node, ...]:
    """The tree with every node replaced by what `change` makes of it."""
    result: list[Node] = []
    for node in nodes:
        match node:
            case Loop():
                result += change(replace(node, body=edit(node.body, change)))
            case If():
                then, otherwise = edit(node.then, change), edit(node.otherwise, change)
                result += change(replace(node, then=then, otherwise=otherwise))
            case _:
                result += change(node)
    return tuple(result)


def without(kind: type[Node], source: str, target: str) -> Change:
    def change(node: Node) -> tuple[Node, ...]:
        gone = isinstance(node, (Push, Pop)) and (node.source, node.target) == (source, target)
        return () if gone and isinstance(node, kind) else (node,)

    return change


def moved(intrinsic: str, operand: str, by: int) -> Change:
    """`operand`'s address shifted in every call of `intrinsic`."""

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Call) or node.intrinsic != intrinsic:
            return (node,)
        operands = tuple(
            replace(o, address=add(o.address, Const(by))) if o.name == operand else o
            for o in node.operands
        )
        return (replace(node, operands=operands),)

    return change


def dropped(intrinsic: str) -> Change:
    return lambda node: () if isinstance(node, Call) and node.intrinsic == intrinsic else (node,)


def flattened(intrinsic: str) -> Change:
    """All rows stored onto the first."""

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Call) or node.intrinsic != intrinsic:
            return (node,)
        strides = (Const(0), Const(1))
        operands = (replace(node.operands[0], strides=strides), *node.operands[1:])
        return (replace(node, operands=operands),)

    return change


MUTATIONS: dict[str, Change] = {
    "dropped push": without(Push, "load", "compute"),
    "dropped pop": without(Pop, "compute", "load"),
    "dropped pop of a result": without(Pop, "compute", "store"),
    "dropped pair": lambda node: tuple(
        kept
        for half in without(Push, "store", "compute")(node)
        for kept in without(Pop, "store", "compute")(half)
    ),
    "load one entry off": moved("load_inp", "dst", 1),
    "load past the buffer": moved("load_inp", "src", 16 * 256),
    "store one entry off": moved("store_out", "src", 1),
    "missing reset": dropped("reset"),
    "missing load": dropped("load_wgt"),
    "missing store": dropped("store_out"),
    "wrong stride": flattened("store_out"),
}  # fmt: skip
