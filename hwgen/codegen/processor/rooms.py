"""Rooms: buffers of one memory that are never live together share bytes.

What is freed comes from an allocator: its bytes hold any type, so that one allocation holds all
buffers of a kernel, or of each iteration of a loop whose iterations run at once. Otherwise buffers
are declared arrays: those of one type in one loop's body share an array where that saves some.
Memories with a pool have addresses already (`pools.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from hwgen.codegen.nodes import Allocate, Launch, Loop, Node, with_inner
from hwgen.codegen.processor.lives import Life, fitted, lives
from hwgen.codegen.processor.pools import chains, exceeded
from hwgen.codegen.storages import Array
from hwgen.polyhedral.tree.build import unique
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory

Buffers = dict[str, Array]


def share(
    body: tuple[Node, ...], buffers: Mapping[str, Array], hardware: HardwareSpec
) -> tuple[tuple[Node, ...], Buffers]:
    """The program with rooms, and all buffers.

    Raises:
        HwgenError: H513 buffers alive together exceed their memory.
    """
    result = dict(buffers)
    live = lives(body, hardware.machine)
    rooms: dict[int, list[str]] = {}
    for memory in hardware.of_kind("workspace"):
        if memory.pool:
            continue
        for group in _groups(live, result, memory):
            if room := _room(group, live, result, memory, body):
                rooms.setdefault(group.around, []).append(room)
    opened = _opened(body, rooms)
    for memory in hardware.of_kind("workspace"):
        if not memory.pool and memory.capacity_bytes:
            _check_capacity(opened, result, live, memory)
    return opened, result


@dataclass(frozen=True, slots=True)
class _Group:
    """Buffers that one room may hold. `around`: the loop whose body it is in, by its number."""

    around: int
    dtype: str
    names: tuple[str, ...]


def _groups(live: Mapping[str, Life], buffers: Buffers, memory: Memory) -> list[_Group]:
    found: dict[tuple[int, str], list[str]] = {}
    for name, life in live.items():
        if buffers[name].memory == memory.name:
            typed = life.around[-1], buffers[name].dtype
            found.setdefault((life.root, "uint8") if memory.free else typed, []).append(name)
    return [_Group(around, dtype, tuple(names)) for (around, dtype), names in found.items()]


def _room(
    group: _Group,
    live: Mapping[str, Life],
    buffers: Buffers,
    memory: Memory,
    body: tuple[Node, ...],
) -> str:
    """The name of a new room, with its members in their places; "" where none is needed."""
    align = max(memory.align_bytes, *(DTYPES[buffers[n].dtype] for n in group.names))
    sizes = {n: buffers[n].bytes for n in group.names}
    orders = sorted(sizes, key=lambda n: -sizes[n]), sorted(sizes, key=lambda n: live[n].first)
    places = fitted(orders, sizes, live, lambda _, least: _up(least, align))
    total = max(places[n] + sizes[n] for n in group.names)
    if memory.free:
        repeats = any(live[n].around[-1] != group.around for n in group.names)
        needed = len(group.names) > 1 or repeats
    else:
        own = ([n for n in chain if n in sizes] for chain in chains(body))
        needed = _up(total, align) < max(sum(_up(sizes[n], align) for n in chain) for chain in own)
    if not needed:
        return ""
    room = unique(f"{memory.name}_workspace", buffers)
    elements = -(-total // DTYPES[group.dtype])
    buffers[room] = Array(
        room, "", group.dtype, "intermediate", memory.name, (elements,), (1,)
    )  # fmt: skip
    for name, address in places.items():
        buffers[name] = replace(buffers[name], within=room, address_bytes=address)
    return room


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


def _opened(body: tuple[Node, ...], rooms: Mapping[int, list[str]]) -> tuple[Node, ...]:
    """The nodes with each room around the body that it serves; nodes are numbered as in `lives`."""
    number = 0

    def rebuilt(nodes: tuple[Node, ...], own: int) -> tuple[Node, ...]:
        nonlocal number
        result: list[Node] = []
        for node in nodes:
            number += 1
            place = number if isinstance(node, Loop | Launch) else -1
            result.append(with_inner(node, partial(rebuilt, own=place)))
        inside = tuple(result)
        for room in reversed(rooms.get(own, ())):
            inside = (Allocate(room, inside),)
        return inside

    return rebuilt(body, 0)


def _check_capacity(
    body: tuple[Node, ...], buffers: Buffers, live: Mapping[str, Life], memory: Memory
) -> None:
    """Arrays whose scopes are inside one another are there together."""

    def used(chain: tuple[str, ...]) -> int:
        return sum(_up(buffers[n].bytes, memory.align_bytes) for n in chain)

    def own(chain: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(n for n in chain if buffers[n].memory == memory.name and not buffers[n].within)

    most = max(map(own, chains(body)), key=lambda chain: (used(chain), len(chain)), default=())
    if used(most) <= memory.capacity_bytes:
        return
    held: list[str] = []
    for name in most:
        members = [n for n, b in buffers.items() if b.within == name]
        held += fullest(members, live, buffers) if members else [name]
    raise exceeded(memory, used(most), [buffers[n] for n in held])


def fullest(names: list[str], live: Mapping[str, Life], buffers: Buffers) -> list[str]:
    """Those of some buffers that live together and take the most bytes."""
    moments = ([n for n in names if live[n].meets(live[m]) and live[n].first <= live[m].first]
               for m in names)  # fmt: skip
    return max(moments, key=lambda found: sum(buffers[n].bytes for n in found))
