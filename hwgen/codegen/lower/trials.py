"""The calls that a layout of buffers would give, to compare one with another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.lower.blocks import Covered
from hwgen.codegen.lower.live import apart
from hwgen.codegen.lower.nests import Leaf, Piece, peeled
from hwgen.codegen.lower.places import Places
from hwgen.codegen.lower.sites import Builder, CallSite, Known, sites_of
from hwgen.errors import Tolerating
from hwgen.polyhedral.tree.loop_tree import map_blocks


class Trials:
    """Of one tree. `whole`: see `peeled`."""

    def __init__(
        self,
        covered: Covered,
        whole: Mapping[str, Collection[str]],
        known: Known | None = None,
    ) -> None:
        # When a block runs decides nothing about its calls.
        root = map_blocks(covered.state.root, lambda b: replace(b, shifts=(), band=(), lag=0))
        ordered = {s.tensor for s in covered.state.stages if s.ordered}
        self.covered, self.pieces = covered, peeled(root, whole, ordered=ordered)
        self.leaves = Counter(leaf.block.name for leaf in _leaves(self.pieces))
        self.known = known or Known.nothing()

    def sites(self, places: Places, users: frozenset[str]) -> list[CallSite] | None:
        """The calls of some blocks; None where no call can be so."""
        builder = Builder(self.covered, places, apart(places), only=users, known=self.known)
        with Tolerating("H614"):
            return list(sites_of(builder.items(self.pieces)))
        return None

    def whole(self, sites: Sequence[CallSite], users: frozenset[str]) -> bool:
        """Whether one call does what is to be done in an iteration of the loops around it."""
        single = len(sites) == sum(self.leaves[block] for block in users)
        return single and all(s.absorbed.issued == 1 for s in sites)


def _leaves(pieces: Sequence[Piece]) -> Iterator[Leaf]:
    for piece in pieces:
        if isinstance(piece, Leaf):
            yield piece
        else:
            yield from _leaves(piece.body)
