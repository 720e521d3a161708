"""One arena for all that a network computes: buffers that are never live together share bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hwgen.errors import HwgenError


@dataclass(frozen=True, slots=True)
class Live:
    """Bytes that hold a value from moment `first` to moment `last`, both included. A step has two
    moments: one before its output is written, and one from then on."""

    name: str
    bytes: int
    align: int
    first: int
    last: int

    @property
    def steps(self) -> tuple[int, int]:
        """The first step and the last."""
        return self.first // 2, self.last // 2

    def meets(self, other: Live) -> bool:
        """Whether both are live at one moment."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies, in bytes from the arena's start."""

    live: Live
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.live.bytes


@dataclass(frozen=True, slots=True)
class Arena:
    """A plan. `bound`: bytes that are live at one moment, so that no plan is smaller."""

    places: tuple[Place, ...]
    bytes: int
    bound: int
    align: int

    @property
    def gap(self) -> int:
        """Bytes above the bound."""
        return self.bytes - self.bound

    def offset(self, name: str) -> int:
        return next(p.offset for p in self.places if p.live.name == name)


def plan_arena(buffers: Sequence[Live]) -> Arena:
    """Offsets by first fit, in the best of several orders. Each is mended by placing first what
    ended highest, as often as there are buffers.

    The same buffers give the same plan. `check_arena` holds it.
    """
    bound = max((_live_bytes(buffers, at) for at in {b.first for b in buffers}), default=0)
    best: tuple[Place, ...] = ()
    top: int | None = None
    for key in _ORDERS:
        order = sorted(buffers, key=lambda b: (*key(b), b.first, b.name))
        for _ in buffers:
            places = _first_fit(order)
            end = max((p.end for p in places), default=0)
            if top is None or end < top:
                best, top = places, end
            if top <= bound:
                break
            highest = next(p.live for p in places if p.end == end)
            if order[0] is highest:
                break
            order = [highest, *(b for b in order if b is not highest)]
    by_name = sorted(best, key=lambda p: (p.live.first, p.offset, p.live.name))
    align = max((b.align for b in buffers), default=1)
    arena = Arena(tuple(by_name), top or 0, bound, align)
    check_arena(arena, buffers)
    return arena


def _live_bytes(buffers: Iterable[Live], moment: int) -> int:
    return sum(b.bytes for b in buffers if b.first <= moment <= b.last)


_ORDERS: tuple[Callable[[Live], tuple[int, ...]], ...] = (
    lambda b: (-b.bytes,),
    lambda b: (-b.bytes * (b.last - b.first + 1),),
    lambda b: (b.first - b.last, -b.bytes),
    lambda b: (b.first, -b.bytes),
)
"""Largest first; largest times longest; longest; earliest."""


def _first_fit(order: Iterable[Live]) -> tuple[Place, ...]:
    """Each buffer at the lowest offset where nothing that is live with it lies."""
    placed: list[Place] = []
    for buffer in order:
        offset = 0
        for other in sorted(placed, key=lambda p: p.offset):
            if not other.live.meets(buffer):
                continue
            if offset + buffer.bytes <= other.offset:
                break
            offset = max(offset, -(-other.end // buffer.align) * buffer.align)
        placed.append(Place(buffer, offset))
    return tuple(placed)


def check_arena(arena: Arena, buffers: Iterable[Live]) -> None:
    """Hold that every buffer has one aligned place in the arena, and shares bytes with none that is
    live with it.

    Raises:
        HwgenError: H804, a defect of hwgen.
    """
    wanted = {b.name: b for b in buffers}
    places = {p.live.name: p for p in arena.places}
    found: list[str] = []
    if {n: p.live for n, p in places.items()} != wanted or len(places) != len(arena.places):
        found.append("a buffer without a place, or with several")
    for n, one in enumerate(arena.places):
        if one.offset % one.live.align or arena.align % one.live.align:
            found.append(f"{one.live.name} is not aligned to {one.live.align} bytes")
        if one.offset < 0 or one.end > arena.bytes:
            found.append(f"{one.live.name} leaves the arena")
        for other in arena.places[n + 1 :]:
            apart = one.end <= other.offset or other.end <= one.offset
            start = max(one.live.first, other.live.first)
            if not apart and start <= min(one.live.last, other.live.last):
                found.append(
                    f"{one.live.name} and {other.live.name} share bytes at step {start // 2}"
                )
    if found:
        raise wrong_plan(found)


def wrong_plan(found: Sequence[str]) -> HwgenError:
    """H804."""
    return HwgenError(
        "H804",
        "the plan of the arena is wrong",
        found="\n".join(found[:10]),
        repair="report the model, the chip and this message",
    )
