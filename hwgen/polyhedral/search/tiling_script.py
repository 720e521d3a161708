"""A tiling of a chip with units, made by primitives: what the automatic scheduler does, replayed.

The last stage gets the spatial tile loops; what it needs is computed inside them; the reduction's
tile loops are those of the accumulation; inputs are cached at the depth that the tiling gives.
Loops run tiles, then blocks, then lanes. Stages that stay at the root without an intrinsic are
packed by the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod

from hwgen.polyhedral.match.covering import copy_source, held_by
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.match.wide_calls import adding_store, reading_in_place
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.search.host_queues import part_of_store, stored_in_parts
from hwgen.polyhedral.search.resident import fitting
from hwgen.polyhedral.search.tiling import TOGETHER, Tiling
from hwgen.polyhedral.search.tiling_loads import LoadWriter
from hwgen.polyhedral.search.tiling_plan import plan_of
from hwgen.polyhedral.semantics import widens
from hwgen.polyhedral.tree.build import stage_of
from hwgen.polyhedral.tree.tensorize import tensorize
from hwgen.polyhedral.unify import unify
from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import Access, Cast
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import integer_range, is_float


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
    """Edit a schedule that computes the scop's workload into the tiling; `leaves`: see `PhasePlan`.

    Raises:
        HwgenError: H411, H413, as the primitives.
    """
    first = stage_of(scop.workload, schedule.state)
    apply_tilings(schedule, [PhasePlan(scop, tiling, first, leaves)])


def apply_tilings(schedule: Schedule, plans: Sequence[PhasePlan]) -> None:
    """Edit a fresh schedule into the tilings of a kernel's phases.

    Raises:
        HwgenError: H411, H413, as the primitives.
    """
    sharers: dict[tuple[str, str], set[str]] = {}
    for plan in plans:
        for storage in plan.tiling.match.selection.storages:
            if storage.shape:
                sharers.setdefault((storage.tensor, storage.memory), set()).update(plan.first)
    with schedule.batch(blame=False):
        for plan in plans:
            made = plan_of(plan.scop, plan.tiling, plan.leaves)
            TilingWriter(schedule, made, plan.first, sharers).write()


@dataclass
class TilingWriter(LoadWriter):
    """One phase's edits."""

    def write(self) -> None:
        self.storing = self.find_storing()
        self.begin()
        loops = self._tile_root()
        results = self._results(loops)
        for storage in self.plan.loaded:
            self.cache(storage, self.around(storage.name, loops, results), results)
        self._buffers(results)
        if self.hardware.pipelined:
            self._pipeline(loops, results)
        else:
            self._spread(loops, results)
            self._load_ahead(loops, results)
        self.tensorize(results)

    def begin(self) -> None:
        """What elements in order start from that their first iteration reads."""
        selection = self.tiling.match.selection
        for operation in self.plan.operations if selection.start else ():
            statement = next(x for x in self.plan.statements if x.name == operation.statement)
            if operation.kind == "init" and statement.ordered:
                held = {x.name for x in selection.storages}
                addend = next(s for s in operation.storages if s not in held)
                tensor = self.stage(statement)
                for begun in self._between(tensor, addend):
                    self.schedule.compute_inline(begun)
                self.schedule.start_from(tensor, addend)

    def _between(self, tensor: str, addend: str) -> list[str]:
        """What only copies an addend for a stage whose elements begin with it."""
        state = self.schedule.state
        reads = [state.stage.get(r.tensor) for r in state.stage[tensor].reads]
        return [
            s.tensor
            for s in reads
            if s is not None and isinstance(s.value, Access) and s.value.tensor == addend
        ]

    # Root: the stage that stores

    def _tile_root(self) -> list[str]:
        """Split and order the loops of the last stage; its spatial tile loops, outermost first."""
        s, last = self.schedule, self.plan.final
        tensor = self.stage(last)
        if self.plan.leaving:
            self.scope(tensor, self.plan.target_memory(last))
            axes = self.own_loops(tensor, last)
        elif self.tiling.parts:
            axes = self._in_parts(last)
        elif self.plan.hidden(last) or self.plan.of(last, "map"):
            axes = self._stored(last, ())
        else:
            axes = self.own_loops(tensor, last)
        count = self.tiling.spatial_depth
        self.collected = self._collected(count)
        tiles, inside = self._tiled(tensor, axes, self.collected)
        spatial = [tiles[x.key] for x in self.tiling.loops[:count] if x.key in tiles]
        self.reduction = [tiles[x.key] for x in self.tiling.loops[count:] if x.key in tiles]
        self.reorder([*spatial, *self.reduction, *inside])
        if self.plan.of(last, "init"):
            s.decompose_reduction(tensor, *[*self.reduction, *inside][:1])
        for statement in self._beside():
            self._share(statement, {n: x for n, x in tiles.items() if x in spatial})
        return spatial

    def _collected(self, count: int) -> tuple[str, ...]:
        """The spatial tile loops whose results are stored together, outermost first."""
        final, storages = self.plan.final, self.tiling.match.selection.storages
        own = {x.name for x in storages if not x.shape}
        stored = {n for o in self.plan.of(final, "store") for n in o.storages}
        made = {o.written for o in self.plan.of(final, "map")} & stored & own
        depths = [self.tiling.depth[n] for n in made if len(self.storing) == 1]
        return tuple(x.key for x in self.tiling.loops[min(depths, default=count) : count])

    def _beside(self) -> list[ScopStatement]:
        """The statements that store other outputs."""
        last = self.stage(self.plan.final)
        return [x for x in self.storing if self.stage(x) != last]

    def find_storing(self) -> list[ScopStatement]:
        """The statements whose results leave the chip, not what is overwritten before. To be
        asked before any edit."""
        state = self.schedule.state
        mine = {self.stage(x) for x in self.plan.scop.statements}
        found: list[ScopStatement] = []
        for statement in self.plan.statements:
            tensor = self.stage(statement)
            needed = state.tensor[tensor].role == "output" or state.storage[tensor].alias
            read = any(x.tensor not in mine for x in state.readers(tensor))
            if self.plan.of(statement, "store") and (needed or read):
                found.append(statement)
        return found

    def _share(self, statement: ScopStatement, spatial: Mapping[str, str]) -> None:
        """An output beside the last one is stored in the same tile loops, as far as both have
        them."""
        s, tensor = self.schedule, self.stage(statement)
        readers = self.own_readers(tensor)
        if self.plan.hidden(statement) or self.plan.of(statement, "map"):
            axes = self._stored(statement, readers)
        else:
            axes = self.own_loops(tensor, statement)
        tiles, inside = self._tiled(tensor, axes)
        loops = [x.key for x in self.tiling.loops[: self.tiling.spatial_depth]]
        own = [tiles[n] for n in loops if n in tiles]
        self.reorder([*own, *inside])
        both: list[str] = []
        for name in loops:
            if (name in spatial) != (name in tiles):
                break
            if name in tiles:
                both.append(s.merge(spatial[name], tiles[name]))
        self.merged[self.moved.get(tensor, tensor)] = [*both, *own[len(both) :]]

    def own_readers(self, tensor: str) -> list[str]:
        """The stages of this phase that read a tensor."""
        readers = [x.tensor for x in self.schedule.state.readers(tensor)]
        return [x for x in readers if x in self._own or x in self.moved.values()]

    @cached_property
    def _own(self) -> set[str]:
        return {self.stage(x) for x in self.plan.statements}

    def _stored(self, statement: ScopStatement, readers: Sequence[str]) -> list[tuple[str, str]]:
        """Compute what a statement stores in a memory first; the scop's loop and the copy's for
        every dimension."""
        s, tensor = self.schedule, self.stage(statement)
        memory = self.plan.stored_memory(statement)
        moved = self.moved[tensor] = self.computed_before_store(statement, memory, readers)
        return self.axes(statement, moved, s.loops(tensor))

    def computed_before_store(
        self, statement: ScopStatement, memory: str, readers: Sequence[str]
    ) -> str:
        """The stage that computes in a memory what another then stores: the value, or the part of
        it that a store's own steps are applied to."""
        s, tensor = self.schedule, self.stage(statement)
        value = s.state.stage[tensor].value
        dtypes = {t.name: t.dtype for t in s.state.tensors}
        whole = value.operand if isinstance(value, Cast) else value
        plain = readers or self.plan.hidden(statement)  # Of a sum, no part is stored.
        for store in () if plain else self.plan.of(statement, "store"):
            fields = {i.name: i for i in store.intrinsic.immediates}
            for found in unify(store.intrinsic.semantics[0].value, value, fields, dtypes):
                (_, part), *others = found.operands
                inner = not isinstance(part, Access) and part not in (value, whole)
                if inner and not others and found.immediates == store.immediates:
                    made = s.bind_expr(tensor, str(part))
                    self.scope(made, memory)
                    return made
        return s.cache_write(tensor, memory, self.wider(tensor, memory), readers)

    def _in_parts(self, statement: ScopStatement) -> list[tuple[str, str]]:
        """Sum up parts of the reduction in a memory, to be added up where the sums are stored; the
        scop's loop and the stage's for every dimension, and that over the parts."""
        s, tensor = self.schedule, self.stage(statement)
        summed = next(x for x in self.plan.statements if x.accumulates)
        (part,) = (x for x in self.tiling.loops if x.key in self.reduced_in_parts)
        loop = dict(self.own_loops(tensor, summed))[part.loop]
        elements = part.tile * self.tiling.match.block.get(part.loop, 1)
        over, _ = s.split(loop, factor=elements)
        sums = s.rfactor(tensor, over)
        self.scope(sums, self.plan.stored_memory(statement))
        self.moved[tensor] = sums
        self.parts[sums] = over
        *spatial, parts = s.loops(tensor)
        return [*self.axes(statement, sums, tuple(spatial)), (part.key, parts)]

    @property
    def reduced_in_parts(self) -> set[str]:
        """The key of the loop over parts of sums."""
        reduction = self.tiling.match.selection.reduction
        loops = [x for x in self.tiling.loops if x.outer and x.loop in reduction]
        return {x.key for x in loops} if self.tiling.parts else set()

    def _tiled(
        self, tensor: str, axes: Sequence[tuple[str, str]], whole: Sequence[str] = ()
    ) -> tuple[dict[str, str], list[str]]:
        """Split a stage's loops but those that stay `whole`: the tile loop of each of the scop's,
        and those inside."""
        tiles: dict[str, str] = {}
        blocks: list[str] = []
        lanes: list[str] = []
        for scop_loop, loop in axes:
            if scop_loop in self.reduced_in_parts:
                tiles[scop_loop] = loop
                continue
            outer, lane = self.split_lanes(loop, self.tiling.match.block.get(scop_loop, 1))
            lanes += lane
            for tile in (x for x in self.tiling.loops if x.loop == scop_loop):
                if tile.key not in whole:
                    tiles[tile.key], outer = self.schedule.split(outer, factor=tile.tile)
            blocks.append(outer)
        self.lanes[tensor] = lanes
        self.tiles |= {loop: mine for mine, loop in tiles.items()}
        return tiles, [*blocks, *lanes]

    def wider(self, tensor: str, memory: str) -> str:
        """The type in which calls compute what they narrow only where they store it, if not all of
        its values are the tensor's."""
        state = self.schedule.state
        value, held = state.stage[tensor].value, self.hardware.memory[memory].dtype
        dtypes = {t.name: t.dtype for t in state.tensors}
        if not isinstance(value, Cast) or not held or held == value.dtype:
            return ""
        if is_float(value.dtype):
            return held if widens(value.dtype, held) else ""
        values = value_range(normalise(value.operand, dtypes), dtypes)
        fits = values is not None and within(values, integer_range(value.dtype))
        return "" if fits else held

    def scope(self, tensor: str, memory: str) -> None:
        if self.schedule.state.storage[tensor].memory != memory:
            self.schedule.set_scope(tensor, memory)

    # Inside: what the storing stage needs

    def _results(self, loops: list[str]) -> dict[str, str]:
        """Stage of every statement's value, placed, split and ordered; consumers first."""
        s = self.schedule
        results: dict[str, str] = {}
        final, reduction = self.plan.final, self.reduction
        for statement in (final, *self._beside()):
            tensor = self.stage(statement)
            moved = self.moved.get(tensor, tensor)
            self.nests[tensor] = self.nests[moved] = self.merged.get(moved, loops)
        for statement in reversed(self.plan.statements):
            tensor = self.stage(statement)
            if tensor in {*self.moved, *self.merged} or statement is final:
                if tensor not in self.moved or self.plan.hidden(statement):
                    results[statement.name] = tensor
                    continue
                tensor = self.moved[tensor]
            elif not self.plan.of(statement, "init", "update", "map"):
                s.compute_inline(tensor)  # It is another tensor's value, which calls take.
                continue
            else:
                self.scope(tensor, self.plan.target_memory(statement))
            results[statement.name] = tensor
            inner = any(
                self.tiling.match.selection.inner(o) for o in self.plan.of(statement, "map")
            )
            # What later phases alone read is needed by none here.
            readers = self.own_readers(tensor)
            if tensor not in self.nests:
                self.nests[tensor] = self.common(readers)
            around = self.nests[tensor]
            place = (loops + reduction)[-1:] if inner and not statement.accumulates else around[-1:]
            if readers and place:
                s.compute_at(tensor, place[0])
            made = self._arrange(statement, tensor, self.collected if statement is final else ())
            (loops if statement is final and self.collected else reduction).extend(made)
        return results

    def _arrange(
        self, statement: ScopStatement, tensor: str, collected: Sequence[str]
    ) -> list[str]:
        """Split a stage's own loops into tiles, blocks and lanes; the tile loops of the reduction,
        or those whose results are stored together."""
        tiles: dict[str, str] = {}
        blocks: list[str] = []
        lanes: list[str] = []
        for scop_loop, loop in self.own_loops(tensor, statement):
            outer, lane = self.split_lanes(loop, self.tiling.match.block.get(scop_loop, 1))
            lanes += lane
            carried = scop_loop in self.tiling.match.selection.reduction and statement.accumulates
            for tile in (x for x in self.tiling.loops if x.loop == scop_loop):
                here = carried and tile.key not in self.reduced_in_parts
                if here or tile.key in collected:
                    tiles[tile.key], outer = self.schedule.split(outer, factor=tile.tile)
            blocks.append(outer)
        self.tiles |= {loop: mine for mine, loop in tiles.items()}
        order = [tiles[x.key] for x in self.tiling.loops if x.key in tiles]
        loops = [*order, *blocks, *lanes]
        self.reorder(loops)
        self.lanes[tensor] = lanes
        if self.plan.of(statement, "init"):
            self.schedule.decompose_reduction(tensor, *loops[:1])
        return order

    # Inputs

    # Buffers and calls

    def knob(self, storage: str, results: dict[str, str]) -> str:
        """The tensor whose slots are those of a storage."""
        if storage in self.caches:
            return self.caches[storage]
        first = next(
            o
            for o in self.plan.operations
            if o.kind in ("init", "update", "map") and storage in o.storages
        )
        return results[first.statement]

    def _buffers(self, results: dict[str, str]) -> None:
        held = {x.name for x in self.tiling.match.selection.storages}
        turns = {n: self.tiling.turns(n) for n in self.tiling.slot if n in held}
        slots: dict[str, int] = {}
        for name, count in turns.items():
            if not self.tiling.match.selection.storage(name).shape:  # else the tensor's own
                tensor = self.knob(name, results)
                slots[tensor] = min(count, slots.get(tensor, count))
        for tensor, count in sorted(slots.items()):
            if count > 1:
                self.schedule.double_buffer(tensor, count)

    # Where a host that issues calls in order puts them, so that no unit waits for it

    def _pipeline(self, loops: list[str], results: Mapping[str, str]) -> None:
        """Loads and what begins sums run a tile ahead, stores a tile behind: these after the first
        part of the tile's work, those that begin sums after the next part, as they wait for the
        stores, if that is not the last."""
        s = self.schedule
        around = loops + self.reduction
        for operation in self.plan.operations:
            if operation.kind == "load" and self.plan.moves(operation):
                storage = next(n for n in operation.storages if n in self.caches)
                self._shift(self.caches[storage], self.around(storage, loops, results), -1)
        sums = [results[x.name] for x in self.plan.statements if self.plan.of(x, "update")]
        inner = [n for n in around if sums and n in s.loops(sums[-1])]
        for kind, where, later in (("store", "last", 1), ("init", "first", -1)):
            for statement in self.plan.statements if loops and sums else ():
                if not any(map(self.plan.moves, self.plan.of(statement, kind))):
                    continue  # One that is another tensor's value has no stage either.
                tensor = self.stage(statement)
                block = tensor if kind == "store" else f"{results[statement.name]}_init"
                if kind == "store" and self._store_in_parts(tensor, loops):
                    continue
                if s.state.block(block) is not None:
                    s.sink(block, inner[-1], where)
                    rest = [n for n in inner if n not in loops]
                    turns = prod(s.state.loop[n].extent for n in rest)
                    if kind == "init" and turns > TOGETHER:
                        # Into the second part: the store before it is in the first.
                        self._shift(block, [*loops, *rest], later * (turns - 1))
                    else:
                        self._shift(block, inner if kind == "store" else loops, later)

    def _store_in_parts(self, tensor: str, loops: list[str]) -> bool:
        """A store of more calls than the unit's queue holds would keep the host from issuing work:
        a part comes with each part of the next tile's."""
        s, match = self.schedule, self.tiling.match
        store = stored_in_parts(self.hardware, match)
        depth = self.tiling.spatial_depth
        if store is None or self.collected or not self.reduction or s.state.block(tensor) is None:
            return False
        most = s.state.loop[self.reduction[0]].extent
        cut = part_of_store(self.hardware, match, store, self.tiling.extents(depth), most)
        if cut is None or tensor != self.stage(self.plan.final):
            return False
        inside = [n for n in self.inside(tensor) if n not in self.lanes[tensor]]
        axes = self.own_loops(tensor, self.plan.final)
        loop = next((n for mine, n in axes if mine == cut[0] and n in inside), None)
        if loop is None:
            return False
        outer, rest = s.split(loop, factor=cut[1])
        blocks = [rest if n == loop else n for n in inside]
        self.reorder([outer, *blocks, *self.lanes[tensor]])
        s.merge(self.reduction[0], outer)
        self._shift(tensor, loops, 1)
        return True

    def _spread(self, loops: list[str], results: Mapping[str, str]) -> None:
        """Of a unit that loads in loops and inside of them, what is outside comes an iteration
        ahead, a part with each of the loads inside: at once it would keep these waiting."""
        s, tiles = self.schedule, loops + self.reduction
        loads = {o.written: o for o in self.plan.operations if o.kind == "load"}
        for storage, load in loads.items():
            depth, around = self.tiling.depth[storage], self.around(storage, loops, results)
            beside = any(
                o.intrinsic.unit == load.intrinsic.unit and self.tiling.depth[n] > depth
                for n, o in loads.items()
            )
            single = self.tiling.slot[storage] == 1 or self.tiling.kept(storage)
            inside = 0 < depth < len(tiles) and around == tiles[:depth]
            if not (beside and inside) or single:
                continue
            name, inner = self.caches[storage], tiles[depth]
            count = s.state.loop[inner].extent
            own = [n for n in self.inside(name) if n not in self.lanes[name]]
            # In as many parts as there are loads inside, with the least past the end.
            past = {n: -(-e // count) * count / e for n in own if (e := s.state.loop[n].extent) > 1}
            first = min(past, key=lambda n: past[n], default=None)
            if first is not None and self._has_room(storage, past[first]):
                outer, rest = s.split(first, factor=-(-s.state.loop[first].extent // count))
                self.reorder([outer, *(rest if n == first else n for n in own), *self.lanes[name]])
                s.merge(inner, outer)
                self._shift(name, around, -1)

    def _has_room(self, storage: str, times: float) -> bool:
        """Whether a buffer may be so many times as large beside the others of its memory."""

        def taken(name: str) -> int:
            return ceil(self.tiling.taken(name) * (times if name == storage else 1))

        return bool(fitting(self.hardware, self.tiling.match, taken).all())

    def _load_ahead(self, loops: list[str], results: Mapping[str, str]) -> None:
        """Of a unit that loads and stores what others work on, loads run a tile ahead: in order
        behind the store of a tile they would wait for all of its work."""
        operations = self.plan.operations
        working = {o.intrinsic.unit for o in operations if o.kind not in ("load", "store")}
        storing = {o.intrinsic.unit for o in operations if o.kind == "store"} - working
        for operation in operations:
            if operation.kind == "load" and operation.intrinsic.unit in storing:
                storage = next(n for n in operation.storages if n in self.caches)
                if self.tiling.slot[storage] > 1:
                    self._shift(self.caches[storage], self.around(storage, loops, results), -1)

    def _shift(self, block: str, loops: list[str], iterations: int) -> None:
        if loops:
            self.schedule.shift(block, loops[0] if len(loops) == 1 else loops, iterations)

    def tensorize(self, results: dict[str, str]) -> None:
        s = self.schedule
        for statement in (x for x in self.plan.statements if x.name in results):
            tensor = results[statement.name]
            init = self.plan.of(statement, "init")
            if s.state.block(f"{tensor}_init") is not None:
                self.call(f"{tensor}_init", self._init_lanes(tensor), init)
            work = self.plan.of(statement, "map", "update")
            store = self.plan.of(statement, "store") if statement in self.storing else []
            if work:
                self.call(tensor, self.lanes[tensor], [self._in_place(o) for o in work])
            if store:
                stored = self.stage(statement)
                self.call(stored, self.lanes[stored], self._adding(store))
        for operation in self.plan.loads:
            name = self.caches[operation.written]
            wide = self.wide.get(name, operation.intrinsic)
            self.call(name, self.lanes[name], [replace(operation, intrinsic=wide)])

    def _adding(self, store: list[Operation]) -> list[Operation]:
        """The calls that store, or add to what is there where the sums come in parts."""
        if not self.tiling.parts:
            return store
        adding = [(o, adding_store(self.hardware, o)) for o in store]
        return [replace(o, intrinsic=i) for o, i in adding if i is not None]

    def _in_place(self, operation: Operation) -> Operation:
        """The call that reads what is not loaded where it lies."""
        selection = self.tiling.match.selection
        for name in (s.name for s in selection.storages if s.name in operation.storages):
            found = reading_in_place(self.hardware, selection, name)
            if found and self.tiling.in_place(name) and found[0] == operation:
                operation = replace(operation, intrinsic=found[1])
        return operation

    def _init_lanes(self, tensor: str) -> list[str]:
        if f"{tensor}_init" in self.lanes:
            return self.lanes[f"{tensor}_init"]
        made = self.schedule.state.block(f"{tensor}_init")
        assert made is not None
        return [n for n in made.names if n.removesuffix("_init") in self.lanes[tensor]]

    def call(self, block: str, lanes: list[str], operations: list[Operation]) -> None:
        names = [o.intrinsic.name for o in operations]
        single = all(e == 1 for o in operations for _, e in o.intrinsic.iterators)
        loop, given = lanes[0] if lanes else block, bool(lanes) or single
        held = self._stationary(block, operations)
        if held:  # It is said where calls would hold something else.
            called = tensorize(self.schedule.state, loop, names, self.hardware, lanes=given)
            held = set[str]() if held_by(called, block, self.hardware) == held else held
        self.schedule.tensorize(loop, *names, lanes=given, stationary=sorted(held))

    def _stationary(self, block: str, operations: Sequence[Operation]) -> set[str]:
        """The tensors that units hold for several calls of a block, by the match."""
        state = self.schedule.state
        made = state.site[block].block
        found = set[str]()
        for o in (o for o in operations if o.intrinsic.stationary is not None):
            assert o.intrinsic.stationary is not None
            operands = [x.name for x in o.intrinsic.operands]
            tensor = self.caches.get(o.storages[operands.index(o.intrinsic.stationary.operand)], "")
            reads = [r for r in state.stage[made.stage].reads if r.tensor == tensor]
            if not reads:
                return set()
            found.add(copy_source(state, tensor))
        return found
