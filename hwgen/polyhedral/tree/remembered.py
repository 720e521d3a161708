"""What a check has found out about a part of a tree, kept for other trees in which that part is the
same.

An edit leaves most of a tree as it is: its stages and blocks are then the same objects, under loops
of the same names and extents. A refusal is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from hwgen.polyhedral.same import Same
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site
from hwgen.polyhedral.tree.relations import shared

T = TypeVar("T")

KEPT = 1 << 14
"""Findings of one kind that are kept."""


class Remembered(Generic[T]):
    """Findings of one kind, the oldest of which is forgotten first."""

    def __init__(self) -> None:
        self._found: dict[Hashable, T] = {}

    def once(self, about: Hashable, find: Callable[[], T]) -> T:
        """What was found about something, or is now.

        Raises:
            HwgenError: what `find` raises.
        """
        if about not in self._found:
            if len(self._found) >= KEPT:
                del self._found[next(iter(self._found))]
            self._found[about] = find()
        return self._found[about]

    def forget(self) -> None:
        """Find all of it anew: for who changes what is legal."""
        self._found.clear()


def block_key(state: LoopTree, site: Site) -> Hashable:
    """All that a check of a block by itself may look at: its stage, and the loops around it."""
    return Same(site.block), Same(state.stage[site.block.stage]), site.heads


def tensors_key(state: LoopTree, tensors: Sequence[str]) -> Hashable:
    """All that a check of tensors in one place may look at: who uses them, in which order and in
    which common loops, and how they are kept."""
    users = state.users_of_any(tensors)
    return (
        tuple(block_key(state, s) for s in users),
        tuple(shared(a, b) for a, b in pairwise(users)),
        tuple((state.tensor[t], state.place(t)) for t in tensors),
        state.rewritten,
    )
