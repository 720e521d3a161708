"""A block again, in loops of its own: for its further calls, and for parts of its instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Block, Homes, Loop, LoopTree, Node, Site
from hwgen.spec.expression import Expr, Name, names, substitute


def depth_of(state: LoopTree, homes: Homes, site: Site) -> int:
    """How many loops around a block stay around all of its calls: those that hold other blocks too,
    or around which a tensor that it touches lives."""
    around = [n for n, x in enumerate(site.loops, 1) if len(x.body) > 1]
    stage = state.stage[site.block.stage]
    for tensor in (stage.tensor, *(r.tensor for r in stage.reads_in("whole"))):
        home = homes.get(tensor, ())
        around += [n for n, x in enumerate(site.loops, 1) if x.name in home]
    return max(around, default=0)


def copied(
    site: Site, depth: int, tensor: str, taken: set[str], used: set[str]
) -> tuple[tuple[Loop, ...], Block]:
    """Loops of other names for those inside `depth` that some iterators of a block need, and the
    block in them."""
    bindings = tuple((n, e) for n, e in site.block.bindings if n in used)
    needed = {n for _, e in bindings for n in names(e)}
    needed |= {n for p in site.block.predicate for n in names(p)} | {*site.block.band}
    named: dict[str, str] = {}
    chain: list[Loop] = []
    seen = set(taken)
    for loop in site.loops[depth:]:
        if loop.name in needed:
            fresh = unique(f"{loop.name}_{tensor}", seen)
            seen.add(fresh)
            named[loop.name] = fresh
            chain.append(replace(loop, name=fresh, body=()))
    table: dict[str, Expr] = {old: Name(new) for old, new in named.items()}
    called = site.block.tensorized
    block = replace(
        site.block,
        bindings=tuple((n, substitute(e, table)) for n, e in bindings),
        predicate=tuple(substitute(p, table) for p in site.block.predicate),
        shifts=tuple((named.get(n, n), later) for n, later in site.block.shifts),
        band=tuple(named.get(n, n) for n in site.block.band),
        tensorized=called and called.along(named),
    )
    return tuple(chain), block


def nest(chain: Sequence[Loop], block: Block) -> Node:
    """A block in loops, the first one outermost."""
    node: Node = block
    for loop in reversed(chain):
        node = loop.around((node,))
    return node
