"""Blocks that run as several, each for a part of their iterations: one for each of alternative
conditions (`interleave`), or the first contributions to sums before the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product, takewhile

from hwgen.codegen.lower.ranges import bounded, decided
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.tree.block_copies import copied, depth_of, nest
from hwgen.polyhedral.tree.edit import inserted
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Node,
    Site,
    blocks,
    first_of,
    map_blocks,
    map_loops,
)
from hwgen.polyhedral.tree.relations import carried
from hwgen.spec.expression import Binary, Const, Expr, Name, alternatives, conjuncts


def in_parts(covered: BoundTree) -> BoundTree:
    """The same with one call a block, wherever and whenever that runs."""
    for site in covered.state.sites:
        if site.block.call.first is not None:
            covered = _begun(covered, covered.state.site[site.block.name])
    for site in covered.state.sites:
        if any(len(alternatives(p)) > 1 for p in site.block.predicate):
            covered = _by_alternative(covered, covered.state.site[site.block.name])
    return covered


def _begun(covered: BoundTree, site: Site) -> BoundTree:
    """The first contributions to each sum, which another intrinsic sets it to, before the rest."""
    block = site.block
    adds = replace(block.call, first=None)
    assert block.call.first is not None
    lanes = {x for _, x in adds.lanes if x}
    mine = carried(covered.state, site) - lanes
    over = [x.name for x in site.loops if x.name in mine and x.extent > 1]
    made: list[tuple[str, Block]] = []
    for part, conditions in _boxes(over):
        call = replace(adds, intrinsic=block.call.first) if part == "first" else adds
        own = replace(block, predicate=(*block.predicate, *conditions), copy=part)
        made.append((f"{block.stage}_{part}", own.calling(call)))
    found = _in_place(covered, site, made)
    root = _late_between(found.state.root, {name for name, _ in made})
    return replace(found, state=replace(found.state, root=root))


def _boxes(loops: Sequence[str]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The first iteration of some loops, and the others in as many boxes as there are loops."""
    zero = [first_of(n) for n in loops]
    yield "first", tuple(zero)
    for k, name in enumerate(loops):
        yield f"rest{k + 1}", (*zero[:k], Binary(">=", Name(name), Const(1)))


def _by_alternative(covered: BoundTree, site: Site) -> BoundTree:
    """One block for each of the alternatives that may hold."""
    block = site.block
    label = block.name.removeprefix(block.stage).removeprefix("_") or "way"
    made: list[tuple[str, Block]] = []
    for number, way in enumerate(product(*map(alternatives, block.predicate)), 1):
        conditions = tuple(c for p in way for c in conjuncts(p))
        if _possible(site, conditions):
            own = replace(block, copy=f"{label}{number}", predicate=conditions)
            made.append((own.name, own))
    return _in_place(covered, site, made)


def _possible(site: Site, conditions: Sequence[Expr]) -> bool:
    """Whether all conditions may hold at once."""
    ranges = {n: bounded(conditions, n, 0, extent) for n, extent in site.extents.items()}
    empty = any(low >= high for low, high in ranges.values())
    return not empty and all(decided(c, ranges) is not False for c in conditions)


def _in_place(covered: BoundTree, site: Site, made: Iterable[tuple[str, Block]]) -> BoundTree:
    """Blocks in the place of one, each in loops of its own, which are named after it."""
    state = covered.state
    depth = depth_of(state, covered.homes, site)
    taken = {*(t.name for t in state.tensors), *state.loop}
    used = {n for n, _ in site.block.bindings}
    nests: list[Node] = []
    for name, block in made:
        chain, own = copied(replace(site, block=block), depth, name, taken, used)
        taken |= {x.name for x in chain}
        nests.append(nest(chain, own))

    def others(block: Block) -> Block | None:
        return None if block.name == site.block.name else block

    root = map_blocks(inserted(state.root, site, depth, tuple(nests)), others)
    return replace(covered, state=replace(state, root=root))


def _late_between(root: tuple[Node, ...], parts: Collection[str]) -> tuple[Node, ...]:
    """What runs later than its own iterations, behind the parts of a sum, comes right behind the
    first of them: it is of another tile, and its unit can begin once that unit has.

    A host that issues in order is not held up by it then.
    """

    def arranged(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        mine = [n for n, x in enumerate(nodes) if {b.name for b in blocks((x,))} <= {*parts}]
        if len(mine) < 2:
            return nodes
        end = mine[-1] + 1
        late = list(takewhile(lambda x: all(b.lag > 0 for b in blocks((x,))), nodes[end:]))
        begun = mine[0] + 1
        return (*nodes[:begun], *late, *nodes[begun:end], *nodes[end + len(late) :])

    return arranged(map_loops(root, lambda x: (x.around(arranged(x.body)),)))
