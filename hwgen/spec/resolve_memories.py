"""Memories, buses and the fetching of calls, from what a user wrote to data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwgen.spec.context import Context, reference, size_bytes
from hwgen.spec.expression import DTYPES
from hwgen.spec.fields import Model
from hwgen.spec.hardware import Bus, Channel, Fetch, Intrinsic
from hwgen.spec.limits import MAX_EXTENT
from hwgen.spec.memory import Memory
from hwgen.spec.resolve_banks import resolve_banks
from hwgen.spec.schema import (
    ChannelSchema,
    HardwareSchema,
    ReadChannelSchema,
    WriteChannelSchema,
)
from hwgen.spec.source import FieldPath

_FIELDS = {
    "offchip": (
        "bus", "identifiers", "shared", "addressing", "constants_only", "align", "energy",
    ),
    "scratchpad": (
        "dtype", "size", "entry", "identifiers", "banks", "addresses", "declare", "shared_by",
        "energy", "area",
    ),
    "workspace": ("allocate", "free", "pool", "size", "align", "banks", "shared_by"),
}  # fmt: skip
"""What a memory of each kind may say of itself."""
_WORKSPACE_ALIGN = 64
_NEEDED = {"offchip": ("bus",), "scratchpad": ("dtype", "size"), "workspace": ("allocate",)}
_OWN_BANKS = {"scratchpad": ("count", "ports", "interleave"), "workspace": ("count", "bytes")}
_CALLED = {"offchip": "off-chip memory"}
_INSTEAD = {
    "dtype": "remove it: operands and buffers have data types of their own",
    "addressing": "remove it; single elements are addressed where there is no `entry`",
    "allocate": "remove it; `declare` is where a scratchpad has code",
}
"""What to do about a field of another kind, where more can be said than its name."""
_TO_ADD = {
    "size": "add size, as size: 32 KiB",
    "dtype": f"add dtype, one of {', '.join(DTYPES)}",
    "ports": "add ports, as ports: 1",
    "bytes": "add bytes, as bytes: 4",
    "allocate": 'add allocate, as "{{ type }} {{ name }}[{{ elements }}];"',
}
"""What to write for a field that a memory of some kind needs."""


def _check_fields(
    context: Context,
    given: Model,
    path: FieldPath,
    kind: str,
    fields: Mapping[str, Sequence[str]],
    needed: Sequence[str],
    buses: Sequence[str] = (),
) -> None:
    """What is said of a memory, or of its banks, is what one of its kind has (H115)."""
    what = ("banks of " if path[-1] == "banks" else "") + _CALLED.get(kind, f"a {kind}")
    for field, rule in type(given).model_fields.items():
        said = not rule.is_required() and getattr(given, field) != rule.default
        if said and field not in fields[kind]:
            others = [n for n, own in fields.items() if field in own]
            raise context.error(
                "H115", f"{what} has no field {field!r}", (*path, field), key=True, found=field,
                allowed=", ".join(fields[kind]),
                repair=_INSTEAD.get(field, f"remove it, or write kind: {' or '.join(others)}"),
            )  # fmt: skip
    for field in needed:
        if getattr(given, field) in (None, ""):
            add = f"add bus: {' or '.join(buses) or 'NAME, and declare it under `buses`'}"
            raise context.error(
                "H115", f"{path[1]!r} needs the field {field!r}, as {what}", path, key=True,
                found=f"no {field}", allowed=", ".join(fields[kind]),
                repair=_TO_ADD.get(field, add),
            )  # fmt: skip


def resolve_memory(context: Context, schema: HardwareSchema, name: str) -> Memory:
    """A memory of any kind; `checks.py` then looks across.

    Raises:
        HwgenError: H02x expressions, H109 and H114 sizes, H113 names, H115 fields, H132 an
            alignment.
    """
    memory, path = schema.memories[name], ("memories", name)
    kind = memory.kind
    _check_fields(context, memory, path, kind, _FIELDS, _NEEDED[kind], list(schema.buses))
    if memory.bus is not None:
        reference(context, (*path, "bus"), "bus", memory.bus, schema.buses)
    entry = tuple(context.integer(e, (*path, "entry", i), 1) for i, e in enumerate(memory.entry))
    align = _WORKSPACE_ALIGN if kind == "workspace" else 1
    if memory.align is not None:
        align = context.integer(memory.align, (*path, "align"), 1, MAX_EXTENT)
    if align & (align - 1):
        raise context.error(
            "H132", "an alignment is a power of two", (*path, "align"), found=str(align),
            allowed="1, 2, 4, 8, ...", repair=f"write {1 << align.bit_length()}",
        )  # fmt: skip
    energy = memory.energy
    read, write = (
        (0.0, 0.0)
        if energy is None
        else (
            context.rate(energy.read, (*path, "energy", "read")),
            context.rate(energy.write, (*path, "energy", "write")),
        )
    )
    made = Memory(
        name, kind, context.document.locate(path, key=True), memory.dtype or "", entry,
        bus=memory.bus or "", identifiers=tuple(memory.identifiers.items()),
        constants_only=memory.constants_only, shared=memory.shared,
        by_element=memory.addressing == "elements", literal=memory.addresses == "literal",
        shared_by=memory.shared_by, align_bytes=align, declare=memory.declare,
        allocate=memory.allocate, free=memory.free, pool=memory.pool,
        read_energy=read, write_energy=write,
    )  # fmt: skip
    size = 0 if memory.size is None else size_bytes(context, memory.size, (*path, "size"))
    if size % made.entry_bytes:
        assert memory.size is not None
        raise context.error(
            "H114", f"the size of {name!r} is not a whole number of entries", (*path, "size"),
            found=f"{size} bytes",
            allowed=f"a multiple of {made.entry_bytes} bytes, one entry of {memory.dtype}"
            f"[{', '.join(map(str, entry))}]",
            repair=_whole_size(memory.size, size, made.entry_bytes),
        )  # fmt: skip
    area = 0.0
    if memory.area is not None:
        sized = replace(context, values={**context.values, "bytes": size})
        area = sized.rate(memory.area, (*path, "area"))
    made = replace(made, capacity_entries=size // made.entry_bytes, area=area)
    if memory.banks is None:
        return made
    needed = _OWN_BANKS[kind][1:2]
    _check_fields(context, memory.banks, (*path, "banks"), kind, _OWN_BANKS, needed)
    return replace(made, banks=resolve_banks(context, made, memory.banks))


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
    behind = {n for n, m in schema.memories.items() if m.bus == bus}
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
            isinstance(fields, ReadChannelSchema) and fields.last_beat_blocks_request,
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
