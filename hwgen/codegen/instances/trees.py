"""That the tree of calls which lowering makes has the instances of the schedule's own tree.

Blocks of several calls were parted, and sums taken apart into first and other contributions. Each
block of the schedule, and those that came of it, are held against each other: points are values of
the loops that they have in common, and of the stage's iterators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hwgen.codegen.instances.boxes import conditions_of
from hwgen.codegen.instances.forms import Ranges, known_form, variable
from hwgen.codegen.instances.pieces import pieces_of
from hwgen.codegen.instances.points import Piece, value
from hwgen.codegen.instances.refuted import refuted
from hwgen.codegen.instances.sums import Place
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, Site, listed
from hwgen.spec.expression import names


def check_trees(before: LoopTree, after: LoopTree, laid_out: Collection[str]) -> None:
    """Hold a tree of calls against the schedule's. `laid_out`: tensors that the host lays out.

    Raises:
        HwgenError: H747 the first block that has other instances.
    """
    place = Place()
    of_stage = listed((s.block.stage, s) for s in after.sites)
    named = listed((s.block.name, s) for s in after.sites)
    for site in before.sites:
        if site.block.stage in laid_out:
            continue
        stage, name = site.block.stage, site.block.name
        renamed = (s for s in named.get(name, ()) if s.block.stage != stage)
        mine = (s for s in (*of_stage.get(stage, ()), *renamed) if _of(s.block, site.block))
        found = sorted(mine, key=lambda s: s.places)
        if len(found) == 1 and _alike(site, found[0]):
            continue
        shared = [n for n in site.names if all(n in s.names for s in found)]
        own = [n for n, _ in site.block.bindings]
        meant = value(_points(site, own, shared), place)
        done = value((p for s in found for p in _points(s, own, shared)), place)
        if meant != done:
            raise refuted(
                f"{site.block.name} has other instances as calls than in its tree",
                ", ".join(s.block.name for s in found) or "no call",
                "each of its instances once",
            )


def _of(block: Block, origin: Block) -> bool:
    """Whether a block is one, or one of several, for another."""
    parts = block.stage == origin.stage and block.copy != "" and origin.part == block.part
    return block.name == origin.name or parts


def _alike(site: Site, other: Site) -> bool:
    """Whether both have the same loops, iterators and predicate, further iterators apart."""
    bound = [b for b in other.block.bindings if b[0] in site.block.binding]
    further = {n for b in other.block.bindings if b not in bound for n in names(b[1])}
    loops = [(x.name, x.extent) for x in other.loops if x.name not in further]
    return (
        tuple(bound) == site.block.bindings
        and loops == [(x.name, x.extent) for x in site.loops]
        and other.block.predicate == site.block.predicate
    )


def _points(site: Site, iterators: Sequence[str], shared: Sequence[str]) -> Iterator[Piece]:
    """The instances of a block."""
    bound = site.block.binding
    mine = {n for i in iterators for n in names(bound[i])} | {*shared}
    further = {n for i, e in bound.items() if i not in iterators for n in names(e)} - mine
    ranges: Ranges = {n: (0, e) for n, e in site.extents.items() if n not in further}
    points = {n: variable(n) for n in shared}
    points |= {f"@{i}": known_form(bound[i], {}, ranges) for i in iterators}
    conditions = tuple(c for p in site.block.predicate for c in conditions_of(p, {}, ranges))
    yield from pieces_of(ranges, conditions, points, {})
