"""Whether buffers that share bytes are ever in each other's way: a whole program, read once.

Shares nothing with what gives out addresses. A buffer that is written ends the life of all that
have bytes of it, until their scopes begin again; loops are read twice, so that what an iteration
ends is missed by the next. Where iterations or threads run at once, and where a function takes
arrays that must not overlap, none of its buffers share any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Code,
    CombineAcrossThreads,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    Routine,
    inner,
    nodes,
)
from hwgen.codegen.storages import Array
from hwgen.spec.expression import DTYPES, Access, Expr, walk
from hwgen.spec.hardware import HardwareSpec


def findings(program: Code, hardware: HardwareSpec) -> list[str]:
    """What is wrong with the places of buffers, each once, in order."""
    reader = _Reader(program, hardware, _rivals(program))
    for buffer in program.arrays:
        reader.place(buffer)
    reader.body(program.body)
    return list(dict.fromkeys(reader.found))


def _rivals(program: Code) -> dict[str, list[str]]:
    """Per buffer, those that have some of its bytes."""
    fixed = [b for b in program.arrays if b.address_bytes is not None]
    return {
        a.name: [b.name for b in fixed if a != b and _overlap(a, b)]
        for a in fixed
    }  # fmt: skip


def _overlap(a: Array, b: Array) -> bool:
    first, second = a.address_bytes or 0, b.address_bytes or 0
    same = (a.memory, a.within) == (b.memory, b.within)
    return same and first < second + b.bytes and second < first + a.bytes


def _accesses(*found: Expr) -> Iterator[str]:
    return (part.tensor for e in found for part in walk(e) if isinstance(part, Access))


def _steps(node: Node) -> Iterator[tuple[str, bool]]:
    """What a node itself touches, in order, and whether it writes."""
    match node:
        case Assign(_, target, op, value):
            yield from ((n, False) for n in _accesses(value))
            yield from [(target.tensor, False)] if op != "=" else []
            yield target.tensor, True
        case IntrinsicCall():
            yield from _steps(node.meaning)
        case CombineAcrossThreads():
            yield node.partial.tensor, False
            yield node.scratch, True
            yield node.scratch, False
            yield node.target.tensor, True
        case Keep(target, _):
            yield target.tensor, False
        case _:
            pass


@dataclass(slots=True)
class _Reader:
    """`scopes`: buffers whose scopes are open; `begun`: those that hold something; `ended`: those
    that something else has taken the place of, and what."""

    program: Code
    hardware: HardwareSpec
    rivals: dict[str, list[str]]
    found: list[str] = field(default_factory=list[str])
    scopes: set[str] = field(default_factory=set[str])
    begun: set[str] = field(default_factory=set[str])
    ended: dict[str, str] = field(default_factory=dict[str, str])

    def place(self, buffer: Array) -> None:
        """A buffer lies whole in its room or pool, aligned, as a type that it may have there."""
        start = buffer.address_bytes
        if start is None:
            return
        memory = self.hardware.memory[buffer.memory]
        room = self.program.array[buffer.within] if buffer.within else None
        end = room.bytes if room else memory.capacity_bytes or start + buffer.bytes
        if start % memory.align_bytes or start % DTYPES[buffer.dtype]:
            self.found.append(f"{buffer.name} is not aligned")
        if start < 0 or start + buffer.bytes > end:
            self.found.append(f"{buffer.name} is not inside of {buffer.within or memory.name}")
        if room and (room.memory != memory.name or not (memory.free or room.dtype == buffer.dtype)):
            self.found.append(f"{buffer.name} cannot be in {room.name}")

    def body(self, body: tuple[Node, ...]) -> None:
        for node in body:
            for name, writes in _steps(node):
                self.touch(name, writes=writes)
            match node:
                case Allocate(name, inside):
                    self.opened(name, inside)
                case Loop():
                    way = self.hardware.machine.runs(node.kind)
                    if way in ("parallel", "vectorize", "bind"):
                        self.crowded(node)
                    before = set(self.begun), dict(self.ended)
                    self.body(node.body)
                    if (self.begun, self.ended) != before:
                        self.body(node.body)
                case Launch() | Routine():
                    self.crowded(node)
                    self.body(node.body)
                case Keep(target, inside):
                    self.body(inside)
                    self.touch(target.tensor, writes=True)
                case _:
                    self.body(inner(node))

    def opened(self, name: str, body: tuple[Node, ...]) -> None:
        room = self.program.array[name].within
        if room and room not in self.scopes:
            self.found.append(f"{name} is in {room}, which is not there")
        self.scopes.add(name)
        self.begun.discard(name)
        self.ended.pop(name, None)
        self.body(body)
        self.scopes.discard(name)

    def touch(self, name: str, *, writes: bool) -> None:
        if name in self.ended:
            self.found.append(f"{name} is used after {self.ended[name]} took its place")
        if writes:
            self.begun.add(name)
            for rival in self.rivals.get(name, ()):
                if rival in self.begun and rival in self.scopes:
                    self.ended[rival] = name

    # What is there at once

    def crowded(self, node: Loop | Launch | Routine) -> None:
        """Buffers from outside of a node that it uses have places of their own, and so have those
        of each iteration."""
        inside = list(nodes(node.body))
        own = [x.buffer for x in inside if isinstance(x, Allocate)]
        outer = sorted({n for x in inside for n, _ in _steps(x) if n in self.scopes})
        for n, name in enumerate(outer):
            for other in (*outer[n + 1 :], *own):
                if other in self.rivals.get(name, ()):
                    self.found.append(f"{name} and {other} have one place and are used at once")
        for name in own if isinstance(node, Loop) else ():
            buffer = self.program.array[name]
            if buffer.address_bytes is not None and buffer.within not in own:
                self.found.append(f"{name} is one place for iterations that run at once")
