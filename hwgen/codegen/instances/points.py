"""Multisets of points as pieces, each a box of walks; and a point at which two of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from hwgen.codegen.instances.refuted import refuted
from hwgen.codegen.instances.sums import PRIME, Place, Vector

MOST_POINTS = 20_000
"""Points of both sides among which a witness is looked for one by one."""

Limits = Mapping[str, tuple[int, int]]
"""By coordinate, the half-open interval that points are wanted from."""

Pieces = Callable[[Limits], Iterable["Piece"]]
"""The pieces of a multiset within limits."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Numbers from `low` to before `high`, and how far one step moves a point."""

    low: int
    high: int
    step: Vector


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of points; `first`: where all walks are at zero."""

    first: Vector
    walks: tuple[Walk, ...]

    @property
    def count(self) -> int:
        return prod(max(0, w.high - w.low) for w in self.walks)

    def span(self, coordinate: str) -> tuple[int, int]:
        """The half-open interval in which it lies along a coordinate."""
        low = high = self.first.get(coordinate, 0)
        for walk in self.walks:
            step = walk.step.get(coordinate, 0)
            ends = step * walk.low, step * (walk.high - 1)
            low, high = low + min(ends), high + max(ends)
        return low, high + 1


def value(pieces: Iterable[Piece], place: Place) -> int:
    """What tells a multiset from others."""
    found = 0
    for piece in pieces:
        found += place.box(piece.first, (((w.low, w.high), w.step) for w in piece.walks))
    return found % PRIME


@dataclass(frozen=True, slots=True)
class Witness:
    """A point, as far as it is known, and how often each side has it; None where only what it lies
    in is known to differ."""

    point: Vector
    meant: int | None = None
    done: int | None = None


def witness(meant: Pieces, done: Pieces, along: Iterable[str], place: Place) -> Witness:
    """A point at which two multisets differ, halving the coordinates that can be limited."""
    limits: dict[str, tuple[int, int]] = {}
    for coordinate in along:
        spans = [p.span(coordinate) for side in (meant, done) for p in side(limits)]
        low, high = min(a for a, _ in spans), max(b for _, b in spans)
        while high - low > 1:
            middle = (low + high) // 2
            half = {**limits, coordinate: (low, middle)}
            differs = value(meant(half), place) != value(done(half), place)
            low, high = (low, middle) if differs else (middle, high)
        limits[coordinate] = (low, high)
    here = {c: low for c, (low, _) in limits.items()}
    sides = [[*side(limits)] for side in (meant, done)]
    if sum(p.count for side in sides for p in side) > MOST_POINTS:
        return Witness(here)
    one, other = (_counted(side) for side in sides)
    odd = next(p for p in sorted(one.keys() | other.keys()) if one[p] != other[p])
    return Witness(dict(odd), one[odd], other[odd])


def check_same(
    name: str,
    meant: Pieces,
    done: Pieces,
    along: Iterable[str],
    place: Place,
    shown: Callable[[Vector], str],
) -> None:
    """Hold what is executed of a block against what is meant; `shown`: a point in words.

    Raises:
        HwgenError: H747 where they differ.
    """
    if value(meant({}), place) == value(done({}), place):
        return
    odd = witness(meant, done, along, place)
    found, allowed = shown(odd.point), "each of its instances once"
    if odd.meant is not None:
        found, allowed = f"{times(odd.done)}: {found}", times(odd.meant)
    raise refuted(f"{name} executes other instances than its tree intends", found, allowed)


def _counted(pieces: Iterable[Piece]) -> Counter[tuple[tuple[str, int], ...]]:
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for piece in pieces:
        for steps in product(*(range(w.low, w.high) for w in piece.walks)):
            point = dict(piece.first)
            for at, walk in zip(steps, piece.walks, strict=True):
                for coordinate, step in walk.step.items():
                    point[coordinate] = point.get(coordinate, 0) + at * step
            found[tuple(sorted((c, n) for c, n in point.items()))] += 1
    return found


def times(count: int | None) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times" if count else "never"
