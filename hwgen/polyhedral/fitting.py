"""The tilings nearest to one that exceeds a memory: which of its numbers to change, and how little.

What a tiling takes only falls when a tile or a number of slots gets smaller or a load moves further
in. So the smallest of all says whether anything fits, and only changes of that kind are looked at:
few numbers before many, places of loads last, small changes before large ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hwgen.polyhedral.estimate import storage_entries
from hwgen.polyhedral.held import kept_entries, own_storages
from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.search_space import Restriction, Space, active_depth, tile_options
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec

POINTS = 1 << 18
"""Combinations of numbers looked at for one number of changes; more are thinned."""

BEST = 64
"""Tilings given for one choice of what to change, the nearest first."""

WHOLE = Restriction()
"""Loads may stand wherever they are useful."""

Values = Mapping[str, NDArray[np.int64]]
"""A tile size, number of slots or place for each knob, one array element per point."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A number of a form that can be changed. `kind`: what `name`, a loop or a storage, gets."""

    kind: Literal["tile", "slots", "place"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Said:
    """What a schedule says beyond its tiling, which leaves out loops of a single tile. `tiles`:
    sizes of all that have a loop over tiles; `order`: the spatial ones of them come first;
    `around`: those around each storage."""

    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    around: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Form:
    """A tiling in which every loop has its place, those of a single tile too.

    `loops`: all of them, the `spatial` ones first; `places`: how many of them lie around each
    storage; `tiles`, in blocks, and `slots` as a tiling has them. `single`: loops that a schedule
    names and that run over a single tile, which no tiling has: their tiles have to change.
    """

    hardware: HardwareSpec
    match: Match
    loops: tuple[str, ...]
    spatial: int
    tiles: tuple[tuple[str, int], ...]
    places: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]
    single: tuple[str, ...] = ()

    @staticmethod
    def of(hardware: HardwareSpec, tiling: Tiling, said: Said | None = None) -> Form:
        """The form of a tiling; `said`: what a schedule says of loops of a single tile."""
        match, said = tiling.match, said or Said((), (), ())
        space = Space(hardware, match, WHOLE)
        spatial = [n for n in said.order or tiling.order if n in space.spatial]
        spatial += [n for n in space.spatial if n not in spatial]
        loops = (*spatial, *space.reduction)
        options = space.depths(loops, len(spatial))
        active = [n for n, loop in enumerate(loops) if match.count[loop] > tiling.tile[loop]]
        around, named = dict(said.around), {n for n, _ in said.tiles}
        places: list[tuple[str, int]] = []
        for name, depth in tiling.depths:
            if len(options[name]) == 1:
                places.append((name, options[name][0]))
                continue
            inside = [loops.index(n) for n in around.get(name, ()) if n in loops]
            place = max((n + 1 for n in [*active[:depth][-1:], *inside]), default=0)
            stop = min((n for n in active if n >= place), default=len(loops))
            # Loops of a single tile that nothing says anything about: as far in as is useful.
            free = [p for p in options[name] if place < p <= stop and loops[p - 1] not in named]
            places.append((name, max([place, *free])))
        tiles = tuple((n, dict(said.tiles).get(n, t)) for n, t in tiling.tiles)
        single = tuple(n for n, t in said.tiles if n in loops and t >= match.count[n])
        return Form(
            hardware, match, loops, len(spatial), tiles, tuple(places), tiling.slots, single
        )

    def used(self, values: Values | None = None) -> dict[str, NDArray[np.int64]]:
        """Entries of each memory that the buffers take, with other numbers for some knobs."""
        given = values or {}
        tiles = {n: given.get(f"tile {n}", np.full(1, t, np.int64)) for n, t in self.tiles}
        places, slots = dict(self.places), dict(self.slots)
        total: dict[str, NDArray[np.int64]] = {}
        for storage in own_storages(self.match):
            place = given.get(f"place {storage.name}", np.full(1, places[storage.name], np.int64))
            copies = given.get(f"slots {storage.name}", np.full(1, slots[storage.name], np.int64))
            if storage.shape:
                entries = np.full(1, kept_entries(self.match, storage), np.int64)
            else:
                extents = {
                    n: np.where(
                        place > self.loops.index(n), np.minimum(tiles[n], blocks), blocks
                    )
                    if n in self.loops
                    else np.full(1, blocks, np.int64)
                    for n, blocks in self.match.count.items()
                }  # fmt: skip
                entries = storage_entries(self.match, storage.name, extents)
            total[storage.memory] = total.get(storage.memory, np.zeros(1, np.int64)) + (
                copies * entries
            )
        return total

    def exceeded(self, room: Mapping[str, int]) -> tuple[str, ...]:
        """Memories of which the buffers take more than their room."""
        return tuple(m for m, entries in self.used().items() if int(entries[0]) > room[m])

    def knobs(self, memories: Sequence[str]) -> Iterator[tuple[Knob, tuple[int, ...]]]:
        """What can be changed so that less of these memories is taken, and to what, the nearest
        first."""
        held = [s for s in own_storages(self.match) if s.memory in memories and not s.shape]
        moving = {n for s in held for c in self.match.coordinate[s.name] for n in c.names}
        for name, size in self.tiles:
            if name in self.single or (name in moving and name in self.loops):
                least = min(size, self.match.count[name])
                yield Knob("tile", name), tuple(range(least - 1, 0, -1))
        slots, places = dict(self.slots), dict(self.places)
        options = Space(self.hardware, self.match, WHOLE).depths(self.loops, self.spatial)
        for s in held:
            yield Knob("slots", s.name), tuple(range(slots[s.name] - 1, 0, -1))
        for s in held:
            deeper = (p for p in options[s.name] if p > places[s.name])
            yield Knob("place", s.name), tuple(deeper)

    def smallest(self) -> Form:
        """The form with every number as small, and every load as far in, as can be."""
        options = Space(self.hardware, self.match, WHOLE).depths(self.loops, self.spatial)
        return replace(
            self,
            tiles=tuple((n, 1) for n, _ in self.tiles),
            places=tuple((n, max(place, *options[n])) for n, place in self.places),
            slots=tuple((n, 1) for n, _ in self.slots),
        )

    def changed(self, numbers: Mapping[Knob, int]) -> Form:
        """The form with other numbers for some knobs."""

        def swap(
            kind: Literal["tile", "slots", "place"], old: tuple[tuple[str, int], ...]
        ) -> tuple[tuple[str, int], ...]:
            return tuple((n, numbers.get(Knob(kind, n), v)) for n, v in old)

        return replace(
            self,
            tiles=swap("tile", self.tiles),
            places=swap("place", self.places),
            slots=swap("slots", self.slots),
        )

    def tiling(self) -> Tiling:
        """The form as a tiling."""
        tiles = {n: min(t, self.match.count[n]) for n, t in self.tiles}
        return Tiling(
            self.match,
            tuple(tiles.items()),
            self.loops[: self.spatial],
            tuple((n, active_depth(self.match, tiles, self.loops, p)) for n, p in self.places),
            self.slots,
        )


def smallest_form(hardware: HardwareSpec, match: Match, fixed: Mapping[str, int]) -> Form:
    """The form of a match that takes least, with some tile sizes given."""
    tiles = tuple((n, fixed.get(n, 1)) for n in match.count)
    space = Space(hardware, match, WHOLE)
    loops = (*space.spatial, *space.reduction)
    options = space.depths(loops, len(space.spatial))
    places = tuple((n, max(depths)) for n, depths in options.items())
    slots = tuple((n, 1) for n in options)
    return Form(hardware, match, loops, len(space.spatial), tiles, places, slots)


def nearest(form: Form, room: Mapping[str, int]) -> Iterator[dict[Knob, int]]:
    """Changes of a form after which it fits its memories' room (in entries), the nearest first.

    Nearer: fewer numbers changed; then fewer loads moved; then less, as the product of old over new
    sizes and slots; then fewer loops with a shorter last tile. Nothing where not even the smallest
    form fits. Exact up to `POINTS` combinations.
    """
    over = form.exceeded(room)
    if form.smallest().exceeded(room):
        return
    knobs = [(knob, values) for knob, values in form.knobs(over) if values]
    forced = {Knob("tile", name) for name in form.single}
    for count in range(max(1, len(forced)), len(knobs) + 1):
        choices = (c for c in combinations(knobs, count) if forced <= {knob for knob, _ in c})
        chosen = [c for c in choices if _reaches(form, c, room)]
        found = chain.from_iterable(
            _fitting(form, choice, room, POINTS // len(chosen)) for choice in chosen
        )
        for _, numbers in sorted(found, key=lambda item: item[0]):
            yield numbers


Choice = Sequence[tuple[Knob, tuple[int, ...]]]
"""Knobs to be changed, with the values that they may get."""


def _reaches(form: Form, choice: Choice, room: Mapping[str, int]) -> bool:
    """Whether the form fits with these knobs changed as far as possible."""
    return not form.changed({knob: values[-1] for knob, values in choice}).exceeded(room)


Rank = tuple[int, Fraction, int, int]
"""Loads moved, how much is changed, slots changed, tails."""


def _fitting(
    form: Form, choice: Choice, room: Mapping[str, int], points: int
) -> list[tuple[tuple[Rank, tuple[tuple[str, int], ...]], dict[Knob, int]]]:
    """The nearest tilings that fit with these knobs changed, ranked."""
    lists = [np.array(v, np.int64) for v in _thinned(form, choice, points)]
    axes = [a.ravel() for a in np.meshgrid(*lists, indexing="ij")]
    values = {str(knob): axis for (knob, _), axis in zip(choice, axes, strict=True)}
    fits = np.ones(len(axes[0]), dtype=np.bool_)
    for memory, entries in form.used(values).items():
        fits &= entries <= room[memory]
    # As far as floats tell, the nearest; exactly sorted among themselves.
    sized = [n for n, (knob, _) in enumerate(choice) if knob.kind != "place"]
    size = sum((np.log(axes[n][fits]) for n in sized), start=np.zeros(int(fits.sum())))
    best = np.flatnonzero(fits)[np.argsort(-size, kind="stable")[:BEST]]
    found: list[tuple[tuple[Rank, tuple[tuple[str, int], ...]], dict[Knob, int]]] = []
    for point in best:
        numbers = {knob: int(axis[point]) for (knob, _), axis in zip(choice, axes, strict=True)}
        at = tuple(
            (f"{knob.kind != 'tile'} {knob}", value if knob.kind == "place" else -value)
            for knob, value in numbers.items()
        )
        found.append(((_rank(form, numbers), at), numbers))
    return found


def _rank(form: Form, numbers: Mapping[Knob, int]) -> Rank:
    tiles, slots = dict(form.tiles), dict(form.slots)
    ratio = Fraction(1)
    moved = copies = tails = 0
    for knob, value in numbers.items():
        if knob.kind == "place":
            moved += 1
        elif knob.kind == "slots":
            copies += 1
            ratio *= Fraction(slots[knob.name], value)
        else:
            blocks = form.match.count[knob.name]
            tails += blocks % value != 0
            ratio *= Fraction(min(tiles[knob.name], blocks), value)
    return moved, ratio, copies, tails


def _thinned(form: Form, choice: Choice, points: int) -> list[tuple[int, ...]]:
    """The values of each knob, of the longest lists only some where all are too many together."""
    lists = [values for _, values in choice]
    limit = 1 << 10
    while prod(map(len, lists)) > max(points, 1) and limit > 1:
        limit //= 2
        for n, (knob, values) in enumerate(choice):
            if knob.kind == "tile" and len(values) > limit:
                kept = set(tile_options(form.match.count[knob.name], limit))
                lists[n] = tuple(v for v in values if v in kept)
    return lists
