"""Banks and addresses that were set by hand, against what the memory of each buffer has."""

from __future__ import annotations

from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory


def check_places(state: LoopTree, hardware: HardwareSpec) -> None:
    """Every bank and every address is one that its memory has.

    Raises:
        HwgenError: H413.
    """
    for tensor, storage in state.storage.items():
        if storage.bank is None and storage.address is None:
            continue
        memory = hardware.memory.get(storage.memory)
        if memory is None:
            continue  # No memory yet.
        banks = _banks(memory)
        if storage.bank is not None and storage.bank >= banks:
            raise refuse(
                f"{tensor} cannot be put into bank {storage.bank}",
                f"bank {storage.bank}",
                f"0..{banks - 1}" if banks else "no bank",
                "another bank" if banks else "a memory that has banks (set_scope)",
            )
        address = storage.address
        if address is None:
            continue
        size, step = memory.capacity_bytes, memory.entry_bytes
        if (size and address >= size) or address % step:
            every = f", every {step} bytes" if step > 1 else ""
            end = f" to {size - step}" if size else " or later"
            raise refuse(
                f"{tensor} cannot start there",
                f"byte {address} of {storage.memory}",
                f"byte 0{end}{every}",
                f"address {_nearest(address, memory)}",
            )


def _nearest(address: int, memory: Memory) -> int:
    """The last byte up to here where a buffer may start."""
    held = min(address, memory.capacity_bytes - 1) if memory.capacity_bytes else address
    return held // memory.entry_bytes * memory.entry_bytes


def _banks(memory: Memory) -> int:
    """How many banks a buffer may be put into. A workspace's are where it starts; interleaved ones
    of a scratchpad hold parts of every buffer."""
    if memory.banks is None:
        return 0
    if memory.kind == "workspace":
        return memory.banks.ways
    return memory.banks.count if memory.banks.ways == 1 else 0
