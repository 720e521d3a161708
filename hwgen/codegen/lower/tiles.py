"""Buffers that outlive the loops around all that uses them, tile by tile."""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.aliases import places_of
from hwgen.polyhedral.tree.legality import violation
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, first_of, map_blocks
from hwgen.polyhedral.tree.relations import shared


def tiled(state: LoopTree, tensor: str, home: tuple[str, ...]) -> tuple[str, ...]:
    """The loops whose iterations each use a tile of their own of a tensor's buffer: those around
    its home, and those inside it that only the first iterations of others keep from being.

    What is computed in the first iteration of a loop alone, and stays, is read tile by tile in the
    others. Without that condition each tile's home were inside.
    """
    home_of = places_of(state)
    if [t for t, place in home_of.items() if place == home_of.get(tensor, tensor)] != [tensor]:
        return home
    sites = state.users[tensor]
    depth = min(shared(sites[0], s) for s in sites)
    depth = min(depth, len(sites[0].names))
    around = sites[0].names[:depth]
    if depth <= len(home) or tensor not in state.stage:
        return home
    # Of a window that slides, some blocks alone have such a condition: its tiles overlap.
    first = {first_of(n) for n in around[len(home) :]}
    first = first.intersection(*(s.block.predicate for s in state.sites_of(tensor)))
    if not first:
        return home

    def always(block: Block) -> Block:
        if block.stage != tensor:
            return block
        return replace(block, predicate=tuple(p for p in block.predicate if p not in first))

    whole = replace(state, root=map_blocks(state.root, always))
    for d in range(depth, len(home), -1):
        if violation(whole, state.stage[tensor], d, output=False) is None:
            return around[:d]
    return home
