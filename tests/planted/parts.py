"""Parts of programs, replaced: what several defects have in common."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.nodes import Call, CallOperand, Node
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.spec.expression import Binary, Const, Expr, add, multiply


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


def has_variants(node: Node) -> bool:
    """Whether a node is a call of one of several variants."""
    return isinstance(node, Call) and node.variant is not None


def next_variant(node: Node) -> tuple[Node, ...]:
    """The call of the variant that follows."""
    assert isinstance(node, Call)
    assert node.variant is not None
    return (replace(node, variant=add(node.variant, Const(1))),)


def longer(node: Node) -> tuple[Node, ...]:
    """The call with one step more in its innermost loop."""
    assert isinstance(node, Call)
    return (replace(node, extents=(*node.extents[:-1], add(node.extents[-1], Const(1)))),)
