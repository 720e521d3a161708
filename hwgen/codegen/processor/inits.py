"""Reductions that initialise themselves, taken apart: an initialisation stands just before the
outermost loop that carries the reduction."""

from __future__ import annotations

from dataclasses import replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.edit import inserted
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, Node, Site, map_blocks
from hwgen.polyhedral.tree.reductions import initialisation
from hwgen.polyhedral.tree.relations import carried, combining
from hwgen.spec.expression import names


def separate(state: LoopTree) -> LoopTree:
    """The state with an "init" block for every whole reduction.

    A reduction that starts inside the threads that combine it needs none: it stays "whole".

    Raises:
        HwgenError: H620 a loop of threads that carries a reduction and more.
    """
    for stage in state.stages:
        site = state.site[stage.tensor]
        if stage.reduces and site.block.part == "whole":
            state = _separated(state, site)
    return state


def first_reduction(state: LoopTree, site: Site) -> int:
    """How many loops are outside of the first one that carries the block's reduction."""
    carriers = carried(state, site)
    return next((n for n, x in enumerate(site.loops) if x.name in carriers), len(site.loops))


def _separated(state: LoopTree, site: Site) -> LoopTree:
    block = site.block
    combined = [x.name for x in combining(state, site)]
    spatial = {n for n, _ in state.stage[block.stage].spatial}
    mixed = [
        n for i, e in block.bindings if i in spatial for n in names(e) if n in combined
    ]  # fmt: skip
    if mixed:
        raise HwgenError(
            "H620",
            f"threads of {mixed[0]} cannot combine {block.stage}",
            found=f"{mixed[0]} runs over elements of {block.stage} as well as contributions",
            allowed="a loop of threads that carries the reduction alone",
            repair=f"bind the loops of {mixed[0]} before fusing them",
        )
    depth = first_reduction(state, site)
    if combined and site.loops[depth].name in combined:
        return state
    if block.tensorized is not None:
        depth = min(depth, site.names.index(block.tensorized.loop))
    made = initialisation(state, site, depth, alike=True)

    def update(found: Block) -> Node:
        return replace(found, part="update") if found == block else found

    root = inserted(map_blocks(state.root, update), site, depth, (made,))
    return replace(state, root=root)
