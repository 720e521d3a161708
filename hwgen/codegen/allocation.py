"""Fixed addresses for every buffer, memory by memory.

All buffers of a fused kernel live through its whole body, so they must be disjoint; placing them
one after the other is then exact. Larger operands come first, which keeps addresses stable when
a small one changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.program import Buffer
from hwgen.errors import HwgenError
from hwgen.polyhedral.selection import Selection
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Allocation:
    """Buffers with their base addresses."""

    buffers: tuple[Buffer, ...]

    def base(self, name: str) -> int:
        return next(b.base for b in self.buffers if b.name == name)

    def __str__(self) -> str:
        return "\n".join(
            f"{b.memory}[{b.base}:{b.base + b.entries}] {b.name}: {b.slots} x {b.slot_entries}"
            for b in self.buffers
        )


def allocate(
    hardware: HardwareSpec, selection: Selection, layouts: Mapping[str, BufferLayout]
) -> Allocation:
    """Place every buffer.

    Raises:
        HwgenError: H502 where the buffers of one memory do not fit it.
    """
    buffers: list[Buffer] = []
    for memory in hardware.memories:
        if memory.kind == "offchip":
            continue
        mine = [x for x in layouts.values() if x.memory == memory.name]
        base = 0
        for layout in sorted(mine, key=lambda x: (-x.slots * x.slot_entries, x.storage)):
            tensor = selection.storage(layout.storage).tensor
            buffers.append(
                Buffer(
                    layout.storage,
                    memory.name,
                    tensor,
                    base,
                    layout.slots,
                    layout.slot_entries,
                    layout.text,
                )
            )
            base += layout.slots * layout.slot_entries
        usable = selection.usable_entries(hardware, memory.name)
        if base > usable:
            alive = ", ".join(f"{x.storage} {x.slots} x {x.slot_entries}" for x in mine)
            raise HwgenError(
                "H502",
                f"buffers exceed memory {memory.name}",
                field=f"memories.{memory.name}",
                found=f"{base} entries of {memory.entry_bytes} bytes: {alive}",
                allowed=f"{usable} entries",
                repair="choose smaller tiles or fewer slots",
            )
    return Allocation(tuple(buffers))
