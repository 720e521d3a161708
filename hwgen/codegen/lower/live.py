"""When buffers are alive, and their addresses.

A buffer lives from the first call that touches it to the last, in the order of the text; through
all of a loop that it outlives. Units work ahead of each other, so that what shares room waits: all
buffers have their own where there is enough of it, else those inside different loops share, and
only then those in different parts of one body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwgen.codegen.lower.nests import Leaf, Nest, Piece
from hwgen.codegen.lower.place import Place, Places
from hwgen.codegen.placement import Placed, Slot, Wanted, by_bank, first_fit
from hwgen.codegen.storages import Buffer
from hwgen.errors import HwgenError, Tolerating
from hwgen.polyhedral.search.capacity import Alive, buffers_exceed
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory


@dataclass(frozen=True, slots=True)
class _Life:
    """First and last leaf of a buffer's life, and those of the loops around its home."""

    first: int
    last: int
    around: tuple[int, int]


Together = Callable[[Memory], Mapping[tuple[Slot, Slot], float]]
"""Of a memory with several banks: for how long units use two slots at once."""


def addresses(
    pieces: Sequence[Piece],
    places: Places,
    hardware: HardwareSpec,
    together: Together,
) -> dict[str, Buffer]:
    """Every buffer at its address, by its name.

    Raises:
        HwgenError: H502 where the buffers of a memory do not fit it.
    """
    lives = _lives(pieces, places)
    result: dict[str, Buffer] = {}
    for memory in hardware.memories:
        inside = {p.name: p for p in places.values() if p.memory == memory.name and not p.image}
        mine = [(p, lives[name]) for name, p in inside.items() if name in lives]
        result |= {b.name: b for b in _placed(memory, mine, together)}
    return {p.name: result[p.name] for p in places.values() if p.name in result}


def check_room(
    pieces: Sequence[Piece],
    places: Places,
    hardware: HardwareSpec,
) -> None:
    """Refuse early what no layout makes fit: places are dense, and share all that they may.

    Raises:
        HwgenError: H502 as `addresses`.
    """
    for memory in hardware.memories:
        inside = {p.name: p for p in places.values() if p.memory == memory.name and not p.image}
        if sum(p.slots * p.slot_entries for p in inside.values()) > memory.capacity_entries:
            lives = _lives(pieces, places)
            tight = [
                _wanted(p, lives[n].first, lives[n].last) for n, p in inside.items() if n in lives
            ]
            for _ in _in_memory(memory, tight, {}):
                pass


def apart(places: Places) -> dict[str, Buffer]:
    """Every buffer, as if memories had no end: to see how they are used."""
    result: dict[str, Buffer] = {}
    base = 0
    for place in {p.name: p for p in places.values() if p.image is None}.values():
        entries = place.slot_entries
        result[place.name] = Buffer(
            place.name, place.memory, place.tensor, base, place.slots, entries
        )
        base += entries * place.slots
    return result


def _placed(
    memory: Memory, wanted: Sequence[tuple[Place, _Life]], together: Together
) -> list[Buffer]:
    """The buffers of a memory, sharing as little of it as there is room for."""
    several = memory.banks is not None and memory.banks.count > 1 and wanted
    meeting: Mapping[tuple[Slot, Slot], float] = together(memory) if several else {}
    alone = [_wanted(place, 0, 0) for place, _ in wanted]
    by_loop = [_wanted(place, *life.around) for place, life in wanted]
    tight = [_wanted(place, life.first, life.last) for place, life in wanted]
    for attempt in (alone, by_loop):
        with Tolerating("H502"):
            return list(_in_memory(memory, attempt, meeting))
    return list(_in_memory(memory, tight, meeting))


def _wanted(place: Place, first: int, last: int) -> Wanted:
    return Wanted(place.name, place.tensor, place.layout, first, last, place.reach)


def _lives(pieces: Sequence[Piece], places: Places) -> dict[str, _Life]:
    found: dict[str, _Life] = {}
    for number, leaf, around in _numbered(pieces, 0, ()):
        block = leaf.block
        touched = [places[block.name, k] for k in range(len(block.call.operands))]
        for place in {p.name: p for p in touched}.values():
            tensor, home = place.name, place.home
            outlived = [span for name, span in around if name not in home]
            first, last = outlived[0] if outlived else (number, number)
            inside = [span for name, span in around if name in home]
            whole = inside[0] if inside else (first, last)
            if inside and (place.slots > 1 or block.shifts):
                first, last = whole  # Its life goes on in the next iteration.
            known = found.get(tensor, _Life(first, last, whole))
            found[tensor] = _Life(
                min(known.first, first),
                max(known.last, last),
                (min(known.around[0], whole[0]), max(known.around[1], whole[1])),
            )
    return found


_Around = tuple[tuple[str, tuple[int, int]], ...]


def _numbered(
    pieces: Sequence[Piece], number: int, around: _Around
) -> Iterator[tuple[int, Leaf, _Around]]:
    """Every leaf with its number and, of each loop around it, those of its first and last leaf."""
    for piece in pieces:
        match piece:
            case Leaf():
                yield number, piece, around
                number += 1
            case Nest():
                count = _count(piece)
                span = (number, number + count - 1)
                yield from _numbered(piece.body, number, (*around, (piece.name, span)))
                number += count


def _count(piece: Piece) -> int:
    return 1 if isinstance(piece, Leaf) else sum(map(_count, piece.body))


def _alive(wanted: Wanted) -> Alive:
    layout = wanted.layout
    return Alive(wanted.name, layout.memory, layout.slots, layout.slot_entries)


def _no_room_there(memory: Memory, one: Placed, others: Sequence[Placed]) -> HwgenError | None:
    """The error of a buffer that is wanted where others are; None where it may be elsewhere."""
    there = one.wanted.usable
    if len(there) > one.wanted.entries or not there:
        return None
    in_the_way = [
        p
        for p in others
        if p.wanted.meets(one.wanted)
        and any(a < there.stop and b > there.start for a, b in p.spans)
    ]
    if not in_the_way or len(there) >= memory.capacity_entries:
        return None
    size = memory.entry_bytes
    return HwgenError(
        "H502",
        f"{one.wanted.name} has no room at entry {there.start} of {memory.name}",
        location=memory.location,
        field=f"memories.{memory.name}",
        found=", ".join(f"{p.wanted.name} in {p.base}..{p.end - 1}" for p in in_the_way)
        + f", where {one.wanted.name} has to be in {there.start}..{there.stop - 1}",
        allowed="entries that no other buffer has at that time",
        repair=f"set_address({one.wanted.name!r}, {max(p.end for p in in_the_way) * size}), "
        "or another place for the others",
    )


def _in_memory(
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
        at_an_address = _no_room_there(memory, worst, others)
        if at_an_address is not None:
            raise at_an_address
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
