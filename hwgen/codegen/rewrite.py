"""Rewriting of program nodes: variables replaced, constants folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwgen.codegen.c_expr import fold
from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, OfCode, Sync
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Binary, Const, Expr, rewrite, substitute


def bind(nodes: tuple[Node, ...], values: Mapping[str, Expr]) -> tuple[Node, ...]:
    """The nodes with loop variables replaced."""
    result: list[Node] = []
    for node in nodes:
        match node:
            case Loop(variable, lower, upper, body):
                inner = {n: v for n, v in values.items() if n != variable}
                result.append(
                    replace(
                        node,
                        lower=substitute(lower, values),
                        upper=substitute(upper, values),
                        body=bind(body, inner),
                    )
                )
            case If(condition, then, otherwise):
                result.append(
                    If(substitute(condition, values), bind(then, values), bind(otherwise, values))
                )
            case Call():
                result.append(bind_call(node, values))
            case Sync() | OfCode():
                result.append(node)
    return tuple(result)


def bind_call(call: Call, values: Mapping[str, Expr]) -> Call:
    """A call with variables replaced in its addresses and variant, and in what it is there for."""
    operands = tuple(
        CallOperand(o.name, o.buffer, simplify(substitute(o.address, values)), o.strides)
        for o in call.operands
    )
    variant = None if call.variant is None else simplify(substitute(call.variant, values))
    intended = call.intended
    if intended is not None:
        loops = tuple((n, substitute(e, values)) for n, e in intended.loops)
        intended = replace(intended, loops=loops)
    return replace(call, operands=operands, variant=variant, intended=intended)


def simplify(expr: Expr) -> Expr:
    """Integer expression with known parts folded, and nothing below zero for C to divide."""
    return rewrite(fold(expr), _not_below)


def _not_below(expr: Expr) -> Expr:
    """A remainder without a negative constant: C's `%` is then the right one."""
    match expr:
        case Binary("%", inner, Const(int(modulus))) if modulus > 0:
            function = affine(inner)
            if function is None or function.constant >= 0:
                return expr
            above = Affine(function.terms, function.constant % modulus)
            return Binary("%", above.expression(), Const(modulus))
        case _:
            return expr
