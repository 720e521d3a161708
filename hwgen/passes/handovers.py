"""Pipelines in which what enters or leaves the chip does so in pieces.

In the middle of a loop, units are at work on several iterations at once. Where it begins and ends,
nothing is beside what they wait for: the first products for a whole operand, the last store for a
whole block. In pieces, units work on the first of them meanwhile. The model of in-order units says
which handovers may gain something; these are compiled, and the timing model decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hwgen.constants import CHUNKS, HANDOVERS_TRIED
from hwgen.passes.pieces import Pieces, shared_loop
from hwgen.passes.pipeline_ranking import Body
from hwgen.passes.pipelining import Pipeline, room, shifted


def in_pieces(found: Pipeline) -> Pipeline:
    """The same pipeline, or a faster one in which what enters or leaves the chip does so in
    pieces."""
    tried: set[Pieces] = set()
    while (body := found.body) is not None and found.waits and len(tried) < HANDOVERS_TRIED:
        now = body.least(found.delays, partial(room, found.plain, body))
        ranked: list[tuple[float, Pieces]] = []
        for finest in (p for p in _handovers(found, body) if p not in tried):
            other = finest.of(body)
            fits = partial(room, found.plain, other)
            ranked.append((other.least(found.delays, fits, finest.blocks(other)), finest))
        if not ranked or min(ranked)[0] >= now:
            break
        _, finest = min(ranked)
        tried.add(finest)
        for count in CHUNKS:
            better = _with(found, body, replace(finest, count=count))
            if better is found:
                break
            found = better
    return found


def _with(found: Pipeline, body: Body, pieces: Pieces) -> Pipeline:
    """A pipeline with another handover of its body in pieces, if that is faster."""
    body = pieces.of(body)
    delays = body.faster(found.delays, partial(room, found.plain, body)) or found.delays
    ends = pieces.source, pieces.target
    every = (*(p for p in found.pieces if (p.source, p.target) != ends), pieces)
    return found.or_faster(shifted(found, body, delays, delays, every), body, delays, every)


def _handovers(found: Pipeline, body: Body) -> Iterator[Pieces]:
    """Blocks of different units, one of which moves what enters or leaves the chip, that could hand
    over in pieces."""
    state = found.plain.schedule.state
    for edge in body.edges:
        pair = body.blocks[edge.source], body.blocks[edge.target]
        copies = any(state.stage[b.stage].kind == "copy" for b in pair)
        if pair[0].unit != pair[1].unit and copies:
            pieces = Pieces(pair[0].name, pair[1].name, CHUNKS[-1])
            if shared_loop(state, pieces, found.band) is not None:
                yield pieces
