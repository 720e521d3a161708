"""A tiling of a chip with units, made by primitives: what the automatic scheduler does, replayed.

The last stage gets the spatial tile loops; what it needs is computed inside them; the reduction's
tile loops are those of the accumulation; inputs are cached at the depth that the tiling gives.
Loops run tiles, then blocks, then lanes. Stages that stay at the root without an intrinsic are
packed by the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from hwgen.errors import HwgenError
from hwgen.polyhedral.operations import Operation, Storage
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.tiling import Tiling
from hwgen.schedule import Schedule
from hwgen.spec.expression import names
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


def apply_tiling(schedule: Schedule, scop: Scop, tiling: Tiling) -> None:
    """Edit a fresh schedule of the scop's workload into the tiling.

    Raises:
        HwgenError: H419 where primitives cannot say it.
    """
    first = tuple(x.tensor for x in schedule.state.stages)
    apply_tilings(schedule, [PhasePlan(scop, tiling, first)])


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
        loops = self._tile_root()
        results = self._results(loops)
        for storage in self._loaded():
            self._cache(storage, loops)
        self._buffers(results)
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
        return [o for o in self.operations if o.statement == statement.name and o.kind in kinds]

    # Root: the stage that stores

    def _tile_root(self) -> list[str]:
        """Split and order the loops of the last stage; its spatial tile loops, outermost first."""
        s, last = self.schedule, self.final
        tensor = self._stage(last)
        hidden = last.name.endswith("_out") and len(self.scop.statements) > 1
        if self.leaving:
            s.set_scope(tensor, self._target_memory(last))
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
        result: list[tuple[str, str]] = []
        for index, loop in zip(statement.target.indices, loops, strict=True):
            if len(index.names) > 1 or any(c != 1 for _, c in index.terms) or index.constant:
                raise inexpressible("an output is not indexed by plain loops", str(index))
            result += [(n, loop) for n in index.names]
        return result

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
                s.set_scope(tensor, self._target_memory(statement))
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
        loads = [o for o in self.operations if o.kind == "load"]
        found: list[Storage] = []
        for operation in loads:
            name = next(n for n in operation.storages if n in self.tiling.depth)
            found.append(selection.storage(name))
        tensors = [x.tensor for x in found]
        if len(set(tensors)) < len(tensors):
            raise inexpressible("a tensor is loaded in two ways", ", ".join(tensors))
        return found

    def _cache(self, storage: Storage, loops: list[str]) -> None:
        s = self.schedule
        name = s.cache_read(storage.tensor, storage.memory, self._readers(storage))
        depth = self.tiling.depth[storage.name]
        around = loops + self.reduction
        if depth:
            s.compute_at(name, around[depth - 1])
        block = s.state.site[name].block
        inside = self._inside(name)
        blocks: list[str] = []
        rows: list[str] = []
        lanes: list[str] = []
        called = self._called(next(o for o in self.operations if storage.name in o.storages))
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

    def _called(self, operation: Operation) -> set[str]:
        """The loops that are lanes of an operation's calls."""
        return {loop for _, loop in self.tiling.match.lane[operation.name] if loop}

    def _readers(self, storage: Storage) -> tuple[str, ...]:
        """Who reads a cache: all, or this phase alone where others load the tensor themselves."""
        stages = self.schedule.state.readers(storage.tensor)
        mine = {*self.first, self.moved}
        ours = tuple(x.tensor for x in stages if x.tensor in mine)
        return () if storage.shape or len(ours) == len(stages) else ours

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
        slots = self._alike(results, "slots", self.tiling.slot)
        for tensor, count in sorted(slots.items()):
            if count > 1:
                self.schedule.double_buffer(tensor, count)
        self._alike(results, "padding", {name: self._padding(name) for name in self.tiling.slot})
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
        for operation in self.operations:
            if operation.kind == "load":
                name = next(n for n in operation.storages if n in self.caches)
                self._call(self.caches[name], self.lanes[self.caches[name]], [operation])

    def _init_lanes(self, tensor: str) -> list[str]:
        made = self.schedule.state.site[f"{tensor}_init"].names
        return [n for n in made if n.removesuffix("_init") in self.lanes[tensor]]

    def _call(self, block: str, lanes: list[str], operations: list[Operation]) -> None:
        intrinsics = [o.intrinsic.name for o in operations]
        self.schedule.tensorize(lanes[0] if lanes else block, *intrinsics)
