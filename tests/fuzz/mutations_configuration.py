"""Deliberate defects of the writes of a chip's state, and of the registers that calls read.

Writes that no call depends on, as one at the start that is written over, are left alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hwgen.codegen.nodes import Call, Configure, Node, calls
from hwgen.codegen.program import Program
from hwgen.model.trace import CallEvent, walk
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Change, Edit, Mutation, Pick, drop, in_a_body, on_one

STATE = "H742"


def configuration_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """None for a chip without state; wrong registers only where there are several."""
    if not hardware.configurations:
        return ()
    found = [
        Mutation("dropped write of state", _on_a_write(drop), (STATE,)),
        Mutation("late write of state", _late, (STATE,)),
        Mutation("wrong value of state", _on_a_write(_wrong_value), (STATE,)),
    ]
    if any(len(c.registers) > 1 for c in hardware.configurations):
        found += [
            Mutation("write of another register", _other_register(hardware), (STATE,)),
            Mutation("call that reads another register", _other_read(hardware), (STATE,)),
        ]
    return tuple(found)


def _on_a_write(change: Change, pick: Pick = lambda _: True) -> Edit:
    def mutate(program: Program, seed: int) -> Program | None:
        read = _read_writes(program)
        return on_one(lambda node: id(node) in read and pick(node), change)(program, seed)

    return mutate


def _read_writes(program: Program) -> set[int]:
    """Identities of the writes whose register an executed call reads before the next write."""
    latest: dict[tuple[str, int], Configure] = {}
    found: set[int] = set()
    for event in walk(program):
        if isinstance(event, Configure):
            latest[event.configuration, event.register] = event
        elif isinstance(event, CallEvent):
            found |= {id(latest[r]) for r in event.call.registers if r in latest}
    return found


def _wrong_value(node: Node) -> tuple[Node, ...]:
    """Another number in the first field."""
    assert isinstance(node, Configure)
    (field, value), *rest = node.values
    return (replace(node, values=((field, f"{value} + 1"), *rest)),)


def _late(program: Program, seed: int) -> Program | None:
    """A write moved behind the first call, or what holds it, that reads the register."""

    read = _read_writes(program)

    def places(nodes: tuple[Node, ...]) -> list[int]:
        return [i for i, n in enumerate(nodes) if id(n) in read and _reader(nodes, i) is not None]

    def moved(nodes: tuple[Node, ...], i: int) -> tuple[Node, ...]:
        reader = _reader(nodes, i)
        assert reader is not None
        return (*nodes[:i], *nodes[i + 1 : reader + 1], nodes[i], *nodes[reader + 1 :])

    return in_a_body(program, seed, places, moved)


def _reader(nodes: tuple[Node, ...], i: int) -> int | None:
    """The first node after a write with a call that reads its register."""
    write = nodes[i]
    if not isinstance(write, Configure):
        return None
    register = (write.configuration, write.register)
    readers = (
        n
        for n in range(i + 1, len(nodes))
        if any(register in c.registers for c in calls((nodes[n],)))
    )
    return next(readers, None)


def _other_register(hardware: HardwareSpec) -> Edit:
    def fits(node: Node) -> bool:
        return isinstance(node, Configure) and _count(hardware, node.configuration) > 1

    def other(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Configure)
        following = (node.register + 1) % _count(hardware, node.configuration)
        return (replace(node, register=following),)

    return _on_a_write(other, fits)


def _other_read(hardware: HardwareSpec) -> Edit:
    def fits(node: Node) -> bool:
        return isinstance(node, Call) and any(_count(hardware, c) > 1 for c, _ in node.registers)

    return on_one(fits, partial(_read_elsewhere, hardware))


def _read_elsewhere(hardware: HardwareSpec, node: Node) -> tuple[Node, ...]:
    """The call with the next register of the first configuration that has several."""
    assert isinstance(node, Call)
    chosen = next(c for c, _ in node.registers if _count(hardware, c) > 1)
    registers = tuple(
        (c, (n + 1) % _count(hardware, c) if c == chosen else n) for c, n in node.registers
    )
    return (replace(node, registers=registers),)


def _count(hardware: HardwareSpec, configuration: str) -> int:
    return len(hardware.configuration[configuration].registers)
