"""The order of loops that hold one stage without a sum: what does not move is computed outside.

    for m: for n: y[m, n] = f(x[m, n], scale[n])  ->  for n: for m: y[m, n] = f(x[m, n], scale[n])

A loop goes to another place where the model then has fewer cycles. Where that spares arithmetic and
costs more in caches, a part of its iterations goes there instead:

    for m_o: for n: for m_i: y[m_o, m_i, n] = f(x[m_o, m_i, n], scale[n])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from hwgen.autoschedule.nests import attempt, count, take_back
from hwgen.autoschedule.report import Choice
from hwgen.autoschedule.sharing import cost_with_workers
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree import loop_edits
from hwgen.polyhedral.tree.cost import NestCost
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, blocks


def order_loops(schedule: Schedule, given: tuple[str, ...]) -> list[Choice]:
    """Order the loops of every block without a sum, those of `given` stages left; what was done."""
    choices: list[Choice] = []
    for site in schedule.state.sites:
        if site.block.stage in given:
            continue
        spared = 0.0
        while gain := _ordered(schedule, site.block.name):
            spared += gain
        if spared:
            loops = ", ".join(schedule.state.site[site.block.name].names)
            choices.append(Choice(site.block.stage, f"loops in the order {loops}", -spared))
    return choices


@dataclass(frozen=True, slots=True)
class _Move:
    """`loop`, or of it `part` iterations that follow each other, goes to a place among `loops`."""

    loops: tuple[str, ...]
    loop: str
    place: int
    part: int = 0

    def order(self, outer: str, inner: str) -> tuple[str, ...]:
        """All loops in their new order; `outer` is left where the loop was, if there is any."""
        kept = [outer if n == self.loop else n for n in self.loops if outer or n != self.loop]
        place = self.place + bool(outer) * (self.loops.index(self.loop) <= self.place)
        return (*kept[:place], inner, *kept[place:])

    def seen(self, state: LoopTree) -> LoopTree:
        """The state with it, whether that is legal or not."""
        outer, inner = "", self.loop
        if self.part:
            state, outer, inner = loop_edits.split(state, self.loop, self.part, None)
        return loop_edits.reorder(state, self.order(outer, inner))

    def made(self, schedule: Schedule) -> None:
        """Make it.

        Raises:
            HwgenError: what the primitives refuse.
        """
        outer, inner = "", self.loop
        if self.part:
            outer, inner = schedule.split(self.loop, factor=self.part)
        schedule.reorder(*self.order(outer, inner))


def _ordered(schedule: Schedule, block: str) -> float:
    """Cycles that the best move of a block's loops spares; 0: none does that the schedule takes."""
    state = schedule.state
    site = state.site[block]
    number = next(n for n, x in enumerate(state.root) if any(b is site.block for b in blocks((x,))))

    def cost(state: LoopTree) -> NestCost:
        alone = replace(state, root=(state.root[number],))
        return cost_with_workers(alone, schedule.homes, schedule.hardware)

    before = cost(state)
    found: list[tuple[int, _Move]] = []
    for move in _moves(state, site):
        whole = cost(move.seen(state))
        found.append((whole.cycles, move))
        if whole.cycles >= before.cycles and _computing(whole) < _computing(before):
            found += _parts(state, move, cost, before.cycles)
    better = [x for x in found if x[0] < before.cycles]
    for _, move in sorted(better, key=lambda x: x[0]):
        made = count(schedule)
        if attempt(schedule, partial(move.made, schedule)) is None:
            after = cost(schedule.state).cycles
            if after < before.cycles:
                return before.cycles - after
            take_back(schedule, made)
    return 0


def _moves(state: LoopTree, site: Site) -> Iterator[_Move]:
    """Each serial loop that holds nothing else to each other place among them."""
    block = site.block
    if block.part != "whole" or block.tensorized is not None or state.stage[block.stage].reduces:
        return
    shared = max((n for n, x in enumerate(site.loops, 1) if len(x.body) > 1), default=0)
    loops = tuple(x.name for x in site.loops[shared:] if x.kind == "serial" and x.extent > 1)
    for number, loop in enumerate(loops):
        yield from (_Move(loops, loop, n) for n in range(len(loops)) if n != number)


def _parts(
    state: LoopTree, move: _Move, cost: Callable[[LoopTree], NestCost], before: int
) -> Iterator[tuple[int, _Move]]:
    """A move of fewer and fewer iterations, until it spares cycles and fewer would spare less: the
    smaller a part, the more of it caches hold, and the more often the rest is computed again."""
    extent, last = state.loop[move.loop].extent, before
    for size in (n for n in range(extent // 2, 1, -1) if extent % n == 0):
        part = replace(move, part=size)
        cycles = cost(part.seen(state)).cycles
        yield cycles, part
        if last < min(cycles, before):
            return
        last = cycles


def _computing(cost: NestCost) -> float:
    return sum(b.compute_cycles for b in cost.blocks)
