"""Functions for nests that touch several buffers of one allocation.

Compilers cannot tell apart what pointers into one allocation reach, and leave such loops as they
are. As parameters of a function they may be told: `restrict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hwgen.codegen.names import allocated, touched, written
from hwgen.codegen.nodes import Allocate, If, Loop, Node, Routine, inner, with_inner
from hwgen.codegen.storages import Array
from hwgen.polyhedral.tree.build import unique
from hwgen.spec.hardware import HardwareSpec


def outlined(
    body: tuple[Node, ...], buffers: Mapping[str, Array], hardware: HardwareSpec
) -> tuple[Node, ...]:
    """The nodes with a routine around each nest that needs one. Blocks have functions anyway."""
    if hardware.machine.launch or hardware.machine.function_prologue:
        return body
    return _Outlining(buffers, hardware).body(body, frozenset())


def at_home(body: tuple[Node, ...]) -> Iterator[str]:
    """Buffers whose scopes are in a body, not in its loops."""
    for node in body:
        if isinstance(node, Allocate):
            yield node.buffer
        if isinstance(node, Allocate | If):
            yield from at_home(inner(node))


@dataclass(frozen=True, slots=True)
class _Outlining:
    buffers: Mapping[str, Array]
    hardware: HardwareSpec
    taken: set[str] = field(default_factory=set[str])

    def body(self, nodes: tuple[Node, ...], home: frozenset[str]) -> tuple[Node, ...]:
        return tuple(self.node(n, home) for n in nodes)

    def node(self, node: Node, home: frozenset[str]) -> Node:
        match node:
            case Allocate(buffer, inside):
                return replace(node, body=self.body(inside, home | {buffer}))
            case If():
                return with_inner(node, lambda body: self.body(body, home))
            case Loop():
                found = replace(node, body=self.body(node.body, frozenset()))
                return self.routine(found, home)
            case _:
                return node

    def routine(self, node: Loop, home: frozenset[str]) -> Node:
        """The node by itself, or as a routine where it touches several buffers of a room, one of
        them at home here, and writes one."""
        used = touched((node,)) - allocated((node,))
        members = [n for n in sorted(used) if self.buffers[n].within]
        outputs = written((node,))
        rooms = [self.buffers[n].within for n in members]
        several = any(rooms.count(r) > 1 for r in set(rooms))
        pooled = any(self.hardware.memory[self.buffers[n].memory].pool for n in allocated((node,)))
        if not several or pooled or home.isdisjoint(members) or outputs.isdisjoint(members):
            return node
        name = next(n for n in reversed(tuple(self.buffers)) if n in outputs & used)
        name = unique(name, self.taken)
        self.taken.add(name)
        return Routine(name, (node,))
