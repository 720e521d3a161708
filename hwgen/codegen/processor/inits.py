"""Reductions that initialise themselves, taken apart: an initialisation stands just before the
outermost loop that carries the reduction."""

from __future__ import annotations

from dataclasses import replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, Site, map_blocks, map_loops
from hwgen.polyhedral.tree.relations import carried, combining
from hwgen.polyhedral.tree.terms import apply
from hwgen.spec.expression import Expr, Name, names


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
    made = _initialisation(state, site, depth, spatial)

    def update(found: Block) -> Node:
        return replace(block, part="update") if found == block else found

    if depth == len(site.loops):
        return replace(state, root=_before_block(map_blocks(state.root, update), block.stage, made))
    updated = map_blocks(state.root, update)
    wanted = site.loops[depth].name
    root = map_loops(updated, lambda x: (made, x) if x.name == wanted else (x,))
    return replace(state, root=root)


def _before_block(nodes: tuple[Node, ...], stage: str, made: Node) -> tuple[Node, ...]:
    result: list[Node] = []
    for node in nodes:
        match node:
            case Block():
                result += [made, node] if node.stage == stage else [node]
            case Loop():
                result.append(replace(node, body=_before_block(node.body, stage, made)))
    return tuple(result)


def _initialisation(state: LoopTree, site: Site, depth: int, spatial: set[str]) -> Node:
    """The elements that the loops from `depth` inwards write, under copies of those loops."""
    inner = site.loops[depth:]
    used = {n for i, e in site.block.bindings if i in spatial for n in names(e)}
    # A condition that ties a copied loop to another one needs that one too.
    grown = True
    while grown:
        grown = False
        for condition in site.block.predicate:
            tied = set(names(condition)) & {x.name for x in inner}
            if tied & used and not tied <= used:
                used |= tied
                grown = True
    taken = set(state.loop)
    copies: list[Loop] = []
    bindings: dict[str, Expr] = {}
    extents = state.extents
    for loop in inner:
        if loop.name in used:
            name = unique(f"{loop.name}_init", taken)
            taken.add(name)
            copies.append(Loop(name, loop.extent, (), loop.kind, loop.combines))
            bindings[loop.name] = Name(name)
            extents = extents | {name: loop.extent}
    known = used | {x.name for x in site.loops[:depth]}
    node: Node = Block(
        site.block.stage,
        "init",
        tuple((i, apply(e, bindings, extents)) for i, e in site.block.bindings if i in spatial),
        tuple(apply(p, bindings, extents) for p in site.block.predicate if set(names(p)) <= known),
    )
    for loop in reversed(copies):
        node = replace(loop, body=(node,))
    return node
