"""Fixed addresses for every buffer, memory by memory.

A buffer lives from the first to the last phase that touches it; those of one phase live through
its whole body. It lies where all calls of the phases that touch it can address. Buffers alive
together are disjoint. Those with the least choice are placed first, then larger ones, each at the
lowest address where no earlier one is in its way: exact for one phase, where all are alive at once,
and first fit by decreasing size for several. In a memory of several banks, `placement.py` chooses
banks too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.overlap import Slot, overlaps
from hwgen.codegen.placement import Wanted, by_bank, first_fit
from hwgen.codegen.program import Buffer
from hwgen.errors import HwgenError
from hwgen.polyhedral.capacity import Alive, buffers_exceed
from hwgen.polyhedral.operations import Selection
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec, Memory


@dataclass(frozen=True, slots=True)
class Allocation:
    """Buffers with their base addresses. `names`: per phase, the buffer of each storage."""

    buffers: tuple[Buffer, ...]
    names: tuple[Mapping[str, str], ...]

    def buffer(self, storage: str, phase: int = 0) -> str:
        """The buffer that a phase's storage lives in."""
        return self.names[phase][storage]

    def base(self, storage: str, phase: int = 0) -> int:
        """The first entry of that buffer."""
        name = self.buffer(storage, phase)
        return next(b.base for b in self.buffers if b.name == name)

    def stride(self, storage: str, phase: int = 0) -> int:
        """Entries from one slot of that buffer to the next."""
        name = self.buffer(storage, phase)
        return next(b.stride for b in self.buffers if b.name == name)

    def __str__(self) -> str:
        return "\n".join(f"{b.place} {b.name}: {b.slots} x {b.slot_entries}" for b in self.buffers)


def allocate(
    hardware: HardwareSpec,
    phases: Sequence[tuple[Tiling, Mapping[str, BufferLayout]]],
) -> Allocation:
    """Place every buffer of a kernel's phases.

    Raises:
        HwgenError: H502 where the buffers of one memory do not fit it, H503 where two phases keep
            one tensor in different layouts.
    """
    wanted: dict[str, Wanted] = {}
    names: list[dict[str, str]] = []
    for number, (tiling, layouts) in enumerate(phases):
        selection = tiling.match.selection
        mine: dict[str, str] = {}
        for storage in layouts:
            name = _name(selection, storage, number, len(phases) > 1)
            mine[storage] = name
            tensor = selection.storage(storage).tensor
            layout = layouts[storage]
            reach = selection.addressable(hardware, layout.memory)
            known = wanted.setdefault(name, Wanted(name, tensor, layout, number, number, reach))
            _check_same(known.layout, layout, tensor)
            usable = range(max(reach.start, known.usable.start), min(reach.stop, known.usable.stop))
            wanted[name] = replace(known, last=number, usable=usable)
        names.append(mine)
    buffers: list[Buffer] = []
    for memory in hardware.memories:
        if memory.kind != "offchip":
            inside = [w for w in wanted.values() if w.layout.memory == memory.name]
            together: dict[tuple[Slot, Slot], float] = {}
            if memory.banks is not None and memory.banks.count > 1:
                for (tiling, _), mine in zip(phases, names, strict=True):
                    together |= overlaps(hardware, memory.name, tiling, mine)
            buffers += place_in(memory, inside, together)
    return Allocation(tuple(buffers), tuple(names))


def _name(selection: Selection, storage: str, phase: int, several: bool) -> str:
    """Shared tensors have one buffer for all phases; others one of their phase."""
    held = selection.storage(storage)
    if held.shape:
        return f"{held.tensor}_kept_{held.memory}"
    return f"p{phase}_{storage}" if several else storage


def _check_same(a: BufferLayout, b: BufferLayout, tensor: str) -> None:
    """One buffer, one layout: element for element, lanes included."""
    if (a.text, a.slot_entries) != (b.text, b.slot_entries):
        raise HwgenError(
            "H503",
            f"two phases keep {tensor} in different layouts",
            field=f"tensors.{tensor}",
            found=f"{a.text} and {b.text}",
            allowed="one layout for a tensor that stays on the chip between two phases",
            repair="a memory that addresses single elements, or a workload for each phase",
        )


def _alive(wanted: Wanted) -> Alive:
    layout = wanted.layout
    return Alive(wanted.name, layout.memory, layout.slots, layout.slot_entries)


def place_in(
    memory: Memory,
    wanted: Sequence[Wanted],
    overlapping: Mapping[tuple[Slot, Slot], float],
) -> Iterator[Buffer]:
    """The buffers of one memory at their addresses.

    Raises:
        HwgenError: H502 where they do not fit.
    """
    if memory.banks is None or memory.banks.count == 1:
        placed = first_fit(wanted)
    else:
        placed = by_bank(memory.banks, wanted, overlapping)
    if any(p.exceeds for p in placed):
        worst, *others = sorted(placed, key=lambda p: -p.exceeds)
        alive = [
            (_alive(p.wanted), p.wanted.first, p.wanted.last, p.base) for p in (worst, *others)
        ]
        raise buffers_exceed(memory, worst.wanted.usable, alive)
    for p in placed:
        w, banks = p.wanted, memory.banks
        yield Buffer(
            w.name,
            memory.name,
            w.tensor,
            p.base,
            w.layout.slots,
            w.layout.slot_entries,
            w.layout.text,
            p.stride,
            tuple(r.start for r in p.banks(banks)) if banks is not None and banks.ways == 1 else (),
        )
