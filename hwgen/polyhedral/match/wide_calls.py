"""Calls in the place of selected ones: that add where these set, move several entries, or read off
chip what these read from a buffer."""

from __future__ import annotations

from hwgen.polyhedral.match.operations import Operation, Selection
from hwgen.polyhedral.semantics import copies
from hwgen.spec.expression import Access
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand


def adding_store(hardware: HardwareSpec, store: Operation) -> Intrinsic | None:
    """The intrinsic that adds to memory what a plain copy stores there, lane by lane."""
    like = store.intrinsic
    if not copies(like):
        return None
    found = [
        i
        for i in hardware.intrinsics
        if len(i.semantics) == 1
        and i.semantics[0].op == "+="
        and isinstance(i.semantics[0].value, Access)
        and _moved(i) == _moved(like)
    ]
    return min(found, key=lambda i: i.name, default=None)


def wider_copy(hardware: HardwareSpec, load: Operation) -> Intrinsic | None:
    """The intrinsic that copies up to the most entries in a row where a load copies one by one;
    any number of them up to that."""
    like = load.intrinsic
    if not copies(like) or like.iterators:
        return None
    found: list[tuple[int, Intrinsic]] = []
    for intrinsic in hardware.intrinsics:
        if not copies(intrinsic) or len(intrinsic.iterators) != 1:
            continue
        ((lane, extent),) = intrinsic.iterators
        same = [(o.memory, o.dtype) for o in _ends(intrinsic)]
        along = all(o.indices == (lane,) for o in _ends(intrinsic)) and lane in intrinsic.partial
        if along and same == [(o.memory, o.dtype) for o in _ends(like)]:
            found.append((extent, intrinsic))
    return min(found, key=lambda x: (-x[0], x[1].name), default=(0, None))[1]


def reading_in_place(
    hardware: HardwareSpec, selection: Selection, storage: str
) -> tuple[Operation, Intrinsic] | None:
    """The only operation that reads what is loaded into a storage, and the intrinsic that does the
    same with that operand where it lies off chip; of several, the first by name. What the chip's
    own calls have written lies as these write it, not as such a call would read it."""
    if selection.storage(storage).tensor in selection.fetches:
        return None
    loads = [o for o in selection.operations if o.kind == "load" and o.written == storage]
    readers = [o for o in selection.operations if storage in o.storages and o not in loads]
    if len(loads) != 1 or len(readers) != 1 or not copies(loads[0].intrinsic):
        return None
    ((reader,), (_, source)) = readers, _ends(loads[0].intrinsic)
    operands = dict(zip(reader.intrinsic.operands, reader.storages, strict=True))
    read = [o for o, held in operands.items() if held == storage]
    if reader.kind != "update" or reader.first is not None or len(read) != 1:
        return None
    (taken,) = read
    if taken.access != "read" or taken.dtype != source.dtype:
        return None

    def like(intrinsic: Intrinsic) -> object:
        held = [
            (o.name, o.shape, o.indices, o.access, o.dtype)
            + ((source.memory,) if o.name == taken.name else (o.memory,))
            for o in intrinsic.operands
        ]
        same = (intrinsic.unit, intrinsic.iterators, intrinsic.semantics, intrinsic.partial)
        return *same, intrinsic.loops, intrinsic.immediates, held

    found = [
        i
        for i in hardware.intrinsics
        if like(i) == like(reader.intrinsic)
        and [o.memory for o in i.operands if o.name == taken.name] == [source.memory]
    ]
    best = min(found, key=lambda i: i.name, default=None)
    return None if best is None else (reader, best)


def _ends(copy: Intrinsic) -> tuple[Operand, Operand]:
    """Where a copy writes, and what it reads."""
    only = copy.semantics[0]
    assert isinstance(only.value, Access)
    return copy.operand(only.target.tensor), copy.operand(only.value.tensor)


def _moved(copy: Intrinsic) -> object:
    """What copies have in common that move the same lanes between the same memories."""
    return copy.iterators, tuple((o.memory, o.dtype, o.shape) for o in _ends(copy))
