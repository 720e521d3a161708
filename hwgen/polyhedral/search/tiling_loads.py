"""The inputs of a tiling, made by primitives: a cache for each storage that it loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hwgen.polyhedral.caches import in_caches, through_caches
from hwgen.polyhedral.match.operations import Operation, Storage
from hwgen.polyhedral.match.wide_calls import wider_copy
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import ScopStatement
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_plan import TilingPlan
from hwgen.polyhedral.tree.build import stage_of
from hwgen.polyhedral.tree.copies import overlaps, target_first
from hwgen.polyhedral.tree.loop_tree import Site, alone, names_of
from hwgen.polyhedral.tree.loop_tree import loops as loops_in
from hwgen.spec.affine import Affine, affine, sparse
from hwgen.spec.expression import Access, names, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic


@dataclass
class LoadWriter:
    """Edits of one phase. `first`: the stage, before any edit, of each of its workload's
    statements; `sharers`: of a tensor that a memory holds whole, the stages of all phases that take
    it there, where that is known; `storing`: the statements whose results leave the chip; `moved`:
    where stored tensors are first computed, and `merged` the loops around that of outputs beside
    the last; `nests`: the tile loops around each stage's work; `tiles`: the key of each tile loop;
    `reduction`: tile loops of the accumulation;
    `lanes`: lane loops of each stage; `caches`: the stage that loads a storage; `parts`: of sums
    that are added up in parts, the iterator over these; `wide`:
    of copies entry by entry, the intrinsic that copies several."""

    schedule: Schedule
    plan: TilingPlan
    first: tuple[str, ...]
    sharers: Mapping[tuple[str, str], set[str]] | None = None
    storing: list[ScopStatement] = field(default_factory=list[ScopStatement])
    moved: dict[str, str] = field(default_factory=dict[str, str])
    merged: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    nests: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    tiles: dict[str, str] = field(default_factory=dict[str, str])
    reduction: list[str] = field(default_factory=list[str])
    lanes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    caches: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, str] = field(default_factory=dict[str, str])
    wide: dict[str, Intrinsic] = field(default_factory=dict[str, Intrinsic])

    @property
    def tiling(self) -> Tiling:
        return self.plan.tiling

    @property
    def hardware(self) -> HardwareSpec:
        return self.schedule.hardware

    def stage(self, statement: ScopStatement) -> str:
        """The tensor of the stage that a statement of the scop comes from."""
        return self._stages[statement.source.name]

    @cached_property
    def _stages(self) -> dict[str, str]:
        statements = self.plan.scop.workload.statements
        return {s.name: stage for s, stage in zip(statements, self.first, strict=True)}

    def split_lanes(self, loop: str, lanes: int) -> tuple[str, list[str]]:
        if lanes == 1:
            return loop, []
        outer, inner = self.schedule.split(loop, factor=lanes)
        return outer, [inner]

    def reorder(self, loops: list[str]) -> None:
        root = self.schedule.state.root
        nests = tuple(node for node in root if not names_of(node).isdisjoint(loops))
        present = [x.name for x in loops_in(nests) if x.name in loops]
        if len(loops) > 1 and present != loops:
            self.schedule.reorder(*loops)

    def own_loops(self, tensor: str, statement: ScopStatement) -> list[tuple[str, str]]:
        """The scop's loop and the stage's own loop for each iterator that has one."""
        block = self._site(tensor).block
        inside = self.inside(tensor)
        result: list[tuple[str, str]] = []
        for mine, iterator in self._iterated(tensor, statement):
            found = [n for n in names(block.binding[iterator]) if n in inside]
            result += [(mine, n) for n in found]
        return result

    def _iterated(self, tensor: str, statement: ScopStatement) -> list[tuple[str, str]]:
        """The scop's loop and the stage's iterator, of a copy those of its dimensions."""
        if tensor in self.moved:
            copied = tuple(n for n, _ in self.schedule.state.stage[tensor].iterators)
            return self.axes(statement, self.moved[tensor], copied)
        pairs = zip(statement.loops, self.iterators(tensor, statement), strict=True)
        return [(mine, iterator) for (mine, _), (iterator, _) in pairs]

    def axes(
        self, statement: ScopStatement, moved: str, over: tuple[str, ...]
    ) -> list[tuple[str, str]]:
        """The scop's loop and what a copy has for every dimension of a stored tensor."""
        stage = self.schedule.state.stage[moved]
        place = {n: d for d, i in enumerate(stage.target.indices) for n in names(i)}
        place.pop(self.parts.get(moved, ""), None)
        of = dict(zip(sorted(place, key=lambda n: place[n]), over, strict=False))
        pairs = zip(statement.loops, self.iterators(moved, statement), strict=True)
        return [(mine, of[n]) for (mine, _), (n, _) in pairs if n in of]

    def iterators(self, tensor: str, statement: ScopStatement) -> list[tuple[str, int]]:
        """The stage's iterators, in the order of the statement's loops."""
        iterators = self.schedule.state.stage[tensor].iterators
        if tensor in self.parts:
            iterators = tuple(x for x in iterators if x[0] != self.parts[tensor])
        if len(iterators) == len(statement.loops):
            return list(iterators)
        kept = {n for i in statement.source.target.indices for n in names(i)}
        return [(n, e) for n, e in iterators if n in kept or e == 1]

    def inside(self, tensor: str) -> tuple[str, ...]:
        """The loops that hold a stage's block alone."""
        return tuple(x.name for x in self._site(tensor).loops if alone(x))

    def _site(self, block: str) -> Site:
        found = self.schedule.state.block(block)
        assert found is not None
        return found

    def cache(self, storage: Storage, around: Sequence[str], results: Mapping[str, str]) -> None:
        """Load a storage inside of loops, outermost first."""
        s = self.schedule
        source = self.caches.get(self.plan.sources.get(storage.name, "")) or self._version(storage)
        readers, places = self._readers(storage, source, results)
        occurrence = places[0] if places else 0
        reader, indices, whole = self._reindexed(storage, source, (readers, occurrence), results)
        if reader:
            name = s.reindex_cache_read(source, storage.memory, reader, occurrence, whole)
        else:
            alike = len({*places}) < 2
            name = s.cache_read(source, storage.memory, readers, occurrence if alike else places)
        if around:
            s.compute_at(name, around[-1])
        block = self._site(name).block
        inside = self.inside(name)
        blocks: list[str] = []
        rows: list[str] = []
        lanes: list[str] = []
        load = next(o for o in self.plan.loads if o.written == storage.name)
        called = self.plan.called(load)
        lane_loops = [n for n in self.tiling.match.storage_lane[storage.name] if n]
        tiled = {} if reader else self._lay_out(name, storage)
        iterators = s.state.stage[name].iterators
        for d, (index, (iterator, _)) in enumerate(zip(indices, iterators, strict=True)):
            own = [n for n in names(block.binding[iterator]) if n in inside]
            cut = [n for n in index.names if n in lane_loops]
            size = self.tiling.match.block.get(cut[0], 1) if cut else 1
            for loop in own:
                inner = loop
                if tiled.get(d, 1) > 1:
                    tile, inner = s.split(loop, factor=tiled[d])
                    blocks.append(tile)
                outer, lane = self.split_lanes(inner, size)
                blocks.append(outer)
                # A block may be several entries, of which a call fills fewer.
                (lanes if called.issuperset(cut) else rows).extend(lane)
        if blocks and not lanes and not rows:
            blocks[-1], lanes = self._widened(name, load, storage, blocks[-1])
        self.reorder([*blocks, *rows, *lanes])
        self.lanes[name] = lanes
        self.caches[storage.name] = name
        if self.tiling.kept(storage.name):
            turning = {x.key for x in self.tiling.turning(storage.name)}
            parts = {x.key for x in self.tiling.parts_of(storage.name)}
            for loop in around:
                tile = self.tiles[loop]
                if tile not in turning or (tile in parts and overlaps(s.state, name, loop)):
                    s.retain(name, loop)

    def _widened(
        self, name: str, load: Operation, storage: Storage, loop: str
    ) -> tuple[str, list[str]]:
        """The innermost loop of a copy, of single entries, and lanes: where a call copies several
        in a row of what lies so in a memory that is reached through caches."""
        wide = wider_copy(self.hardware, load) if through_caches(self.hardware) else None
        row = storage.indices[-1].terms if storage.indices else ()
        if wide is None or [c for _, c in row] != [1] or self.schedule.state.loop[loop].extent == 1:
            return loop, []
        self.wide[name] = wide
        return self.split_lanes(loop, wide.iterators[0][1])

    def _lay_out(self, name: str, storage: Storage) -> dict[int, int]:
        """What calls read together of a buffer in a cache lies together: tile by tile of the loops
        inside of the one that it is loaded in, in their order. The size of the tiles along each
        dimension, in elements."""
        if not in_caches(self.hardware, storage.memory):
            return {}
        of = {i.names[0]: d for d, i in enumerate(storage.indices) if len(i.names) == 1}
        inner = [x for x in self.tiling.loops[self.tiling.depth[storage.name] :] if x.loop in of]
        sizes = {of[x.loop]: x.tile * self.tiling.match.block.get(x.loop, 1) for x in inner}
        lanes = self.tiling.match.storage_lane[storage.name]
        mixed = any(len(i.names) > 1 for i in storage.indices)
        kept = [d for d in range(len(storage.indices)) if sizes.get(d) != 1]
        order = [*(of[x.loop] for x in inner), *kept]
        if mixed or not any(lanes) or order == sorted({*order}):
            return {}
        names = [f"d{d}" for d in range(len(storage.indices))]
        tiles = [f"{names[of[x.loop]]} // {sizes[of[x.loop]]}" for x in inner]
        rest = [f"{names[d]} % {sizes[d]}" if d in sizes else names[d] for d in kept]
        self.schedule.transform_layout(name, f"[{', '.join(names)}] -> [{', '.join(tiles + rest)}]")
        return sizes

    def around(self, storage: str, loops: list[str], results: Mapping[str, str]) -> list[str]:
        """The tile loops that a storage is loaded inside, of those that its readers have."""
        takers = {results[n] for n in self.plan.takers({storage}) if n in results}
        around = self.common(sorted(takers & {*self.nests})) if takers else loops
        if not takers <= {*self.merged} or len(takers) > 1:
            around = around + self.reduction
        outer = {x.key for x in self.tiling.loops[: self.tiling.depth[storage]]}
        return [n for n in around if self.tiles[n] in outer]

    def common(self, stages: Sequence[str]) -> list[str]:
        """The tile loops that some stages share; none of what is in no stage's."""
        nests = [self.nests[n] for n in stages]
        found: list[str] = []
        for loops in zip(*nests, strict=False):
            if len({*loops}) > 1:
                break
            found.append(loops[0])
        return found

    def _reindexed(
        self,
        storage: Storage,
        source: str,
        given: tuple[Sequence[str], int],
        results: Mapping[str, str],
    ) -> tuple[str, Sequence[Affine], bool]:
        """The only reader of a storage of which a lane is no step along one index, or between whose
        elements others lie, or in whose place a result is that is indexed otherwise, so that it is
        laid out by the reader's iterators; these, and whether by all of the result's. Else none,
        and its own indices."""
        lanes = [n for n in self.tiling.match.storage_lane[storage.name] if n]
        steps = [[c for i in storage.indices if (c := i.coefficient(n))] for n in lanes]
        readers, occurrence = given
        chosen = readers or [x.tensor for x in self.schedule.state.readers(source)]
        takers = [x for x in self.plan.statements if results.get(x.name) in chosen]
        if len(chosen) != 1 or len(takers) != 1:
            return "", storage.indices, False
        (taker,) = takers
        aside = self.plan.overwritten(storage.name) and storage.indices != taker.target.indices
        gaps = sparse(storage.indices, self.plan.scop.extents)
        if all(s in ([], [1]) for s in steps) and not aside and not gaps:
            return "", storage.indices, False
        stage = self.schedule.state.stage[chosen[0]]
        reads = [n for n in walk(stage.value) if isinstance(n, Access) and n.tensor == source]
        used = {n for i in reads[max(0, occurrence - 1)].indices for n in names(i)}
        pairs = zip(taker.loops, self.iterators(chosen[0], taker), strict=True)
        loop_of = {own: loop for (loop, _), (own, _) in pairs}
        spatial = {n for n, _ in stage.spatial}
        over = [n for n in target_first(stage) if n in (used | spatial if aside else used)]
        indices = [Affine(((loop_of[n], 1),)) for n in over]
        return chosen[0], indices, aside and not spatial <= used

    def _version(self, storage: Storage) -> str:
        """The tensor that a storage holds: where what a statement stores is summed up; of several
        that one name stands for in turn, that which its readers read, or where an earlier phase
        has brought it for them."""
        for x in self.plan.statements:
            if self.plan.hidden(x) and x.reads[0].tensor == storage.tensor:
                return self.moved.get(self.stage(x), self.stage(x))
        workload, state = self.schedule.workload, self.schedule.state
        pairs = zip(workload.statements, stage_of(workload, state), strict=True)
        versions = {storage.tensor, *(n for x, n in pairs if x.target.tensor == storage.tensor)}
        takers = self.plan.takers({storage.name})
        stages = [self.stage(x) for x in self.plan.statements if x.name in takers]
        reading = [state.stage[self.moved.get(n, n)] for n in stages]
        read = {r.tensor for stage in reading for r in stage.reads_in("whole")}
        brought = {n for n in read if not versions.isdisjoint(self._copied(n))}
        return min(versions & read or brought, default=storage.tensor)

    def _copied(self, tensor: str) -> list[str]:
        """What a tensor is a copy of that primitives made, step by step."""
        stage = self.schedule.state.stage
        own = {*stage_of(self.schedule.workload, self.schedule.state)}
        found: list[str] = []
        while tensor in stage and tensor not in own:
            value = stage[tensor].value
            if not isinstance(value, Access):
                break
            tensor = value.tensor
            found.append(tensor)
        return found

    def _readers(
        self, storage: Storage, source: str, results: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Who reads a cache: all, or this phase alone where others load the tensor themselves; of a
        tensor held whole, the phases that take it there; of several caches of one tensor, those
        whose calls take this one. Where one stage reads several of them, in which place of each
        one's value; else there are no places."""
        stages = [x.tensor for x in self.schedule.state.readers(source)]
        mine = {*self.first, *self.moved.values()}
        held = self.plan.sources.get(storage.name, "")
        beside = {
            n
            for n in (*self.plan.alike_storages(storage), held)
            if n and storage.name not in self.plan.on_the_way(n) and (not held or n == held)
        }
        taken, others = self.plan.takers({storage.name}), self.plan.direct(beside, storage.name)
        taking = {results[n] for n in taken if n in results}
        ours = tuple(x for x in stages if x in mine and (x in taking or not others))
        left = {n for n in beside if n not in self.caches or n == held}
        if taken & others & self.plan.direct(left, storage.name):
            statements = {results[x.name]: x for x in self.plan.statements if x.name in results}
            places = tuple(self._occurrence(storage, source, x, statements[x]) for x in ours)
            return ours, places
        if any(self._begins_off_chip(x, source) for x in ours):
            return ours, (1,) * len(ours)
        if storage.shape:
            apart = self._apart(storage)
            ours = tuple(x for x in stages if x not in apart and x not in self.caches.values())
        everyone: tuple[str, ...] = ()
        return (everyone if len(ours) == len(stages) else ours), ()

    def _apart(self, storage: Storage) -> set[str]:
        """Stages, a processor's too, that do not take a tensor where it is held whole."""
        if self.sharers is None:
            return set()
        own = {*stage_of(self.schedule.workload, self.schedule.state)}
        return own - self.sharers[storage.tensor, storage.memory]

    def _begins_off_chip(self, stage: str, source: str) -> bool:
        """Whether the sums of a stage start from a tensor where it is off chip."""
        seed = self.schedule.state.stage[stage].seed
        return (
            isinstance(seed, Access)
            and seed.tensor == source
            and source not in self.caches.values()
        )

    def _occurrence(self, storage: Storage, source: str, stage: str, mine: ScopStatement) -> int:
        """The first place of a stage's value that reads the element that a storage holds."""
        pairs = zip(mine.loops, self.iterators(stage, mine), strict=True)
        names_of = {loop: iterator for (loop, _), (iterator, _) in pairs}
        wanted = [f.rename(names_of) for f in storage.indices]
        value = self.schedule.state.stage[stage].value
        reads = [n for n in walk(value) if isinstance(n, Access) and n.tensor == source]
        found = [n for n, a in enumerate(reads, 1) if [affine(i) for i in a.indices] == wanted]
        return found[0] if found else 1
