"""What a phase of a kernel does: operations (intrinsics over loops) on storages (held tensors)."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Literal

from hwgen.polyhedral.scop import Reference
from hwgen.spec.affine import Affine
from hwgen.spec.hardware import HardwareSpec, Intrinsic

Kind = Literal["load", "init", "update", "map", "store"]


@dataclass(frozen=True, slots=True)
class Storage:
    """A value kept in one memory. `indices`: the tensor element held, over the group's loops.
    `shape`: the whole tensor's, where it is kept for other phases of the kernel; else ().
    `rank`: dimensions of one entry of the memory."""

    name: str
    memory: str
    tensor: str
    indices: tuple[Affine, ...]
    shape: tuple[int, ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a phase shares with others through memories of the chip. `takes`: tensor and memory of
    what earlier phases left; `leaves`: what it computes for later ones, in `places` (tensor and
    memory) where that is said; `keeps`: inputs that it loads for later ones too. `fetches`: what
    earlier phases stored off chip, to be loaded."""

    takes: tuple[tuple[str, str], ...] = ()
    leaves: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()


NOTHING_SHARED = Sharing()


@dataclass(frozen=True, slots=True)
class There:
    """An element that is in a memory, or that a copy from off-chip memory brings there."""

    ref: Reference
    memory: str
    copy: Intrinsic | None = None
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Apply:
    """An intrinsic applied to operands that are had in some way; `moved`: the element that it
    only moves from one memory on the chip to another."""

    intrinsic: Intrinsic
    operands: tuple[tuple[str, Plan], ...]
    immediates: tuple[tuple[str, int | float], ...]
    cost: float
    moved: Reference | None = None


Plan = There | Apply
"""A way to have a value in a memory: what instruction selection chooses among."""


def rank(plan: Plan) -> float:
    """What makes one plan better than another. Of equals the first is taken, in an order that the
    chip's file does not decide."""
    return round(plan.cost, 9)


@dataclass(frozen=True, slots=True)
class Operation:
    """One intrinsic applied over loops. `storages`: one per operand, in the intrinsic's order.
    `first`: does an update's first iteration, and sets the sums while it does; `wider`: other
    loads of the same, which bring more dimensions of a block in one call."""

    name: str
    statement: str
    kind: Kind
    intrinsic: Intrinsic
    storages: tuple[str, ...]
    immediates: tuple[tuple[str, int | float], ...]
    loops: tuple[str, ...]
    first: Intrinsic | None = None
    wider: tuple[Operation, ...] = ()

    @property
    def written(self) -> str:
        """The storage that it writes."""
        names = [o.name for o in self.intrinsic.operands]
        return self.storages[names.index(self.intrinsic.written.name)]


@dataclass(frozen=True, slots=True)
class Selection:
    """Operations in execution order; `reduction` names the loops inside the accumulation.
    `start`: the element of the input that the accumulation starts from, where there is one.
    `beside`: tensors that other phases hold meanwhile (name, memory, entries);
    `fetches`: tensors whose images the chip itself has written. `ordered`: the accumulation's
    iterations keep the order of the loops in `reduction`."""

    storages: tuple[Storage, ...]
    operations: tuple[Operation, ...]
    spatial: tuple[str, ...]
    reduction: tuple[str, ...]
    beside: tuple[tuple[str, str, int], ...] = ()
    start: tuple[Affine, ...] = ()
    fetches: tuple[str, ...] = ()
    ordered: bool = False

    def storage(self, name: str) -> Storage:
        return next(s for s in self.storages if s.name == name)

    def early(self, operation: Operation) -> bool:
        """Whether an operation comes before the accumulation, which may read what it leaves."""
        names = [o.name for o in self.operations]
        update = next((o.name for o in self.operations if o.kind == "update"), names[0])
        return names.index(operation.name) < names.index(update)

    def in_order(self, operation: Operation) -> bool:
        """Whether an operation's iterations that write the same entries keep their order."""
        return self.ordered and operation.kind == "update"

    def inner(self, operation: Operation) -> bool:
        """Whether an operation runs inside the accumulation's loops."""
        prepares = operation.kind == "map" and not set(operation.loops).isdisjoint(self.reduction)
        return operation.kind == "update" or prepares

    def usable_entries(self, hardware: HardwareSpec, memory: str) -> int:
        """Entries of a memory for this phase's buffers."""
        held = sum(entries for _, where, entries in self.beside if where == memory)
        return len(self.addressable(hardware, memory)) - held

    def addressable(self, hardware: HardwareSpec, memory: str) -> range:
        """Entries of a memory that every operand of the operations can address."""
        reach = [
            (operand.address.minimum, operation.intrinsic.stop(operand))
            for operation in self.operations
            for operand in operation.intrinsic.operands
            if operand.memory == memory
        ]
        low = max((start for start, _ in reach), default=0)
        high = [hardware.memory[memory].capacity_entries, *(stop for _, stop in reach)]
        return range(low, max(low, min(high)))

    def granule(self, storage: str) -> int:
        """A number of entries: every call on a storage begins at a multiple of it."""
        held = self.storage(storage)
        steps = [
            p.address.step
            for o in self.operations
            for p, name in zip(o.intrinsic.operands, o.storages, strict=True)
            if name == storage or (held.shape and p.memory == held.memory)
        ]
        return lcm(*steps)

    def __str__(self) -> str:
        lines = [f"storage {s.name}: {s.memory} holds {s.tensor}" for s in self.storages]
        lines += [
            f"{o.name}: {o.kind} {o.intrinsic.name}({', '.join(o.storages)})"
            + "".join(f" {n}={v}" for n, v in o.immediates)
            for o in self.operations
        ]
        return "\n".join(lines)
