"""Scopes of buffers as lines of text: allocations, rooms and pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hwgen.codegen.c_names import C_TYPES, indent
from hwgen.codegen.nodes import Allocate, Code, Node, nodes
from hwgen.codegen.processor.firmware import Room
from hwgen.codegen.processor.routines import at_home
from hwgen.codegen.storages import Array
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Level


class Names(Protocol):
    def buffer(self, name: str) -> str: ...


class Writer(Protocol):
    """What the text of bodies lends. `pointers`: buffers in rooms that have their pointers."""

    @property
    def program(self) -> Code: ...

    @property
    def hardware(self) -> HardwareSpec: ...

    @property
    def names(self) -> Names: ...

    @property
    def pointers(self) -> set[str]: ...

    @property
    def room(self) -> Room: ...

    def template(
        self, text: str, label: str, values: Mapping[str, object] | None = None
    ) -> list[str]: ...

    def lines(self, body: tuple[Node, ...]) -> list[str]: ...


def scope(writer: Writer, buffer: Array, body: tuple[Node, ...]) -> list[str]:
    """A body with a buffer that lives while it runs."""
    if buffer.name in writer.pointers:
        return writer.lines(body)
    if buffer.within:
        return ["{", *indent([_pointer(writer, buffer), *writer.lines(body)]), "}"]
    memory = writer.hardware.memory[buffer.memory]
    label = f"memories.{memory.name}"
    values = _values(writer, buffer)
    given = writer.room.places.get(buffer.name)
    if given is None:
        lines = writer.template(memory.allocate, f"{label}.allocate", values)
    else:
        kind, own = C_TYPES[buffer.dtype], writer.names.buffer(buffer.name)
        place = f"((char *){writer.room.pointer} + {given})"
        lines = [f"{kind} *{own} = ({kind} *)(void *){place};"]
    members = [] if buffer.tensor else _members(writer, buffer, body)
    writer.pointers.update(b.name for b in members)
    lines += [_pointer(writer, b) for b in members]
    lines += writer.lines(body)
    if given is None:
        lines += writer.template(memory.free, f"{label}.free", values)
    # A room is around all of a body, which has braces already.
    return lines if not buffer.tensor else ["{", *indent(lines), "}"]


def _members(writer: Writer, room: Array, body: tuple[Node, ...]) -> list[Array]:
    """The buffers of a room that live where it is opened."""
    here = frozenset(at_home(body))
    return [b for b in writer.program.arrays if b.name in here and b.within == room.name]


def _pointer(writer: Writer, buffer: Array) -> str:
    room = writer.program.array[buffer.within]
    kind, place = C_TYPES[buffer.dtype], writer.names.buffer(room.name)
    elements = (buffer.address_bytes or 0) // DTYPES[room.dtype]
    place = f"{place} + {elements}" if elements else place
    if buffer.dtype != room.dtype:
        place = f"({kind} *)({place})" if elements else f"({kind} *){place}"
    return f"{kind} *{writer.names.buffer(buffer.name)} = {place};"


def _values(writer: Writer, buffer: Array) -> dict[str, object]:
    values: dict[str, object] = {
        "type": C_TYPES[buffer.dtype],
        "name": writer.names.buffer(buffer.name),
        "elements": buffer.elements,
        "bytes": buffer.bytes,
    }
    if buffer.address_bytes is not None:
        values["address_bytes"] = buffer.address_bytes
    return values


def pools(writer: Writer, levels: tuple[Level, ...], body: tuple[Node, ...]) -> list[str]:
    """The arrays that hold all buffers of some memories, for the buffers of a body."""
    owned = [writer.program.array[n.buffer] for n in nodes(body) if isinstance(n, Allocate)]
    lines: list[str] = []
    for memory in writer.hardware.of_kind("workspace"):
        ends = [
            b.address_bytes + b.bytes
            for b in owned
            if b.memory == memory.name and b.address_bytes is not None
        ]
        if memory.shared_by in levels and memory.pool and ends:
            label = f"memories.{memory.name}.pool"
            lines += writer.template(memory.pool, label, {"bytes": max(ends)})
    return lines
