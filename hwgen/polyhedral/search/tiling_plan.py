"""What a tiling's operations say: which statements they compute, store and load for, and where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.polyhedral.match.operations import Operation, Storage
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.expression import Access


@dataclass
class TilingPlan:
    """A tiling as its operations. `leaves`: tensors that it leaves on the chip for later phases."""

    scop: Scop
    tiling: Tiling
    leaves: tuple[str, ...]

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Those of the match, but for loads of what is read where it lies."""
        made = self.tiling.match.selection.operations
        return tuple(o for o in made if o.kind != "load" or not self.tiling.in_place(o.written))

    @cached_property
    def leaving(self) -> bool:
        """Whether the phase's result stays on the chip."""
        return self.scop.statements[-1].target.tensor in self.leaves

    @cached_property
    def statements(self) -> tuple[ScopStatement, ...]:
        """The statements that have stages: a copy of what stays on the chip has none."""
        return tuple(
            x
            for x in self.scop.statements
            if x.target.tensor not in self.leaves or self.of(x, "update", "map")
        )

    @property
    def final(self) -> ScopStatement:
        """The statement whose stage has the spatial tile loops."""
        return self.statements[-1]

    def of(self, statement: ScopStatement, *kinds: str) -> list[Operation]:
        return [o for o in self._own.get(statement.name, ()) if o.kind in kinds]

    @cached_property
    def _own(self) -> dict[str, list[Operation]]:
        """By statement, its operations that do not load."""
        loads = {o.name for o in self.loads}
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            if operation.name not in loads:
                found.setdefault(operation.statement, []).append(operation)
        return found

    def hidden(self, statement: ScopStatement) -> bool:
        """Whether a statement only stores what another has summed up."""
        return statement.name.endswith("_out") and len(self.scop.statements) > 1

    def stored_memory(self, statement: ScopStatement) -> str:
        """Where what a statement stores is computed."""
        if not self.hidden(statement):
            return self.target_memory(statement)
        summed = statement.reads[0].tensor
        return self.target_memory(
            next(x for x in self.scop.statements if x.target.tensor == summed)
        )

    def target_memory(self, statement: ScopStatement) -> str:
        """Where the last operation on a statement's value leaves it."""
        return self.of(statement, "init", "update", "map")[-1].intrinsic.written.memory

    @cached_property
    def storage(self) -> dict[str, Storage]:
        return {x.name: x for x in self.tiling.match.selection.storages}

    @cached_property
    def loaded(self) -> tuple[Storage, ...]:
        return tuple(self.storage[o.written] for o in self.loads)

    @cached_property
    def loads(self) -> tuple[Operation, ...]:
        """The operations that bring a tensor nearer: from off-chip memory, or between memories."""
        return tuple(o for o in self.operations if o.kind == "load" or self.is_move(o))

    def is_move(self, operation: Operation) -> bool:
        """Whether an operation copies what a statement reads from one memory to another."""
        copies = isinstance(operation.intrinsic.semantics[0].value, Access)
        if (
            operation.kind != "map"
            or not copies
            or not self.storage.keys() >= {*operation.storages}
        ):
            return False
        statement = next(x for x in self.scop.statements if x.name == operation.statement)
        tensors = {self.storage[n].tensor for n in operation.storages}
        into = operation.written
        read = any(
            into in o.storages and o.kind in ("map", "update") and o is not operation
            for o in self.operations
            if o.statement == operation.statement
        )
        own = statement.target.tensor in tensors
        return len(tensors) == 1 and len(operation.storages) == 2 and (read or not own)

    @cached_property
    def sources(self) -> dict[str, str]:
        """The storage that each is loaded from, where that is on the chip."""
        found: dict[str, str] = {}
        for load in self.loads:
            into = load.written
            for held in load.storages:
                if held in self.depths and held != into:
                    found[into] = held
        return found

    @cached_property
    def depths(self) -> frozenset[str]:
        return frozenset(self.tiling.depth)

    def called(self, operation: Operation) -> set[str]:
        """The loops that are lanes of an operation's calls."""
        return {loop for _, loop in self.tiling.match.lane[operation.name] if loop}

    def direct(self, storages: Collection[str], without: str) -> set[str]:
        """The statements whose calls read storages, or what is loaded from these but not through
        another."""
        found = {
            n
            for n in self.depths
            if without not in self.on_the_way(n) and not {*self.on_the_way(n)}.isdisjoint(storages)
        }
        return {
            o.statement
            for o in self.operations
            if not found.isdisjoint(self.inputs.get(o.name, ()))
        }

    def alike_storages(self, storage: Storage) -> set[str]:
        """The storages that the same tensor is loaded into."""
        return {x.name for x in self.loaded if x.tensor == storage.tensor}

    def on_the_way(self, storage: str) -> tuple[str, ...]:
        """A storage and those that it is loaded from, the last one first."""
        found = [storage]
        while found[-1] in self.sources:
            found.append(self.sources[found[-1]])
        return tuple(found)

    @cached_property
    def inputs(self) -> dict[str, frozenset[str]]:
        """By operation that loads nothing, its storages that no other statement's result is in by
        then, or what is loaded there."""
        found: dict[str, frozenset[str]] = {}
        writers: dict[str, set[str]] = {}
        for o in (x for x in self.operations if x not in self.loads):
            free = [n for n in o.storages if writers.get(n, set[str]()) <= {o.statement}]
            found[o.name] = frozenset(map(self._loaded_as, free))
            if o.kind in ("map", "update"):
                writers.setdefault(o.written, set()).add(o.statement)
        return found

    def overwritten(self, storage: str) -> bool:
        """Whether a call that computes writes where a storage is."""
        return any(
            o.written == storage
            for o in self.operations
            if o.kind in ("map", "update") and o not in self.loads
        )

    def takers(self, storages: Collection[str]) -> set[str]:
        """The statements whose calls read storages, or what is loaded from these."""
        return {
            o.statement
            for o in self.operations
            for n in self.inputs.get(o.name, ())
            if not {*self.on_the_way(n)}.isdisjoint(storages)
        }

    def _loaded_as(self, storage: str) -> str:
        """The storage that is loaded where another holds the same tensor in the same memory."""
        held = self.storage.get(storage)
        if held is None or held in self.loaded:
            return storage
        where = held.memory, held.tensor
        return next((x.name for x in self.loaded if (x.memory, x.tensor) == where), storage)

    def moves(self, operation: Operation) -> bool:
        """Whether an operation is to stand in another tile than its own: a load or store of another
        unit than those that compute, with a slot to spare."""
        computing = {o.intrinsic.unit for o in self.operations if o.kind in ("update", "map")}
        onchip = {n for n in operation.storages if n in self.tiling.slot}
        loaded = {n for o in self.operations if o.kind == "load" for n in o.storages}
        if operation.kind == "store" and onchip & loaded:
            return False  # What it reads would have to stay longer than loads let it.
        apart = bool(computing) and operation.intrinsic.unit not in computing
        return apart and all(self.tiling.slot[n] > 1 for n in onchip)

    def stages(self) -> dict[str, str]:
        """The statement in whose stage each buffer that is not loaded lies: that of the first call
        on it. Tensors that stay for other phases have buffers of their own."""
        brought = {o.written for o in self.loads}
        storages = self.tiling.match.selection.storages
        own = {s.name for s in storages if not s.shape and not self.tiling.in_place(s.name)}
        mine = own - brought
        found: dict[str, str] = {}
        for operation in self.operations:
            if operation.kind in ("init", "update", "map"):
                for name in mine.intersection(operation.storages):
                    found.setdefault(name, operation.statement)
        return found


def plan_of(scop: Scop, tiling: Tiling, leaves: tuple[str, ...]) -> TilingPlan:
    """The plan of a tiling. The buffers of one stage get as many slots as each of them has."""
    plan = TilingPlan(scop, tiling, leaves)
    stages = plan.stages()
    slot = dict(tiling.slot)
    for statement in sorted({*stages.values()}):
        mine = sorted(n for n, s in stages.items() if s == statement)
        slot |= dict.fromkeys(mine, min(slot[n] for n in mine))
    return replace(plan, tiling=replace(tiling, slots=tuple(slot.items())))
