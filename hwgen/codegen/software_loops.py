"""C loops around calls: what a run of calls stands for, written out before it is emitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hwgen.codegen.nodes import Call, CallOperand, Loop, Node, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec, Intrinsic

ONE = Const(1)


def written_out(program: Program, hardware: HardwareSpec) -> Program:
    """The program with a loop for each of its calls' software loops that runs more than once."""
    if not any(hardware.intrinsic[c.intrinsic].software_loops for c in calls(program.body)):
        return program

    def run(node: Node) -> tuple[Node, ...]:
        whole = isinstance(node, Call)
        return (_run(node, hardware.intrinsic[node.intrinsic]) if whole else node,)

    return replace(program, body=rewritten(program.body, run))


def _run(call: Call, intrinsic: Intrinsic) -> Node:
    """The loops around one call; the outermost first."""
    count = intrinsic.software_loops
    if not count:
        return call
    active = [n for n in range(count) if call.extents[n] != ONE]
    variables = {n: f"r{level}" for level, n in enumerate(active)}
    operands = tuple(_moved(operand, variables) for operand in call.operands)
    extents = (*([ONE] * count), *call.extents[count:])
    node: Node = replace(
        call, operands=operands, extents=extents, fresh=_fresh(call, intrinsic, variables)
    )
    for n in reversed(active):
        node = Loop(variables[n], Const(0), call.extents[n], (node,))
    return node


def _moved(operand: CallOperand, variables: dict[int, str]) -> CallOperand:
    address = operand.address
    for n, variable in variables.items():
        address = add(address, multiply(Name(variable), operand.strides[n]))
    return replace(operand, address=address)


def _fresh(call: Call, intrinsic: Intrinsic, variables: dict[int, str]) -> Expr | None:
    """Where the stationary operand is another one than in the iteration before."""
    held = intrinsic.stationary
    if held is None:
        return None
    strides = next(o.strides for o in call.operands if o.name == held.operand)
    first: Expr = ONE
    for n in _inside(strides, list(variables)):
        start = Binary("==", Name(variables[n]), Const(0))
        first = start if first == ONE else Binary("and", first, start)
    return first


def _inside(strides: tuple[Expr, ...], active: list[int]) -> Iterator[int]:
    """The innermost loops that do not move an operand, outermost first."""
    kept: list[int] = []
    for n in reversed(active):
        if strides[n] != Const(0):
            break
        kept.append(n)
    yield from reversed(kept)
