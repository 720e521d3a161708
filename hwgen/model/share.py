"""What the worker with the most to do runs of a program: how long it takes, the program takes."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.nodes import SERIAL, Barrier, Loop, Node, with_inner
from hwgen.codegen.program import Program
from hwgen.spec.expression import Binary, Const, Expr, evaluate, names
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.processor import Processor


def largest_share(program: Program, hardware: HardwareSpec) -> Program:
    """The program of the first worker, whose part of a parallel loop is as large as any: whole
    iterations, in a row. It waits for its calls before and after, as all workers do."""
    machine = hardware.processor
    if machine is None:
        return program
    body = _nodes(program.body, machine)
    return program if body == program.body else replace(program, body=body)


def _nodes(nodes: tuple[Node, ...], machine: Processor) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in nodes:
        match node:
            case Loop() if node.kind != SERIAL:
                start = Barrier("", machine.loop[node.kind].start_cycles)
                share = replace(node, upper=_end(node, machine.workers), kind=SERIAL)
                found += (start, share, Barrier(""))
            case _:
                found.append(with_inner(node, lambda inside: _nodes(inside, machine)))
    return tuple(found)


def _end(loop: Loop, workers: int) -> Expr:
    """Where the first of so many parts of a loop ends."""
    count = Binary("-", loop.upper, loop.lower)
    part = Binary("//", Binary("+", count, Const(workers - 1)), Const(workers))
    end = Binary("+", loop.lower, part)
    return end if names(end) else Const(int(evaluate(end, {})))
