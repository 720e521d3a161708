"""Sums that begin with their first contribution: by an intrinsic that sets where another adds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import takewhile

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.bind import BoundTree
from hwgen.polyhedral.semantics import setting
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
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.tree.relations import carried
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.hardware import HardwareSpec


def begun(covered: BoundTree, hardware: HardwareSpec) -> BoundTree:
    """The same with the first contributions to each sum, where no block begins it, as blocks of
    their own, before the rest.

    Raises:
        HwgenError: H424 where no intrinsic begins a sum so.
    """
    for site in covered.state.sites:
        stage = covered.state.stage[site.block.stage]
        if stage.reduces and site.block.part == "whole":
            covered = _begun(covered, covered.state.site[site.block.name], hardware)
    return covered


def _begun(covered: BoundTree, site: Site, hardware: HardwareSpec) -> BoundTree:
    state, call = covered.state, site.block.call
    stage = state.stage[site.block.stage]
    start = beginning(stage, state.tensor[stage.tensor].dtype)
    number = start.value if isinstance(start, Const) and not stage.ordered else None
    first = None if number is None else setting(hardware, call.intrinsic, number)
    if first is None:
        raise HwgenError(
            "H424",
            f"nothing begins the sums of {stage.tensor}",
            field=f"blocks.{site.block.name}",
            found=f"{call.intrinsic.name}, which adds to what is there",
            allowed=f"an intrinsic that does the same to {start}, or a block that sets it",
            repair=f"decompose_reduction({stage.tensor!r}, ...), and tensorize what it makes",
        )
    depth = depth_of(state, covered.homes, site)
    lanes = {x for _, x in call.lanes if x}
    mine = carried(state, site) - lanes
    over = [x.name for x in site.loops if x.name in mine and x.extent > 1]
    taken = {*(t.name for t in state.tensors), *state.loop}
    used = {n for n, _ in site.block.bindings}
    nests: list[Node] = []
    for part, conditions in _parts(over):
        name = f"{stage.tensor}_{part}"
        block = replace(site.block, predicate=(*site.block.predicate, *conditions), copy=part)
        if part == "first":
            block = block.calling(replace(call, intrinsic=first))
        chain, made = copied(replace(site, block=block), depth, name, taken, used)
        taken |= {x.name for x in chain}
        nests.append(nest(chain, made))
    root = inserted(state.root, site, depth, tuple(nests))

    def rest(block: Block) -> Node | None:
        return None if block.name == site.block.name else block

    root = _late_between(map_blocks(root, rest), {f"{stage.tensor}_{p}" for p, _ in _parts(over)})
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


def _parts(loops: list[str]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The first iteration of some loops, and the others in as many boxes as there are loops."""
    zero = [first_of(n) for n in loops]
    yield "first", tuple(zero)
    for k, name in enumerate(loops):
        yield f"rest{k + 1}", (*zero[:k], Binary(">=", Name(name), Const(1)))
