"""Kernels whose end is shorter: the last tile's results are stored in pieces.

In the middle of a kernel units work on several tiles at once. Nothing is beside the last store,
which waits for all results of its tile. In pieces (`interleave`), in the last iteration of the
loops around both alone, results are stored while others are made; the other tiles take the calls
that they took before. A model of both units says which pieces; what it foretells is compiled, and
the timing model decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, inf, prod

from hwgen.codegen.lower.ranges import Condition
from hwgen.codegen.nodes import calls
from hwgen.errors import Tolerating
from hwgen.model.bus import write_cycles
from hwgen.model.closures import maker
from hwgen.model.costs import CycleCosts
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.pieces import outermost, shared_loops
from hwgen.passes.pipelining import busy_cycles
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.tree.loop_tree import Site
from hwgen.polyhedral.tree.relations import shared
from hwgen.spec.call_cycles import shortest_call
from hwgen.spec.expression import conjuncts, evaluate, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic

MOST_PIECES = 6
"""Pieces of the last tile's results: each has calls of its own in the program."""


@dataclass(frozen=True, slots=True)
class End:
    """A block whose results another stores, cycles that both take for the last tile, and those of
    one more call of the first. `extents`: by loop inside of `band`, how far the last tile goes."""

    source: Site
    target: Site
    made: float
    stored: float
    each: float
    band: tuple[str, ...]
    extents: Mapping[str, int]

    def pieces(self, extent: int) -> tuple[int, tuple[int, ...]]:
        """The fewest cycles that both take where a loop of so many iterations comes in pieces, and
        these."""
        most = ceil(self.made + self.stored)
        cycles = bisect_left(range(most), True, key=lambda n: bool(self._within(n, extent)))
        return (cycles, self._within(cycles, extent)) if cycles < most else (most, (extent,))

    def _within(self, cycles: int, extent: int) -> tuple[int, ...]:
        """The largest pieces with which both take no more cycles; () where there are none."""
        ends = [0]
        while ends[-1] < extent:
            # From when a piece is made, it and all that follow it are stored.
            stored = self.stored * (extent - ends[-1]) / extent
            left = cycles - self.each * len(ends) - stored
            end = min(extent, floor(left * extent / self.made))
            if end <= ends[-1] or len(ends) > MOST_PIECES:
                return ()
            ends.append(end)
        return tuple(b - a for a, b in pairwise(ends))


def interleaved(made: Kernel, most: float = inf) -> Kernel:
    """The same kernel, or a faster one that stores the results of its last tile in pieces, where
    it should take at most so many cycles."""
    for end in _ends(made):
        # A piece along the first indices is more in a row off chip.
        for _, *cut in shared_loops(made.schedule.state, end.source, end.target, end.band):
            cycles, sizes = end.pieces(end.extents[cut[0]])
            saved = end.made + end.stored - cycles
            if saved > 0 and made.cycles - saved <= most:
                other = _compiled(made, end, cut, sizes[:-1])
                if other is None or other.cycles >= made.cycles:
                    return made
                search = replace(made.account.search, cycles=other.cycles)
                return other.with_account(replace(made.account, search=search))
    return made


def _compiled(made: Kernel, end: End, cut: Sequence[str], sizes: Sequence[int]) -> Kernel | None:
    schedule = made.schedule.copy()
    with Tolerating(REFUSALS):
        with schedule.batch(blame=False):
            for site, loop in zip((end.source, end.target), cut, strict=True):
                outermost(schedule, site.block.name, loop, end.band)
            schedule.interleave(cut[0], cut[1], sizes, end.band)
        return compile_tree(schedule)
    return None


def _ends(made: Kernel) -> Iterator[End]:
    """The last block, where it stores what one of another unit makes, and that."""
    state, hardware = made.schedule.state, made.hardware
    target = state.sites[-1]
    stage, storing = state.stage[target.block.stage], _calls(target, hardware)
    if stage.kind != "copy" or state.memory(stage.tensor) or not storing:
        return
    busy = busy_cycles(made, state)
    for source in (state.site[r.tensor] for r in stage.reads if r.tensor in state.site):
        making = _calls(source, hardware)
        band = source.loops[: shared(source, target)]
        plain = all(x.kind == "serial" for x in band)
        if not making or making[-1].unit == storing[-1].unit or not plain:
            continue
        extents = _at_end(source, len(band))
        shorter = prod(extents.values()) / prod(source.extents[n] for n in extents)
        cycles, stored = (
            busy[s.block.name] * shorter / prod(x.extent for x in band) for s in (source, target)
        )
        stored *= _until_written(made, target)
        each = sum(_each(made, i) for i in making)
        around = tuple(x.name for x in band)
        if cycles and stored:
            yield End(source, target, cycles, stored, each, around, extents)


def _at_end(site: Site, depth: int) -> dict[str, int]:
    """How far the loops inside of a depth go in the last iteration of those outside."""
    ranges = {n: (0, e) for n, e in site.extents.items()}
    ranges |= {x.name: (x.extent - 1, x.extent) for x in site.loops[:depth]}
    conditions = [Condition.of(c) for p in site.block.predicate for c in conjuncts(p)]
    found: dict[str, int] = {}
    for loop in site.loops[depth:]:
        about = (c for c in conditions if loop.name in c.loops)
        parts = (c.parts(loop.name, 0, loop.extent, ranges) for c in about)
        ends = (max((high for _, high, holds in p if holds is not False), default=0) for p in parts)
        found[loop.name] = min((loop.extent, *ends))
    return found


def _calls(site: Site, hardware: HardwareSpec) -> list[Intrinsic]:
    """What runs a block."""
    call = site.block.tensorized
    return [hardware.intrinsic[n] for n in call.intrinsic.split()] if call is not None else []


def _until_written(made: Kernel, store: Site) -> float:
    """How many times as long as it keeps its unit busy a store takes until what it posts is
    written, which a kernel waits for."""
    every = calls(made.program.body)
    mine = (c for c in every if c.intended and c.intended.block == store.block.name)
    call = next(mine, None)
    if call is None:
        return 1.0
    costs = CycleCosts(made.program, made.hardware)
    watched = costs.watched(call)
    first = {n: 0 for w in watched for n in names(w.expression)}
    values = [maker(lambda _, w=w: int(evaluate(w.expression, first)), w)([]) for w in watched]
    operation = costs.operation(call, tuple(values))
    if not operation.posts or operation.bursts is None:
        return 1.0
    channel = made.hardware.buses[operation.bus].write
    return max(1.0, write_cycles(channel, operation.bursts) / costs.alone(operation))


def _each(made: Kernel, intrinsic: Intrinsic) -> float:
    """What one more call takes, with a program of its own where it runs one."""
    fixed = shortest_call(intrinsic)
    call = next((c for c in calls(made.program.body) if c.intrinsic == intrinsic.name), None)
    if call is None or not call.kernel:
        return fixed
    costs = CycleCosts(made.program, made.hardware)
    return fixed + costs.alone(costs.kernel_load(call, made.program.kernel[call.kernel], 0))
