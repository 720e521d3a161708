"""Random memories: how much they hold, where in them calls reach, and what leads to them."""

from __future__ import annotations

import re
from math import prod

from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.verify.natural.draws import Pick, Spec

ENTRIES = (64, 256, 16, 8, 6, 4, 3, 2, 1)
"""Entries of a memory that is made smaller, where one entry is several elements."""
ELEMENTS = (4096, 1024, 333, 256, 100, 64, 31)
"""Elements of a memory that is made smaller, where single elements are addressed."""


def draw_sizes(spec: Spec, pick: Pick, hardware: HardwareSpec) -> dict[str, int]:
    """A few entries only, in one memory or in several; entries by memory, of all on the chip.

    `hardware`: the chip as it is until now.
    """
    held = hardware.of_kind("scratchpad")
    entries = {m.name: m.capacity_entries for m in held}
    for memory in held:
        if pick.chance(2):
            count = pick(ENTRIES if memory.entry_shape else ELEMENTS)
            width = DTYPES[memory.dtype] * prod(memory.entry_shape)
            spec["memories"][memory.name]["size"] = f"{count} * {width}"
            entries[memory.name] = count
    return entries


def sizes_in_entries(spec: Spec, hardware: HardwareSpec) -> None:
    """Memories that hold as many entries as they do, however large a parameter makes these."""
    for memory in hardware.of_kind("scratchpad"):
        given = spec["memories"][memory.name]
        factors = (memory.capacity_entries, DTYPES[memory.dtype], *given.get("entry", []))
        given["size"] = " * ".join(f"({factor})" for factor in factors)


def draw_addresses(spec: Spec, pick: Pick, entries: dict[str, int]) -> None:
    """Fields of some operands that reach a part of their memory only: its beginning, its middle or
    its end, or every so many entries."""
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            count = entries.get(operand["memory"], 0)
            if not count or not pick.chance(3):
                continue
            if pick.chance(4):
                operand["address"] = f"0..{count - 1} step {pick((2, 4, 3, 16))}"
                continue
            low, high = pick(
                ((0, count), (0, count // 2), (count // 2, count), (count // 3, count), (1, count))
            )
            if low < high:
                operand["address"] = f"{low}..{high - 1}"


def without_addresses(spec: Spec) -> None:
    """No fields that a smaller memory, or one of other entries, would contradict."""
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if spec["memories"].get(operand["memory"], {}).get("kind") == "scratchpad":
                operand.pop("address", None)


def draw_buses(spec: Spec, pick: Pick) -> None:
    """Narrow and wide buses, short and long bursts, much and little in flight, posted writes,
    last beats that block requests."""
    for bus in spec["buses"].values():
        bus["beat_bytes"] = pick((8, 1, 2, 4, 32))
        bus["burst"] = {"beats": pick((16, 1, 3, 4)), "boundary_bytes": pick((128, 32, 4096, 96))}
        for channel in (bus["read"], bus["write"]):
            channel["in_flight_bursts"] = pick((1, 2, 16))
            channel["latency_cycles"] = pick((20, 0, 1, 300))
            if pick.chance(4):
                channel["cycles_per_entry"] = pick((0, 1, 3))
            if pick.chance(4):
                channel["request_cycles"] = pick((2, 1, 5))
        bus["read"]["last_beat_blocks_request"] = bus["read"].get("request_cycles", 1) == 2
        if pick.chance(3):
            bus["write"]["posted_bursts"] = pick((4, 1, 16))
        bus.pop("priority", None)
        if pick.chance(2):
            bus["priority"] = _priority(spec, pick, bus)


def _priority(spec: Spec, pick: Pick, bus: Spec) -> list[str]:
    """Who reads over a bus, in some order."""
    (name,) = [n for n, b in spec["buses"].items() if b is bus]
    behind = {n for n, m in spec["memories"].items() if m.get("bus") == name}
    readers = [k["load"]["name"] for k in spec.get("micro_kernels", {}).values()
               if k["bus"] == name]  # fmt: skip
    for intrinsic, fields in spec["intrinsics"].items():
        written = re.match(r"\w+", str(fields["semantics"]))
        # What an intrinsic only writes is not read; none of the drawn ones updates off the chip.
        for operand, where in fields["operands"].items():
            if where["memory"] in behind and (written is None or operand != written[0]):
                readers.append(intrinsic)
    if spec.get("fetch", {}).get("bus") == name:
        readers.append("fetch")
    ordered: list[str] = []
    while readers:
        ordered.append(pick(readers))
        readers.remove(ordered[-1])
    return ordered


def draw_side_bus(spec: Spec, pick: Pick) -> None:
    """Calls, or micro-operations, come over a bus of their own."""
    users = [spec["fetch"]] if "fetch" in spec else []
    users += spec.get("micro_kernels", {}).values()
    if users:
        side = {k: v for k, v in next(iter(spec["buses"].values())).items() if k != "priority"}
        spec["buses"]["beside"] = side
        pick(users)["bus"] = "beside"
        for bus in spec["buses"].values():
            bus.pop("priority", None)
