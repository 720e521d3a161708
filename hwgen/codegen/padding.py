"""Padding against bank conflicts: rows of a buffer a few entries further apart than they must be.

Where banks are interleaved, a column of a buffer may lie in few of them, or in one. The steps
between neighbours along its dimensions are then chosen anew, each among those that differ modulo
the banks, so that the calls on the buffer take the fewest cycles; of equal ones, the smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod

from hwgen.codegen.absorption import Absorption
from hwgen.codegen.image_layout import image_layouts
from hwgen.codegen.layout_order import absorbed_call, arranged, orders
from hwgen.codegen.walks import Steps
from hwgen.polyhedral.held import own_storages
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.tiling import Align, Tiling
from hwgen.spec.call_cycles import unhindered
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import BANK_CYCLES, Banks, HardwareSpec

ROUNDS = 2
"""How often each buffer is reconsidered, given the others."""


def padded(scop: Scop, hardware: HardwareSpec, tiling: Tiling) -> Tiling:
    """The tiling with the padding that its calls are fastest with; what the tiling says of a buffer
    stays. Tensors kept for other phases, and buffers without room for padding, stay dense."""
    said = {a.storage for a in tiling.aligns}
    storages = [
        s.name
        for s in tiling.match.selection.storages
        if not s.shape and s.name not in said and _contended(hardware, tiling, s.name)
    ]
    if not storages:
        return tiling
    images = {n: i.steps for n, i in image_layouts(scop, hardware, tiling.match).items()}
    search = _Search(hardware, images, tiling, orders(tiling, images))
    for _ in range(ROUNDS if len(storages) > 1 else 1):
        for storage in storages:
            search.improve(storage)
    # With other steps, another order of coordinates may need fewer calls: it must pay all the same.
    operations = tiling.match.selection.operations
    dense = _cost(hardware, tiling, operations, orders(tiling, images), images)
    steps = orders(search.tiling, images)
    gains = _cost(hardware, search.tiling, operations, steps, images) < dense
    return search.tiling if gains and _free(hardware, search.tiling, steps) else tiling


@dataclass
class _Search:
    """One buffer and one dimension after the other. `tiling`: the best until now; `steps`: of its
    buffers."""

    hardware: HardwareSpec
    images: Mapping[str, Steps]
    tiling: Tiling
    steps: dict[str, Steps]

    def improve(self, storage: str) -> None:
        """Choose the step along each dimension of a buffer."""
        selection = self.tiling.match.selection
        held = selection.storage(storage)
        banks = _banks(self.hardware, held.memory)
        assert banks is not None
        touching = [o for o in selection.operations if storage in o.storages]
        least = _cost(self.hardware, self.tiling, touching, self.steps, self.images)
        strides = self.steps[storage].strides
        order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
        for dimension in reversed(order):
            if self.tiling.box(storage)[dimension] == 1:
                continue
            for align in _aligns(storage, dimension, banks):
                if least <= self.best(touching):
                    return
                others = (a for a in self.tiling.aligns if a != self.align(storage, dimension))
                tiling = replace(self.tiling, aligns=tuple(sorted((*others, align))))
                steps = self.steps | {storage: arranged(tiling, held, order)}
                if not _free(self.hardware, tiling, steps):
                    continue
                cost = _cost(self.hardware, tiling, touching, steps, self.images)
                if cost < least:
                    self.tiling, self.steps, least = tiling, steps, cost

    def align(self, storage: str, dimension: int) -> Align | None:
        return self.tiling.align.get((storage, dimension))

    def best(self, operations: Iterable[Operation]) -> float:
        """Their cycles without a conflict."""
        args = (self.hardware, self.tiling, operations, self.steps, self.images)
        return _cost(*args, conflicts=False)


def _banks(hardware: HardwareSpec, memory: str) -> Banks | None:
    banks = hardware.memory[memory].banks
    return banks if banks is not None and banks.ways > 1 else None


def _contended(hardware: HardwareSpec, tiling: Tiling, storage: str) -> bool:
    """Whether calls on a storage may wait for banks."""
    memory = tiling.match.selection.storage(storage).memory
    return _banks(hardware, memory) is not None and any(
        storage in o.storages and o.intrinsic.iterations_per_cycle
        for o in tiling.match.selection.operations
    )


def _aligns(storage: str, dimension: int, banks: Banks) -> Iterable[Align]:
    """Every step that differs modulo the banks."""
    return (Align(storage, dimension, banks.turn, n * banks.run) for n in range(banks.ways))


def _free(hardware: HardwareSpec, tiling: Tiling, steps: Mapping[str, Steps]) -> bool:
    """Whether the buffers have room."""
    selection = tiling.match.selection
    used: Counter[str] = Counter()
    for storage in own_storages(tiling.match):
        box, strides = tiling.room(storage.name), steps[storage.name].strides
        reach = sum((b - 1) * s for b, s in zip(box, strides, strict=True))
        slot = reach + tiling.match.span(storage.name)
        used[storage.memory] += tiling.slot[storage.name] * slot
    return all(n <= selection.usable_entries(hardware, memory) for memory, n in used.items())


def _cost(
    hardware: HardwareSpec,
    tiling: Tiling,
    operations: Iterable[Operation],
    steps: Mapping[str, Steps],
    images: Mapping[str, Steps],
    conflicts: bool = True,
) -> float:
    """Cycles of all calls of some operations, as if every tile were full and every buffer began in
    the first bank."""
    cycles = 0.0
    for operation in operations:
        absorbed = absorbed_call(tiling, operation, steps, images)
        if absorbed is None:
            return float("inf")
        intrinsic, names = operation.intrinsic, {"iterations": absorbed.iterations}
        names |= dict.fromkeys(("transfer", "bursts", "beats"), 0)
        both = zip(intrinsic.loops, absorbed.hardware, strict=True)
        names |= {loop.name: w.extent for loop, w in both if not loop.software}
        names |= unhindered(intrinsic, absorbed.iterations)
        if conflicts and intrinsic.iterations_per_cycle:
            names[BANK_CYCLES] = _served(hardware, operation, absorbed)
        tiles = prod(x.count for x in tiling.loops[: tiling.operation_depth(operation)])
        cycles += evaluate(intrinsic.cycles, names) * absorbed.issued * tiles
    return cycles


def _served(hardware: HardwareSpec, operation: Operation, absorbed: Absorption) -> int:
    """Cycles in which banks serve a call, as if each group of its iterations were the first."""
    intrinsic, walks = operation.intrinsic, absorbed.hardware
    at_once = intrinsic.iterations_per_cycle
    # The last loop is the fastest.
    group = list(islice(product(*(range(w.extent) for w in walks)), at_once))
    wanted: Counter[tuple[str, str, int]] = Counter()
    ports: dict[tuple[str, str], int] = {}
    for position, operand in enumerate(intrinsic.operands):
        memory = hardware.memory[operand.memory]
        banks = memory.banks
        if banks is None:
            continue
        span = operand.span
        steps = [w.strides[position] for w in walks]
        first = {sum(s * i for s, i in zip(steps, point, strict=True)) for point in group}
        entries = {entry + n for entry in first for n in range(span)}
        ways = Counter(entry // banks.run % banks.ways for entry in entries)
        for kind, count in banks.ports(operand.access):
            ports[operand.memory, kind] = count
            for way, times in ways.items():
                wanted[operand.memory, kind, way] += times
    longest = max((-(-n // ports[key[:2]]) for key, n in wanted.items()), default=1)
    return longest * -(-absorbed.iterations // at_once)
