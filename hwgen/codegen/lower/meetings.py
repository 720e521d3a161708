"""Which slots of which buffers different units use at the same time.

Two units that use slots in one bank at once get in each other's way where it has too few ports. To
see which those are, the calls of a program with its loops cut short are put one after the other on
their units, each when what it needs is done, for about as long as it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

from hwgen.codegen.lower.sites import CallSite
from hwgen.codegen.lower.stream import Stream
from hwgen.codegen.placement import Slot
from hwgen.polyhedral.semantics import marginal_cycles
from hwgen.spec.memory import Banks, Memory


@dataclass(frozen=True, slots=True)
class _Use:
    """A unit uses a slot through some kinds of ports, from when to when."""

    unit: str
    slot: Slot
    kinds: frozenset[str]
    start: float
    end: float


def meetings(stream: Stream, memory: Memory) -> dict[tuple[Slot, Slot], float]:
    """By two slots of a memory with banks, the smaller first: for how long two units use both
    through the same kind of port."""
    banks = memory.banks
    assert banks is not None
    found: dict[tuple[Slot, Slot], float] = {}
    begun: list[_Use] = []
    for one in sorted(_uses(stream, memory.name, banks), key=lambda u: u.start):
        begun = [u for u in begun if u.end > one.start]
        for other in begun:
            if one.unit != other.unit and one.kinds & other.kinds:
                key = (min(one.slot, other.slot), max(one.slot, other.slot))
                shared = min(one.end, other.end) - one.start
                found[key] = found.get(key, 0.0) + shared
        begun.append(one)
    return dict(sorted(found.items()))


def _uses(stream: Stream, memory: str, banks: Banks) -> Iterator[_Use]:
    free: dict[str, float] = {}
    done: list[float] = []
    for call in stream.instances:
        site = stream.sites[call.site]
        ready = max((done[when] for _, when in call.latest), default=0.0)
        start = max(free.get(call.unit, 0.0), ready)
        end = start + _cycles(site)
        free[call.unit] = end
        done.append(end)
        values = dict(zip((x.name for x in site.loops), stream.real(call), strict=True))
        for touch in site.touches:
            if touch.memory == memory:
                slot = touch.turn.fix(values).constant % touch.slots
                kinds = banks.contended("write" if touch.write else "read")
                yield _Use(call.unit, (touch.buffer, slot), kinds, start, end)


def _cycles(site: CallSite) -> float:
    """About how long the calls of a site take together: whole cycles of each iteration, as what
    several share is short beside transfers, of which one takes as long as another here."""
    absorbed = site.absorbed
    iterations = absorbed.iterations * absorbed.issued
    return max(1.0, iterations * floor(marginal_cycles(site.operation.intrinsic)))
