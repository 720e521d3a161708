"""Memories, buses and the fetching of calls, from what a user wrote to data."""

from __future__ import annotations

from dataclasses import replace

from hwgen.spec.context import Context, reference, size_bytes
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import Bus, Channel, Fetch, Intrinsic, Memory
from hwgen.spec.resolve_banks import resolve_banks
from hwgen.spec.schema import ChannelSchema, HardwareSchema, MemorySchema, WriteChannelSchema
from hwgen.spec.source import FieldPath


def resolve_memory(context: Context, schema: HardwareSchema, name: str) -> Memory:
    memory = schema.memories[name]
    assert isinstance(memory, MemorySchema), "workspaces are the processor's"
    path: FieldPath = ("memories", name)
    location = context.document.locate(path, key=True)
    identifiers = tuple(memory.identifiers.items())
    if memory.kind == "offchip":
        for field, value in (
            ("dtype", memory.dtype),
            ("size", memory.size),
            ("entry", memory.entry),
            ("banks", memory.banks),
            ("addresses", memory.addresses != "computed"),
            ("declare", memory.declare),
            ("shared_by", memory.shared_by != "kernel"),
        ):
            if value:
                raise context.error(
                    "H115", f"off-chip memory has no {field} of its own", (*path, field), key=True,
                    found=field, allowed="bus, identifiers",
                    repair="remove it: operands state their data type"
                    if field == "dtype" else "remove it",
                )  # fmt: skip
        if memory.bus is None:
            raise context.error(
                "H115", f"off-chip memory {name!r} needs a bus", path, key=True, found="no bus",
                allowed=", ".join(schema.buses) or "declare one under `buses`",
            )  # fmt: skip
        reference(context, (*path, "bus"), "bus", memory.bus, schema.buses)
        return Memory(
            name, "offchip", location, bus=memory.bus, identifiers=identifiers,
            constants_only=memory.constants_only, shared=memory.shared,
            by_element=memory.addressing == "elements",
        )  # fmt: skip
    if memory.addressing != "entries":
        raise context.error(
            "H115", "a scratchpad's `entry` says what its addresses count", (*path, "addressing"),
            key=True, found=f"addressing: {memory.addressing}",
            repair="remove it; single elements are addressed where there is no `entry`",
        )  # fmt: skip
    if memory.shared:
        raise context.error(
            "H115", "only off-chip memory is shared with the host", (*path, "shared"), key=True,
            found="shared: true", repair="remove it, or write kind: offchip",
        )  # fmt: skip
    if memory.constants_only:
        raise context.error(
            "H115", "only off-chip memory is for constants alone", (*path, "constants_only"),
            key=True, found="constants_only: true", repair="remove it, or write kind: offchip",
        )  # fmt: skip
    if memory.bus is not None:
        raise context.error(
            "H115", "only off-chip memory is on a bus", (*path, "bus"), key=True, found=memory.bus,
            allowed="dtype, entry, size, identifiers, banks",
            repair="remove bus, or write kind: offchip",
        )  # fmt: skip
    literal = memory.addresses == "literal"
    if memory.dtype is None or memory.size is None:
        missing = "dtype" if memory.dtype is None else "size"
        raise context.error(
            "H114", f"scratchpad {name!r} needs a {missing}", path, key=True,
            found=f"no {missing}", repair="add size, as size: 32 KiB"
            if missing == "size"
            else f"add dtype, one of {', '.join(DTYPES)}",
        )  # fmt: skip
    entry = tuple(context.integer(e, (*path, "entry", i), 1) for i, e in enumerate(memory.entry))
    size = size_bytes(context, memory.size, (*path, "size"))
    result = Memory(name, "scratchpad", location, memory.dtype, entry, 0, "", identifiers)
    if size % result.entry_bytes:
        raise context.error(
            "H114", f"the size of {name!r} is not a whole number of entries", (*path, "size"),
            found=f"{size} bytes",
            allowed=f"a multiple of {result.entry_bytes} bytes, one entry of {memory.dtype}"
            f"[{', '.join(map(str, entry))}]",
            repair=_whole_size(memory.size, size, result.entry_bytes),
        )  # fmt: skip
    capacity = size // result.entry_bytes
    banks = resolve_banks(context, name, memory.banks, capacity) if memory.banks else None
    return replace(
        result, capacity_entries=capacity, banks=banks, literal=literal, declare=memory.declare,
        shared_by=memory.shared_by,
    )  # fmt: skip


def _whole_size(text: int | str, size: int, entry: int) -> str:
    """A size of whole entries near to one that is not; of a bare number, what it may have meant."""
    if isinstance(text, int) and (size << 10) % entry == 0:
        return f"write {text} KiB, if that is meant: a number alone counts bytes"
    below = size // entry * entry
    if not below:
        return f"a smaller entry, or at least {entry} B"
    return f"write {below} B or {below + entry} B"


def bus_readers(bus: str, schema: HardwareSchema, intrinsics: tuple[Intrinsic, ...]) -> list[str]:
    """Who may read over a bus: `fetch`, then micro-kernel loads, then intrinsics in order."""
    loads = [k.load.name for k in schema.micro_kernels.values() if k.bus == bus]
    behind = {n for n, m in schema.memories.items() if isinstance(m, MemorySchema) and m.bus == bus}
    readers = [
        i.name
        for i in intrinsics
        if any(o.memory in behind and o.access != "write" for o in i.operands)
    ]
    return ["fetch", *loads, *readers]


def resolve_bus(context: Context, schema: HardwareSchema, name: str, readers: list[str]) -> Bus:
    bus = schema.buses[name]
    path: FieldPath = ("buses", name)

    def channel(direction: str, fields: ChannelSchema) -> Channel:
        where = (*path, direction)
        return Channel(
            context.integer(fields.latency_cycles, (*where, "latency_cycles"), 0),
            context.integer(fields.in_flight_bursts, (*where, "in_flight_bursts"), 1),
            context.integer(fields.cycles_per_entry, (*where, "cycles_per_entry"), 0),
            context.integer(fields.request_cycles, (*where, "request_cycles"), 1),
            context.integer(fields.posted_bursts, (*where, "posted_bursts"), 0)
            if isinstance(fields, WriteChannelSchema)
            else 0,
        )

    beat = context.integer(bus.beat_bytes, (*path, "beat_bytes"), 1)
    boundary = context.integer(bus.burst.boundary_bytes, (*path, "burst", "boundary_bytes"), 1)
    if boundary % beat:
        raise context.error(
            "H114", "a burst's boundary is not a whole number of beats",
            (*path, "burst", "boundary_bytes"), found=f"{boundary} bytes",
            allowed=f"a multiple of {beat} bytes, one beat",
        )  # fmt: skip
    return Bus(
        name=name,
        beat_bytes=beat,
        burst_beats=context.integer(bus.burst.beats, (*path, "burst", "beats"), 1),
        burst_boundary_bytes=boundary,
        read=channel("read", bus.read),
        write=channel("write", bus.write),
        priority=tuple(bus.priority or readers),
    )


def resolve_fetch(context: Context, schema: HardwareSchema) -> Fetch | None:
    fetch = schema.fetch
    if fetch is None:
        return None
    reference(context, ("fetch", "bus"), "bus", fetch.bus, schema.buses)
    return Fetch(
        fetch.bus,
        context.integer(fetch.first_cycles, ("fetch", "first_cycles"), 0),
        context.integer(fetch.group_calls, ("fetch", "group_calls"), 1),
        context.integer(fetch.group_cycles, ("fetch", "group_cycles"), 0),
        context.integer(fetch.call_bytes, ("fetch", "call_bytes"), 1),
    )
