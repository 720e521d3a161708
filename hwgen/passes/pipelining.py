"""Software pipelines: blocks of a loop that run in later iterations than others, so that units do
not wait for each other.

A unit runs its calls in order. Where one of them waits for another unit, so do all that follow,
though they may be of the next tile and ready: what clears the next accumulator stands behind what
reads this one. So blocks are shifted against each other, by one iteration where one unit hands
over to another or by none, and buffers get as many slots. A model of in-order units with cycles
per block ranks all choices; the best ones are compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from math import prod

from hwgen.codegen.nodes import calls
from hwgen.errors import Tolerating
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.pieces import Pieces, hand_over
from hwgen.passes.pipeline_ranking import CLOSE, Body, Edge, Work
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.edit import path
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Node, Site, alone, blocks


@dataclass(frozen=True)
class Pipeline:
    """A kernel, and what it is made of: another, of which blocks inside a band run by `delays`
    later. `pieces`: blocks of which one takes what another makes in so many; `body`: None where
    nothing runs later."""

    kernel: Kernel
    plain: Kernel
    band: tuple[str, ...] = ()
    body: Body | None = None
    delays: tuple[int, ...] = ()
    pieces: tuple[Pieces, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether its units wait for more than a little of its time."""
        return self.kernel.cycles > CLOSE * _busiest(self.kernel)

    def or_faster(
        self,
        kernel: Kernel | None,
        body: Body,
        delays: tuple[int, ...],
        pieces: tuple[Pieces, ...] = (),
    ) -> Pipeline:
        """Another where it takes fewer cycles."""
        if kernel is None or kernel.cycles >= self.kernel.cycles:
            return self
        return Pipeline(kernel, self.plain, self.band, body, delays, pieces)


@dataclass(frozen=True)
class PipelineCandidate:
    """A kernel that may become a pipeline."""

    plain: Kernel

    @cached_property
    def closed(self) -> Kernel | None:
        """The same with closed loops."""
        return _closed(self.plain)

    @cached_property
    def cycles(self) -> float:
        """About how many cycles the best pipeline takes."""
        cycles = _expected(self.plain)
        if cycles <= CLOSE * _busiest(self.plain) or self.closed is None:
            return cycles
        return min(cycles, _expected(self.closed))

    def pipelined(self) -> Pipeline:
        """The same kernel, or a faster one whose loops are software pipelines: inner ones that end
        with each iteration of the outer, or that go on over these ends."""
        best = _pipelined(self.plain)
        if best.waits and self.closed is not None:
            best = min((best, _pipelined(self.closed)), key=lambda p: p.kernel.cycles)
        return best


def _busiest(made: Kernel) -> int:
    return max(u.busy for u in made.timing.units)


def _expected(made: Kernel) -> float:
    """About how many cycles the best pipeline of a kernel takes that has room, where what it loads
    once delays nothing."""
    saved = 0.0
    for band in _bands(made.schedule.resolved):
        body = _body(made, band)
        if body is None:
            continue
        ranked = (x for x in body.ranked if room(made, body, body.together(x[1])) is not None)
        for cycles, _ in islice(ranked, 1):
            loads = sum(load.cycles for load, _ in _loaded_once(made, body, band))
            saved = max(saved, body.plain - cycles + loads)
    return max(made.cycles - saved, _busiest(made))


def _closed(made: Kernel) -> Kernel | None:
    """The kernel whose outer loops hold nothing but the inner ones: what stood before these runs in
    their first iterations, and what stood behind them in the last; None where there is none."""
    schedule = made.schedule.copy()
    found = False
    with Tolerating(REFUSALS):
        with schedule.batch():
            for band in _bands(schedule.resolved):
                chain = path(schedule.state.root, band[0])[:-1]
                if not chain or chain[-1].kind != "serial":
                    continue
                body = chain[-1].body
                at = next(n for n, x in enumerate(body) if x in path(body, band[0]))
                before, after = ([alone(x) for x in part] for part in (body[:at], body[at + 1 :]))
                for block in reversed(before):
                    if block is not None:
                        schedule.sink(block.name, band[-1], "start")
                for block in after:
                    if block is not None:
                        schedule.sink(block.name, band[-1], "last")
                found = found or bool(before or after)
        return compile_tree(schedule) if found else None
    return None


def _pipelined(made: Kernel) -> Pipeline:
    found = Pipeline(made, made)
    for band in _bands(made.schedule.resolved):
        plain = found.kernel
        body = _body(plain, band)
        if body is not None:
            best = Pipeline(plain, plain, band, body, (0,) * len(body.blocks))
            known = set[float]()
            for cycles, delays in body.ranked:
                if cycles in known:
                    continue  # What is alike to the model hardly differs.
                kernel = shifted(best, body, delays, body.together(delays))
                if kernel is not None:
                    known.add(cycles)
                best = best.or_faster(kernel, body, delays)
                if not best.waits:
                    break
            found = _started(best, body)
    return found


def _started(best: Pipeline, body: Body) -> Pipeline:
    """The best pipeline, or a faster one whose first iterations wait less: what is loaded once
    before the band comes behind loads that are needed sooner, and, where there is more to gain,
    sums begin meanwhile."""
    made, delays = best.plain, best.delays
    loads = [*_loaded_once(made, body, best.band)]
    late = [(load, users) for load, users in loads if all(delays[n] for n in users)]
    found = best
    if late:
        behind = (0,) * len(late)
        more, shifts = body.with_loads(late), (*body.together(delays), *behind)
        kernel = shifted(best, more, (*delays, *behind), shifts)
        found = found.or_faster(kernel, more, shifts)
    if not found.waits:
        return found
    whole = body.with_loads(loads)
    start = whole.started(delays, partial(room, made, whole))
    if start is not None:
        found = found.or_faster(shifted(best, whole, start, start), whole, start)
    return found


def room(made: Kernel, body: Body, delays: Sequence[int]) -> Mapping[str, int] | None:
    """Slots that delays take, one more of each where there is room; None where there is none."""
    slots = (body.needed(delays, spare) for spare in (1, 0))
    return next((s for s in slots if _fits(made, body, s, delays)), None)


def _loaded_once(
    made: Kernel, body: Body, band: tuple[str, ...]
) -> Iterator[tuple[Work, tuple[int, ...]]]:
    """What is loaded before a band, for its blocks alone, and for which of them."""
    state = made.schedule.resolved
    busy = busy_cycles(made, state)
    names = [b.name for b in body.blocks]
    inside = [state.site[n] for n in names]
    outer = inside[0].loops[: inside[0].names.index(band[0])]
    around = tuple(x.name for x in outer)
    for site in state.sites:
        stage, call = site.block.stage, site.block.tensorized
        readers = [s for s in state.sites if stage in _needs(state, s)]
        beside = site.names[: len(outer)] == around and site.block.name not in names
        if not (beside and readers and call) or state.stage[stage].kind != "copy":
            continue
        if not {r.block.name for r in readers} <= {*names}:
            continue
        unit = made.hardware.intrinsic[call.intrinsic.split()[-1]].unit
        cycles = busy[site.block.name] / prod(x.extent for x in outer)
        load = Work(site.block.name, stage, unit, cycles, stage, (), once=True)
        yield load, tuple(names.index(r.block.name) for r in readers)


def shifted(
    found: Pipeline,
    body: Body,
    delays: Sequence[int],
    shifts: Sequence[int],
    pieces: Sequence[Pieces] = (),
) -> Kernel | None:
    """The kernel with a pipeline, and slots for its delays, one more than it takes where there is
    room; None where there is none."""
    for spare in (1, 0):
        slots = body.needed(delays, spare)
        if not _fits(found.plain, body, slots, shifts):
            continue
        # It may have a dependence that the model does not see, or lack room, fields, flags.
        with Tolerating(REFUSALS):
            schedule = found.plain.schedule
            return compile_tree(_shifted(schedule, body, found.band, shifts, slots, pieces))
    return None


def _fits(made: Kernel, body: Body, slots: Mapping[str, int], shifts: Sequence[int]) -> bool:
    """Whether there may be room for so many slots of buffers inside a band: each with several is
    alive in all of its iterations, as is what a shifted block uses, or what is there before."""
    least = min(shifts)
    shifted = {n for n, shift in enumerate(shifts) if shift != least}
    always = {b.place for b in body.blocks if b.once} | body.around
    always |= {p for p, users in (*body.users.items(), *body.outer.items()) if shifted & {*users}}
    taken: Counter[str] = Counter()
    for buffer in made.program.buffers:
        if slots.get(buffer.name, 1) > 1 or buffer.name in always:
            taken[buffer.memory] += slots.get(buffer.name, buffer.slots) * buffer.slot_entries
    return all(n <= made.hardware.memory[m].capacity_entries for m, n in taken.items())


def _bands(state: LoopTree) -> list[tuple[str, ...]]:
    """Loops directly inside one another around several blocks, the innermost ones first."""
    found: list[tuple[str, ...]] = []

    def visit(nodes: Sequence[Node], around: tuple[str, ...]) -> None:
        for node in nodes:
            if not isinstance(node, Loop):
                continue
            band = (*around, node.name) if node.kind == "serial" else ()
            alone = len(node.body) == 1
            visit(node.body, band if alone else ())
            if band and not alone and len({b.stage for b in blocks(node.body)}) > 1:
                found.append(band)

    visit(state.root, ())
    return found


def _shifted(
    schedule: Schedule,
    body: Body,
    band: tuple[str, ...],
    delays: Sequence[int],
    slots: Mapping[str, int],
    pieces: Sequence[Pieces] = (),
) -> Schedule:
    """The schedule with shifts and slots, and handovers in pieces.

    Raises:
        HwgenError: as the primitives, where that is not legal.
    """
    made = schedule.copy()
    least = min(delays)
    loop = band[0] if len(band) == 1 else band
    with made.batch():
        for place, count in slots.items():
            if count > body.slots[place]:
                made.double_buffer(place, count)
        for load in (b for b in body.blocks if b.once):
            made.sink(load.stage, band[-1], "first")
        for piece in pieces:
            hand_over(made, piece, band)
        for stage in dict.fromkeys(b.stage for b in body.blocks):
            pairs = zip(body.blocks, delays, strict=True)
            mine = {b.name: delay - least for b, delay in pairs if b.stage == stage}
            if len({*mine.values()}) == 1:
                mine = {stage: next(iter(mine.values()))}
            # A stage's name is that of all its blocks: those that begin its sums come after it.
            for name, delay in sorted(mine.items(), key=lambda x: x[0] != stage):
                if delay or name != stage:
                    made.shift(name, loop, delay)
    return made


def _body(made: Kernel, band: tuple[str, ...]) -> Body | None:
    """What is inside a band; None where it is no pipeline: one unit alone, or shifted already."""
    state, hardware = made.schedule.resolved, made.hardware
    inside = [s for s in state.sites if set(band) <= {*s.names}]
    if any(s.block.shifts or s.block.band or s.block.tensorized is None for s in inside):
        return None
    trips = prod(state.loop[n].extent for n in band)
    busy = busy_cycles(made, state)
    first = inside[0]
    depth = first.names.index(band[-1]) + 1
    outer = prod(x.extent for x in first.loops[: depth - len(band)])
    found: list[Work] = []
    for site in inside:
        assert site.block.tensorized is not None
        name = site.block.tensorized.intrinsic.split()[-1]
        unit = hardware.intrinsic[name].unit
        cycles = busy[site.block.name] / (trips * outer)
        place = state.place(site.block.stage).tensor
        found.append(
            Work(site.block.name, site.block.stage, unit, cycles, place, site.names[depth:])
        )
    if trips < 2 or len({b.unit for b in found}) < 2:
        return None
    users: dict[str, list[int]] = {}
    outer_users: dict[str, list[int]] = {}
    around = set[str]()
    homes = made.schedule.homes
    for n, site in enumerate(inside):
        stage = state.stage[site.block.stage]
        for tensor in (stage.tensor, *(r.tensor for r in stage.reads_in(site.block.part))):
            home = homes.get(tensor, ())
            if {*band} & {*home}:
                mine = users if band[-1] in home else outer_users
                mine.setdefault(state.place(tensor).tensor, []).append(n)
            elif tensor in state.storage:
                around.add(state.place(tensor).tensor)
    slots = {p: state.storage[p].slots for p in (*users, *outer_users)}
    edges, carried = tuple(_edges(state, inside, found)), tuple(_carried(state, inside))
    once, several = (
        {p: tuple(dict.fromkeys(u)) for p, u in x.items()} for x in (users, outer_users)
    )
    return Body(tuple(found), edges, carried, once, several, slots, trips, frozenset(around))


def _edges(state: LoopTree, inside: Sequence[Site], found: Sequence[Work]) -> Iterator[Edge]:
    """Who needs what whom has made."""
    for n, site in enumerate(inside):
        needs = _needs(state, site)
        for m, other in enumerate(inside[:n]):
            begins = other.block.stage == site.block.stage
            if begins or other.block.stage in needs:
                common = [a for a, b in zip(found[m].inner, found[n].inner, strict=False) if a == b]
                inner = prod(state.loop[x].extent for x in common)
                yield Edge(m, n, 1 - 1 / inner)


def _needs(state: LoopTree, site: Site) -> set[str]:
    """The stages that a block reads."""
    reads = state.stage[site.block.stage].reads_in(site.block.part)
    return {t for r in reads for t in state.versions.get(r.tensor, (r.tensor,))}


def _carried(state: LoopTree, inside: Sequence[Site]) -> Iterator[tuple[int, int]]:
    """Who needs what whom has made an iteration before: what stands behind it."""
    for n, site in enumerate(inside):
        reads = {r.tensor for r in state.stage[site.block.stage].reads_in(site.block.part)}
        for m, other in enumerate(inside[n:], n):
            if other.block.stage in reads:
                yield m, n


def busy_cycles(made: Kernel, state: LoopTree) -> Counter[str]:
    """Cycles that a unit is at work for each block of the schedule."""
    by_site = dict(made.timing.busy_by_site)
    result: Counter[str] = Counter()
    names = sorted(state.site, key=len, reverse=True)
    for call in calls(made.program.body):
        assert call.intended is not None
        name = call.intended.block
        # Of a block that takes several calls, each has the block's name first.
        block = next((n for n in names if name == n or name.startswith(f"{n}_")), name)
        result[block] += by_site.pop(call.site, 0)
    return result
