"""Banks and addresses that were set by hand, against what the memory of each buffer has."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class _Room:
    """Of a memory: `banks` that a buffer may be put into, bytes (0: no limit) and of one entry."""

    banks: int
    bytes: int
    entry_bytes: int


def check_places(state: LoopTree, hardware: HardwareSpec) -> None:
    """Every bank and every address is one that its memory has.

    Raises:
        HwgenError: H413.
    """
    for tensor, storage in state.storage.items():
        if storage.bank is None and storage.address is None:
            continue
        room = _room(storage.memory, hardware)
        if room is None:
            continue  # No memory yet.
        if storage.bank is not None and storage.bank >= room.banks:
            raise refuse(
                f"{tensor} cannot be put into bank {storage.bank}",
                f"bank {storage.bank}",
                f"0..{room.banks - 1}" if room.banks else "no bank",
                "another bank" if room.banks else "a memory that has banks (set_scope)",
            )
        address = storage.address
        if address is None:
            continue
        if (room.bytes and address >= room.bytes) or address % room.entry_bytes:
            every = f", every {room.entry_bytes} bytes" if room.entry_bytes > 1 else ""
            end = f" to {room.bytes - room.entry_bytes}" if room.bytes else " or later"
            raise refuse(
                f"{tensor} cannot start there",
                f"byte {address} of {storage.memory}",
                f"byte 0{end}{every}",
                f"address {_nearest(address, room)}",
            )


def _nearest(address: int, room: _Room) -> int:
    """The last byte up to here where a buffer may start."""
    held = min(address, room.bytes - 1) if room.bytes else address
    return held // room.entry_bytes * room.entry_bytes


def _room(memory: str, hardware: HardwareSpec) -> _Room | None:
    machine = hardware.processor
    workspace = machine.workspace.get(memory) if machine is not None else None
    if workspace is not None:
        return _Room(workspace.banks, workspace.capacity_bytes, 1)
    local = next((m for m in hardware.memories if m.name == memory), None)
    if local is None:
        return None
    # Interleaved banks hold parts of every buffer.
    banks = local.banks.count if local.banks is not None and local.banks.ways == 1 else 0
    return _Room(banks, local.capacity_entries * local.entry_bytes, local.entry_bytes)
