"""Blocks that run where one of several conditions holds (`interleave`), as one block for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from hwgen.codegen.lower.ranges import bounded, decided
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.tree.block_copies import copied, depth_of, nest
from hwgen.polyhedral.tree.edit import inserted
from hwgen.polyhedral.tree.loop_tree import Block, Node, Site, map_blocks
from hwgen.spec.expression import Expr, alternatives, conjuncts


def parted(covered: BoundTree) -> BoundTree:
    """The same, each block with alternatives as one for each of them, in its place."""
    for site in covered.state.sites:
        if any(len(alternatives(p)) > 1 for p in site.block.predicate):
            covered = _parted(covered, covered.state.site[site.block.name])
    return covered


def _parted(covered: BoundTree, site: Site) -> BoundTree:
    state, block = covered.state, site.block
    depth = depth_of(state, covered.homes, site)
    taken = {*(t.name for t in state.tensors), *state.loop}
    label = block.name.removeprefix(block.stage).removeprefix("_") or "way"
    used = {n for n, _ in block.bindings}
    nests: list[Node] = []
    for number, way in enumerate(product(*map(alternatives, block.predicate)), 1):
        conditions = tuple(c for p in way for c in conjuncts(p))
        if not _possible(site, conditions):
            continue
        mine = replace(block, copy=f"{label}{number}", predicate=conditions)
        alone = replace(site, block=mine)
        chain, made = copied(alone, depth, mine.name, taken, used)
        taken |= {x.name for x in chain}
        nests.append(nest(chain, made))

    def others(other: Block) -> Block | None:
        return None if other.name == block.name else other

    root = map_blocks(inserted(state.root, site, depth, tuple(nests)), others)
    return replace(covered, state=replace(state, root=root))


def _possible(site: Site, conditions: Sequence[Expr]) -> bool:
    """Whether all conditions may hold at once."""
    ranges = {n: bounded(conditions, n, 0, extent) for n, extent in site.extents.items()}
    empty = any(low >= high for low, high in ranges.values())
    return not empty and all(decided(c, ranges) is not False for c in conditions)
