"""Where the operands of a call lie, and what a call touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from hwgen.constants import TOUCHED_RUNS
from hwgen.spec.affine import Affine, combine

Runs = tuple[tuple[int, int], ...]
"""Entries as half-open intervals, in order and apart from each other."""


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` over tile counters and outer loops, plus the slot that `turn` selects."""

    buffer: str
    offset: Affine
    turn: Affine | None
    slots: int
    slot_stride: int


FIRST = Affine(())
"""The first entry of a slot."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One buffer access of a site: the slot counter's value identifies the data's generation.
    Slot `n` is `memory[base + n * slot_stride :][: slot_entries]`, of which the site's calls touch
    `runs` from `offset` on, over the loops around them; () is all of it. `kept`: each generation
    has a slot of its own. `offchip`: an image that several phases share."""

    buffer: str
    turn: Affine
    slots: int
    write: bool
    memory: str
    base: int
    slot_entries: int
    slot_stride: int
    kept: bool = False
    offchip: bool = False
    offset: Affine = FIRST
    runs: Runs = ()


def modulo(function: Affine, slots: int) -> Affine:
    """A function with the same value modulo `slots` and the smallest coefficients."""
    return combine([(n, c % slots) for n, c in function.terms], function.constant % slots)


@lru_cache(maxsize=4096)
def runs_of(walks: tuple[tuple[int, int], ...]) -> tuple[int, Runs]:
    """The entries that loops of some extents and steps reach from entry 0 on, from the least of
    them on, and where that is; not less than these, where there are too many runs."""
    least = sum((extent - 1) * step for extent, step in walks if step < 0)
    length, outer = 1, list[tuple[int, int]]()
    for extent, step in sorted(((n, abs(k)) for n, k in walks), key=lambda w: w[1]):
        if step <= length and not outer:
            length += (extent - 1) * step
        elif extent > 1:
            outer.append((extent, step))
    if prod(extent for extent, _ in outer) > TOUCHED_RUNS:
        return least, ((0, length + sum((extent - 1) * step for extent, step in outer)),)
    starts = {sum(x) for x in product(*(range(0, n * k, k) for n, k in outer))}
    return least, _joined(sorted((start, start + length) for start in starts))


def _joined(intervals: Sequence[tuple[int, int]]) -> Runs:
    """Intervals, in order of their starts, those that touch as one."""
    result: list[tuple[int, int]] = []
    for low, high in intervals:
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)
