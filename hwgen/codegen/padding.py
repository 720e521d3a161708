"""Padding against bank conflicts: rows of a buffer a few entries further apart than they must be.

Where banks are interleaved, a column of a buffer may lie in few of them, or in one. The steps
between neighbours along its dimensions are then chosen anew, each among those that differ modulo
the banks, so that the calls on the buffer take the fewest cycles; of equal ones, the smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from math import prod

from hwgen.codegen.absorption import Absorption
from hwgen.codegen.image_layout import image_layouts
from hwgen.codegen.layout_order import absorbed_call, orders
from hwgen.codegen.walks import Steps
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.scop import Scop
from hwgen.polyhedral.tiling import Align, Tiling
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import BANK_CYCLES, Banks, HardwareSpec

ROUNDS = 2
"""How often each buffer is reconsidered, given the others."""


def padded(scop: Scop, hardware: HardwareSpec, tiling: Tiling) -> Tiling:
    """The tiling with the padding that its calls are fastest with; what the tiling says of a buffer
    stays. Tensors kept for other phases, and buffers without room for padding, stay dense."""
    storages = [
        s.name
        for s in tiling.match.selection.storages
        if not s.shape and _contended(hardware, tiling, s.name)
    ]
    if not storages:
        return tiling
    images = {n: i.steps for n, i in image_layouts(scop, hardware, tiling.match).items()}
    said = {a.storage for a in tiling.aligns}
    best, least = tiling, _cost(hardware, tiling, images)
    for _ in range(ROUNDS if len(storages) > 1 else 1):
        for storage in storages:
            if storage in said:
                continue
            for dimension, extent in enumerate(tiling.box(storage)):
                if extent == 1:
                    continue
                for option in _options(hardware, best, storage, dimension):
                    if not _fits(hardware, option, images):
                        continue
                    cost = _cost(hardware, option, images)
                    if cost < least:
                        best, least = option, cost
    return best


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


def _options(
    hardware: HardwareSpec, tiling: Tiling, storage: str, dimension: int
) -> Iterator[Tiling]:
    """The tiling without an align of a dimension, and with every other one, least padding first."""
    others = tuple(a for a in tiling.aligns if (a.storage, a.dimension) != (storage, dimension))
    plain = replace(tiling, aligns=others)
    yield plain
    banks = _banks(hardware, tiling.match.selection.storage(storage).memory)
    assert banks is not None
    for n in range(banks.ways):
        align = Align(storage, dimension, banks.turn, n * banks.run)
        yield replace(tiling, aligns=tuple(sorted((*others, align))))


def _fits(hardware: HardwareSpec, tiling: Tiling, images: Mapping[str, Steps]) -> bool:
    selection = tiling.match.selection
    steps = orders(tiling, images)
    used: Counter[str] = Counter()
    for storage in selection.storages:
        box, strides = tiling.room(storage.name), steps[storage.name].strides
        slot = sum((b - 1) * s for b, s in zip(box, strides, strict=True))
        used[storage.memory] += tiling.slot[storage.name] * (slot + tiling.match.span(storage.name))
    return all(n <= selection.usable_entries(hardware, memory) for memory, n in used.items())


def _cost(hardware: HardwareSpec, tiling: Tiling, images: Mapping[str, Steps]) -> tuple[float, int]:
    """Cycles of all calls, as if every tile were full and began in the first bank; and padding."""
    steps = orders(tiling, images)
    cycles = 0.0
    for operation in tiling.match.selection.operations:
        absorbed = absorbed_call(tiling, operation, steps, images)
        if absorbed is None:
            return float("inf"), 0
        intrinsic, names = operation.intrinsic, {"iterations": absorbed.iterations}
        names |= dict.fromkeys(("transfer", "bursts", "beats"), 0)
        inner = absorbed.hardware[intrinsic.software_loops :]
        loops = intrinsic.loops[intrinsic.software_loops :]
        names |= {loop.name: w.extent for loop, w in zip(loops, inner, strict=True)}
        if intrinsic.iterations_per_cycle:
            names[BANK_CYCLES] = _served(hardware, operation, absorbed)
        each = evaluate(intrinsic.cycles, names)
        tiles = prod(x.count for x in tiling.loops[: tiling.operation_depth(operation)])
        cycles += each * absorbed.issued * tiles
    size = sum(sum(steps[s.name].strides) for s in tiling.match.selection.storages)
    return cycles, size


def _served(hardware: HardwareSpec, operation: Operation, absorbed: Absorption) -> int:
    """Cycles in which banks serve a call, as if each group of its iterations were the first."""
    intrinsic = operation.intrinsic
    walks = absorbed.hardware
    at_once = intrinsic.iterations_per_cycle
    # The last loop is the fastest.
    group = list(islice(product(*(range(w.extent) for w in walks)), at_once))
    wanted: Counter[tuple[str, str, int]] = Counter()
    ports: dict[tuple[str, str, int], int] = {}
    for position, operand in enumerate(intrinsic.operands):
        banks = hardware.memory[operand.memory].banks
        if banks is None:
            continue
        entries = {
            sum(w.strides[position] * i for w, i in zip(walks, point, strict=True))
            for point in group
        }
        for entry in entries:
            for kind, count in banks.ports(operand.access):
                key = (operand.memory, kind, entry // banks.run % banks.ways)
                wanted[key] += 1
                ports[key] = count
    longest = max((-(-n // ports[key]) for key, n in wanted.items()), default=1)
    return longest * -(-absorbed.iterations // at_once)
