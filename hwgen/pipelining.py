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
from functools import cached_property
from itertools import product
from math import inf, prod

from hwgen.codegen.nodes import calls
from hwgen.errors import HwgenError
from hwgen.inlining import REFUSALS
from hwgen.polyhedral.tree.edit import path
from hwgen.polyhedral.tree.loop_tree import Loop, LoopTree, Node, Site, alone, blocks
from hwgen.schedule import Schedule
from hwgen.trees import TreeCompilation, compile_tree

MOST_EDGES = 11
"""Handovers of which all choices are looked at; of the others, those between late stages run in
the same iteration."""

COMPILED = 3
"""Pipelines of one loop that are compiled, the best by the model first."""

STEADY = 8
"""Iterations in which all blocks run, of which the later half tells how long one takes."""

CLOSE = 1.01
"""A kernel that takes hardly longer than its busiest unit works cannot get much faster."""


def pipelined(made: TreeCompilation) -> TreeCompilation:
    """The same kernel, or a faster one whose loops are software pipelines: inner ones that end with
    each iteration of the outer, or that go on over these ends."""
    best = _pipelined(made)
    if best.cycles > CLOSE * max(u.busy for u in best.timing.units):
        closed = _closed(made)
        best = best if closed is None else min(best, _pipelined(closed), key=lambda k: k.cycles)
    return best


def _closed(made: TreeCompilation) -> TreeCompilation | None:
    """The kernel whose outer loops hold nothing but the inner ones: what stood before these runs in
    their first iterations, and what stood behind them in the last; None where there is none."""
    schedule = made.schedule.copy()
    found = False
    try:
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
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        return None


def _pipelined(made: TreeCompilation) -> TreeCompilation:
    for band in _bands(made.schedule.resolved):
        body = _body(made, band)
        if body is not None:
            best = made
            for delays in body.ranked():
                found = _made(made, body, band, delays)
                if found is not None and found.cycles < best.cycles:
                    best = found
                if best.cycles <= CLOSE * max(u.busy for u in best.timing.units):
                    break
            made = _with_late_loads(best, band)
    return made


def _with_late_loads(made: TreeCompilation, band: tuple[str, ...]) -> TreeCompilation:
    """The same, or a faster kernel in which what is loaded once before a band, and needed only by
    blocks that run later in it, comes behind the loads of its first iteration."""
    state = made.schedule.state
    inside = {s.block.stage for s in state.sites if set(band) <= {*s.names}}
    late = {
        s.block.stage for s in state.sites if s.block.lag or set(dict(s.block.shifts)) & {*band}
    }
    outer = state.site[min(inside)].names
    outer = outer[: outer.index(band[0])]
    loads = [
        s.block.stage
        for s in state.sites
        if s.block.stage not in inside
        and state.stage[s.block.stage].kind == "copy"
        and s.names[: len(outer)] == outer
        and {x.tensor for x in state.readers(s.block.stage)} <= late
    ]
    schedule = made.schedule.copy()
    try:
        with schedule.batch():
            for load in loads:
                schedule.sink(load, band[-1], "first")
        found = compile_tree(schedule) if loads else made
    except HwgenError as error:
        if not error.code.startswith(REFUSALS):
            raise
        return made  # Who reads it may be too early, or an image too far.
    return min(made, found, key=lambda k: k.cycles)


def _made(
    made: TreeCompilation, body: _Body, band: tuple[str, ...], delays: Sequence[int]
) -> TreeCompilation | None:
    """The kernel with a pipeline, with a slot more than it takes where there is room; None where
    there is none."""
    for spare in (1, 0):
        slots = body.needed(delays, spare)
        if not _fits(made, slots):
            continue
        try:
            return compile_tree(_shifted(made.schedule, body, band, delays, slots))
        except HwgenError as error:
            if not error.code.startswith(REFUSALS):
                raise  # Else a dependence that the model does not see, room, fields, flags.
    return None


def _fits(made: TreeCompilation, slots: Mapping[str, int]) -> bool:
    """Whether there may be room for so many slots of buffers inside a band: each with several is
    alive in all of its iterations."""
    taken: Counter[str] = Counter()
    for buffer in made.program.buffers:
        if slots.get(buffer.tensor, 1) > 1:
            taken[buffer.memory] += slots[buffer.tensor] * buffer.slot_entries
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


@dataclass(frozen=True, slots=True)
class _Block:
    """A block inside a band: its unit, cycles of one iteration, and the place that it writes."""

    name: str
    stage: str
    unit: str
    cycles: float
    place: str
    inner: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A block that needs what another has made; numbers in textual order. `overlap`: the share of
    their work that both do in one iteration of loops further in."""

    source: int
    target: int
    overlap: float


@dataclass(frozen=True)
class _Body:
    """What is inside a band, in textual order. `users`: who uses places that each iteration has
    anew, and `outer`: those that an iteration of an outer loop of the band has; `slots`: of places,
    as they are; `trips`: how often the band runs. `carried`: blocks that need what another has made
    in the iteration before."""

    blocks: tuple[_Block, ...]
    edges: tuple[_Edge, ...]
    carried: tuple[tuple[int, int], ...]
    users: Mapping[str, tuple[int, ...]]
    outer: Mapping[str, tuple[int, ...]]
    slots: Mapping[str, int]
    trips: int

    @cached_property
    def handovers(self) -> tuple[int, ...]:
        """Edges between different units."""
        return tuple(
            n
            for n, e in enumerate(self.edges)
            if self.blocks[e.source].unit != self.blocks[e.target].unit
        )

    def ranked(self) -> list[tuple[int, ...]]:
        """The delays that take the fewest cycles, if fewer than none."""
        choices: dict[tuple[int, ...], float] = {}
        handovers = self.handovers[:MOST_EDGES]
        for taken in product((False, True), repeat=len(handovers)):
            delays = self.delays(frozenset(e for e, t in zip(handovers, taken, strict=True) if t))
            if delays not in choices:
                choices[delays] = self.cycles(delays, self.needed(delays, 1))
        now = self.cycles((0,) * len(self.blocks), self.slots)
        order = sorted(choices, key=lambda d: (choices[d], sum(d), d))
        return [d for d in order if choices[d] * CLOSE < now][:COMPILED]

    def delays(self, late: frozenset[int]) -> tuple[int, ...]:
        """How much later than its own each block runs, where the targets of some edges run an
        iteration later than their sources at least."""
        found = [0] * len(self.blocks)
        order = sorted(enumerate(self.edges), key=lambda x: x[1].target)
        for _ in range(1 + len(self.carried)):
            for n, edge in order:
                found[edge.target] = max(found[edge.target], found[edge.source] + (n in late))
            for source, target in self.carried:
                found[target] = max(found[target], found[source])
        # What needs nothing from inside comes as late as those who need it allow.
        for block in {*range(len(found))} - {e.target for e in self.edges}:
            mine = [(n, e) for n, e in order if e.source == block]
            found[block] = min((found[e.target] - (n in late) for n, e in mine), default=0)
        return tuple(found)

    def needed(self, delays: Sequence[int], spare: int) -> dict[str, int]:
        """Slots of each place, `spare` more than it takes."""
        result: dict[str, int] = {}
        for place, users in self.users.items():
            apart = max(delays[u] for u in users) - min(delays[u] for u in users)
            result[place] = max(self.slots[place], apart + 1 + spare)
        for place, users in self.outer.items():
            delays_of = {delays[u] for u in users}
            result[place] = max(self.slots[place], min(len(delays_of), 2))
        return result

    def cycles(self, delays: Sequence[int], slots: Mapping[str, int]) -> float:
        """About how long all iterations take; infinite where blocks would not be in order."""
        most = max(delays, default=0)
        count = min(self.trips, most + STEADY)
        steady: list[float] = []
        ends: list[list[float]] = [[inf] * count for _ in self.blocks]
        starts: list[list[float]] = [[inf] * count for _ in self.blocks]
        into: list[list[_Edge]] = [[] for _ in self.blocks]
        for edge in self.edges:
            into[edge.target].append(edge)
        if any(delays[source] > delays[target] for source, target in self.carried):
            return inf
        free: dict[str, float] = {}
        for time in range(count + most):
            for n, block in enumerate(self.blocks):
                at = time - delays[n]
                if not 0 <= at < count:
                    continue
                start = free.get(block.unit, 0.0)
                last = 0.0
                for edge in into[n]:
                    begun, done = starts[edge.source][at], ends[edge.source][at]
                    start = max(start, begun + (done - begun) * (1 - edge.overlap))
                    last = max(last, done + block.cycles * (1 - edge.overlap))
                for source, target in self.carried:
                    if target == n and at:
                        start = max(start, ends[source][at - 1])
                before = at - slots.get(block.place, 1)
                if before >= 0 and block.place in self.users:
                    for user in self.users[block.place]:
                        if user != n:
                            start = max(start, ends[user][before])
                if start == inf:
                    return inf
                starts[n][at] = start
                ends[n][at] = free[block.unit] = max(start + block.cycles, last)
            if most <= time < count:  # All blocks run.
                steady.append(max(free.values()))
        total = max(free.values())
        if count < self.trips:
            half = len(steady) // 2
            total += (steady[-1] - steady[half - 1]) / (len(steady) - half) * (self.trips - count)
        return total


def _shifted(
    schedule: Schedule,
    body: _Body,
    band: tuple[str, ...],
    delays: Sequence[int],
    slots: Mapping[str, int],
) -> Schedule:
    """The schedule with shifts and slots.

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
        for stage in dict.fromkeys(b.stage for b in body.blocks):
            pairs = zip(body.blocks, delays, strict=True)
            mine = {b.name: delay - least for b, delay in pairs if b.stage == stage}
            if len({*mine.values()}) == 1:
                mine = {stage: next(iter(mine.values()))}
            for name, delay in mine.items():
                if delay:
                    made.shift(name, loop, delay)
    return made


def _body(made: TreeCompilation, band: tuple[str, ...]) -> _Body | None:
    """What is inside a band; None where it is no pipeline: one unit alone, or shifted already."""
    state, hardware = made.schedule.resolved, made.hardware
    inside = [s for s in state.sites if set(band) <= {*s.names}]
    if any(s.block.shifts or s.block.band or s.block.tensorized is None for s in inside):
        return None
    trips = prod(state.loop[n].extent for n in band)
    busy = _busy(made, state)
    first = inside[0]
    depth = first.names.index(band[-1]) + 1
    outer = prod(x.extent for x in first.loops[: depth - len(band)])
    found: list[_Block] = []
    for site in inside:
        assert site.block.tensorized is not None
        name = site.block.tensorized.intrinsic.split()[-1]
        unit = hardware.intrinsic[name].unit
        cycles = busy[site.block.name] / (trips * outer)
        place = state.place(site.block.stage).tensor
        found.append(
            _Block(site.block.name, site.block.stage, unit, cycles, place, site.names[depth:])
        )
    if trips < 2 or len({b.unit for b in found}) < 2:
        return None
    users: dict[str, list[int]] = {}
    outer_users: dict[str, list[int]] = {}
    homes = made.schedule.homes
    for n, site in enumerate(inside):
        stage = state.stage[site.block.stage]
        for tensor in (stage.tensor, *(r.tensor for r in stage.reads_in(site.block.part))):
            home = homes.get(tensor, ())
            if {*band} & {*home}:
                mine = users if band[-1] in home else outer_users
                mine.setdefault(state.place(tensor).tensor, []).append(n)
    slots = {p: state.storage[p].slots for p in (*users, *outer_users)}
    edges, carried = tuple(_edges(state, inside, found)), tuple(_carried(state, inside))
    once, several = (
        {p: tuple(dict.fromkeys(u)) for p, u in x.items()} for x in (users, outer_users)
    )
    return _Body(tuple(found), edges, carried, once, several, slots, trips)


def _edges(state: LoopTree, inside: Sequence[Site], found: Sequence[_Block]) -> Iterator[_Edge]:
    """Who needs what whom has made."""
    for n, site in enumerate(inside):
        reads = state.stage[site.block.stage].reads_in(site.block.part)
        needs = {t for r in reads for t in state.versions.get(r.tensor, (r.tensor,))}
        for m, other in enumerate(inside[:n]):
            begins = other.block.stage == site.block.stage
            if begins or other.block.stage in needs:
                common = [a for a, b in zip(found[m].inner, found[n].inner, strict=False) if a == b]
                inner = prod(state.loop[x].extent for x in common)
                yield _Edge(m, n, 1 - 1 / inner)


def _carried(state: LoopTree, inside: Sequence[Site]) -> Iterator[tuple[int, int]]:
    """Who needs what whom has made an iteration before: what stands behind it."""
    for n, site in enumerate(inside):
        reads = {r.tensor for r in state.stage[site.block.stage].reads_in(site.block.part)}
        for m, other in enumerate(inside[n:], n):
            if other.block.stage in reads:
                yield m, n


def _busy(made: TreeCompilation, state: LoopTree) -> Counter[str]:
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
