"""Errors of buffers that do not fit: what is alive, what there is, and what has to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Selection, Storage
from hwgen.polyhedral.search.estimate_shape import storage_entries
from hwgen.polyhedral.search.resident import kept_entries, own_storages
from hwgen.polyhedral.search.space import Restriction, Space
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Memory
from hwgen.spec.workload import Workload


@dataclass(frozen=True)
class Smallest:
    """The tiling that takes least: tiles and slots as small, loads as far in, as can be; where not
    even that fits the memories, nothing does. `tiles`: by loop, in blocks; `places`: how many of
    the `loops` lie around each storage."""

    hardware: HardwareSpec
    match: Match
    loops: tuple[str, ...]
    tiles: Mapping[str, int]
    places: Mapping[str, int]

    def entries(self, storage: Storage) -> int:
        """Entries of a storage's buffer."""
        if storage.shape:
            return kept_entries(self.match, storage)
        inside = self.loops[: self.places[storage.name]]
        extents = {
            n: np.full(1, min(self.tiles[n], blocks) if n in inside else blocks, np.int64)
            for n, blocks in self.match.count.items()
        }
        return int(storage_entries(self.match, storage.name, extents)[0])

    def used(self) -> dict[str, int]:
        """Entries of each memory that the buffers take."""
        total: dict[str, int] = {}
        for storage in own_storages(self.match):
            total[storage.memory] = total.get(storage.memory, 0) + self.entries(storage)
        return total


def smallest(hardware: HardwareSpec, match: Match, fixed: Mapping[str, int]) -> Smallest:
    """The smallest of a match, with some tile sizes given."""
    space = Space(hardware, match, Restriction())
    loops = (*space.spatial, *space.reduction)
    options = space.depths(loops, len(space.spatial))
    places = {n: max(depths) for n, depths in options.items()}
    return Smallest(hardware, match, loops, {n: fixed.get(n, 1) for n in match.count}, places)


@dataclass(frozen=True, slots=True)
class Alive:
    """A buffer that takes room. `role`: why, where that is not plain."""

    name: str
    memory: str
    slots: int
    slot_entries: int
    role: str = ""

    @property
    def entries(self) -> int:
        return self.slots * self.slot_entries

    def text(self, entry_bytes: int) -> str:
        size = f"{self.slots} x {self.slot_entries} entries, {self.entries * entry_bytes} bytes"
        return f"{self.name} {size}" + (f" ({self.role})" if self.role else "")


def alive_text(memory: Memory, alive: Sequence[Alive]) -> str:
    """What a memory's buffers take together, and each of them."""
    total = sum(b.entries for b in alive)
    each = "; ".join(b.text(memory.entry_bytes) for b in alive)
    return f"{total} entries, {total * memory.entry_bytes} bytes of {memory.name}: {each}"


def all_alive_text(hardware: HardwareSpec, alive: Sequence[Alive], first: Sequence[str]) -> str:
    """What is alive in every memory; those that do not hold it come first."""
    names = [*first, *sorted({b.memory for b in alive} - set(first))]
    mine = {name: [b for b in alive if b.memory == name] for name in names}
    return "\nand ".join(alive_text(hardware.memory[n], mine[n]) for n in names)


def room_text(memory: Memory, usable: range, selections: Sequence[Selection] = ()) -> str:
    """How many entries there are for buffers, and what makes them fewer than the memory has."""
    size = len(usable)
    size_bytes = size * memory.entry_bytes
    text = f"{size} entries, {size_bytes} bytes of {memory.name} ({memory.location})"
    if size == memory.capacity_entries:
        return text
    narrow = sorted(
        {
            f"{o.intrinsic.name}.{p.name} has addresses {p.address} ({o.intrinsic.location})"
            for s in selections
            for o in s.operations
            for p in o.intrinsic.operands
            if p.memory == memory.name
            and (o.intrinsic.stop(p) < memory.capacity_entries or p.address.minimum > 0)
        }
    )
    why = "; ".join(narrow) or f"operands have addresses {usable.start}..{usable.stop - 1}"
    return f"{text}, of its {memory.capacity_entries}: {why}"


def buffers_exceed(
    memory: Memory, usable: range, alive: Sequence[tuple[Alive, int, int, int]]
) -> HwgenError:
    """The error of buffers, each with its first and last phase and its first entry, the first of
    which ends past the entries of a memory that are `usable` for it."""
    past = alive[0]
    moments = range(past[1], past[2] + 1)
    sizes = [sum(b.entries for b, first, last, _ in alive if first <= m <= last) for m in moments]
    moment = moments[sizes.index(max(sizes))]
    together = [b for b, first, last, _ in alive if first <= moment <= last]
    end = past[3] + past[0].entries
    apart = max(sizes) <= len(usable)  # Sizes fit, places do not.
    return HwgenError(
        "H502",
        f"buffers exceed memory {memory.name}",
        location=memory.location,
        field=f"memories.{memory.name}",
        found=alive_text(memory, together)
        + (f"; {past[0].name} ends at entry {end}" if apart else ""),
        allowed=room_text(memory, usable),
        repair=f"smaller tiles, fewer slots, or a memory {memory.name} of at least "
        f"{end * memory.entry_bytes} bytes",
    )


def _alive_of(form: Smallest) -> list[Alive]:
    """A tiling's buffers and what other phases hold meanwhile."""
    found: list[Alive] = []
    for s in own_storages(form.match):
        role = f"all of {s.tensor}, which several phases use" if s.shape else ""
        found.append(Alive(s.name, s.memory, 1, form.entries(s), role))
    for name, memory, entries in form.match.selection.beside:
        found.append(Alive(name, memory, 1, entries, "held for other phases"))
    return found


def room_of(hardware: HardwareSpec, match: Match) -> dict[str, int]:
    """Entries of each memory for a match's own buffers."""
    room: dict[str, int] = {}
    for storage in own_storages(match):
        usable = match.selection.addressable(hardware, storage.memory)
        room[storage.memory] = len(usable) - _taken(match.selection.beside, storage.memory)
    return room


def _taken(beside: Sequence[tuple[str, str, int]], memory: str) -> int:
    """Entries of a memory that tensors of other phases take."""
    return sum(n for _, m, n in beside if m == memory)


def nothing_fits(
    hardware: HardwareSpec,
    matches: Sequence[Match],
    fixed: Mapping[str, int],
    workload: Workload | None = None,
) -> HwgenError:
    """The error of a search that finds nothing, with the smallest tiling of the match that lacks
    least."""
    forms = [smallest(hardware, m, fixed) for m in matches]
    lacking = [_lacking(f, room_of(hardware, f.match)) for f in forms]
    least = min(range(len(forms)), key=lambda n: sum(lacking[n].values()))
    form, lacks = forms[least], lacking[least]
    if not lacks:
        return _too_many_variants(hardware, form.match)
    alive = _alive_of(form)
    selection = form.match.selection
    allowed: list[str] = []
    for name in lacks:
        memory = hardware.memory[name]
        usable = selection.addressable(hardware, name)
        allowed.append(room_text(memory, usable, [selection]))
    tiles = "the given tiles" if fixed else "the smallest tiles"
    first = hardware.memory[next(iter(lacks))]
    return HwgenError(
        "H405",
        f"no tiling fits memory {first.name}",
        location=first.location,
        field=f"memories.{first.name}",
        found=f"{tiles} take {all_alive_text(hardware, alive, list(lacks))}",
        allowed="\nand ".join(allowed),
        repair="\nor ".join(_repairs(form, alive, lacks, workload)),
    )


def _lacking(form: Smallest, room: Mapping[str, int]) -> dict[str, int]:
    """Entries that each memory lacks."""
    return {m: entries - room[m] for m, entries in form.used().items() if entries > room[m]}


def _repairs(
    form: Smallest, alive: Sequence[Alive], lacks: Mapping[str, int], workload: Workload | None
) -> Iterator[str]:
    """What has to grow, and what could shrink instead."""
    yield _growth(form, alive, lacks)
    if len(lacks) == 1:
        yield from _shrunk(form, *next(iter(lacks.items())), workload)


def _growth(form: Smallest, alive: Sequence[Alive], lacks: Mapping[str, int]) -> str:
    """What of the chip has to grow so that buffers fit."""
    selection = form.match.selection
    grown: list[str] = []
    for name in lacks:
        memory = form.hardware.memory[name]
        total = sum(b.entries for b in alive if b.memory == name)
        low = selection.addressable(form.hardware, name).start
        if low + total > memory.capacity_entries:
            size = f"{(low + total) * memory.entry_bytes} bytes, {low + total} entries"
            grown.append(f"a memory {name} of at least {size} ({memory.location})")
        short: dict[int, set[str]] = {}
        for o in selection.operations:
            for p in o.intrinsic.operands:
                lacking = low + total - o.intrinsic.stop(p)
                if p.memory == name and lacking > 0:
                    whose = f"{o.intrinsic.name}.{p.name} ({o.intrinsic.location})"
                    short.setdefault(p.address.maximum + lacking, set()).add(whose)
        for last, whose in sorted(short.items()):
            grown.append(f"addresses up to {last} of {', '.join(sorted(whose))}")
    return " and ".join(grown)


def _shrunk(form: Smallest, memory: str, lack: int, workload: Workload | None) -> Iterator[str]:
    """The largest extent of each tensor that stays whole with which all fits."""
    for storage in own_storages(form.match):
        if storage.memory != memory or not storage.shape:
            continue
        extents: list[str] = []
        left = kept_entries(form.match, storage) - lack
        cuts = [form.match.cut(storage, d)[1] for d in range(len(storage.shape))]
        blocks = [-(-e // c) for e, c in zip(storage.shape, cuts, strict=True)]
        for d, extent in enumerate(storage.shape):
            most = left // prod(b for n, b in enumerate(blocks) if n != d) * cuts[d]
            if 0 < most < extent:
                extents.append(f"dimension {d} of at most {most} instead of {extent}")
        if extents:
            where = f" ({workload.tensor[storage.tensor].location})" if workload else ""
            yield f"{storage.tensor} with " + ", or ".join(extents) + where


def _too_many_variants(hardware: HardwareSpec, match: Match) -> HwgenError:
    kernels = {
        o.intrinsic.micro_kernel.name: o.intrinsic.micro_kernel
        for o in match.selection.operations
        if o.intrinsic.micro_kernel is not None
    }
    limits = [f"{name} allows {kernel.max_variants}" for name, kernel in sorted(kernels.items())]
    return HwgenError(
        "H405",
        f"no tiling stays within the micro-kernels of {hardware.name}",
        location=hardware.location,
        field="micro_kernels",
        found="every tiling that fits the memories needs more variants: " + ", ".join(limits),
        allowed="at least one tiling within max_variants",
        repair="a chip with more variants or larger memories, or a smaller workload",
    )
