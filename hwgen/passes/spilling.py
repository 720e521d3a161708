"""Which tensors leave the chip between the phases of a kernel: as few bytes as it takes.

First everything stays that can. Where a phase, or the kernel of all phases, is refused, each tensor
that may be the reason is let go in a try of its own, those that cost the fewest bytes first: a
computed one goes through off-chip memory, an input is loaded by each reader. Long networks have too
many choices: after some, the largest are let go until it fits, and those kept that can be.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hwgen.constants import SPILL_TRIES
from hwgen.errors import HwgenError
from hwgen.polyhedral.phases import Phase
from hwgen.polyhedral.search.objective import Measure
from hwgen.spec.workload import Workload

ROOM = ("H405", "H502")
"""Errors of what is alive together."""

CALLS = ("H301", "H302", "H305")
"""Errors of what no calls do, perhaps because of where a tensor is kept."""

LAYOUT = "H503"
"""The error of a tensor that two phases lay out in different ways."""

T = TypeVar("T")

_Key = tuple[tuple[str, ...], tuple[str, ...]]
"""What goes through off-chip memory, and what is loaded by each reader."""


@dataclass(frozen=True, slots=True)
class Spill:
    """A computed tensor that goes through off-chip memory, and why it does not stay."""

    tensor: str
    reason: str

    def __str__(self) -> str:
        return f"{self.tensor} goes through off-chip memory: kept on the chip, {self.reason}"


@dataclass(frozen=True, slots=True)
class Choice:
    """What does not stay on the chip. `spills`: what one phase stores and others load; `apart`:
    what each reader loads for itself."""

    spills: tuple[Spill, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def spilled(self) -> tuple[str, ...]:
        return tuple(s.tensor for s in self.spills)

    @property
    def key(self) -> _Key:
        """The same for equal choices."""
        return tuple(sorted(self.spilled)), tuple(sorted(self.apart))


ALL_KEPT = Choice()


@dataclass(frozen=True, slots=True)
class Refused:
    """A choice without a kernel. `phase`: that is refused; their number for all of them together.
    `held`: tensors that are on the chip then."""

    error: HwgenError
    phase: int
    held: tuple[str, ...]

    @property
    def progress(self) -> tuple[int, bool]:
        """How far it got: the phase, and whether that had a schedule."""
        return self.phase, self.error.code.startswith("H6")


def cheapest(
    workload: Workload,
    phases: Sequence[Phase],
    first: Choice,
    attempt: Callable[[Choice], T | Refused],
    measure: Callable[[T], Measure],
) -> T:
    """What the choice with the fewest bytes gives, of those tried, that lets go at least what
    `first` does.

    Raises:
        HwgenError: that of the choice that gets furthest, where none gives anything: to the last
            phase, and there to calls.
    """
    known: dict[_Key, T | Refused] = {}

    def tried(choice: Choice) -> T | Refused:
        if choice.key not in known:
            known[choice.key] = attempt(choice)
        return known[choice.key]

    furthest: tuple[Choice, Refused] | None = None
    queue = [_Entry(0, first)]
    seen = {first.key}
    while queue and len(known) < SPILL_TRIES:
        choice = heapq.heappop(queue).choice
        found = tried(choice)
        if not isinstance(found, Refused):
            return found
        if furthest is None or found.progress > furthest[1].progress:
            furthest = choice, found
        for more in _more(phases, choice, found):
            if more.key not in seen:
                seen.add(more.key)
                heapq.heappush(queue, _Entry(_bytes(workload, phases, more), more))
    assert furthest is not None
    if not queue:
        raise furthest[1].error
    return _enough(workload, phases, *furthest, tried, measure)


def _enough(
    workload: Workload,
    phases: Sequence[Phase],
    choice: Choice,
    refused: Refused,
    tried: Callable[[Choice], T | Refused],
    measure: Callable[[T], Measure],
) -> T:
    """What a choice gives that lets more and more go, the largest first, but nothing in vain or for
    the worse.

    Raises:
        HwgenError: that of the choice that gets furthest, where all is gone in vain.
    """

    def size(choice: Choice) -> int:
        return _bytes(workload, phases, choice)

    furthest, found = refused, refused
    while isinstance(found, Refused):
        furthest = max(furthest, found, key=lambda r: r.progress)
        more = [*_more(phases, choice, found)]
        if not more:
            raise furthest.error
        choice = max(more, key=size)
        found = tried(choice)
    for less in sorted(_each_kept(choice), key=lambda c: size(choice) - size(c), reverse=True):
        kept = tuple(s for s in choice.spills if s in less.spills)
        fewer = Choice(kept, tuple(t for t in choice.apart if t in less.apart))
        made = tried(fewer)
        if not isinstance(made, Refused) and measure(made) <= measure(found):
            choice, found = fewer, made
    return found


def _each_kept(choice: Choice) -> Iterator[Choice]:
    """Choices that let one tensor less go."""
    for spill in choice.spills:
        yield replace(choice, spills=tuple(s for s in choice.spills if s != spill))
    for name in choice.apart:
        yield replace(choice, apart=tuple(t for t in choice.apart if t != name))


@dataclass(frozen=True, slots=True)
class _Entry:
    cost: int
    choice: Choice

    def __lt__(self, other: _Entry) -> bool:
        return (self.cost, self.choice.key) < (other.cost, other.choice.key)


def _bytes(workload: Workload, phases: Sequence[Phase], choice: Choice) -> int:
    """Bytes that cross the bus more than where everything stays, padding aside."""

    def readers(name: str) -> int:
        return sum(name in (t.name for t in phase.workload.inputs) for phase in phases)

    size = {t.name: t.bytes for t in workload.tensors}
    again = sum(size[name] * max(1, readers(name) - 1) for name in choice.apart)
    return again + sum(2 * size[name] for name in choice.spilled)


def _more(phases: Sequence[Phase], choice: Choice, refused: Refused) -> Iterator[Choice]:
    """Choices that let one tensor more go."""
    known = refused.error.diagnostic
    made = {name for phase in phases for name in phase.leaves}
    for name in _suspects(phases, refused):
        if name in made and name not in choice.spilled:
            found = (known.found.splitlines() or [""])[0]
            if known.code in ROOM:
                found = found.partition(": ")[0]  # What is alive follows, buffer by buffer.
            reason = f"{known.message} ({found})"
            yield replace(choice, spills=(*choice.spills, Spill(name, reason)))
        elif name in refused.held and name not in choice.apart:
            yield replace(choice, apart=(*choice.apart, name))


def _suspects(phases: Sequence[Phase], refused: Refused) -> tuple[str, ...]:
    """Tensors without which on the chip it might go on."""
    code = refused.error.code
    if code == LAYOUT:
        return (refused.error.diagnostic.field.removeprefix("tensors."),)
    if refused.phase == len(phases):
        return refused.held if code in ROOM else ()
    phase = phases[refused.phase]
    shared = (*phase.leaves, *(t.name for t in phase.workload.inputs if t.name in refused.held))
    if code in ROOM:
        return tuple(dict.fromkeys((*refused.held, *shared)))
    return shared if code in CALLS else ()
