"""Which slots of which buffers different units use at the same time, as far as tilings tell.

The unit that accumulates sets the pace. Meanwhile loads fill the slots of the next iteration, and
what follows the accumulation (stores among others) works on the slots of the iteration before.
Two units that use slots in one bank at once get in each other's way where it has too few ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod

from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import Banks, HardwareSpec

Slot = tuple[str, int]
"""A buffer and one of its slots."""

SAMPLED = 3
"""Iterations from the start of each loop that are looked at, besides its last."""


@dataclass(slots=True)
class _Use:
    """An operation's place in time. `ahead`: iterations at its depth that it is ahead of the unit
    that sets the pace. `once`: loops in whose first iteration alone it runs. `slots`: of each
    storage in the memory, its slots and ports."""

    operation: Operation
    depth: int
    ahead: int
    once: frozenset[str]
    moved: float
    slots: list[tuple[str, int, frozenset[str]]] = field(
        default_factory=list[tuple[str, int, frozenset[str]]]
    )


def overlaps(
    hardware: HardwareSpec, memory: str, tiling: Tiling, names: Mapping[str, str]
) -> dict[tuple[Slot, Slot], float]:
    """By two slots, the smaller first: entries that one unit moves while another uses the other
    slot through the same kind of port. Of one phase's buffers in a memory with banks; `names`: the
    buffer of each storage."""
    banks = hardware.memory[memory].banks
    assert banks is not None
    uses = _uses(tiling, memory, banks)
    found: dict[tuple[Slot, Slot], float] = {}
    points = list(product(*(_sampled(loop.count) for loop in tiling.loops)))
    for one, other in combinations(uses, 2):
        if one.operation.intrinsic.unit == other.operation.intrinsic.unit:
            continue
        if not (one.moved and other.moved):
            continue
        once = one.once | other.once
        meetings = prod(len(_sampled(x.count)) for x in tiling.loops if x.loop not in once)
        weight = min(one.moved, other.moved) / meetings
        for point in points:
            a, b = _at(tiling, one, point), _at(tiling, other, point)
            if a is None or b is None:
                continue
            for (x, i, kinds), (y, j, others) in product(a, b):
                if kinds & others:
                    key = tuple(sorted(((names[x], i), (names[y], j))))
                    pair = (key[0], key[1])
                    found[pair] = found.get(pair, 0.0) + weight
    return dict(sorted(found.items()))


def _sampled(count: int) -> list[int]:
    return sorted({*range(min(count, SAMPLED)), count - 1})


def _uses(tiling: Tiling, memory: str, banks: Banks) -> list[_Use]:
    selection = tiling.match.selection
    pace = next(
        o for kind in ("update", "map", "store") for o in selection.operations if o.kind == kind
    )
    seen = False
    found: list[_Use] = []
    for operation in selection.operations:
        seen = seen or operation is pace
        same = operation.intrinsic.unit == pace.intrinsic.unit
        ahead = 0 if same else 1 if operation.kind == "load" or not seen else -1
        depth = tiling.operation_depth(operation)
        use = _Use(operation, depth, ahead, tiling.once(operation), 0.0)
        for operand, storage in zip(operation.intrinsic.operands, operation.storages, strict=True):
            if operand.memory != memory:
                continue
            slots = tiling.slot[storage]
            kinds = banks.contended(operand.access)
            if kinds:
                use.slots.append((storage, slots, kinds))
            if operation.kind == "load" and (slots == 1 or depth == 0):
                # Nothing of this phase can run beside it: all that follows needs the data.
                use.ahead = 0
            else:
                around = tiling.loops[: tiling.depth[storage]]
                times = prod(loop.count for loop in around if loop.loop not in use.once)
                use.moved = max(use.moved, float(times * tiling.entries(storage)))
        if use.slots and not (operation.kind == "load" and use.ahead == 0 and not same):
            found.append(use)
    return found


def _at(
    tiling: Tiling, use: _Use, point: tuple[int, ...]
) -> list[tuple[str, int, frozenset[str]]] | None:
    """Storages and slots in use while the pace is at a point; None where it does not run then."""
    loops = tiling.loops[: use.depth]
    index = 0
    for position, loop in zip(point, loops, strict=False):
        index = index * loop.count + position
    index += use.ahead
    if not 0 <= index < prod(loop.count for loop in loops):
        return None
    counters: dict[str, int] = {}
    for loop in reversed(loops):
        index, counters[loop.loop] = divmod(index, loop.count)
    if any(counters[name] for name in use.once):
        return None
    found: list[tuple[str, int, frozenset[str]]] = []
    for storage, slots, kinds in use.slots:
        turn = 0
        for loop in tiling.turning(storage):
            turn = turn * loop.count + counters[loop.loop]
        found.append((storage, turn % slots, kinds))
    return found
