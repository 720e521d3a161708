"""Loops from a schedule: isl's AST generation, read into program nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwgen.codegen.program import If, Loop, Node
from hwgen.codegen.rewrite import bind
from hwgen.polyhedral import isl
from hwgen.spec.expression import Binary, BinaryOp, Const, Expr, Name, Unary
from hwgen.spec.expression import Call as Apply


def scan(
    schedule: isl.Schedule,
    iterators: Sequence[str],
    leaves: Mapping[str, Node],
    names: Mapping[str, Sequence[str]],
) -> tuple[Node, ...]:
    """Nodes that execute each statement instance once, in the order of the schedule.

    `iterators`: names of the schedule's dimensions; `leaves`: the node of each statement, over its
    own iterator `names`, which are replaced by what the generated loops compute.
    """
    build = isl.AstBuild.from_context(isl.Set("{ : }"))
    build = build.set_iterators(isl.identifier_list(iterators))
    return _nodes(build.node_from_schedule(schedule), leaves, names)


def _nodes(
    node: isl.AstNode, leaves: Mapping[str, Node], names: Mapping[str, Sequence[str]]
) -> tuple[Node, ...]:
    kind = isl.node_kind(node)
    if kind == "for":
        return _loop(node, leaves, names)
    if kind == "if":
        then = _nodes(node.if_get_then_node(), leaves, names)
        otherwise: tuple[Node, ...] = ()
        if node.if_has_else_node():
            otherwise = _nodes(node.if_get_else_node(), leaves, names)
        return (If(expression(node.if_get_cond()), then, otherwise),)
    if kind == "block":
        children = node.block_get_children()
        return tuple(
            n
            for i in range(children.n_ast_node())
            for n in _nodes(children.get_ast_node(i), leaves, names)
        )
    if kind == "user":
        return (_leaf(node, leaves, names),)
    raise AssertionError(f"isl made an AST node of type {kind}")


def _loop(
    node: isl.AstNode, leaves: Mapping[str, Node], names: Mapping[str, Sequence[str]]
) -> tuple[Node, ...]:
    variable = node.for_get_iterator().get_id().get_name()
    lower = expression(node.for_get_init())
    body = _nodes(node.for_get_body(), leaves, names)
    if node.for_is_degenerate():
        return (Loop(variable, lower, _successor(lower), body),)
    step = expression(node.for_get_inc())
    assert step == Const(1), f"isl made a loop with step {step}"
    condition = expression(node.for_get_cond())
    assert isinstance(condition, Binary)
    upper = condition.right if condition.op == "<" else _successor(condition.right)
    return (Loop(variable, lower, upper, body),)


def _successor(expr: Expr) -> Expr:
    return Const(expr.value + 1) if isinstance(expr, Const) else Binary("+", expr, Const(1))


def _leaf(
    node: isl.AstNode, leaves: Mapping[str, Node], names: Mapping[str, Sequence[str]]
) -> Node:
    call = node.user_get_expr()
    statement = call.get_op_arg(0).get_id().get_name()
    arguments = [expression(call.get_op_arg(i)) for i in range(1, call.get_op_n_arg())]
    (bound,) = bind((leaves[statement],), dict(zip(names[statement], arguments, strict=True)))
    return bound


_OPERATIONS: dict[str, BinaryOp] = {
    "and_": "and", "and_then": "and", "or_": "or", "or_else": "or", "add": "+", "sub": "-",
    "mul": "*", "div": "//", "fdiv_q": "//", "pdiv_q": "//", "pdiv_r": "%", "zdiv_r": "%",
    "eq": "==", "le": "<=", "lt": "<", "ge": ">=", "gt": ">",
}  # fmt: skip


def expression(expr: isl.AstExpr) -> Expr:
    """An isl AST expression as a program expression."""
    kind = expr.get_type()
    if kind == isl.ast_expr_type.int:
        return Const(expr.get_val().to_python())
    if kind == isl.ast_expr_type.id:
        return Name(expr.get_id().get_name())
    op = isl.operation(expr)
    arguments = [expression(expr.get_op_arg(i)) for i in range(expr.get_op_n_arg())]
    if op == "minus":
        inner = arguments[0]
        return Const(-inner.value) if isinstance(inner, Const) else Unary("-", inner)
    if op in ("min", "max"):
        result = arguments[0]
        for argument in arguments[1:]:
            result = Apply(op, (result, argument))
        return result
    if op in ("select", "cond"):
        return Apply("select", tuple(arguments))
    result = arguments[0]
    for argument in arguments[1:]:
        result = Binary(_OPERATIONS[op], result, argument)
    return result
