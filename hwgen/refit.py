"""Tilings whose buffers exceed a memory, of all phases of a kernel: the nearest that compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product

from hwgen.errors import HwgenError, Location
from hwgen.polyhedral.capacity import (
    Alive,
    alive_of,
    all_alive_text,
    change_text,
    growth,
    room_text,
    taken,
)
from hwgen.polyhedral.fitting import Form, Knob, nearest
from hwgen.polyhedral.held import kept_entries, own_storages
from hwgen.polyhedral.search import Candidate
from hwgen.polyhedral.search_choose import LIMITS
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec

TRIES, ALIKE = 8, 2
"""Tilings that are carried through to a program, the nearest first, to see if they compile; and how
many of those may change the same numbers: what one breaks, its like most often breaks too."""

PARTS = (1.0, 0.75, 0.5, 0.25)
"""Parts of the room that are tried in turn: buffers of several phases can leave gaps."""

Changes = Sequence[Mapping[Knob, int]]
"""What to change in each phase."""

Compiles = Callable[[Sequence[Tiling]], object]
"""Compiles the tilings of all phases, or raises."""


@dataclass(frozen=True)
class Phases:
    """The forms of a kernel's phases, and what they find in the memories."""

    hardware: HardwareSpec
    forms: tuple[Form, ...]

    def usable(self, phase: int) -> dict[str, range]:
        """Entries of each memory that a phase can address."""
        match = self.forms[phase].match
        names = {s.memory for s in own_storages(match)}
        return {n: match.selection.addressable(self.hardware, n) for n in names}

    def beside(self, phase: int) -> list[tuple[str, str, int]]:
        """Tensors that other phases hold while one runs: name, memory, entries."""
        held: dict[tuple[str, str], tuple[list[int], int]] = {}
        for number, form in enumerate(self.forms):
            for s in own_storages(form.match):
                if s.shape:
                    entries = kept_entries(form.match, s)
                    held.setdefault((s.tensor, s.memory), ([], entries))[0].append(number)
        return [
            (f"{tensor}_kept_{memory}", memory, entries)
            for (tensor, memory), (users, entries) in held.items()
            if min(users) < phase < max(users) and phase not in users
        ]

    def room(self, phase: int) -> dict[str, int]:
        """Entries of each memory for the buffers of a phase."""
        beside = self.beside(phase)
        return {m: len(usable) - taken(beside, m) for m, usable in self.usable(phase).items()}

    @cached_property
    def exceeded(self) -> tuple[tuple[str, ...], ...]:
        """The memories that each phase exceeds."""
        return tuple(f.exceeded(self.room(n)) for n, f in enumerate(self.forms))

    def alive(self, phase: int) -> list[Alive]:
        """Buffers that are alive in a phase."""
        prefix = f"p{phase}_" if len(self.forms) > 1 else ""
        return alive_of(self.forms[phase], self.beside(phase), prefix)

    def changes(self) -> Iterator[Changes]:
        """What to change in each phase so that its buffers have room, the nearest first."""
        for part in PARTS:
            options: list[list[Mapping[Knob, int]]] = []
            for number, form in enumerate(self.forms):
                room = {m: int(n * part) for m, n in self.room(number).items()}
                near: list[Mapping[Knob, int]] = [{}]
                if form.exceeded(room) or form.single:
                    near = list(islice(_unlike(nearest(form, room)), TRIES))
                options.append(near)
            yield from islice(product(*options), TRIES)

    def tilings(self, changes: Changes) -> list[Tiling]:
        return [f.changed(c).tiling() for f, c in zip(self.forms, changes, strict=True)]

    def first_that_compiles(self, compiles: Compiles) -> tuple[Changes, str] | None:
        """What to change, also in words; None where nothing near compiles."""
        nearer = ""
        for changes in self.changes():
            if not any(changes):
                continue  # as it is
            try:
                compiles(self.tilings(changes))
            except HwgenError as error:
                if error.code not in LIMITS:
                    raise
                nearer = nearer or f" (the nearest breaks another limit: {error.code})"
                continue
            what = f"a tiling near it that fits{nearer}" if nearer else "the nearest that fits"
            return changes, f"{what}: {self.words(changes)}"
        return None

    def error(self, given: HwgenError, repair: str, location: Location | None) -> HwgenError:
        """The error of buffers that do not fit: `given`, with all that is known of them."""
        known = given.diagnostic
        phase = next((n for n, over in enumerate(self.exceeded) if over), None)
        found, allowed, field = known.found, known.allowed, known.field
        message = known.message
        if phase is not None:
            names = sorted(self.exceeded[phase])
            memories = [self.hardware.memory[n] for n in names]
            found = all_alive_text(self.hardware, self.alive(phase), names)
            usable, selection = self.usable(phase), self.forms[phase].match.selection
            allowed = "\nand ".join(room_text(m, usable[m.name], [selection]) for m in memories)
            several = "memories" if len(names) > 1 else "memory"
            whole = f"{several} {' and '.join(names)}"
            message = f"buffers exceed {whole}"
            if given.code == "H405":
                message = f"no tiling that begins so fits {whole}"
                found = f"with all else as small as it can be, {found}"
            field = f"memories.{names[0]}"
            location = location or memories[0].location
        return HwgenError(
            given.code if given.code == "H405" else "H502",
            message,
            location=location or known.location,
            field=field,
            found=found,
            allowed=allowed,
            repair=repair,
        )

    def words(self, changes: Changes) -> str:
        several = len(self.forms) > 1
        both = enumerate(zip(self.forms, changes, strict=True))
        parts = [(n, change_text(f, c)) for n, (f, c) in both if c]
        return "; ".join(f"in phase {n}, {text}" if several else text for n, text in parts)

    def hopeless(self) -> str:
        """What to do where nothing near fits."""
        for number, form in enumerate(self.forms):
            room = self.room(number)
            least = form.smallest()
            lacks = {m: int(least.used()[m][0]) - room[m] for m in least.exceeded(room)}
            if lacks:
                alive = alive_of(least, self.beside(number))
                return "no tiles are small enough; " + growth(least, alive, lacks)
        return "start from the script that --stage script prints: no tiling near this one compiles"


def tiling_exceeds(
    hardware: HardwareSpec,
    tiling: Tiling,
    build: Callable[[Candidate], object],
    error: HwgenError,
) -> HwgenError:
    """The error of a tiling that was given; its repair is the nearest one that builds."""
    phases = Phases(hardware, (Form.of(hardware, tiling),))
    better = phases.first_that_compiles(lambda tilings: build(Candidate(tilings[0], 0.0)))
    return phases.error(error, better[1] if better else phases.hopeless(), None)


def _unlike(stream: Iterator[Mapping[Knob, int]]) -> Iterator[Mapping[Knob, int]]:
    """The changes, of those that change the same numbers only the first few."""
    seen: dict[frozenset[Knob], int] = {}
    for change in stream:
        knobs = frozenset(change)
        seen[knobs] = seen.get(knobs, 0) + 1
        if seen[knobs] <= ALIKE:
            yield change
