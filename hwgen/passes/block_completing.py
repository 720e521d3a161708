"""Schedules in which some stages have no calls: these get lanes, copies and calls where they stand.

Phases of which the schedule says nothing are searched. The stages of others keep their loops: those
of a phase are matched together, or each alone where the schedule has changed what they read. Lanes
are split off the innermost of a stage's loops; what its calls read and write is copied inside the
outermost of them, as many for all stages as makes the fastest kernel that fits. Between phases
tensors stay on the chip where calls on both sides see one memory and there is room, else they go
through off-chip memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice, product, takewhile
from typing import Literal

from hwgen.constants import COVERS_RANKED, COVERS_TRIED
from hwgen.errors import HwgenError, Tolerating
from hwgen.model.bound import cover_bound
from hwgen.passes.alone import lane_room, moving_loops, seed_alone, stage_alone
from hwgen.passes.covering import started
from hwgen.passes.first_matches import FirstMatches
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.phase import DEFAULTS, SLOTS, SearchOptions, compile_phase
from hwgen.passes.phased import inputs_of, read_again
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral import isl
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.operations import Operation, Sharing, Storage
from hwgen.polyhedral.phases import Phase, split_phases
from hwgen.polyhedral.schedule.following import follow
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, ScopStatement, build_scop, view_statements
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_plan import TilingPlan, plan_of
from hwgen.polyhedral.search.tiling_script import TilingWriter
from hwgen.polyhedral.tree.loop_tree import Stage
from hwgen.spec.expression import Name, UpdateOp, names
from hwgen.spec.hardware import HardwareSpec

Kept = Literal["whole", "inside", "off"]
"""Where intermediates are: whole on the chip; those of a phase inside of the loops of its last
stage; or else off the chip too."""

KEPT: tuple[Kept, ...] = ("whole", "inside", "off")
"""What is tried in turn."""


Covers = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """`inside`: the loops that copies stand in, or how many of a stage's; `kept`: where
    intermediates are; `covers`: which of its matches a phase, or a stage alone, gets, if not the
    first; `once`: whether what several calls read is loaded for all of them together."""

    inside: int | frozenset[str]
    kept: Kept
    covers: Covers
    once: bool = False

    @property
    def near(self) -> bool:
        """Whether what phases leave for others stays on the chip."""
        return self.kept != "off"


def complete_blocks(schedule: Schedule, options: SearchOptions = DEFAULTS) -> Kernel:
    """The best of the kernels that give calls to the stages of a schedule which have none; where
    there is none, the processor runs them if there is one.

    Raises:
        HwgenError: H3xx where no intrinsics compute a stage; why kernels are refused.
    """
    deepest = max((len(s.loops) for s in schedule.state.sites), default=0)
    try:
        start = started(Start(schedule.workload, schedule.hardware))
        given = Start(schedule.workload, schedule.hardware, schedule)
        for edit in start.edits:
            given = next(given.where_legal(partial(Schedule.apply, edit=edit)), given)
        found = _completed(given.schedule, start, options, range(deepest + 1))
        return _with_slots(given.schedule, found, options)
    except HwgenError as error:
        if schedule.hardware.processor is None or not error.code.startswith(REFUSALS):
            raise
        first = error
    try:
        return compile_tree(schedule)
    except HwgenError as error:
        raise (first if error.code.startswith(REFUSALS) else error) from None


def _completed(
    schedule: Schedule,
    start: Start,
    options: SearchOptions,
    places: Sequence[int | frozenset[str]],
) -> Kernel:
    """The best kernel of the first covers that give one; `places`: where copies stand, until that
    makes nothing better.

    Raises:
        HwgenError: why the first kernel is refused that keeps least on the chip.
    """
    completion = Completion(schedule, options, start)
    refused: dict[Kept, HwgenError] = {}
    for covers in completion.covers(places[0]):
        for kept in KEPT:
            best: Kernel | None = None
            for inside in places:
                try:
                    made = compile_tree(completion.written(Choice(inside, kept, covers)))
                except HwgenError as error:
                    if not error.code.startswith(REFUSALS):
                        raise
                    refused.setdefault(kept, error)
                    continue
                if best is not None and options.measure(made) >= options.measure(best):
                    break
                best = made
            if best is not None:
                return best
    raise next(refused[kept] for kept in reversed(KEPT) if kept in refused)


def _with_slots(given: Schedule, made: Kernel, options: SearchOptions) -> Kernel:
    """The same with two slots for each buffer that was added inside of loops, if that is better."""
    schedule = made.schedule.copy()
    added = [n for n in schedule.buffers() if n not in given.state.storage and schedule.homes[n]]
    if not added:
        return made
    turns = made
    with Tolerating(REFUSALS):
        with schedule.batch():
            for name in added:
                schedule.double_buffer(name, SLOTS)
        turns = compile_tree(schedule)
    return min(made, turns, key=options.measure)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A draft in which some stages have got their calls. `key`: by what choices; `bare`: stages
    without calls; `held`: the memory of each tensor that is on the chip."""

    key: tuple[object, ...]
    schedule: Schedule
    bare: frozenset[str]
    held: Mapping[str, str]


@dataclass
class Completion:
    """A schedule to be completed, which goes on from a `start`; `known`: what was found for
    phases of which it says nothing, by their numbers and what they share; `matches`: of phases,
    and of stages alone, that were matched; `matched`: the same, by all that they depend on; `done`:
    what choices have given stages so far, by these."""

    schedule: Schedule
    options: SearchOptions
    start: Start
    phases: Sequence[Phase] = field(init=False)
    known: dict[tuple[int, Sharing], Kernel] = field(
        default_factory=dict[tuple[int, Sharing], Kernel]
    )
    matches: dict[str, list[Match]] = field(default_factory=dict[str, list[Match]])
    done: dict[object, _Draft] = field(default_factory=dict[object, "_Draft"])
    matched: FirstMatches = field(init=False)

    def __post_init__(self) -> None:
        self.matched = FirstMatches(self.hardware)
        self.phases = split_phases(self.start.workload)

    @property
    def again(self) -> bool:
        """Whether several calls read an input."""
        return any(read_again(self.phases, n, ()) for n in range(len(self.phases)))

    def of(self, schedule: Schedule) -> Completion:
        """The same for another schedule of the workload, with what is known of its phases."""
        made = Completion(schedule, self.options, self.start, self.known)
        made.matched = self.matched
        return made

    @property
    def hardware(self) -> HardwareSpec:
        return self.schedule.hardware

    def covers(self, inside: int | frozenset[str]) -> list[Covers]:
        """Which match each phase gets: first those that agree on what an entry holds of a tensor,
        then those that keep the busiest unit busy for the fewest cycles.

        Raises:
            HwgenError: H3xx where no intrinsics compute a stage.
        """
        with Tolerating(REFUSALS):  # What has been matched by then is known.
            self.written(Choice(inside, KEPT[0], {}))
        names = [n for n, found in self.matches.items() if len(found) > 1]
        needs = {
            n: [Counter(dict(cover_bound(m, self.hardware).per_resource)) for m in found]
            for n, found in self.matches.items()
        }
        held = {n: [m.entries() for m in found] for n, found in self.matches.items()}
        ranked: list[tuple[int, int, int, tuple[int, ...]]] = []
        for numbers in islice(product(*(range(len(needs[n])) for n in names)), COVERS_RANKED):
            taken = dict(zip(names, numbers, strict=True))
            total = sum((found[taken.get(n, 0)] for n, found in needs.items()), Counter[str]())
            entries = [found[taken.get(n, 0)] for n, found in held.items()]
            kinds = {item for mine in entries for item in mine.items()}
            apart = len(kinds) - len({t for mine in entries for t in mine})
            ranked.append((apart, max(total.values(), default=0), sum(numbers), numbers))
        best = sorted(ranked)[:COVERS_TRIED]
        return [dict(zip(names, numbers, strict=True)) for *_, numbers in best]

    def written(self, choice: Choice) -> Schedule:
        """The schedule that a choice gives."""
        with isl.bounded():
            key = choice.inside, choice.kept
            done = _Draft(key, self.schedule.draft(), self._bare, _held(self.schedule))
            stages = self.start.stages
            for number, phase in enumerate(self.phases):
                names = tuple(stages.get(s.name, "") for s in phase.workload.statements)
                mine = {*names} - {"", *self._views}
                if mine <= done.bare and self._as_given(mine):
                    shared = self._sharing(number, done.held, choice)
                    group = partial(self._phase, number, names, shared)
                    done = self._after(done, (f"phase {number}", mine, shared), group, choice)
            for stage in self.schedule.state.stages:
                if (name := stage.tensor) in done.bare:
                    what = name, {name}, None
                    done = self._after(done, what, partial(self._alone, name), choice)
            made = done.schedule.copy()
            made.settle()
        return made

    @cached_property
    def _views(self) -> frozenset[str]:
        return frozenset(self.start.stages[s.name] for s in view_statements(self.start.workload))

    @cached_property
    def _bare(self) -> frozenset[str]:
        """The stages without calls."""
        sites = self.schedule.state.sites
        return frozenset(s.block.stage for s in sites if s.block.tensorized is None) - self._views

    def _after(
        self,
        done: _Draft,
        what: tuple[str, Collection[str], Sharing | None],
        group: Callable[[Schedule, Choice], TilingWriter | None],
        choice: Choice,
    ) -> _Draft:
        """What is done after some stages got their calls, if units have any: choices that did the
        same until then go on from there.

        Raises:
            HwgenError: why they get none.
        """
        name, stages, shared = what
        key = (*done.key, name, choice.covers.get(name, 0), shared)
        if key not in self.done:
            made, bare, held = done.schedule.copy(), done.bare, dict(done.held)
            writer = group(made, choice)
            if writer is not None:
                writer.write()
                bare = bare - {*stages}
                storages = writer.tiling.match.selection.storages
                held |= {x.tensor: x.memory for x in storages if x.shape}
            if writer is not None and shared is None:
                self._begin(made, name)
            self.done[key] = _Draft(key, made, bare, held)
        return self.done[key]

    def _begin(self, made: Schedule, name: str) -> None:
        """Calls for what a stage starts from, where that is computed.

        Raises:
            HwgenError: H3xx where no intrinsics compute it.
        """
        stage, begun = made.state.stage[name], made.state.site.get(f"{name}_init")
        if stage.seed is None or begun is None or begun.block.tensorized is not None:
            return
        if name not in _held(made):
            return  # No call makes it from what is off the chip; that is told when it is lowered.
        scop, match = self._seeded(made, stage)
        group = _Block.of(made, scop, match, (name,), (name,), Choice(0, "inside", {}))
        group.start(f"{name}_init")

    def _seeded(self, made: Schedule, stage: Stage) -> tuple[Scop, Match]:
        """How what a stage starts from is computed: set, or the extremum of it alone."""
        held = _held(made)
        memory = held[stage.tensor]
        ops: tuple[UpdateOp, ...] = ("=",) if stage.op == "+=" else ("=", stage.op)
        for op in ops:
            workload, before = seed_alone(made.state, stage, op, made.workload)
            known = held | {before: memory}
            takes = tuple((t.name, known[t.name]) for t in workload.inputs if t.name in known)
            sharing = Sharing(takes, (stage.tensor,), places=((stage.tensor, memory),))
            try:
                scop, found = self.matched(build_scop(workload), sharing)
            except HwgenError as error:
                if op == ops[-1] or not error.code.startswith("H3"):
                    raise
                continue
            return scop, found[0]
        raise AssertionError("nothing was tried")

    def _as_given(self, stages: Collection[str]) -> bool:
        """Whether stages compute what the workload says, of the same tensors."""
        mine, first = self.schedule.state.stage, self.start.schedule.state.stage
        return all(mine.get(n) == first[n] for n in stages)

    def _untouched(self, stages: Collection[str]) -> bool:
        """Whether the schedule says nothing of stages."""
        mine, first = self.schedule.state, self.start.schedule.state
        return all(
            mine.site[n].loops == first.site[n].loops and mine.storage[n] == first.storage[n]
            for n in stages
        )

    def _sharing(self, number: int, held: Mapping[str, str], choice: Choice) -> Sharing:
        """What a phase has in common with others."""
        phase = self.phases[number]
        places = tuple((n, held[n]) for n in phase.leaves if n in held)
        return Sharing(
            tuple((n, held[n]) for n in inputs_of(phase) if n in held),
            phase.leaves if choice.near else tuple(n for n, _ in places),
            read_again(self.phases, number, held) if choice.once else (),
            tuple(n for n in phase.takes if n not in held),
            places,
        )

    def _phase(
        self, number: int, names: tuple[str, ...], sharing: Sharing, made: Schedule, choice: Choice
    ) -> TilingWriter | None:
        """The stages of a phase together; None where the processor may do what units cannot."""
        phase, leaves = self.phases[number], sharing.leaves
        with Tolerating("H3" if self.hardware.processor is not None else ()):
            if self._untouched({*names} & {*self.start.schedule.state.site}):
                found = self._searched(number, sharing)
                writer = TilingWriter(made, plan_of(found.scop, found.tiling, leaves), names)
            else:
                scop = build_scop(phase.workload)
                room = lane_room(made, scop, names)
                named = f"phase {number}"
                scop, match = self._chosen(named, *self.matched(scop, sharing, room), choice)
                writer = _Block.of(made, scop, match, names, leaves, choice)
            return writer
        return None

    def _searched(self, number: int, sharing: Sharing) -> Kernel:
        key = number, sharing
        if key not in self.known:
            phase = Start(self.phases[number].workload, self.hardware)
            self.known[key] = compile_phase(phase, self.options, sharing)
        return self.known[key]

    def _alone(self, name: str, made: Schedule, choice: Choice) -> TilingWriter | None:
        """A stage as it is in the schedule by then, with what it reads and writes where that is;
        None where the processor may do it."""
        workload = stage_alone(made.state, made.state.stage[name], made.workload)
        held = {t: m for t, m in _held(made).items() if t in workload.tensor}
        takes = tuple((t, m) for t, m in held.items() if t != name)
        places = ((name, held[name]),) if name in held else ()
        inner = made.state.tensor[name].role == "intermediate" and choice.near
        # What cannot stay on the chip leaves it.
        ways = [(name,)] * bool(places or inner) + [()] * (not places)
        refused: HwgenError | None = None
        first = ("",) * (len(workload.statements) - 1) + (name,)
        scop = build_scop(workload)
        room = lane_room(made, scop, first)
        for leaves in ways:
            try:
                sharing = Sharing(takes, leaves, places=places)
                scop, match = self._chosen(name, *self.matched(scop, sharing, room), choice)
            except HwgenError as error:
                if not error.code.startswith("H3"):
                    raise
                refused = refused or error
                continue
            return _Block.of(made, scop, match, first, leaves, choice)
        assert refused is not None
        if self.hardware.processor is None:
            raise refused
        return None

    def _chosen(
        self, name: str, scop: Scop, found: list[Match], choice: Choice
    ) -> tuple[Scop, Match]:
        """The match that a choice gives."""
        self.matches[name] = found
        return scop, found[min(choice.covers.get(name, 0), len(found) - 1)]


def _held(schedule: Schedule) -> dict[str, str]:
    """The memory of each tensor that a schedule has on the chip."""
    onchip = {m.name for m in schedule.hardware.of_kind("scratchpad")}
    return {s.tensor: s.memory for s in schedule.state.storages if s.memory in onchip}


@dataclass
class _Block(TilingWriter):
    """The edits of some stages. `copied_in`: the loops that copies stand in, or how many of a
    stage's; `outer`: of each stage, these; `moved_by`:
    the scop's loops that each is part of; `stores`: the statements that store what is computed.
    `inside_last`: whether other stages are computed in the loops of the `last`."""

    copied_in: int | frozenset[str] = 0
    inside_last: bool = False
    last: list[str] = field(default_factory=list[str])
    outer: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    moved_by: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    stores: dict[str, ScopStatement] = field(default_factory=dict[str, ScopStatement])

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        scop: Scop,
        match: Match,
        first: tuple[str, ...],
        leaves: tuple[str, ...],
        choice: Choice,
    ) -> _Block:
        storages = [x.name for x in match.selection.storages]
        tiling = Tiling(
            match,
            match.counts,
            match.selection.spatial,
            tuple((n, 0) for n in storages),
            tuple((n, 1) for n in storages),
        )
        plan, inside = TilingPlan(scop, tiling, leaves), choice.kept != "whole"
        return cls(schedule, plan, first, copied_in=choice.inside, inside_last=inside)

    def write(self) -> None:
        if not self.plan.statements:
            self._copy(self.first[-1])
            return
        self.storing = self.find_storing()
        self.begin()
        results: dict[str, str] = {}
        for statement in reversed(self.plan.statements):
            self._stage(statement, results)
        for storage in self.plan.loaded:
            takers = {results[n] for n in self.plan.takers({storage.name}) if n in results}
            self.cache(storage, self._around(storage, takers), results)
        self.tensorize(results)

    def _at_root(self, stage: str) -> bool:
        """Whether a stage has the loops that it is given with."""
        site = self.schedule.state.site[stage]
        plain = [Name(x.name) for x in site.loops] == [e for _, e in site.block.bindings]
        return plain and len(self.inside(stage)) == len(site.loops)

    def _around(self, storage: Storage, takers: Collection[str]) -> list[str]:
        """The loops that a storage is loaded in: down to the last that moves what it holds."""
        every = [self.outer[n] for n in sorted(takers)]
        around = [] if not every else [x for x in every[0] if all(x in o for o in every)]
        moving = {n for i in storage.indices for n in i.names}
        while around and self.moved_by[around[-1]].isdisjoint(moving):
            around.pop()
        return around

    def _stage(self, statement: ScopStatement, results: dict[str, str]) -> None:
        """Where a statement's value is computed, its lanes, and the copy that leaves the chip."""
        s, plan, tensor = self.schedule, self.plan, self.stage(statement)
        computed = bool(plan.of(statement, "init", "update", "map"))
        results[statement.name] = tensor
        call = s.state.site[tensor].block.tensorized
        if call is not None:
            names, loop_of = s.state.site[tensor].names, self._loop_of(tensor, statement)
            self.lanes[tensor] = []
            self._place(tensor, loop_of, names[: names.index(call.loop)] if call.loop else names)
            if f"{tensor}_init" in s.state.site:
                self.lanes[f"{tensor}_init"] = self._cut(f"{tensor}_init", loop_of)
            return
        if statement in self.storing and (plan.hidden(statement) or computed):
            memory = plan.stored_memory(statement)
            mine = {self.stage(x) for x in plan.statements} | {*self.moved.values()}
            readers = [x.tensor for x in s.state.readers(tensor) if x.tensor in mine]
            if readers:
                self.moved[tensor] = s.cache_write(tensor, memory, "", readers)
            else:
                self.moved[tensor] = self.computed_before_store(statement, memory, ())
            self.stores[tensor] = statement
            if plan.hidden(statement):
                return
        elif computed and tensor not in self.moved:
            if tensor not in _held(s):
                self.scope(tensor, plan.target_memory(statement))
        elif tensor not in self.moved and not plan.of(statement, "store"):
            s.compute_inline(tensor)
            del results[statement.name]
            return
        block = results[statement.name] = self.moved.get(tensor, tensor)
        if self.last and block == tensor and self._at_root(block):
            s.compute_at(block, self.last[-1])
        spatial = self._compute(block, statement)
        if self.inside_last and len(results) - plan.hidden(plan.final) == 1:
            self.last = spatial
        if block != tensor:
            self._store(tensor, self.stores[tensor], spatial)

    def call(self, block: str, lanes: list[str], operations: list[Operation]) -> None:
        made = self.schedule.state.site[block].block
        # What is computed as a beginning is matched by itself.
        seeded = self.schedule.state.stage[made.stage].seed is not None and made.part == "init"
        if made.tensorized is None and not seeded:
            super().call(block, lanes, operations)

    def start(self, block: str) -> None:
        """The calls of a block that begins sums, as the only statement computes it."""
        (statement,) = self.plan.statements
        stage = self.schedule.state.stage[self.first[-1]]
        pairs = zip(stage.spatial, statement.loops, strict=True)
        lanes = self._cut(block, {mine: loop for (mine, _), (loop, _) in pairs})
        super().call(block, lanes, self.plan.of(statement, "init", "update", "map"))

    def _copy(self, tensor: str) -> None:
        """A copy into a memory, which one call makes."""
        statement = self.plan.scop.statements[-1]
        lanes = self._cut(tensor, self._loop_of(tensor, statement))
        self.call(tensor, lanes, list(self.plan.operations))

    def _loop_of(self, block: str, statement: ScopStatement) -> dict[str, str]:
        """The scop's loop of each iterator of a stage."""
        pairs = zip(self.iterators(block, statement), statement.loops, strict=True)
        return {mine: loop for (mine, _), (loop, _) in pairs}

    def _compute(self, block: str, statement: ScopStatement) -> list[str]:
        """The lanes of what computes, and what it begins with; the loops that this stands in, of
        those that copies do."""
        s, loop_of = self.schedule, self._loop_of(block, statement)
        begun = s.state.site.get(f"{block}_init")
        self.lanes[block] = lanes = self._cut(block, loop_of)
        outer = [n for n in s.state.site[block].names if n not in lanes]
        self._place(block, loop_of, outer)
        parts, reduction = self.moved_by, self.tiling.match.selection.reduction
        spatial = [*takewhile(lambda n: parts[n].isdisjoint(reduction), self.outer[block])]
        if begun is not None:
            self.lanes[f"{block}_init"] = self._cut(f"{block}_init", loop_of)
        elif self.plan.of(statement, "init"):
            own = self.inside(block)
            # Around no loop of the sum, also where other blocks stand in that one.
            summed = {n for n in outer if not parts[n].isdisjoint(reduction)}
            free = summed.union(own).difference(spatial)
            before = [*(n for n in s.state.site[block].names if n in free), *own[-1:]]
            s.decompose_reduction(block, *before[:1])
        return spatial

    def _place(self, block: str, loop_of: Mapping[str, str], outer: Sequence[str]) -> None:
        """Which of the loops around a stage's calls copies stand in, and what moves with each."""
        site = self.schedule.state.site[block]
        self.moved_by |= {
            n: {loop_of[i] for i in loop_of if n in moving_loops(site, i)} for n in outer
        }
        if isinstance(self.copied_in, int):
            self.outer[block] = [*outer[: self.copied_in]]
        else:
            self.outer[block] = [*takewhile(self.copied_in.__contains__, outer)]

    def _store(self, tensor: str, last: ScopStatement, spatial: Sequence[str]) -> None:
        """The copy off the chip, in the innermost of the loops where it can be."""
        for loop in reversed(spatial):
            with Tolerating(("H411", "H413")):
                follow(self.schedule, tensor, loop)
                break
        stage = self.schedule.state.stage[tensor]
        loop_of: dict[str, str] = {}
        pairs = zip(stage.target.indices, last.target.indices, strict=True)
        place = {n: index for mine, index in pairs for n in names(mine)}
        for iterator, _ in stage.iterators:
            index = place[iterator]
            wide = [n for n in index.names if self.tiling.match.block.get(n, 1) > 1]
            loop_of[iterator] = (wide or [*index.names, ""])[0]
        self.lanes[tensor] = self._cut(tensor, loop_of)

    def _cut(self, block: str, loop_of: Mapping[str, str]) -> list[str]:
        """Split lanes off the innermost of each iterator's loops, and put them innermost."""
        s, lanes = self.schedule, list[str]()
        if s.state.site[block].block.tensorized is not None:
            return lanes
        for iterator, mine in loop_of.items():
            size = self.tiling.match.block.get(mine, 1)
            site, inside = s.state.site[block], self.inside(block)
            own = [n for n in site.names if n in inside and n in moving_loops(site, iterator)]
            if size == 1 or not own:
                continue
            loop = next((n for n in reversed(own) if s.state.extents[n] > 1), own[-1])
            whole = s.state.extents[loop] == size
            lanes.append(loop if whole else s.split(loop, factor=size)[1])
        rest = [n for n in self.inside(block) if n not in lanes]
        self.reorder([*rest, *lanes])
        return lanes
