"""C loops around calls: what a run of calls stands for, written out before it is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hwgen.codegen.nodes import Call, CallOperand, Loop, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.codegen.rewrite import bind_call
from hwgen.spec.expression import Const, Expr, Name, add, evaluate, multiply
from hwgen.spec.hardware import HardwareSpec, Intrinsic

ZERO, ONE = Const(0), Const(1)
UNROLL = "unroll"
"""The pragma of a loop around calls that the compiler of the emitted C unrolls."""


def written_out(program: Program, hardware: HardwareSpec) -> Program:
    """The program with a loop for each of its calls' software loops that runs more than once."""
    if not any(hardware.intrinsic[c.intrinsic].software_loops for c in calls(program.body)):
        return program

    def run(node: Node) -> tuple[Node, ...]:
        return run_loops(node, hardware) if isinstance(node, Call) else (node,)

    return replace(program, body=rewritten(program.body, run))


def run_loops(call: Call, hardware: HardwareSpec) -> tuple[Node, ...]:
    """The loops around one call; the outermost first. One that is written out already stays."""
    intrinsic = hardware.intrinsic[call.intrinsic]
    count = intrinsic.software_loops
    if not count or call.fresh is not None:
        return (call,)
    active = [n for n in range(count) if call.extents[n] != ONE]
    variables = {n: f"r{level}" for level, n in enumerate(active)}
    operands = tuple(_moved(operand, variables) for operand in call.operands)
    one = replace(call, operands=operands, extents=(*([ONE] * count), *call.extents[count:]))
    still = _still(call, intrinsic, active)
    inner = {variables[n]: call.extents[n] for n in still}
    nodes = _iterations(one, inner) if intrinsic.stationary else (one,)
    nodes = _loops({variables[n]: call.extents[n] for n in active if n not in still}, nodes)
    return rewritten(nodes, partial(_unrolled, hardware=hardware))


def _iterations(call: Call, loops: Mapping[str, Expr]) -> tuple[Node, ...]:
    """A call in loops that leave its stationary operand where it is: the first iteration brings it
    in and stands before the others, so that none asks whether it is the first."""
    at_first = bind_call(call, dict.fromkeys(loops, ZERO))
    nodes: tuple[Node, ...] = (replace(at_first, fresh=ONE),)
    names = list(loops)
    for level in reversed(range(len(names))):
        known: dict[str, Expr] = dict.fromkeys(names[:level], ZERO)
        if loops[names[level]] == Const(2):
            known[names[level]] = ONE
        later = replace(bind_call(call, known), fresh=ZERO)
        inside = {n: loops[n] for n in names[level:] if n not in known}
        nodes += _loops(inside, (later,), first=int(names[level] in inside))
    return nodes


def _loops(extents: Mapping[str, Expr], body: tuple[Node, ...], first: int = 0) -> tuple[Node, ...]:
    """Loops around nodes; the outermost begins at `first`."""
    for n, (variable, extent) in reversed(list(enumerate(extents.items()))):
        body = (Loop(variable, ZERO if n else Const(first), extent, body),)
    return body


def _unrolled(node: Node, hardware: HardwareSpec) -> tuple[Node, ...]:
    """An innermost loop, marked where the chip's host is to unroll it."""
    unroll = hardware.issue.unroll if hardware.issue else None
    if unroll is None or not isinstance(node, Loop):
        return (node,)
    turns = evaluate(node.upper, {}) - evaluate(node.lower, {}) if _is_known(node) else 1
    innermost = all(isinstance(n, Call) for n in node.body)
    if innermost and int(turns) in unroll.extent:
        return (replace(node, pragmas=((UNROLL, int(turns)),)),)
    return (node,)


def _is_known(loop: Loop) -> bool:
    return isinstance(loop.lower, Const) and isinstance(loop.upper, Const)


def _moved(operand: CallOperand, variables: dict[int, str]) -> CallOperand:
    address = operand.address
    for n, variable in variables.items():
        address = add(address, multiply(Name(variable), operand.strides[n]))
    return replace(operand, address=address)


def _still(call: Call, intrinsic: Intrinsic, active: Sequence[int]) -> tuple[int, ...]:
    """The innermost loops that do not move the stationary operand, outermost first."""
    held = intrinsic.stationary
    if held is None:
        return ()
    strides = next(o.strides for o in call.operands if o.name == held.operand)
    moving = [k for k, n in enumerate(active) if not _keeps(strides[n], call.extents[n])]
    return tuple(active[moving[-1] + 1 :] if moving else active)


def _keeps(stride: Expr, extent: Expr) -> bool:
    return stride == ZERO and isinstance(extent, Const)
