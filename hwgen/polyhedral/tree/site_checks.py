"""What must hold of every block by itself: its instances are points of its stage, what it reads
exists, somebody stores what threads combine; and no iterations that run at once conflict.
"""

from __future__ import annotations

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.by_indices import stays_inside
from hwgen.polyhedral.tree.defined import guarded_reads, partial_writers
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree, Site, Stage, listed
from hwgen.polyhedral.tree.relations import (
    SEQUENTIAL,
    added_in_lanes,
    carried,
    combining,
    conjoin,
    equal,
    same,
    shared,
    side_of,
    some_pair,
)
from hwgen.polyhedral.tree.terms import interval
from hwgen.polyhedral.tree.witnesses import (
    POINT,
    pair_text,
    point_text,
    stage_domain,
    stage_elements,
)
from hwgen.spec.expression import substitute


def check_inside(state: LoopTree, site: Site) -> None:
    """Every instance is one of a point of its stage."""
    side = side_of(state, site, "'")
    binding, extents = site.block.binding, site.extents
    for iterator, extent in side.stage.iterators:
        if iterator not in binding:
            continue
        low, high = interval(binding[iterator], extents)
        if low >= 0 and (high < extent or stays_inside(binding[iterator], extent, side)):
            continue
        value = side.own(binding[iterator])
        outside = f"({value} < 0 or {value} >= {extent})"
        strays = isl.some_point(f"{{ {side.tuple} : {conjoin(side.domain, [outside])} }}")
        if strays is not None:
            raise HwgenError(
                "H411",
                f"{site.block.name} runs where it has nothing to compute",
                found=f"{point_text(strays, side.names)}: {iterator} is not in 0..{extent - 1}",
                allowed=f"instances within {iterator}: 0..{extent - 1}",
                repair="a guard around the block",
            )


def check_kept(state: LoopTree, stage: Stage) -> None:
    """What a stage keeps the elements of is in its place."""
    if stage.over and state.place(stage.over).tensor != state.place(stage.tensor).tensor:
        raise HwgenError(
            "H411",
            f"{stage.tensor} keeps elements of {stage.over}, which is not in its place",
            found=f"{stage}, which writes a part",
            allowed="a tensor that statements write in parts, in one place",
            repair=f"leave {stage.over} and {stage.tensor} as they are, or write all of the tensor",
        )


def check_written(state: LoopTree, site: Site) -> None:
    """Of a tensor that stages write in part, nothing else is read."""
    side = side_of(state, site, "'")
    found = (r for v in side.stage.values_in(site.block.part) for r in guarded_reads(v))
    for access, guards in found:
        versions = partial_writers(state, access.tensor)
        if not versions:
            continue
        where = [side.own(substitute(g, site.block.binding)) for g in guards]
        rank = ", ".join(f"e{d}" for d in range(len(access.indices)))
        at = [f"e{d}" for d in range(len(access.indices))]
        read = (
            f"{{ [{rank}] : exists ({', '.join(side.names) or 'z'} : "
            f"{conjoin(side.domain, where, equal(at, side.element(access)))}) }}"
        )
        written = "; ".join(
            f"[{rank}] : exists ({', '.join(f'{n}{POINT}' for n, _ in s.iterators) or 'z'} : "
            f"{conjoin(stage_domain(s, POINT), equal(at, stage_elements(s, s.target, POINT)))})"
            for s in versions
        )
        stray = isl.some_point(read, f"{{ {written} }}")
        if stray is not None:
            raise HwgenError(
                "H411",
                f"{site.block.name} reads what nothing writes",
                found=f"{access.tensor}[{', '.join(map(str, stray[1]))}]",
                allowed="elements that a statement writes",
                repair=f"compute {site.block.stage} at a loop of what reads it, as far as needed",
            )


def check_store(state: LoopTree, site: Site) -> None:
    """Where threads combine a reduction, one of them must store it."""
    loops = combining(state, site)
    predicate = site.block.store_predicate
    if predicate is None or not loops:
        return
    side = side_of(state, site, "'")
    names = {f"{x.name}'" for x in loops}
    outer = [n for n in side.names if n not in names]
    inner = [n for n in side.names if n in names]
    bounds = side.domain
    whole = f"{{ [{', '.join(outer)}] : exists ({', '.join(inner)} : {conjoin(bounds)}) }}"
    stored = (
        f"{{ [{', '.join(outer)}] : exists ({', '.join(inner)} : "
        f"{conjoin(bounds, [side.own(predicate)])}) }}"
    )
    missing = isl.some_point(whole, stored)
    if missing is not None:
        raise HwgenError(
            "H411",
            f"nobody stores {site.block.stage}",
            found=f"no instance at which {predicate} holds, for example among "
            f"{point_text(missing, outer, site.block.stage)}",
            allowed="a predicate that holds for at least one thread",
            repair="let the thread of index zero store",
        )


def check_parallel(state: LoopTree, homes: Homes) -> None:
    """Iterations that may run at once do not touch what another one writes."""
    at_once = [x for x in state.loop.values() if x.kind not in SEQUENTIAL]
    blocks = listed((x.name, s) for s in state.sites for x in s.loops if x.kind not in SEQUENTIAL)
    for loop in at_once:
        written = dict.fromkeys(s.block.stage for s in blocks[loop.name])
        for tensor in written:
            if loop.name in homes[tensor]:
                continue
            for writer in (s for s in state.sites_of(tensor) if loop.name in s.names):
                if loop in combining(state, writer) or added_in_lanes(state, writer, loop):
                    continue
                for other in (s for s in state.users[tensor] if loop.name in s.names):
                    _check_conflict(state, loop.name, loop.kind, writer, other, tensor)


def _check_conflict(
    state: LoopTree, loop: str, kind: str, writer: Site, other: Site, tensor: str
) -> None:
    w, o = side_of(state, writer, "'"), side_of(state, other, "''")
    depth = w.site.names.index(loop)
    if shared(writer, other) <= depth:
        return
    accesses = [r for r in o.stage.reads_in(other.block.part) if r.tensor == tensor]
    if other.block.stage == tensor:
        accesses.append(o.stage.target)
    for access in accesses:
        elements = equal(w.element(w.stage.target), o.element(access))
        clash = some_pair(w, o, f"{loop}' != {loop}''", same(w, o, depth), elements)
        if clash is not None:
            first, second = pair_text(clash, w.names, o.names)
            raise HwgenError(
                "H412",
                f"iterations of {loop} conflict, so it cannot be of kind {kind}",
                found=f"{first} writes an element of {tensor} that {second} "
                f"{'writes' if other.block.stage == tensor else 'reads'}",
                allowed="a loop whose iterations touch different elements",
                repair=f"another loop, or rfactor({tensor!r}, {loop!r})"
                if loop in carried(state, writer)
                else "another loop",
            )
