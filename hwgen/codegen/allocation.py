"""Fixed addresses for every buffer, memory by memory.

A buffer lives from the first to the last phase that touches it; those of one phase live through
its whole body. Buffers alive together are disjoint. Larger ones are placed first, each at the
lowest address where no earlier one is in its way: exact for one phase, where all are alive at once,
and first fit by decreasing size for several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwgen.codegen.layout import BufferLayout
from hwgen.codegen.program import Buffer
from hwgen.errors import HwgenError
from hwgen.polyhedral.operations import Selection
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

    def __str__(self) -> str:
        return "\n".join(
            f"{b.memory}[{b.base}:{b.base + b.entries}] {b.name}: {b.slots} x {b.slot_entries}"
            for b in self.buffers
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A buffer to be placed, alive from phase `first` to phase `last`."""

    name: str
    tensor: str
    layout: BufferLayout
    first: int
    last: int

    @property
    def entries(self) -> int:
        return self.layout.slots * self.layout.slot_entries


def allocate(
    hardware: HardwareSpec,
    phases: Sequence[tuple[Selection, Mapping[str, BufferLayout]]],
) -> Allocation:
    """Place every buffer of a kernel's phases.

    Raises:
        HwgenError: H502 where the buffers of one memory do not fit it, H503 where two phases keep
            one tensor in different layouts.
    """
    wanted: dict[str, _Wanted] = {}
    names: list[dict[str, str]] = []
    for number, (selection, layouts) in enumerate(phases):
        mine: dict[str, str] = {}
        for storage in layouts:
            name = _name(selection, storage, number, len(phases) > 1)
            mine[storage] = name
            tensor = selection.storage(storage).tensor
            layout = layouts[storage]
            known = wanted.setdefault(name, _Wanted(name, tensor, layout, number, number))
            _check_same(known.layout, layout, tensor)
            wanted[name] = _Wanted(name, tensor, known.layout, known.first, number)
        names.append(mine)
    buffers: list[Buffer] = []
    for memory in hardware.memories:
        if memory.kind != "offchip":
            usable = min(s.addressable(hardware, memory.name) for s, _ in phases)
            inside = [w for w in wanted.values() if w.layout.memory == memory.name]
            buffers += _place(memory, usable, inside)
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
            found=f"{a.text} and {b.text}",
            allowed="one layout for a tensor that stays on the chip between two phases",
            repair="a memory that addresses single elements, or a workload for each phase",
        )


def _place(memory: Memory, usable: int, wanted: Sequence[_Wanted]) -> Iterator[Buffer]:
    placed: list[tuple[_Wanted, int]] = []
    for w in sorted(wanted, key=lambda w: (-w.entries, w.name)):
        others = [
            (base, base + o.entries)
            for o, base in placed
            if o.first <= w.last and w.first <= o.last
        ]
        base = 0
        for low, high in sorted(others):
            if base + w.entries <= low:
                break
            base = max(base, high)
        placed.append((w, base))
    top = max((base + w.entries for w, base in placed), default=0)
    if top > usable:
        alive = ", ".join(f"{w.name} {w.layout.slots} x {w.layout.slot_entries}" for w in wanted)
        raise HwgenError(
            "H502",
            f"buffers exceed memory {memory.name}",
            field=f"memories.{memory.name}",
            found=f"{top} entries of {memory.entry_bytes} bytes: {alive}",
            allowed=f"{usable} entries",
            repair="choose smaller tiles or fewer slots",
        )
    for w, base in placed:
        yield Buffer(
            w.name,
            memory.name,
            w.tensor,
            base,
            w.layout.slots,
            w.layout.slot_entries,
            w.layout.text,
        )
