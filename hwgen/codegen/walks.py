"""The loops of an operation inside its tile, as steps of its operands: what a call absorbs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hwgen.codegen.absorption import Walk
from hwgen.polyhedral.affine import Affine
from hwgen.polyhedral.operations import Operation
from hwgen.polyhedral.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Steps:
    """Where an operand's blocks lie: coordinates, the step of each, and of each row, in entries."""

    coordinates: tuple[Affine, ...]
    strides: tuple[int, ...]
    rows: tuple[int, ...]


def store_key(operation: Operation, tensor: str, images: Collection[str]) -> str:
    """The key of the image that a store writes: the tensor's name, or one of the operation's own
    where other statements store other parts of the tensor."""
    own = f"{operation.name} {tensor}"
    return own if own in images else tensor


def walks_of(
    tiling: Tiling,
    operation: Operation,
    steps: Mapping[str, Steps],
    depth: int,
    last: frozenset[str] = frozenset(),
) -> list[Walk]:
    """The loops of an operation inside `depth` tile loops, of which those in `last` are at their
    last tile. `steps`: by storage or tensor, as the operation names them."""
    if operation.kind == "load":
        storage = next(s for s in operation.storages if s in tiling.match.coordinate)
        box = tiling.box(storage, last)
        found = [
            Walk(extent, tuple(steps[name].strides[d] for name in operation.storages))
            for d, extent in enumerate(box)
        ]
    else:
        extents = tiling.extents(depth, last)
        found = [
            Walk(extents[loop], tuple(_step(steps[name], loop) for name in operation.storages))
            for loop in operation.loops
        ]
    return [*found, *_rows(tiling, operation, steps)]


def _step(steps: Steps, loop: str) -> int:
    pairs = zip(steps.coordinates, steps.strides, strict=True)
    return sum(c.coefficient(loop) * s for c, s in pairs)


def _rows(tiling: Tiling, operation: Operation, steps: Mapping[str, Steps]) -> list[Walk]:
    """Rows of a block that the operation is applied to one by one."""
    match = tiling.match
    for operand, name in zip(operation.intrinsic.operands, operation.storages, strict=True):
        if name in match.coordinate:
            loose = match.loose_rows(operation, operand.name, name)
            return [
                Walk(extent, tuple(steps[s].rows[row] for s in operation.storages))
                for row, (_, extent) in enumerate(loose)
            ]
    return []
