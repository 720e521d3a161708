"""The calls that a layout of buffers would give, to compare one with another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwgen.codegen.lower.live import apart
from hwgen.codegen.lower.nests import Leaf, Nest, Piece, peeled
from hwgen.codegen.lower.place import Places
from hwgen.codegen.lower.sites import Builder, CallSite, Known, chain_of, sites_of
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.tree.loop_tree import map_blocks


@dataclass(frozen=True, slots=True)
class _Place:
    """A leaf, the loops that hold nothing else, and those around them."""

    leaf: Leaf
    chain: tuple[Nest, ...]
    around: tuple[Nest, ...] = ()

    @property
    def iterations(self) -> int:
        return prod(n.high - n.low for n in (*self.around, *self.chain))


class Trials:
    """Of one tree. `whole`: see `peeled`."""

    def __init__(
        self,
        covered: BoundTree,
        whole: Mapping[str, Collection[str]],
        known: Known | None = None,
    ) -> None:
        # When a block runs decides nothing about its calls.
        root = map_blocks(covered.state.root, lambda b: replace(b, shifts=(), band=(), lag=0))
        ordered = {s.tensor for s in covered.state.stages if s.ordered}
        pieces = peeled(root, whole, ordered=ordered)
        # What is done most often first: it tells soonest that a layout is worse than another.
        self.leaves = sorted(_leaves(pieces), key=lambda x: -x.iterations)
        self.covered, self.known = covered, known or Known.nothing()

    def sites(self, places: Places, users: frozenset[str]) -> Iterator[CallSite]:
        """The calls of some blocks, found one after the other.

        Raises:
            HwgenError: H614 where no call can be so.
        """
        builder = Builder(self.covered, places, apart(places), known=self.known)
        for x in self.leaves:
            if x.leaf.block.name in users:
                around = tuple(map(builder.around, x.around))
                yield from sites_of(builder.calls(x.chain, x.leaf, around))

    def whole(self, sites: Sequence[CallSite], users: frozenset[str]) -> bool:
        """Whether one call does what is to be done in an iteration of the loops around it."""
        single = len(sites) == sum(x.leaf.block.name in users for x in self.leaves)
        return single and all(s.absorbed.issued == 1 for s in sites)


def _leaves(pieces: Sequence[Piece], around: tuple[Nest, ...] = ()) -> Iterator[_Place]:
    for piece in pieces:
        if (chain := chain_of(piece)) is not None:
            yield _Place(chain[1], tuple(chain[0]), around)
        elif isinstance(piece, Nest):
            yield from _leaves(piece.body, (*around, piece))
