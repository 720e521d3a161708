"""Primitives on reductions: decompose_reduction, rfactor, set_store_predicate."""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.edit import (
    find_loop,
    find_stage,
    inserted,
    main_site,
    refuse,
)
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Site,
    Stage,
    Storage,
    Tensor,
    map_blocks,
)
from hwgen.polyhedral.tree.placement import nest_beside
from hwgen.polyhedral.tree.relations import carried
from hwgen.polyhedral.tree.terms import apply, simplify
from hwgen.spec.expression import Access, Call, Expr, Name, conjunction, names, substitute
from hwgen.spec.typecheck import neutral


def beginning(stage: Stage, dtype: str) -> Expr:
    """What the elements of a reduction start from."""
    if stage.seed is not None:
        return stage.seed
    return neutral(stage.op, dtype) if stage.start is None else stage.start


def _reduction_site(
    state: LoopTree, tensor: str, what: str, around: str = ""
) -> tuple[Stage, Site]:
    """A stage that sums up and its block, of which calls are not made yet, or inside of a loop."""
    stage = find_stage(state, tensor)
    if not stage.reduces:
        raise refuse(
            f"{tensor} cannot be {what}",
            f"{stage} adds nothing up",
            "stages with +=, max= or min=",
            "name the stage of a reduction",
        )
    site = main_site(state, tensor)
    apart, call = site.block.part != "whole", site.block.tensorized
    lanes = site.names.index(call.loop) if call and call.loop else len(site.names)
    if apart or (call is not None and around not in site.names[:lanes]):
        raise refuse(
            f"{tensor} cannot be {what}",
            f"its initialisation is already apart, {tensor}_init" if apart else "tensorized",
            "a reduction that still initialises itself",
            f"before {'decompose_reduction' if apart else 'tensorize'}, or leave it out",
        )
    return stage, site


def decompose_reduction(state: LoopTree, tensor: str, loop: str = "") -> tuple[LoopTree, str]:
    """The initialisation becomes a block of its own, just before a loop, or without one before the
    contributions themselves, inside all of their loops.

    Raises:
        HwgenError: H413, H414.
    """
    _, site = _reduction_site(state, tensor, "decomposed", loop)
    if loop and loop not in site.names:
        find_loop(state, loop)
        raise refuse(
            f"{loop} is not around {tensor}",
            loop,
            ", ".join(site.names),
            "a loop of the reduction",
        )
    depth = site.names.index(loop) if loop else len(site.loops)
    node = initialisation(state, site, depth)

    def changed(block: Block) -> Block:
        return replace(block, part="update") if block.stage == tensor else block

    root = inserted(map_blocks(state.root, changed), site, depth, (node,))
    return replace(state, root=root), f"{tensor}_init"


def initialisation(state: LoopTree, site: Site, depth: int, *, alike: bool = False) -> Node:
    """A nest over the elements that the loops from `depth` inwards write, of copies of those loops:
    of the same kinds, where they are to be `alike`."""
    block = site.block
    inner = site.loops[depth:]
    spatial = {n for n, _ in state.stage[block.stage].spatial}
    used = {n for i, e in block.bindings if i in spatial for n in names(e)}
    # A condition that ties a copied loop to another one needs that one too.
    ties = [{*names(p)} & {x.name for x in inner} for p in block.predicate]
    while more := [tied for tied in ties if tied & used and not tied <= used]:
        used = used.union(*more)
    taken = set(state.loop)
    bindings: dict[str, Expr] = {}
    made: list[Loop] = []
    extents = state.extents
    for loop in inner:
        if loop.name in used:
            name = unique(f"{loop.name}_init", taken)
            taken.add(name)
            copied = replace(loop, name=name, body=(), pragmas=(), prefetches=(), turns=False)
            made.append(copied if alike else Loop(name, loop.extent, ()))
            extents = extents | {name: loop.extent}
            bindings[loop.name] = Name(name)
    outside = {x.name for x in site.loops[:depth]}
    known = used | outside
    banded = bool(block.band) and outside.issuperset(block.band)
    node: Node = Block(
        block.stage,
        "init",
        tuple((i, apply(e, bindings, extents)) for i, e in block.bindings if i in spatial),
        tuple(apply(p, bindings, extents) for p in block.predicate if set(names(p)) <= known),
        shifts=tuple((n, k) for n, k in block.shifts if n in outside),
        band=block.band if banded else (),
        lag=block.lag if banded else 0,
    )
    for loop in reversed(made):
        node = replace(loop, body=(node,))
    return node


def rfactor(state: LoopTree, tensor: str, loop: str, axis: int) -> tuple[LoopTree, str]:
    """A reduction loop becomes a dimension of a partial result, which is then reduced.

    Raises:
        HwgenError: H413, H414.
    """
    stage, site = _reduction_site(state, tensor, "factored")
    if stage.ordered:
        raise refuse(
            f"{tensor} cannot be factored",
            f"{stage} takes each value from the last one, in order",
            "stages with +=, max= or min=, whose order is free",
            "split and reorder the loops of the elements instead",
        )
    found = find_loop(state, loop)
    carriers = carried(state, site)
    spatial = {n for n, _ in stage.spatial}
    mixed = {n for i, e in site.block.bindings if i in spatial for n in names(e)} & carriers
    if loop not in carriers or loop in mixed:
        raise refuse(
            f"{loop} does not carry the reduction of {tensor} alone",
            f"{loop}",
            ", ".join(n for n in site.names if n in carriers - mixed) or "no loop does",
            "split the reduction's loop and factor one of its parts",
        )
    if found.kind != "serial":
        raise refuse(
            f"{loop} is {found.kind}", loop, "a serial loop", "rfactor first, then bind the loops"
        )
    rank = len(stage.target.indices)
    if not 0 <= axis <= rank:
        raise refuse(f"{tensor} has no place {axis}", str(axis), f"0..{rank}", "axis=0")
    others = [x for x in site.loops if x.name in carriers and x.name != loop]
    dtype = state.tensor[tensor].dtype
    bindings = {i: e for i, e in site.block.bindings if i not in spatial}
    value: Expr = substitute(stage.value, bindings)
    guards = [p for p in site.block.predicate if set(names(p)) & carriers]
    stray = [p for p in guards if not set(names(p)) <= carriers]
    if stray or mixed:
        raise refuse(
            f"{tensor} cannot be factored at {loop}",
            f"{stray[0] if stray else 'a fused loop'} mixes the reduction with other loops",
            "loops that carry the reduction alone",
            "rfactor before fusing",
        )
    condition = conjunction(tuple(guards))
    if condition is not None:
        value = Call("select", (condition, value, neutral(stage.op, dtype)))
    name = unique(f"{tensor}_rf", state.tensor)
    indices = list(stage.target.indices)
    indices.insert(axis, Name(loop))
    shape = list(state.tensor[tensor].shape)
    shape.insert(axis, found.extent)
    factored = Stage(
        name,
        (*stage.spatial, (loop, found.extent), *((x.name, x.extent) for x in others)),
        Access(name, tuple(indices)),
        stage.op,
        value,
    )
    last = Stage(
        tensor,
        (*stage.spatial, (loop, found.extent)),
        stage.target,
        stage.op,
        Access(name, tuple(indices)),
    )
    held = Tensor(name, dtype, tuple(shape), "intermediate")
    made = state.with_tensor(held, Storage(name)).with_stages(tensor, factored, last)

    def changed(block: Block) -> Block:
        if block.stage != tensor:
            return block
        kept = [(i, e) for i, e in block.bindings if i in spatial]
        kept += [(n, Name(n)) for n in (loop, *(x.name for x in others))]
        predicate = tuple(p for p in block.predicate if p not in guards)
        return replace(block, stage=name, bindings=tuple(kept), predicate=predicate)

    made = replace(made, root=map_blocks(state.root, changed))
    return nest_beside(made, last, name, behind=True), name


def set_store_predicate(state: LoopTree, tensor: str, condition: Expr) -> LoopTree:
    """Only the instances for which a condition over loops holds write the result.

    Raises:
        HwgenError: H413, H414.
    """
    find_stage(state, tensor)
    site = main_site(state, tensor)
    strangers = [n for n in names(condition) if n not in site.names]
    if strangers:
        raise refuse(
            f"{strangers[0]} is not a loop around {tensor}",
            str(condition),
            ", ".join(site.names) or "no loop is",
            "a condition over the loops around the block",
        )
    condition = simplify(condition, state.extents)

    def changed(block: Block) -> Block:
        ours = block.stage == tensor and block.part != "init"
        return replace(block, store_predicate=condition) if ours else block

    return replace(state, root=map_blocks(state.root, changed))
