"""Defects that leave every result right where calls run one by one: a guarded call before what it
waits for, and an initialisation past its buffer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hwgen.codegen.nodes import (
    Barrier,
    Call,
    If,
    Node,
    Pop,
    Wait,
    calls,
    nodes,
    rewritten,
)
from hwgen.codegen.program import Program
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Mutation, in_a_body
from tests.fuzz.mutations_synchronisation import ORDER
from tests.planted.parts import with_kernel, with_operand

OUTSIDE = ("H711", "H712", "H714", "H715", "H734")
"""Of a call that reaches past its buffer."""


def beyond_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """For every chip; a guard has something to wait for only where units wait."""

    def past(program: Program, seed: int) -> Program | None:
        return _initialised_past(program, hardware, seed)

    found = [Mutation("initialisation past its buffer", past, OUTSIDE)]
    if hardware.tokens or hardware.events or hardware.barriers:
        found.append(Mutation("guard before its wait", _guard_before_wait, ORDER))
    return tuple(found)


def _waits(node: Node) -> bool:
    """A wait, or a condition that decides on one alone."""
    if isinstance(node, If) and not any(calls((node,))):
        return any(map(_waits, nodes(node.then)))
    return isinstance(node, Pop | Wait | Barrier)


def _guard_before_wait(program: Program, seed: int) -> Program | None:
    def pairs(body: tuple[Node, ...]) -> list[int]:
        return [
            i
            for i in range(1, len(body))
            if _waits(body[i - 1]) and isinstance(body[i], If) and any(calls((body[i],)))
        ]

    def swapped(body: tuple[Node, ...], i: int) -> tuple[Node, ...]:
        return (*body[: i - 1], body[i], body[i - 1], *body[i + 1 :])

    return in_a_body(program, seed, pairs, swapped)


def _initialised_past(program: Program, hardware: HardwareSpec, seed: int) -> Program | None:
    """An initialisation that is followed by one of what lies behind its buffer, or that goes on for
    an iteration more where a micro-kernel is one."""
    places = [
        call
        for call in calls(program.body)
        if all(o.access == "write" for o in hardware.intrinsic[call.intrinsic].operands)
        and _room(call, program, hardware)
    ]
    if not places:
        return None
    chosen = Random(seed).choice(places)
    if chosen.kernel:
        return _longer_kernel(program, chosen)
    end = program.buffer[chosen.operands[0].buffer].end
    behind = replace(chosen.operands[0], address=Const(end))

    def edit(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Call) or node.site != chosen.site:
            return (node,)
        return (node, replace(with_operand(node, 0, behind), site=-1 - node.site))

    return replace(program, body=rewritten(program.body, edit))


def _room(call: Call, program: Program, hardware: HardwareSpec) -> bool:
    """Whether its memory goes on behind the buffer for what the defect initialises."""
    buffer = program.buffer.get(call.operands[0].buffer)
    if buffer is None or len(call.operands) > 1:
        return False
    more = buffer.slot_entries
    if call.kernel:
        loops = program.kernel[call.kernel].loops
        more = loops[0].strides[0] if loops else 0
    memory = hardware.memory[buffer.memory]
    return 0 < more <= memory.capacity_entries - buffer.end


def _longer_kernel(program: Program, call: Call) -> Program:
    kernel = program.kernel[call.kernel]
    first, *rest = kernel.loops
    extent = first.extent + 1
    changed = replace(kernel, loops=(replace(first, extent=extent), *rest))

    def edit(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Call) or node.kernel != call.kernel:
            return (node,)
        return (replace(node, extents=(Const(extent), *node.extents[1:])),)

    return with_kernel(replace(program, body=rewritten(program.body, edit)), changed)
