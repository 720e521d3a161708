"""Blocks that hand over in pieces: one takes the first of what another makes while that makes more.

Both have a loop that moves the same index of what is handed over by the same step. Its pieces
become one outermost loop of both, so that neither runs as a single call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwgen.passes.pipeline_ranking import Body
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.edit import refuse
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, loops
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Expr, substitute


@dataclass(frozen=True, slots=True, order=True)
class Pieces:
    """A block, another that reads what it makes, and how many pieces of that."""

    source: str
    target: str
    count: int

    def blocks(self, body: Body) -> tuple[int, int]:
        """The numbers of both in the body of a pipeline."""
        names = [b.name for b in body.blocks]
        return names.index(self.source), names.index(self.target)

    def of(self, body: Body) -> Body:
        """The body of a pipeline with these pieces."""
        return body.in_pieces(*self.blocks(body), self.count)


def shared_loop(
    state: LoopTree, pieces: Pieces, band: Sequence[str] = ()
) -> tuple[str, str] | None:
    """The loop of each block, inside of a band, that is cut: the longest that both have, as short
    calls take longer; None where they have none."""
    if pieces.source not in state.site or pieces.target not in state.site:
        return None  # Of a stage that takes several calls.
    source, target = state.site[pieces.source], state.site[pieces.target]
    found = [
        x
        for x in shared_loops(state, source, target, band)
        if x[0] > pieces.count and x[0] % pieces.count == 0
    ]
    return max(found)[1:] if found else None


def shared_loops(
    state: LoopTree, source: Site, target: Site, band: Sequence[str]
) -> Iterator[tuple[int, str, str]]:
    """Loops of two blocks inside of a band, none of a call's lanes, that move the same index of
    what is handed over by the same step, with their extent: of the first indices first."""
    stage, reader = state.stage[source.block.stage], state.stage[target.block.stage]
    reads = [r for r in reader.reads_in(target.block.part) if r.tensor == stage.tensor]
    used = {*band, *_lanes(source), *_lanes(target)}
    for n, index in enumerate(stage.target.indices):
        one = _index(source, index)
        others = [_index(target, r.indices[n]) for r in reads]
        for loop, step in one.terms if one is not None else ():
            alike = [_moving(target, other, step) for other in others]
            extent, other = state.loop[loop].extent, alike[0] if alike else ""
            if not other or alike.count(other) < len(alike) or {loop, other} & used:
                continue
            if state.loop[other].extent == extent and other != loop:
                yield extent, loop, other


def _lanes(site: Site) -> tuple[str, ...]:
    """The loops that a call takes as its lanes."""
    call = site.block.tensorized
    return site.names[site.names.index(call.loop) :] if call and call.loop in site.names else ()


def _index(site: Site, index: Expr) -> Affine | None:
    """An index over the loops around a block."""
    return affine(substitute(index, site.block.binding))


def _moving(site: Site, index: Affine | None, step: int) -> str:
    """The loop around a block that moves an index by a step; "" where none does."""
    terms = index.terms if index is not None else ()
    return next((n for n, k in terms if k == step and n in site.names), "")


def hand_over(s: Schedule, pieces: Pieces, band: Sequence[str]) -> None:
    """Blocks inside of a band hand over in pieces.

    Raises:
        HwgenError: H413 where no loop is left to cut; as the primitives, where that is not legal.
    """
    cut = shared_loop(s.state, pieces, band)
    if cut is None:
        raise refuse(
            f"{pieces.source} cannot hand over to {pieces.target} in {pieces.count} pieces",
            "no loop of both that other pieces have left as it was",
            f"a loop of both with a multiple of {pieces.count} iterations",
            "leave out these pieces, or the others",
        )
    merged: list[str] = []
    for name, loop in zip((pieces.source, pieces.target), cut, strict=True):
        outer, _ = s.split(loop, factor=s.state.loop[loop].extent // pieces.count)
        outermost(s, name, outer, band)
        merged.append(outer)
    order = [x.name for x in loops(s.state.root) if x.name in merged]
    s.merge(order[0], order[1])


def outermost(s: Schedule, block: str, loop: str, band: Sequence[str]) -> None:
    """A loop around a block, directly inside of a band."""
    around = s.state.site[block].names
    names = around[around.index(band[-1]) + 1 if band else 0 :]
    if names[0] != loop:
        s.reorder(loop, *names[: names.index(loop)])
