"""A tiling of a chip with units, made by primitives: what the automatic scheduler does, replayed.

The last stage gets the spatial tile loops; what it needs is computed inside them; the reduction's
tile loops are those of the accumulation; inputs are cached at the depth that the tiling gives.
Loops run tiles, then blocks, then lanes. Stages that stay at the root without an intrinsic are
packed by the host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from hwgen.errors import HwgenError
from hwgen.polyhedral.nest.build import stage_of
from hwgen.polyhedral.operations import Operation, Storage
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.tiling import Tiling
from hwgen.schedule import Schedule
from hwgen.spec.expression import Access, names
from hwgen.spec.hardware import HardwareSpec

K = TypeVar("K", int, str)


def inexpressible(
    what: str,
    found: str,
    allowed: str = "stages that each store one tensor and read each tensor one way",
    repair: str = "give the second use a tensor of its own",
) -> HwgenError:
    """The error of a tiling for which there are no primitives."""
    return HwgenError(
        "H419",
        f"the schedule has no script: {what}",
        found=found,
        allowed=allowed,
        repair=repair,
    )


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """A phase's tiling. `first`: the stage, before any edit, of each of its workload's statements;
    `leaves`: tensors that it leaves on the chip for later phases."""

    scop: Scop
    tiling: Tiling
    first: tuple[str, ...]
    leaves: tuple[str, ...] = ()


def apply_tiling(
    schedule: Schedule, scop: Scop, tiling: Tiling, leaves: tuple[str, ...] = ()
) -> None:
    """Edit a fresh schedule of the scop's workload into the tiling; `leaves`: see `PhasePlan`.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    first = stage_of(schedule.workload, schedule.state)
    apply_tilings(schedule, [PhasePlan(scop, tiling, first, leaves)])


def apply_tilings(schedule: Schedule, plans: Sequence[PhasePlan]) -> None:
    """Edit a fresh schedule into the tilings of a kernel's phases.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    with schedule.batch():
        for plan in plans:
            _Writer(schedule, plan.scop, plan.tiling, plan.first, plan.leaves).write()


@dataclass
class _Writer:
    """`first`, `leaves`: see `PhasePlan`; `final`: the statement whose stage has the tile loops;
    `moved`: where the stored tensor is first computed; `lanes`: lane loops of each stage;
    `caches`: the stage that loads a storage."""

    schedule: Schedule
    scop: Scop
    tiling: Tiling
    first: tuple[str, ...]
    leaves: tuple[str, ...]
    moved: str = ""
    reduction: list[str] = field(default_factory=list[str])
    lanes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    caches: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def hardware(self) -> HardwareSpec:
        return self.schedule.hardware

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        return self.tiling.match.selection.operations

    def write(self) -> None:
        self._check_chain()
        self._start()
        loops = self._tile_root()
        results = self._results(loops)
        for storage in self._loaded():
            self._cache(storage, loops, results)
        self._buffers(results)
        if self.hardware.pipelined:
            self._pipeline(loops, results)
        self._tensorize(results)

    @cached_property
    def leaving(self) -> bool:
        """Whether the phase's result stays on the chip."""
        return self.scop.statements[-1].target.tensor in self.leaves

    @cached_property
    def statements(self) -> tuple[ScopStatement, ...]:
        """The statements that have stages: a copy of what stays on the chip has none."""
        last = self.scop.statements[-1]
        copies = self.leaving and not self._of(last, "update", "map")
        return self.scop.statements[:-1] if copies else self.scop.statements

    @property
    def final(self) -> ScopStatement:
        """The statement whose stage has the spatial tile loops."""
        return self.statements[-1]

    def _check_chain(self) -> None:
        outputs = [t.name for t in self.scop.workload.outputs]
        if len(outputs) > 1:
            raise inexpressible("several outputs share loops", ", ".join(outputs))

    def _stage(self, statement: ScopStatement) -> str:
        """The tensor of the stage that a statement of the scop comes from."""
        return self.first[self.scop.workload.statements.index(statement.source)]

    def _of(self, statement: ScopStatement, *kinds: str) -> list[Operation]:
        mine = [o for o in self.operations if o.statement == statement.name and o.kind in kinds]
        return [o for o in mine if o not in self.loads]

    def _start(self) -> None:
        """What sums start from that is added to them afterwards."""
        selection = self.tiling.match.selection
        for operation in self.operations if selection.start else ():
            statement = next(x for x in self.statements if x.name == operation.statement)
            if operation.kind == "init":
                held = {x.name for x in selection.storages}
                addend = next(s for s in operation.storages if s not in held)
                self.schedule.start_from(self._stage(statement), addend)

    # Root: the stage that stores

    def _tile_root(self) -> list[str]:
        """Split and order the loops of the last stage; its spatial tile loops, outermost first."""
        s, last = self.schedule, self.final
        tensor = self._stage(last)
        hidden = last.name.endswith("_out") and len(self.scop.statements) > 1
        if self.leaving:
            self._scope(tensor, self._target_memory(last))
            axes = self._own(tensor, last)
        elif hidden or self._of(last, "map"):
            memory = self._target_memory(last) if not hidden else self._hidden_memory(last)
            self.moved = s.cache_write(tensor, memory)
            axes = self._axes(last, s.loops(tensor))
        else:
            axes = self._own(tensor, last)
        tiles: dict[str, str] = {}
        blocks: list[str] = []
        lanes: list[str] = []
        for scop_loop, loop in axes:
            outer, lane = self._split_lanes(loop, self.tiling.match.block.get(scop_loop, 1))
            lanes += lane
            tile = next((x for x in self.tiling.loops if x.loop == scop_loop), None)
            if tile is not None:
                tiles[scop_loop], outer = s.split(outer, factor=tile.tile)
            blocks.append(outer)
        count = self.tiling.spatial_depth
        spatial = [tiles[x.loop] for x in self.tiling.loops[:count] if x.loop in tiles]
        self.reduction = [tiles[x.loop] for x in self.tiling.loops[count:] if x.loop in tiles]
        inside = [*self.reduction, *blocks, *lanes]
        self._reorder([*spatial, *inside])
        self.lanes[tensor] = lanes
        if self._of(last, "init") and inside:
            s.decompose_reduction(tensor, inside[0])
        return spatial

    def _scope(self, tensor: str, memory: str) -> None:
        if self.schedule.state.storage[tensor].memory != memory:
            self.schedule.set_scope(tensor, memory)

    def _hidden_memory(self, last: ScopStatement) -> str:
        update = next(x for x in self.scop.statements if x.target.tensor == last.reads[0].tensor)
        return self._target_memory(update)

    def _target_memory(self, statement: ScopStatement) -> str:
        """Where the last operation on a statement's value leaves it."""
        last = self._of(statement, "init", "update", "map")[-1]
        written = last.intrinsic.semantics[0].target.tensor
        return last.intrinsic.operand(written).memory

    def _axes(self, statement: ScopStatement, loops: tuple[str, ...]) -> list[tuple[str, str]]:
        """The scop's loop and the copy's for every dimension of a stored tensor."""
        stage = self.schedule.state.stage[self.moved]
        place = {n: d for d, i in enumerate(stage.target.indices) for n in names(i)}
        over = dict(zip(sorted(place, key=lambda n: place[n]), loops, strict=False))
        pairs = zip(statement.loops, self._iterators(self.moved, statement), strict=True)
        return [(mine, over[n]) for (mine, _), (n, _) in pairs if n in over]

    def _split_lanes(self, loop: str, lanes: int) -> tuple[str, list[str]]:
        if lanes == 1:
            return loop, []
        outer, inner = self.schedule.split(loop, factor=lanes)
        return outer, [inner]

    def _reorder(self, loops: list[str]) -> None:
        present = [x for x in self.schedule.state.loop if x in loops]
        if len(loops) > 1 and present != loops:
            self.schedule.reorder(*loops)

    # Inside: what the storing stage needs

    def _results(self, loops: list[str]) -> dict[str, str]:
        """Stage of every statement's value, placed, split and ordered; consumers first."""
        s = self.schedule
        results: dict[str, str] = {}
        final, reduction = self.final, self.reduction
        for statement in reversed(self.statements):
            tensor = self._stage(statement)
            if statement is final:
                if not self.moved or not self._of(statement, "map"):
                    results[statement.name] = tensor
                    continue
                tensor = self.moved
            elif tensor == self._stage(final):
                tensor = self.moved
            elif not self._of(statement, "init", "update", "map"):
                raise inexpressible(
                    f"no call computes {tensor}",
                    str(statement.source),
                    "statements that each have calls of their own",
                    f"read {' and '.join(r.tensor for r in statement.reads)} in place of {tensor}",
                )
            else:
                self._scope(tensor, self._target_memory(statement))
            results[statement.name] = tensor
            inner = any(self.tiling.match.selection.inner(o) for o in self._of(statement, "map"))
            place = (loops + reduction)[-1:] if inner and not statement.accumulates else loops[-1:]
            if place:
                s.compute_at(tensor, place[0])
            reduction += self._arrange(statement, tensor)
        return results

    def _own(self, tensor: str, statement: ScopStatement) -> list[tuple[str, str]]:
        """The scop's loop and the stage's own loop for each iterator that has one."""
        state = self.schedule.state
        block = state.site[tensor].block
        inside = self._inside(tensor)
        result: list[tuple[str, str]] = []
        for (mine, _), (iterator, _) in zip(
            statement.loops, self._iterators(tensor, statement), strict=True
        ):
            found = [n for n in names(block.binding[iterator]) if n in inside]
            result += [(mine, n) for n in found]
        return result

    def _iterators(self, tensor: str, statement: ScopStatement) -> list[tuple[str, int]]:
        """The stage's iterators, in the order of the statement's loops."""
        iterators = self.schedule.state.stage[tensor].iterators
        if len(iterators) == len(statement.loops):
            return list(iterators)
        kept = {n for i in statement.source.target.indices for n in names(i)}
        return [(n, e) for n, e in iterators if n in kept or e == 1]

    def _inside(self, tensor: str) -> tuple[str, ...]:
        """The loops that hold a stage's block alone."""
        site = self.schedule.state.site[tensor]
        return tuple(
            x.name
            for x in site.loops
            if all(x.name not in o.names for o in self.schedule.state.sites if o is not site)
        )

    def _arrange(self, statement: ScopStatement, tensor: str) -> list[str]:
        """Split a stage's own loops into tiles, blocks and lanes; the reduction's tile loops."""
        tiles: dict[str, str] = {}
        blocks: list[str] = []
        lanes: list[str] = []
        for scop_loop, loop in self._own(tensor, statement):
            outer, lane = self._split_lanes(loop, self.tiling.match.block.get(scop_loop, 1))
            lanes += lane
            tile = next((x for x in self.tiling.loops if x.loop == scop_loop), None)
            carried = scop_loop in self.tiling.match.selection.reduction and statement.accumulates
            if tile is not None and carried:
                tiles[scop_loop], outer = self.schedule.split(outer, factor=tile.tile)
            blocks.append(outer)
        order = [tiles[x.loop] for x in self.tiling.loops if x.loop in tiles]
        loops = [*order, *blocks, *lanes]
        self._reorder(loops)
        self.lanes[tensor] = lanes
        if loops and self._of(statement, "init"):
            self.schedule.decompose_reduction(tensor, loops[0])
        return order

    # Inputs

    def _loaded(self) -> list[Storage]:
        selection = self.tiling.match.selection
        return [selection.storage(_written(o)) for o in self.loads]

    @cached_property
    def loads(self) -> tuple[Operation, ...]:
        """The operations that bring a tensor nearer: from off-chip memory, or between memories."""
        return tuple(o for o in self.operations if o.kind == "load" or self._is_move(o))

    def _is_move(self, operation: Operation) -> bool:
        """Whether an operation copies what a statement reads from one memory to another."""
        held = {x.name: x for x in self.tiling.match.selection.storages}
        copies = isinstance(operation.intrinsic.semantics[0].value, Access)
        if operation.kind != "map" or not copies or not held.keys() >= {*operation.storages}:
            return False
        statement = next(x for x in self.scop.statements if x.name == operation.statement)
        tensors = {held[n].tensor for n in operation.storages}
        return (
            len(tensors) == 1
            and len(operation.storages) == 2
            and (statement.target.tensor not in tensors)
        )

    @cached_property
    def sources(self) -> dict[str, str]:
        """The storage that each is loaded from, where that is on the chip."""
        found: dict[str, str] = {}
        for load in self.loads:
            into = _written(load)
            for held in load.storages:
                if held in self._depths and held != into:
                    found[into] = held
        return found

    @cached_property
    def _depths(self) -> frozenset[str]:
        return frozenset(self.tiling.depth)

    def _cache(self, storage: Storage, loops: list[str], results: Mapping[str, str]) -> None:
        s = self.schedule
        source = self.caches.get(self.sources.get(storage.name, ""), storage.tensor)
        readers = self._readers(storage, source, results)
        name = s.cache_read(source, storage.memory, readers)
        depth = self.tiling.depth[storage.name]
        around = loops + self.reduction
        if depth > len(around):
            raise inexpressible("a tile loop is none of the last stage's", storage.name)
        if depth:
            s.compute_at(name, around[depth - 1])
        block = s.state.site[name].block
        inside = self._inside(name)
        blocks: list[str] = []
        rows: list[str] = []
        lanes: list[str] = []
        load = next(o for o in self.loads if _written(o) == storage.name)
        called = self._called(load)
        lane_loops = [n for n in self.tiling.match.storage_lane[storage.name] if n]
        for index, (iterator, _) in zip(
            storage.indices, s.state.stage[name].iterators, strict=True
        ):
            own = [n for n in names(block.binding[iterator]) if n in inside]
            cut = [n for n in index.names if n in lane_loops]
            size = self.tiling.match.block.get(cut[0], 1) if cut else 1
            for loop in own:
                outer, lane = self._split_lanes(loop, size)
                blocks.append(outer)
                # A block may be several entries, of which a call fills fewer.
                (lanes if called.issuperset(cut) else rows).extend(lane)
        self._reorder([*blocks, *rows, *lanes])
        self.lanes[name] = lanes
        self.caches[storage.name] = name
        if self.tiling.kept(storage.name):
            turning = self.tiling.turning(storage.name)
            for loop, tile in zip(around, self.tiling.loops[:depth], strict=False):
                if tile not in turning:
                    s.retain(name, loop)

    def _called(self, operation: Operation) -> set[str]:
        """The loops that are lanes of an operation's calls."""
        return {loop for _, loop in self.tiling.match.lane[operation.name] if loop}

    def _readers(
        self, storage: Storage, source: str, results: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Who reads a cache: all, or this phase alone where others load the tensor themselves; of
        several caches of one tensor, those whose calls take this one.

        Raises:
            HwgenError: H419 where one stage reads a tensor in two caches.
        """
        stages = [x.tensor for x in self.schedule.state.readers(source)]
        mine = {*self.first, self.moved}
        taken = self._takers({storage.name})
        other = {
            n
            for n in self._depths
            if n in self._alike_storages(storage)
            and storage.name not in self._on_the_way(n)
            and n not in self._on_the_way(storage.name)
        }
        others = self._takers(other) if other else set[str]()
        if both := sorted(taken & others):
            raise inexpressible("a stage reads a tensor in two caches", ", ".join(both))
        taking = {results[n] for n in taken if n in results}
        ours = tuple(x for x in stages if x in mine and (x in taking or not others))
        return () if storage.shape or len(ours) == len(stages) else ours

    def _alike_storages(self, storage: Storage) -> set[str]:
        """The storages that hold the same tensor."""
        storages = self.tiling.match.selection.storages
        return {x.name for x in storages if x.tensor == storage.tensor}

    def _on_the_way(self, storage: str) -> tuple[str, ...]:
        """A storage and those that it is loaded from, the last one first."""
        found = [storage]
        while found[-1] in self.sources:
            found.append(self.sources[found[-1]])
        return tuple(found)

    def _takers(self, storages: Collection[str]) -> set[str]:
        """The statements whose calls read storages, or what is loaded from these."""
        return {
            o.statement
            for o in self.operations
            for n in o.storages
            if o not in self.loads and not {*self._on_the_way(n)}.isdisjoint(storages)
        }

    # Buffers and calls

    def knob(self, storage: str, results: dict[str, str]) -> str:
        """The tensor whose slots are those of a storage."""
        if storage in self.caches:
            return self.caches[storage]
        first = next(
            o
            for o in self.operations
            if o.kind in ("init", "update", "map") and storage in o.storages
        )
        return results[first.statement]

    def _buffers(self, results: dict[str, str]) -> None:
        held = {x.name for x in self.tiling.match.selection.storages}
        slot = {n: c for n, c in self.tiling.slot.items() if n in held}
        turns = {n: 1 if self.tiling.kept(n) else c for n, c in slot.items()}
        slots = self._alike(results, "slots", turns)
        for tensor, count in sorted(slots.items()):
            if count > 1:
                self.schedule.double_buffer(tensor, count)
        self._alike(results, "padding", {name: self._padding(name) for name in slot})
        for align in self.tiling.aligns:
            size = self.tiling.match.entry_elements(align.storage)
            tensor = self.knob(align.storage, results)
            factor, offset = align.factor * size, align.offset * size
            self.schedule.storage_align(tensor, align.dimension, factor, offset)

    def _padding(self, storage: str) -> str:
        """How a buffer's rows are apart, in elements."""
        size = self.tiling.match.entry_elements(storage)
        mine = [a for a in self.tiling.aligns if a.storage == storage]
        steps = (f"{a.dimension}: {a.factor * size}*n + {a.offset * size}" for a in mine)
        return ", ".join(steps) or "none"

    def _alike(self, results: dict[str, str], what: str, given: Mapping[str, K]) -> dict[str, K]:
        """What is given of each stage's buffers, of which a stage may have several.

        Raises:
            HwgenError: H419 where they differ.
        """
        found: dict[str, K] = {}
        for storage, value in given.items():
            if self.tiling.match.selection.storage(storage).shape:
                continue  # It has the tensor's own buffer.
            tensor = self.knob(storage, results)
            if found.setdefault(tensor, value) != value:
                raise inexpressible(
                    f"buffers of one stage differ in {what}",
                    f"{tensor}: {found[tensor]} and {value}",
                    f"the same {what} for every buffer that the calls of one stage fill",
                    "compile without a script",
                )
        return found

    # Where a host that issues calls in order puts them, so that no unit waits for it

    def _pipeline(self, loops: list[str], results: Mapping[str, str]) -> None:
        """Loads run a tile ahead, stores and what begins the next sums a tile behind, with the
        first work of the tile there."""
        s = self.schedule
        around = loops + self.reduction
        for operation in self.operations:
            if operation.kind == "load" and self._moves(operation):
                storage = next(n for n in operation.storages if n in self.caches)
                self._shift(self.caches[storage], around[: self.tiling.depth[storage]], -1)
        sums = [results[x.name] for x in self.statements if self._of(x, "update")]
        inner = [n for n in around if sums and n in s.loops(sums[-1])]
        for kind, where, later in (("store", "last", 1), ("init", "first", -1)):
            for statement in self.statements if loops and sums else ():
                moving = [o for o in self._of(statement, kind) if self._moves(o)]
                tensor = self._stage(statement)
                block = tensor if kind == "store" else f"{results[statement.name]}_init"
                if moving and block in s.state.site:
                    s.sink(block, inner[-1], where)
                    self._shift(block, inner if kind == "store" else loops, later)

    def _shift(self, block: str, loops: list[str], iterations: int) -> None:
        if loops:
            self.schedule.shift(block, loops[0] if len(loops) == 1 else loops, iterations)

    def _moves(self, operation: Operation) -> bool:
        """Whether an operation is to stand in another tile than its own: a load or store of another
        unit than those that compute, with a slot to spare."""
        computing = {o.intrinsic.unit for o in self.operations if o.kind in ("update", "map")}
        onchip = {n for n in operation.storages if n in self.tiling.slot}
        loaded = {n for o in self.operations if o.kind == "load" for n in o.storages}
        if operation.kind == "store" and onchip & loaded:
            return False  # What it reads would have to stay longer than loads let it.
        apart = bool(computing) and operation.intrinsic.unit not in computing
        return apart and all(self.tiling.slot[n] > 1 for n in onchip)

    def _tensorize(self, results: dict[str, str]) -> None:
        s = self.schedule
        for statement in self.statements:
            tensor = results[statement.name]
            init = self._of(statement, "init")
            if f"{tensor}_init" in s.state.site:
                self._call(f"{tensor}_init", self._init_lanes(tensor), init)
            work = self._of(statement, "map", "update")
            store = self._of(statement, "store")
            if work:
                self._call(tensor, self.lanes[tensor], work)
            if store:
                stored = self._stage(statement)
                self._call(stored, self.lanes[stored], store)
        for operation in self.loads:
            name = self.caches[_written(operation)]
            self._call(name, self.lanes[name], [operation])

    def _init_lanes(self, tensor: str) -> list[str]:
        made = self.schedule.state.site[f"{tensor}_init"].names
        return [n for n in made if n.removesuffix("_init") in self.lanes[tensor]]

    def _call(self, block: str, lanes: list[str], operations: list[Operation]) -> None:
        intrinsics = [o.intrinsic.name for o in operations]
        self.schedule.tensorize(lanes[0] if lanes else block, *intrinsics)


def _written(operation: Operation) -> str:
    """The storage that an operation's intrinsic writes."""
    names = [o.name for o in operation.intrinsic.operands]
    return operation.storages[names.index(operation.intrinsic.semantics[0].target.tensor)]
