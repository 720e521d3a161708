"""The functions of a kernel's emitted C, and the arrays that they take: as it is called with what
its workload has, and with constants that are packed, and what they decide computed, before."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from hwgen.model.numeric import STORAGE
from hwgen.passes.kernel import Kernel

MALLOC_ALIGNS = 16
"""Bytes of which packed constants begin at a multiple: what callers must give, by the header."""


@dataclass(frozen=True)
class Room:
    """An array: its shape, NumPy's name of its type, and the bytes of which it begins at a
    multiple."""

    shape: tuple[int, ...]
    dtype: str
    align: int = 1

    @property
    def bytes(self) -> int:
        """Of all elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * STORAGE[self.dtype].itemsize


@dataclass(frozen=True)
class Call:
    """A function and its arguments by name. `status`: whether it returns one, which must be 0."""

    function: str
    arguments: tuple[str, ...]
    status: bool = True


@dataclass(frozen=True)
class NativeCalls:
    """`plain`: the kernel on the workload's arrays; `packed`: the same after `before`, which packs
    constants; None where there are none."""

    rooms: Mapping[str, Room]
    plain: Call
    before: tuple[Call, ...]
    packed: Call | None


def native_calls(kernel: Kernel, library: ctypes.CDLL) -> NativeCalls:
    """The functions of a kernel for units of this machine, or for a processor."""
    source = kernel.source
    name = source.function
    rooms = {p.name: Room(p.shape, p.dtype, p.align) for p in (*source.inputs, *source.outputs)}
    outputs = tuple(p.name for p in source.outputs)
    plain = Call(name, (*(p.name for p in source.inputs), *outputs), bool(source.model))
    before: list[Call] = []
    taken: list[str] = []

    def pack(tensor: str) -> None:
        size = library[f"{name}_packed_bytes_{tensor}"]
        size.restype = ctypes.c_size_t
        blob = f"{tensor}, packed"
        rooms[blob] = Room((size(),), "uint8", MALLOC_ALIGNS)
        before.append(Call(f"{name}_pack_{tensor}", (tensor, blob), status=False))
        taken.append(blob)

    for p in source.inputs:
        if p.in_place or not p.packed:
            taken.append(p.name)
        if p.packed:
            pack(p.name)
    once = next((c for c in kernel.program.codes if c.once), None)
    if once is not None:
        tensors = kernel.program.tensors(kernel.workload)
        for made in once.outputs:
            rooms[made] = Room(tensors[made].shape, tensors[made].dtype, MALLOC_ALIGNS)
        arguments = (*once.inputs, *once.outputs)
        before.append(Call(f"{name}_derive", arguments, status=False))
        for made in once.outputs:
            if hasattr(library, f"{name}_pack_{made}"):
                pack(made)
            else:
                taken.append(made)
    if before:
        declared = source.header.partition(f" {name}_prepacked(")[2].partition(")")[0]
        assert declared.count(",") + 1 == len(taken) + len(outputs), declared
    packed = Call(f"{name}_prepacked", (*taken, *outputs)) if before else None
    return NativeCalls(rooms, plain, tuple(before), packed)
