"""The order of a buffer's coordinates: the one with the fewest calls, as the steps that hardware
loops take are limited. In doubt, that of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import prod

from hwgen.codegen.absorption import Absorption, Walk, absorb, absorb_in_parts
from hwgen.codegen.walks import Steps, store_key, walks_of
from hwgen.errors import HwgenError
from hwgen.polyhedral.operations import Operation, Storage
from hwgen.polyhedral.tiling import Tiling
from hwgen.spec.hardware import Intrinsic

FREE_STEPS = 64
"""A hardware loop whose steps of an operand have at least so many values leaves its order free."""

MAX_PERMUTED = 5
"""Coordinates of a buffer of which every order is tried."""

ROUNDS = 2
"""How often each buffer's order is reconsidered, given the others'."""


def dense(extents: Sequence[int]) -> tuple[int, ...]:
    """Steps of a dense array, last dimension fastest."""
    return tuple(prod(extents[i + 1 :]) for i in range(len(extents)))


def orders(tiling: Tiling, images: Mapping[str, Steps]) -> dict[str, Steps]:
    """The steps of every storage. `images`: those of the images, by storage or tensor."""
    match = tiling.match
    found: dict[str, Steps] = {}
    for storage in match.selection.storages:
        found[storage.name] = arranged(tiling, storage, tuple(range(len(storage.indices))))
    particular = [s for s in match.selection.storages if _particular(tiling, s)]
    for _ in range(ROUNDS if len(particular) > 1 else 1):
        for storage in particular:
            choices = [
                arranged(tiling, storage, order, apart)
                for apart in _paddings(tiling, storage)
                for order in _permutations(storage)
            ]
            costs = [_cost(tiling, storage, found | {storage.name: c}, images) for c in choices]
            found[storage.name] = choices[costs.index(min(costs))]
    return found


def arranged(
    tiling: Tiling, storage: Storage, order: tuple[int, ...], apart: int | None = None
) -> Steps:
    """Steps of a box, coordinates in an order, each block's rows inside; dense where no align of
    the tiling says otherwise. All but the innermost `apart` coordinates move by multiples of what
    addresses are counted in; left out: none need to."""
    match, box = tiling.match, tiling.room(storage.name)
    strides = [0] * len(box)
    inside = match.span(storage.name)
    granule = 1 if apart is None else match.selection.granule(storage.name)
    for n, d in enumerate(reversed(order)):
        align = tiling.align.get((storage.name, d))
        strides[d] = inside if align is None else align.step(inside)
        if apart is not None and n >= apart:
            strides[d] = -(-strides[d] // granule) * granule
        inside = strides[d] * box[d]
    rows = dense([extent for _, extent in match.rows(storage.name)])
    return Steps(match.coordinate[storage.name], tuple(strides), rows)


def _paddings(tiling: Tiling, storage: Storage) -> Sequence[int | None]:
    """Ways to let calls begin where addresses may: dense, then rows of more and more coordinates
    apart."""
    rank = len(storage.indices)
    if tiling.match.span(storage.name) % tiling.match.selection.granule(storage.name) == 0:
        return (None,)
    return (None, *reversed(range(rank)))


def _permutations(storage: Storage) -> Iterator[tuple[int, ...]]:
    """The tensor's order first."""
    rank = len(storage.indices)
    if rank <= MAX_PERMUTED:
        yield from permutations(range(rank))
        return
    for d in reversed(range(rank)):
        yield (*(n for n in range(rank) if n != d), d)


def _particular(tiling: Tiling, storage: Storage) -> bool:
    """Whether some hardware loop takes few steps of the storage. What is kept for other phases has
    the tensor's order in all of them."""
    if tiling.match.span(storage.name) % tiling.match.selection.granule(storage.name):
        return not storage.shape
    if storage.shape or sum(extent > 1 for extent in tiling.box(storage.name)) < 2:
        return False
    return any(
        _takes_few(operation.intrinsic, operand.name)
        for operation in tiling.match.selection.operations
        for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True)
        if name == storage.name
    )


def _takes_few(intrinsic: Intrinsic, operand: str) -> bool:
    rules = (x.stride(operand) for x in intrinsic.loops if not x.software)
    return any(
        rule.range.maximum > 0
        and not rule.dense_after
        and (rule.range.gaps or rule.range.maximum - rule.range.minimum < FREE_STEPS)
        for rule in rules
    )


def _cost(
    tiling: Tiling, storage: Storage, steps: Mapping[str, Steps], images: Mapping[str, Steps]
) -> float:
    """Calls of all operations on a storage, in all tiles."""
    total = 0.0
    for operation in tiling.match.selection.operations:
        if storage.name in operation.storages:
            total += _calls(tiling, operation, steps, images)
    return total


def _calls(
    tiling: Tiling,
    operation: Operation,
    steps: Mapping[str, Steps],
    images: Mapping[str, Steps],
) -> float:
    walks = _walks(tiling, operation, steps, images)
    if not _begins(tiling, operation, steps):
        return float("inf")
    try:
        parts = absorb_in_parts(operation.intrinsic, walks, ordered=_in_order(tiling, operation))
        issued = sum(p.absorbed.issued for p in parts)
    except HwgenError as error:
        if error.code != "H614":
            raise
        return float("inf")
    depth = tiling.operation_depth(operation)
    return issued * prod(loop.count for loop in tiling.loops[:depth])


def _begins(tiling: Tiling, operation: Operation, steps: Mapping[str, Steps]) -> bool:
    """Whether all tiles of an operation begin where the address fields of its operands may."""
    depth = tiling.operation_depth(operation)
    for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
        if operand.address.step == 1 or name not in steps:
            continue
        around = tiling.loops[tiling.depth[name] : depth]
        held = zip(steps[name].coordinates, steps[name].strides, strict=True)
        moved = [c.coefficient(x.loop) * x.tile * s for c, s in held for x in around]
        if any(m % operand.address.step for m in moved):
            return False
    return True


def absorbed_call(
    tiling: Tiling,
    operation: Operation,
    steps: Mapping[str, Steps],
    images: Mapping[str, Steps],
) -> Absorption | None:
    """The calls of an operation in a full tile, all alike; None where the hardware allows none."""
    try:
        walks = _walks(tiling, operation, steps, images)
        return absorb(operation.intrinsic, walks, ordered=_in_order(tiling, operation))
    except HwgenError as error:
        if error.code != "H614":
            raise
        return None


def _in_order(tiling: Tiling, operation: Operation) -> bool:
    return tiling.match.selection.in_order(operation)


def _walks(
    tiling: Tiling,
    operation: Operation,
    steps: Mapping[str, Steps],
    images: Mapping[str, Steps],
) -> list[Walk]:
    known = dict(images) | dict(steps)
    if operation.kind == "load":
        held = next(s for s in operation.storages if s in steps)
        known |= {s: images[held] for s in operation.storages if s not in steps}
    elif operation.kind == "store":
        stored = [s for s in operation.storages if s not in steps]
        known |= {s: images[store_key(operation, s, images)] for s in stored}
    return walks_of(tiling, operation, known, tiling.operation_depth(operation))
