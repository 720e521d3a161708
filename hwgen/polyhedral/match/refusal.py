"""Why lanes are no match, in words for a person."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hwgen.polyhedral.match.operations import Operation
from hwgen.spec.hardware import Intrinsic, Operand


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why lanes are no match."""

    found: str
    allowed: str = "operands whose element depends on the lanes only through their own index"
    repair: str = "index each operand by its own loops, or add an intrinsic for this access"


def operands_in(operation: Operation, storage: str) -> list[Operand]:
    """The operands of an operation that are in one storage."""
    operands = zip(operation.intrinsic.operands, operation.storages, strict=True)
    return [operand for operand, name in operands if name == storage]


def shapes_differ(
    storage: str, one: tuple[Intrinsic, Operand], other: tuple[Intrinsic, Operand]
) -> Refusal:
    """Two intrinsics whose operands cover different blocks of one storage."""
    small, large = sorted((one, other), key=lambda x: prod(x[1].shape))
    told = [f"{o.name} of {i.name}" for i, o in (small, large)]
    shapes = [" x ".join(map(str, o.shape)) or "one element" for _, o in (small, large)]
    return Refusal(
        f"{told[1]} covers blocks of {shapes[1]}, {told[0]} {shapes[0]}, both in {storage}",
        "operands of one shape; only loads may cover single rows of a block",
        f"give {told[0]} the shape {shapes[1]} too, or move the row axis of {large[0].name} "
        f"from `iterators` to `loops`, so that {told[1]} is {shapes[0]}",
    )
