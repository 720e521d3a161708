"""Edits of kernel programs, one place at a time, for mutations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, nodes, rewritten
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.model.trace import CallEvent, walk
from hwgen.spec.expression import Binary, Expr, add, multiply

Edit = Callable[[Program, int], Program | None]
Pick = Callable[[Node], bool]
Change = Callable[[Node], tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A named defect. `mutate(program, seed)` is None where the program has no place for it;
    `caught_by` names the only errors by which it may be found."""

    name: str
    mutate: Edit
    caught_by: tuple[str, ...]


def drop(_: Node) -> tuple[Node, ...]:
    """Nothing instead of a node."""
    return ()


def double(node: Node) -> tuple[Node, ...]:
    """A node twice; a call gets a site of its own."""
    match node:
        case Call():
            return (node, replace(node, site=-1 - node.site))
        case _:
            return (node, node)


def on_one(pick: Pick, change: Change) -> Edit:
    """A mutation of one of the nodes that `pick` accepts, chosen by the seed.

    Calls and synchronisation that are never executed are left alone: without them nothing changes.
    """

    def mutate(program: Program, seed: int) -> Program | None:
        executed = {id(e.call if isinstance(e, CallEvent) else e) for e in walk(program)}

        def fits(node: Node) -> bool:
            return pick(node) and (isinstance(node, Loop | If) or id(node) in executed)

        places = [node for node in nodes(program.body) if fits(node)]
        if not places:
            return None
        chosen = Random(seed).randrange(len(places))
        counter = iter(range(len(places)))

        def edit(node: Node) -> tuple[Node, ...]:
            if fits(node) and next(counter) == chosen:
                return change(node)
            return (node,)

        return replace(program, body=rewritten(program.body, edit))

    return mutate


def in_a_body(
    program: Program,
    seed: int,
    places: Callable[[tuple[Node, ...]], list[int]],
    change: Callable[[tuple[Node, ...], int], tuple[Node, ...]],
) -> Program | None:
    """Change the order of nodes in the program's body or in the body of one of its loops."""
    bodies = [program.body, *(n.body for n in nodes(program.body) if isinstance(n, Loop))]
    found = [(number, i) for number, body in enumerate(bodies) for i in places(body)]
    if not found:
        return None
    number, at = Random(seed).choice(found)
    if number == 0:
        return replace(program, body=change(program.body, at))
    loops = iter(range(1, len(bodies)))

    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Loop) and next(loops) == number:
            return (replace(node, body=change(node.body, at)),)
        return (node,)

    return replace(program, body=rewritten(program.body, edit))


def with_kernel(program: Program, kernel: MicroKernelDef) -> Program:
    """The program with the micro-kernel of that name replaced."""
    kernels = tuple(kernel if k.name == kernel.name else k for k in program.kernels)
    return replace(program, kernels=kernels)


def with_operand(call: Call, number: int, operand: CallOperand) -> Call:
    """The call with one operand replaced."""
    operands = (*call.operands[:number], operand, *call.operands[number + 1 :])
    return replace(call, operands=operands)


def with_stride(operand: CallOperand, level: int, stride: Expr) -> CallOperand:
    """The operand with the step of one hardware loop replaced."""
    strides = (*operand.strides[:level], stride, *operand.strides[level + 1 :])
    return replace(operand, strides=strides)


def is_modulo(expr: Expr) -> bool:
    """Whether an expression is a remainder."""
    return isinstance(expr, Binary) and expr.op == "%"


def exchanged(expr: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with one part exchanged, inside sums and products."""
    if expr == old:
        return new
    match expr:
        case Binary("+", left, right):
            return add(exchanged(left, old, new), exchanged(right, old, new))
        case Binary("*", left, right):
            return multiply(exchanged(left, old, new), exchanged(right, old, new))
        case _:
            return expr
