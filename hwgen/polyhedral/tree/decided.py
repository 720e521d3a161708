"""Loops whose iterations are decided by indices, as digits are by a number: without asking isl.

Two instances that touch one element have each of its indices in common. Where a loop's step in it
is longer than all that loops of smaller steps, and what the sides have not in common, make up for,
the loop is in the same iteration at both. What is not decided so may still be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hwgen.spec.affine import Affine


@dataclass(frozen=True, slots=True)
class Index:
    """An index that is the same at two instances: the steps of loops in it, and by how much the
    rest of it differs at most."""

    steps: tuple[tuple[str, int], ...]
    slack: int = 0


def common_index(
    one: Affine,
    other: Affine,
    common: Collection[str],
    extents: Mapping[str, int],
    of_other: Mapping[str, int],
) -> Index:
    """An index at instances of two blocks, with loops in `common`, and the extents of each one's
    loops."""
    steps = {n: c for n, c in one.terms if n in common and other.coefficient(n) == c}
    least, most = ahead(one, other, steps, extents, of_other)
    return Index(tuple(steps.items()), max(abs(least), abs(most)))


def ahead(
    one: Affine,
    other: Affine,
    same: Collection[str],
    extents: Mapping[str, int],
    of_other: Mapping[str, int],
) -> tuple[int, int]:
    """By how much an index of another block is larger, at least and at most, where loops of `same`
    steps in both are in the same iteration."""
    low, high = _rest(one, same, extents)
    least, most = _rest(other, same, of_other)
    return least - high, most - low


def fills(loops: Iterable[tuple[int, int]]) -> int | None:
    """The last of the numbers from 0 on that sums of loops' steps make, given each one's step and
    extent; None where they do not make all of them."""
    last = 0
    for step, extent in sorted(x for x in loops if x[1] > 1):
        if not 0 < step <= last + 1:
            return None
        last += step * (extent - 1)
    return last


def decided(
    indices: Iterable[Index], extents: Mapping[str, int], known: Collection[str] = ()
) -> set[str]:
    """Loops that are in the same iteration at both instances, given that `known` ones are."""
    found = {n for n, extent in extents.items() if extent == 1} | {*known}
    left = [*indices]
    while left:
        open_ones = [index for index in left if not _digits(index, extents, found)]
        if len(open_ones) == len(left):
            break
        found |= {n for index in left if index not in open_ones for n, _ in index.steps}
        left = open_ones
    return found


def _digits(index: Index, extents: Mapping[str, int], known: Collection[str]) -> bool:
    """Whether an index decides all of its loops."""
    reach = index.slack
    for step, name in sorted((abs(c), n) for n, c in index.steps if n not in known):
        if step <= reach:
            return False
        reach += step * (extents[name] - 1)
    return True


def _rest(index: Affine, without: Collection[str], extents: Mapping[str, int]) -> tuple[int, int]:
    """Least and greatest value of an index, leaving out some loops."""
    low = high = index.constant
    for name, coefficient in index.terms:
        if name not in without:
            reach = coefficient * (extents[name] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
    return low, high
