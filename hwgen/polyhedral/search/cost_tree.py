"""Trees of blocks as their cost is read: loops around leaves of known cycles, all arrays over the
points that have the tree in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

ZERO: Final[Array] = np.zeros(1)
ONE: Final[Array] = np.ones(1)

HOST: Final = ""
"""The unit that issues calls to the others, if one does."""


def _zero() -> Array:
    return ZERO


def _one() -> Array:
    return ONE


@dataclass(frozen=True, slots=True)
class Block:
    """A leaf: calls of one unit that touch some buffers.

    `cycles`: for which the unit is busy; `calls`, `issuing`: instructions, and cycles in which the
    host issues them; `beats` on the `bus`; `written`: cycles until what is posted is written, if it
    `posts`; `ends`: loops, and the part of all these that it takes in the last iteration of each;
    `at`: loops, and the only iteration of each in which it runs; `shift`: by how many iterations of
    the loops around its buffers it runs later than others; `held`: another unit that cannot work
    meanwhile, for a `share` of the cycles.
    """

    name: str
    unit: str
    cycles: Array
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    calls: Array = field(default_factory=_one)
    issuing: Array = field(default_factory=_zero)
    bus: str = ""
    beats: Array = field(default_factory=_zero)
    written: Array = field(default_factory=_zero)
    posts: bool = False
    ends: tuple[tuple[str, Array], ...] = ()
    at: tuple[tuple[str, int], ...] = ()
    shift: int = 0
    held: str = ""
    share: Array = field(default_factory=_zero)

    def times(self, around: Iterable[Repeat]) -> Array:
        """How often it is executed inside of some loops, short iterations counted as parts."""
        only, ends, found = dict(self.at), dict(self.ends), ONE
        for loop in around:
            if loop.name not in only:
                found = found * (loop.count - 1 + ends.get(loop.name, ONE))
        return found


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop; `fresh`: buffers of which every iteration takes the next version."""

    name: str
    count: Counts
    body: tuple[Block | Repeat, ...]
    fresh: tuple[str, ...] = ()


Node = Block | Repeat


@dataclass(frozen=True, slots=True)
class Machine:
    """`queues`: entries of each unit's queue where a host issues calls, else none; `handover`:
    cycles from the end of a block to the start of one that waits for it."""

    queues: Mapping[str, int]
    handover: int = 0


def blocks(nodes: Sequence[Node]) -> Iterator[Block]:
    """The leaves, in textual order."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield from blocks(node.body)
        else:
            yield node


NUMBERS: Final = ("cycles", "calls", "issuing", "beats", "written", "share")
"""The arrays of a block."""


def points(nodes: Sequence[Node]) -> int:
    """How many points a tree stands for."""
    sizes = [len(getattr(block, name)) for block in blocks(nodes) for name in NUMBERS]
    sizes += [len(part) for block in blocks(nodes) for _, part in block.ends]
    counts = [max(len(n.count), points(n.body)) for n in nodes if isinstance(n, Repeat)]
    return max((1, *sizes, *counts))


def taken(
    nodes: Sequence[Node], versions: Mapping[str, Counts], which: NDArray[np.intp], size: int
) -> tuple[tuple[Node, ...], dict[str, Counts]]:
    """A tree and its buffers' versions at some of so many points."""

    def at(values: NDArray[Any]) -> NDArray[Any]:
        return values[which] if len(values) == size > 1 else values

    def node(given: Node) -> Node:
        if isinstance(given, Repeat):
            return replace(given, count=at(given.count), body=tuple(map(node, given.body)))
        ends = tuple((n, at(part)) for n, part in given.ends)
        return replace(given, ends=ends, **{n: at(getattr(given, n)) for n in NUMBERS})

    return tuple(map(node, nodes)), {n: at(count) for n, count in versions.items()}


def largest(values: Iterable[Array]) -> Array:
    """Of each point, the largest of some numbers, 0 if there are none."""
    found = ZERO
    for value in values:
        found = np.maximum(found, value)
    return found
