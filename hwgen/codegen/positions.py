"""Where a call stands in the body of a tile loop, in words that sort in the order they run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Side(IntEnum):
    """The side of the next inner tile loop, which itself is one of the things in a body."""

    BEFORE = 0
    LOOP = 1
    BEHIND = 2


class Share(IntEnum):
    """What stands where an operation does: its own calls and, where it is an update that a host
    issues, the stores of the tile before, which its first calls let begin."""

    FIRST = 0
    MOVED_STORES = 1
    REST = 2


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a body. `operation`: the number, among the kernel's, of the one that stands here.

    Two positions compare as what stands there runs.
    """

    side: Side
    operation: int = 0
    share: Share = Share.FIRST


INNER_LOOP = Position(Side.LOOP)
"""Where the next inner tile loop stands."""
